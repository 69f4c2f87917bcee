//! The cgroup hierarchies as they are mounted here, and the limits in their files: v1, hybrid and v2.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::model::Membership;

/// Limit files of cgroup v2: Documentation/admin-guide/cgroup-v2.rst.
const V2: &[&str] = &[
    "cpu.idle",
    "cpu.max",
    "cpu.max.burst",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.mems",
    "io.max",
    "io.weight",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.oom.group",
    "memory.swap.high",
    "memory.swap.max",
    "pids.max",
];

/// Limit files of cgroup v1 by controller: Documentation/admin-guide/cgroup-v1/.
const V1: &[(&str, &[&str])] = &[
    ("cpu", &["cpu.cfs_burst_us", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.idle", "cpu.shares"]),
    ("cpuset", &["cpuset.cpus", "cpuset.mems"]),
    ("memory", &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes"]),
    ("pids", &["pids.max"]),
];

/// The mounted hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// In front of every mount point.
    root: PathBuf,
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Super block options, the controllers among them; None for cgroup v2.
    v1: Option<Vec<String>>,
    /// The cgroup that is mounted, seen from podlapse's cgroup namespace.
    of: String,
    at: PathBuf,
}

impl Hierarchies {
    /// What is mounted in podlapse's own mount namespace.
    pub fn read() -> Hierarchies {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Hierarchies {
        // Without it no limit is known, as without mounts.
        let text = fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
        // Another's mount point may be any bytes.
        let text = String::from_utf8_lossy(&text);
        Hierarchies { root: root.to_owned(), mounts: text.lines().filter_map(mount).collect() }
    }

    /// The limits of a cgroup by file name, without the line's end. A file that is not there is no limit that is known.
    pub fn limits(&self, memberships: &[Membership]) -> BTreeMap<String, String> {
        let mut limits = BTreeMap::new();
        for Membership { controllers, path } in memberships {
            if controllers.is_empty() {
                self.add(&mut limits, V2, path, |mount| mount.v1.is_none());
            }
            for (controller, files) in V1.iter().filter(|(name, _)| controllers.split(',').any(|own| own == *name)) {
                let has = |mount: &Mount| mount.v1.iter().flatten().any(|option| option == controller);
                self.add(&mut limits, files, path, has);
            }
        }
        limits
    }

    fn add(&self, limits: &mut BTreeMap<String, String>, files: &[&str], path: &str, has: impl Fn(&Mount) -> bool) {
        let Some(dir) = self.mounts.iter().filter(|mount| has(mount)).find_map(|mount| self.dir(mount, path)) else {
            return;
        };
        for file in files {
            if let Ok(value) = fs::read_to_string(dir.join(file)) {
                limits.insert((*file).to_owned(), value.trim_end().to_owned());
            }
        }
    }

    /// The folder of the cgroup `path`.
    fn dir(&self, mount: &Mount, path: &str) -> Option<PathBuf> {
        let dir = self.root.join(mount.at.strip_prefix("/").ok()?).join(below(path, &mount.of)?);
        dir.is_dir().then_some(dir)
    }

    /// The cgroup that a folder is, seen from podlapse's cgroup namespace; of several mounts on each other the last.
    pub fn cgroup(&self, dir: &Path) -> Option<String> {
        let inner = self
            .mounts
            .iter()
            .filter(|mount| dir.starts_with(&mount.at))
            .max_by_key(|mount| mount.at.as_os_str().len())?;
        let rest = dir.strip_prefix(&inner.at).ok()?.to_str()?;
        Some(format!("{}/{rest}", inner.of.trim_end_matches('/')))
    }
}

/// `path` relative to the cgroup `root`, when it is in it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    match rest {
        "" => Some(rest),
        // What is above podlapse's cgroup namespace is not below the namespace's root.
        _ => rest.strip_prefix('/').filter(|rest| !rest.starts_with("..")),
    }
}

/// proc_pid_mountinfo(5): root and mount point are fields 4 and 5, type and super options the first and third after
/// ` - `.
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(3);
    let (of, at) = (fields.next()?.to_owned(), PathBuf::from(fields.next()?));
    let mut fields = right.split(' ');
    let v1 = match fields.next()? {
        "cgroup" => Some(fields.nth(1)?.split(',').map(str::to_owned).collect()),
        "cgroup2" => None,
        _ => return None,
    };
    Some(Mount { v1, of, at })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const POD: &str = "/kubepods/burstable/podx/c";

    fn check(mountinfo: &str, files: &[(&str, &str)], memberships: &[(&str, &str)], want: Expect) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("proc/self/mountinfo", mountinfo);
        for (path, content) in files {
            write(&format!("sys/fs/cgroup/{path}"), content);
        }
        let memberships: Vec<_> = memberships
            .iter()
            .map(|(controllers, path)| Membership { controllers: (*controllers).into(), path: (*path).into() })
            .collect();
        let limits = Hierarchies::below(root.path()).limits(&memberships);
        let text: String = limits.iter().map(|(file, value)| format!("{file} = {value:?}\n")).collect();
        want.assert_eq(&text);
    }

    #[test]
    fn v1_and_hybrid() {
        let mounts = "\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:7 - cgroup cgroup rw,cpuset\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            42 31 0:39 / /proc rw - proc proc rw\n";
        check(
            mounts,
            &[
                ("cpu,cpuacct/kubepods/burstable/podx/c/cpu.shares", "102\n"),
                ("cpu,cpuacct/kubepods/burstable/podx/c/cpu.cfs_quota_us", "-1\n"),
                ("cpuset/kubepods/burstable/podx/c/cpuset.cpus", "\n"),
                ("memory/kubepods/burstable/podx/c/memory.limit_in_bytes", "134217728\n"),
                ("memory/kubepods/burstable/podx/c/memory.usage_in_bytes", "7\n"),
                ("memory/kubepods/burstable/podx/memory.limit_in_bytes", "1\n"),
                ("unified/kubepods/burstable/podx/c/pids.max", "1\n"),
            ],
            // The cgroup2 hierarchy beside them has the process in its root.
            &[("cpu,cpuacct", POD), ("cpuset", POD), ("memory", POD), ("pids", POD), ("name=systemd", POD)],
            expect![[r#"
                cpu.cfs_quota_us = "-1"
                cpu.shares = "102"
                cpuset.cpus = ""
                memory.limit_in_bytes = "134217728"
            "#]],
        );
    }

    #[test]
    fn v2_with_systemd() {
        let path = "/kubepods.slice/kubepods-podx.slice/cri-containerd-c.scope";
        let file = |name: &str| format!("{}/{name}", path.trim_start_matches('/'));
        check(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            &[
                (&file("cpu.max"), "50000 100000\n"),
                (&file("memory.max"), "134217728\n"),
                (&file("memory.high"), "max\n"),
                (
                    &file("io.max"),
                    "8:0 rbps=1048576 wbps=max riops=max wiops=max\n8:16 rbps=1 wbps=max riops=max wiops=max\n",
                ),
                (&file("memory.current"), "9\n"),
            ],
            &[("", path)],
            expect![[r#"
                cpu.max = "50000 100000"
                io.max = "8:0 rbps=1048576 wbps=max riops=max wiops=max\n8:16 rbps=1 wbps=max riops=max wiops=max"
                memory.high = "max"
                memory.max = "134217728"
            "#]],
        );
    }

    #[test]
    fn a_mount_of_a_part() {
        let files = &[("memory.max", "1\n"), ("podx/memory.max", "2\n"), ("kubepods/podx/memory.max", "3\n")];
        let check = |of: &str, path: &str, want: Expect| {
            check(&format!("30 23 0:26 {of} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), files, &[("", path)], want);
        };
        check(
            "/kubepods",
            "/kubepods/podx",
            expect![[r#"
            memory.max = "2"
        "#]],
        );
        check(
            "/kubepods",
            "/kubepods",
            expect![[r#"
            memory.max = "1"
        "#]],
        );
        check("/kubepods", "/other/podx", expect![""]);
        check("/kube", "/kubepods/podx", expect![""]);
        // The whole hierarchy, seen from a cgroup namespace two levels down.
        check(
            "/../..",
            "/../../kubepods/podx",
            expect![[r#"
            memory.max = "3"
        "#]],
        );
        check("/", "/../kubepods/podx", expect![""]);
    }

    #[test]
    fn folders_are_cgroups() {
        let mounts = [("/sys/fs/cgroup/memory", "/"), ("/host/cgroup", "/../..")];
        let mounts = mounts.map(|(at, of)| Mount { v1: None, of: of.into(), at: at.into() });
        let hierarchies = Hierarchies { root: "/".into(), mounts: mounts.into() };
        let cgroup = |dir: &str| hierarchies.cgroup(Path::new(dir));
        assert_eq!(cgroup("/sys/fs/cgroup/memory/kubepods/x").as_deref(), Some("/kubepods/x"));
        assert_eq!(cgroup("/host/cgroup/kubepods/x").as_deref(), Some("/../../kubepods/x"));
        assert_eq!(cgroup("/kubepods/x"), None);
    }
}
