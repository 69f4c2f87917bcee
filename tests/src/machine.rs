//! What a node must not change on its machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The machine's state, one line for each thing.
#[derive(Debug)]
pub struct Machine {
    things: BTreeSet<String>,
}

impl Machine {
    /// Links, mounts, cgroups, `/run`, what CNI and containerd write elsewhere, packages, and
    /// nodes' folders.
    pub fn now() -> Result<Self> {
        let mut things = BTreeSet::new();
        let mut list = |dir: &str, depth| names(Path::new(dir), depth, &mut things);
        list("/sys/class/net", 1);
        // A node's cgroups are all below one at the top of each hierarchy; deeper ones of others come and go.
        list("/sys/fs/cgroup", 2);
        list("/run", 2);
        list("/var/lib", 1);
        list("/var/lib/cni", 2);
        list("/var/log/pods", 1);
        list("/opt", 1);
        list("/etc/cni", 2);
        list("/tmp", 1);
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        things.extend(mounts.lines().map(|line| format!("mount {line}")));
        let packages = fs::read_to_string("/var/lib/dpkg/status").unwrap_or_default();
        things.extend(packages.lines().filter(|line| line.starts_with("Package: ")).map(str::to_owned));
        Ok(Self { things })
    }

    /// Nothing is left of the node, and everything else is as it was.
    pub fn check(&self, dir: &Path, cgroup: &str) -> Result<()> {
        let left = processes(dir, cgroup);
        if !left.is_empty() {
            bail!("processes of the node are left:\n{}", left.join("\n"));
        }
        let now = Self::now()?;
        let mine = |thing: &&String| {
            let own = thing.contains(&*dir.to_string_lossy()) || thing.contains(cgroup);
            own || !foreign(thing)
        };
        let new: Vec<_> = now.things.difference(&self.things).filter(mine).collect();
        let gone: Vec<_> = self.things.difference(&now.things).filter(mine).collect();
        if !new.is_empty() || !gone.is_empty() {
            bail!("the machine is not as it was; new: {new:#?}; gone: {gone:#?}");
        }
        Ok(())
    }

    /// As `check`, for a node whose end nobody could wait for.
    pub fn check_soon(&self, dir: &Path, cgroup: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.check(dir, cgroup) {
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                result => return result,
            }
        }
    }
}

/// Things that another checkout's tests or builds make while this test runs.
fn foreign(thing: &str) -> bool {
    let name = thing.strip_prefix("/tmp/");
    thing.contains("/podlapse-") || name.is_some_and(|name| !name.contains("containerd") && !name.contains("runc"))
}

fn names(dir: &Path, depth: usize, things: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // Files of a cgroup come and go with their folder.
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if folder || !dir.starts_with("/sys/fs/cgroup") {
            things.insert(path.to_string_lossy().into_owned());
        }
        if folder && depth > 1 {
            names(&path, depth - 1, things);
        }
    }
}

/// Processes that belong to the node by their arguments or their cgroup.
fn processes(dir: &Path, cgroup: &str) -> Vec<String> {
    let of_node = |path: PathBuf| {
        let args = fs::read(path.join("cmdline")).ok()?;
        let args = String::from_utf8_lossy(&args).replace('\0', " ");
        let groups = fs::read_to_string(path.join("cgroup")).ok()?;
        let own =
            args.contains(&*dir.to_string_lossy()) || groups.lines().any(|line| line.contains(&format!(":{cgroup}/")));
        own.then(|| format!("{} {args}", path.display()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .filter_map(|entry| of_node(entry.path()))
        .collect()
}
