//! What `/proc` says of the processes that ran before podlapse came. Small readers over a root path; a process that
//! ends meanwhile is simply not there.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::record::Namespaces;

/// A `/proc`.
#[derive(Clone, Debug)]
pub(crate) struct Proc(PathBuf);

impl Default for Proc {
    fn default() -> Self {
        Proc("/proc".into())
    }
}

impl Proc {
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Proc {
        Proc(root.to_owned())
    }

    /// A file of a process.
    pub(crate) fn file(&self, pid: u32, name: &str) -> PathBuf {
        self.0.join(pid.to_string()).join(name)
    }

    /// What a file of a process says. The process itself chooses its name, and whether that is UTF-8.
    pub(crate) fn text(&self, pid: u32, name: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&fs::read(self.file(pid, name)).ok()?).into_owned())
    }

    /// How many mounts the process sees; their list, of which a broken node has megabytes, is not kept.
    pub(crate) fn mounts(&self, pid: u32) -> Option<u64> {
        let lines = BufReader::new(fs::File::open(self.file(pid, "mountinfo")).ok()?).split(b'\n');
        lines.map(|line| line.ok().map(|_| 1)).sum()
    }

    /// The processes that are there.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Parent of each process.
    pub(crate) fn parents(&self) -> HashMap<u32, u32> {
        self.pids().into_iter().filter_map(|pid| Some((pid, self.parent(pid)?))).collect()
    }

    /// Parent of a process.
    pub(crate) fn parent(&self, pid: u32) -> Option<u32> {
        self.stat(pid)?.get(1)?.parse().ok()
    }

    /// proc_pid_stat(5) from field 3, the state, on: the name before it is in parentheses and may itself hold some.
    pub(crate) fn stat(&self, pid: u32) -> Option<Vec<String>> {
        let stat = self.text(pid, "stat")?;
        Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
    }

    /// When it was created, in nanoseconds of the boot's clock (CLOCK_BOOTTIME); the kernel says it in ticks.
    pub(crate) fn started(&self, pid: u32) -> Option<u64> {
        let ticks: u64 = self.stat(pid)?.get(19)?.parse().ok()?;
        Some(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// The variables of its environment whose names begin with `CNI_`; nothing else of it is kept.
    pub(crate) fn cni(&self, pid: u32) -> Vec<(String, String)> {
        let raw = fs::read(self.file(pid, "environ")).unwrap_or_default();
        let named = raw.split(|byte| *byte == 0).filter(|pair| pair.starts_with(b"CNI_"));
        let pairs = named.filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Arguments.
    pub(crate) fn argv(&self, pid: u32) -> Vec<String> {
        let raw = fs::read(self.file(pid, "cmdline")).unwrap_or_default();
        let whole = raw.strip_suffix(&[0]).unwrap_or(&raw);
        if whole.is_empty() {
            return Vec::new();
        }
        whole.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Path of the executable.
    pub(crate) fn exe(&self, pid: u32) -> String {
        self.link(pid, "exe").unwrap_or_default()
    }

    /// Path of the cgroup in the default hierarchy, or else in the pids or memory one.
    pub(crate) fn cgroup(&self, pid: u32) -> String {
        let all = self.cgroups(pid).unwrap_or_default();
        let of = |wanted: &str| all.iter().find(|(names, _)| names.split(',').any(|name| name == wanted));
        // With v1 controllers the default hierarchy is often left alone: its path is then the root's.
        let found = of("").filter(|(_, path)| path != "/").or_else(|| of("pids")).or_else(|| of("memory"));
        found.or_else(|| of("")).map(|(_, path)| path.clone()).unwrap_or_default()
    }

    /// cgroups(7), `/proc/PID/cgroup`: controllers and path in each hierarchy.
    pub(crate) fn cgroups(&self, pid: u32) -> Option<Vec<(String, String)>> {
        let membership = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            Some((controllers.to_owned(), path.to_owned()))
        };
        Some(self.text(pid, "cgroup")?.lines().filter_map(membership).collect())
    }

    /// Inode numbers of the namespaces; 0 where unreadable.
    pub(crate) fn namespaces(&self, pid: u32) -> Namespaces {
        let of = |name| self.namespace(pid, name);
        Namespaces {
            mnt: of("mnt"),
            net: of("net"),
            ipc: of("ipc"),
            uts: of("uts"),
            pid: of("pid_for_children"),
            user: of("user"),
        }
    }

    /// Inode number of the namespace that a link in `ns` names; 0 where unreadable.
    pub(crate) fn namespace(&self, pid: u32, name: &str) -> u32 {
        let link = self.link(pid, &format!("ns/{name}")).unwrap_or_default();
        link.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')?.parse().ok()).unwrap_or(0)
    }

    /// Descriptors that are sockets, with the socket's inode number.
    pub(crate) fn sockets(&self, pid: u32) -> std::io::Result<Vec<(i32, u64)>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir(self.file(pid, "fd"))?.flatten() {
            let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let inode = fs::read_link(entry.path()).ok().and_then(|link| socket_inode(&link));
            if let (Some(fd), Some(inode)) = (fd, inode) {
                sockets.push((fd, inode));
            }
        }
        sockets.sort_unstable();
        Ok(sockets)
    }

    /// The socket's inode number behind a descriptor.
    pub(crate) fn socket(&self, pid: u32, fd: i32) -> Option<u64> {
        socket_inode(&fs::read_link(self.file(pid, &format!("fd/{fd}"))).ok()?)
    }

    fn link(&self, pid: u32, name: &str) -> Option<String> {
        Some(fs::read_link(self.file(pid, name)).ok()?.to_string_lossy().into_owned())
    }
}

fn socket_inode(link: &Path) -> Option<u64> {
    let name = link.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::Proc;

    #[test]
    fn a_small_proc_is_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("42");
        fs::create_dir_all(dir.join("ns")).unwrap();
        fs::create_dir_all(dir.join("fd")).unwrap();
        let stat = b"42 (a) \xff) S 7 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("cmdline"), b"runc\0create\0\0").unwrap();
        fs::write(dir.join("environ"), b"TOKEN=s3cret\0CNI_COMMAND=ADD\0CNI_ARGS=A=1;B=2\0XCNI_=no\0CNI_\0").unwrap();
        fs::write(dir.join("cgroup"), "12:cpu,cpuacct:/a\n3:pids:/b\n0::/\n").unwrap();
        fs::write(dir.join("mountinfo"), b"1 0 0:1 / / rw\n2 1 0:2 / /a\xff rw\n").unwrap();
        symlink("/usr/sbin/runc", dir.join("exe")).unwrap();
        symlink("mnt:[4026531840]", dir.join("ns/mnt")).unwrap();
        symlink("socket:[77]", dir.join("fd/3")).unwrap();
        symlink("/dev/null", dir.join("fd/0")).unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.parents(), [(42, 7)].into());
        assert_eq!(proc.argv(42), ["runc", "create", ""]);
        assert_eq!(proc.started(42), Some(47_110_000_000));
        let cni = [("CNI_COMMAND", "ADD"), ("CNI_ARGS", "A=1;B=2")];
        assert_eq!(proc.cni(42), cni.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(proc.exe(42), "/usr/sbin/runc");
        assert_eq!(proc.cgroup(42), "/b");
        assert_eq!((proc.mounts(42), proc.mounts(41)), (Some(2), None));
        assert_eq!(proc.namespaces(42).mnt, 4026531840);
        assert_eq!(proc.namespaces(42).net, 0);
        assert_eq!(proc.sockets(42).unwrap(), [(3, 77)]);
        assert_eq!(proc.socket(42, 0), None);
        assert!(proc.sockets(43).is_err());
        assert_eq!(proc.argv(43), [""; 0]);
        assert!(proc.started(43).is_none() && proc.cni(43).is_empty());
    }
}
