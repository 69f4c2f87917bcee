//! Cgroups of a node, in every mounted hierarchy: v1, hybrid or v2.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Hierarchy {
    mount: PathBuf,
    v2: bool,
}

/// Makes the cgroup `path` (absolute, as in `cgroup_parent`) and its parents in every hierarchy.
pub fn create(path: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut dir = hierarchy.mount.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = dir.clone();
            dir.push(part);
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot make cgroup {}", dir.display()));
                }
                _ => inherit(&hierarchy, &parent, &dir)?,
            }
        }
    }
    Ok(())
}

/// A new v1 cpuset is empty and takes no process; a new v2 cgroup has no controllers.
fn inherit(hierarchy: &Hierarchy, parent: &Path, dir: &Path) -> Result<()> {
    if hierarchy.v2 {
        for controller in fs::read_to_string(parent.join("cgroup.controllers"))?.split_whitespace() {
            // The parent holds processes, or the controller is used in v1: both are fine.
            let _ = write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
        return Ok(());
    }
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = dir.join(file);
        if fs::read_to_string(&own).is_ok_and(|value| value.trim().is_empty()) {
            write(&own, fs::read_to_string(parent.join(file))?.trim())
                .with_context(|| format!("cannot fill {}", own.display()))?;
        }
    }
    Ok(())
}

/// Moves this process into `path` of the hierarchy that tracks processes and limits nothing.
pub fn join(path: &str) -> Result<()> {
    let all = hierarchies()?;
    let hierarchy = all
        .iter()
        .find(|hierarchy| hierarchy.mount.ends_with("pids"))
        .or_else(|| all.iter().find(|hierarchy| hierarchy.v2))
        .context("neither the pids controller nor cgroup2 is mounted")?;
    let procs = hierarchy.mount.join(path.trim_start_matches('/')).join("cgroup.procs");
    write(&procs, "0").with_context(|| format!("cannot join {}", procs.display()))
}

/// The cgroup2 mount beside v1 hierarchies, when it has controllers of its own: crun does not run
/// there ("cgroups in hybrid mode not supported").
pub fn hybrid() -> Result<Option<PathBuf>> {
    let all = hierarchies()?;
    if all.iter().all(|hierarchy| hierarchy.v2) {
        return Ok(None);
    }
    let v2 = all.into_iter().find(|hierarchy| hierarchy.v2);
    Ok(v2.map(|hierarchy| hierarchy.mount).filter(|mount| {
        fs::read_to_string(mount.join("cgroup.controllers")).is_ok_and(|controllers| !controllers.trim().is_empty())
    }))
}

/// Kills what runs in `path` and below, except this process, until nothing does.
pub fn kill(path: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut alive = false;
        for dir in dirs(path)? {
            // Gone between listing and reading: nothing runs in it.
            let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            for pid in procs.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                if pid != getpid() && !zombie(pid) {
                    alive = true;
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        if !alive {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("processes of cgroup {path} do not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A v1 cgroup lists a process until its parent has waited for it.
fn zombie(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

/// Removes `path` and everything below it, from every hierarchy.
pub fn remove(path: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut last = None;
        for dir in dirs(path)? {
            match fs::remove_dir(&dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    last = Some(format!("cannot remove cgroup {}: {error}", dir.display()));
                }
                _ => {}
            }
        }
        match last {
            None => return Ok(()),
            Some(error) if Instant::now() > deadline => bail!(error),
            // A process that was killed is still leaving.
            Some(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The folders of `path` in every hierarchy, children before parents.
fn dirs(path: &str) -> Result<Vec<PathBuf>> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&entry.path(), found);
            }
        }
        found.push(dir.to_path_buf());
    }
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        let dir = hierarchy.mount.join(path.trim_start_matches('/'));
        if dir.is_dir() {
            walk(&dir, &mut found);
        }
    }
    Ok(found)
}

fn write(file: &Path, value: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

fn hierarchies() -> Result<BTreeSet<Hierarchy>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let found = parse_mountinfo(&text);
    if found.is_empty() {
        bail!("no cgroup hierarchy is mounted");
    }
    Ok(found)
}

/// proc_pid_mountinfo(5): the mount point is the fifth field, the type the first after ` - `.
fn parse_mountinfo(text: &str) -> BTreeSet<Hierarchy> {
    let hierarchy = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let v2 = match right.split(' ').next()? {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        Some(Hierarchy { mount: left.split(' ').nth(4)?.into(), v2 })
    };
    text.lines().filter_map(hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo() {
        let text = "29 23 0:25 / /sys/fs/cgroup/pids rw shared:9 - cgroup cgroup rw,pids\n\
            30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            31 23 0:27 / /proc rw - proc proc rw\n";
        let found: Vec<_> = parse_mountinfo(text).into_iter().collect();
        let want = [
            Hierarchy { mount: "/sys/fs/cgroup/pids".into(), v2: false },
            Hierarchy { mount: "/sys/fs/cgroup/unified".into(), v2: true },
        ];
        assert_eq!(found, want);
    }
}
