//! The processes of this node, read from `/proc` in one go.

use std::collections::BTreeMap;

use super::model::Membership;
use super::place::place;
use crate::ids::{ContainerId, Tgid};
use crate::probe::{Proc, is_shim};
use crate::record::Namespaces;

/// Processes that are read in one go; that takes a millisecond or two.
const GENTLE: usize = 32;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its parent.
    pub parent: Tgid,
    /// Its pids: in podlapse's pid namespace, then in each one below that it is in.
    pub ns_pids: Vec<u32>,
    /// Its cgroups.
    pub cgroups: Vec<Membership>,
    /// Its namespaces; 0 where unreadable.
    pub namespaces: Namespaces,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// What it says of itself when it is a shim.
    pub shim: Option<Shim>,
}

/// A shim's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shim {
    /// `-id`: the sandbox that it was started for.
    pub id: Option<String>,
    /// `-address`: the socket of its containerd.
    pub address: Option<String>,
}

/// All processes that are visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    all: BTreeMap<Tgid, Process>,
    /// By the containers that their cgroups name.
    members: BTreeMap<ContainerId, Vec<Tgid>>,
}

impl Processes {
    /// Reads `/proc`.
    pub fn read() -> Processes {
        Self::of(&Proc::default())
    }

    /// Reads `/proc` beside other work of this thread.
    pub(super) async fn read_gently() -> Processes {
        let (proc, mut found) = (Proc::default(), Vec::new());
        for pids in proc.pids().chunks(GENTLE) {
            found.extend(pids.iter().filter_map(|pid| Some((Tgid(*pid), process(&proc, *pid)?))));
            tokio::task::yield_now().await;
        }
        found.into_iter().collect()
    }

    fn of(proc: &Proc) -> Processes {
        proc.pids().into_iter().filter_map(|pid| Some((Tgid(pid), process(proc, pid)?))).collect()
    }

    /// One process.
    pub fn get(&self, pid: Tgid) -> Option<&Process> {
        self.all.get(&pid)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Tgid, &Process)> {
        self.all.iter().map(|(pid, process)| (*pid, process))
    }

    /// Those in a container's cgroup or below it.
    pub fn members(&self, id: &ContainerId) -> &[Tgid] {
        self.members.get(id).map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<(Tgid, Process)> for Processes {
    fn from_iter<I: IntoIterator<Item = (Tgid, Process)>>(processes: I) -> Processes {
        let all: BTreeMap<_, _> = processes.into_iter().collect();
        let mut members: BTreeMap<ContainerId, Vec<Tgid>> = BTreeMap::new();
        for (pid, process) in &all {
            let containers = process.cgroups.iter().flat_map(|group| place(&group.path).containers);
            for named in containers {
                let of = members.entry(named.id).or_default();
                // Ascending pids: the same one again is another hierarchy.
                if of.last() != Some(pid) {
                    of.push(*pid);
                }
            }
        }
        Processes { all, members }
    }
}

/// What `/proc/PID/stat` says.
struct Stat {
    alive: bool,
    parent: u32,
    /// Ticks since boot; with the pid it names one process for good.
    started: u64,
}

/// None: it has ended, or ended while it was read.
fn process(proc: &Proc, pid: u32) -> Option<Process> {
    let stat = stat(proc, pid).filter(|stat| stat.alive)?;
    let text = |name| proc.text(pid, name);
    let argv = proc.argv(pid);
    let process = Process {
        parent: Tgid(stat.parent),
        ns_pids: ns_pids(&text("status")?),
        cgroups: proc.cgroups(pid)?.into_iter().map(membership).collect(),
        // Its own pid namespace, not that of its children.
        namespaces: Namespaces { pid: proc.namespace(pid, "pid"), ..proc.namespaces(pid) },
        oom_score_adj: text("oom_score_adj").and_then(|text| text.trim().parse().ok()),
        shim: argv.first().is_some_and(|word| is_shim(word)).then(|| shim(&argv)),
    };
    // The same process still, not another with its pid.
    self::stat(proc, pid).is_some_and(|now| now.alive && now.started == stat.started).then_some(process)
}

/// proc_pid_stat(5): state is field 3, ppid 4, starttime 22.
fn stat(proc: &Proc, pid: u32) -> Option<Stat> {
    let fields = proc.stat(pid)?;
    let alive = !matches!(fields.first()?.as_str(), "Z" | "X");
    Some(Stat { alive, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

fn ns_pids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn membership((controllers, path): (String, String)) -> Membership {
    // What was removed while a process is in it.
    let path = path.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(path);
    Membership { controllers, path }
}

fn shim(argv: &[String]) -> Shim {
    let after = |flag: &str| argv.iter().skip_while(|word| *word != flag).nth(1).cloned();
    Shim { id: after("-id"), address: after("-address") }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn add(root: &Path, pid: u32, state: &str, cgroup: &str, argv: &[u8]) {
        let dir = root.join(pid.to_string());
        fs::create_dir_all(dir.join("ns")).unwrap();
        // The name of a process is any bytes.
        let rest = format!("{state} 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0");
        fs::write(dir.join("stat"), [format!("{pid} (a) ").as_bytes(), b"\xff) ", rest.as_bytes()].concat()).unwrap();
        fs::write(dir.join("status"), format!("Name:\ta\nNSpid:\t{pid}\t1\n")).unwrap();
        fs::write(dir.join("cgroup"), cgroup).unwrap();
        fs::write(dir.join("oom_score_adj"), "-998\n").unwrap();
        fs::write(dir.join("cmdline"), argv).unwrap();
        symlink("pid:[40]", dir.join("ns/pid")).unwrap();
        symlink("pid:[41]", dir.join("ns/pid_for_children")).unwrap();
    }

    #[test]
    fn a_small_proc_is_read() {
        let root = tempfile::tempdir().unwrap();
        let id = "a".repeat(64);
        let groups =
            format!("5:memory:/kubepods/podabcdef01/{id}\n3:pids:/kubepods/podabcdef01/{id}/x (deleted)\n0::/\n");
        add(root.path(), 42, "S", &groups, b"sh\0-c\0true\0");
        add(root.path(), 43, "Z", &groups, b"");
        add(
            root.path(),
            44,
            "S",
            "0::/system.slice\n",
            b"/bin/containerd-shim-runc-v2\0-namespace\0k8s.io\0-id\0ab\0-address\0/s\0",
        );
        fs::create_dir(root.path().join("45")).unwrap();
        let processes = Processes::of(&Proc::at(root.path()));
        assert_eq!(processes.iter().map(|(pid, _)| pid.0).collect::<Vec<_>>(), [42, 44]);
        let process = processes.get(Tgid(42)).unwrap();
        assert_eq!((process.parent, &*process.ns_pids, process.oom_score_adj), (Tgid(7), &[42, 1][..], Some(-998)));
        assert_eq!((process.namespaces.pid, process.namespaces.net), (40, 0));
        assert_eq!(process.cgroups[1].path, format!("/kubepods/podabcdef01/{id}/x"));
        assert_eq!(process.shim, None);
        assert_eq!(processes.members(&ContainerId(id)), [Tgid(42)]);
        assert_eq!(processes.members(&ContainerId("b".repeat(64))), []);
        let shim = processes.get(Tgid(44)).unwrap().shim.as_ref().unwrap();
        assert_eq!((shim.id.as_deref(), shim.address.as_deref()), (Some("ab"), Some("/s")));
    }
}
