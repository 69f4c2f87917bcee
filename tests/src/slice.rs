//! Pod cgroups with the systemd driver: kubelet asks PID 1 over D-Bus for a slice, and never makes a directory itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The cgroup parent of a burstable pod, as kubelet passes it to the runtime.
pub fn of_pod(uid: &str) -> String {
    let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
    format!("/kubepods.slice/kubepods-burstable.slice/{slice}")
}

/// Has PID 1 make the slice, limited as kubelet limits a pod of 500m and 128Mi.
pub fn create(path: &str) -> Result<()> {
    let properties = ["DefaultDependencies", "b", "false", "CPUQuotaPerSecUSec", "t", "500000"];
    let memory = ["MemoryMax", "t", "134217728"];
    manager(
        "StartTransientUnit",
        &[&["ssa(sv)a(sa(sv))", name(path), "replace", "3"], &properties[..], &memory, &["0"]].concat(),
    )?;
    wait(path, true)
}

/// Has PID 1 remove it.
pub fn remove(path: &str) -> Result<()> {
    manager("StopUnit", &["ss", name(path), "replace"])?;
    wait(path, false)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn manager(method: &str, arguments: &[&str]) -> Result<()> {
    let mut call = Command::new("busctl");
    call.args(["--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]);
    let output = call
        .args(["org.freedesktop.systemd1.Manager", method])
        .args(arguments)
        .output()
        .context("cannot run busctl: is systemd PID 1 here?")?;
    ensure!(output.status.success(), "{method} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The reply comes when the job is queued.
fn wait(path: &str, there: bool) -> Result<()> {
    let dir = Path::new("/sys/fs/cgroup").join(PathBuf::from(path.trim_start_matches('/')));
    let deadline = Instant::now() + Duration::from_secs(30);
    while dir.exists() != there {
        if Instant::now() > deadline {
            bail!("after 30 s {} is {}there", dir.display(), if there { "not " } else { "still " });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn slice_of_a_pod() {
        let path = super::of_pod("9b0b4c27-2ff2");
        assert_eq!(path, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod9b0b4c27_2ff2.slice");
        assert_eq!(super::name(&path), "kubepods-burstable-pod9b0b4c27_2ff2.slice");
    }
}
