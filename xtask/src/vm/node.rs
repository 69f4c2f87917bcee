//! A whole Debian node in QEMU: systemd as cgroup manager, cgroup v2 alone, containerd as packaged.
//!
//! podlapse and kubelet's part go in on a second disk, and what they wrote comes back on it: `guest.sh` is what runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{initramfs, qemu};
use crate::setup;
use crate::sh;
use crate::workspace::Workspace;

mod check;

/// The guest needs a minute or two; TCG on a loaded machine a few times that.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What a node waits for, and podlapse does not: device events, security profiles, journals on disk.
const MASKED: [&str; 9] = [
    "apparmor.service",
    "modprobe@configfs.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "systemd-journal-flush.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
];

/// The one unit of the boot. The image stays as it is: its disk is a snapshot.
const COMMAND: &str = "systemd.run='/bin/sh -c \"mkdir /podlapse && mount /dev/vdb /podlapse && exec /podlapse/run\"'";

/// Boots the node and checks what podlapse said of its pods; setup and build came before.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let dir = workspace.built("vm/node");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let disk = disk(workspace, &dir)?;
    let log = dir.join("console.log");
    let start = Instant::now();
    let console = boot(workspace, &disk, &log)?;
    let seconds = start.elapsed().as_secs_f64();

    let mut dump = setup::e2fs(&workspace.tools, "debugfs")?;
    sh::output(dump.arg("-R").arg(format!("rdump out \"{}\"", dir.display())).arg(&disk))?;
    let out = dir.join("out");
    let verdict = verdict(&out).with_context(|| {
        let tail: Vec<&str> = console.lines().rev().take(3).collect();
        format!("the node, after {seconds:.0} s; see {} and {} ({tail:?})", out.join("log").display(), log.display())
    })?;
    println!("node: {verdict}, {seconds:.1} s");
    Ok(())
}

/// The disk that goes in: programs, images, configuration, and an empty `out`.
fn disk(workspace: &Workspace, dir: &Path) -> Result<PathBuf> {
    let share = dir.join("share");
    for sub in ["bin", "images", "out"] {
        fs::create_dir_all(share.join(sub))?;
    }
    for program in ["podlapse", "podlapse-guest"] {
        let data = initramfs::without_debug_info(&workspace.built(program))?;
        executable(&share.join("bin").join(program), &data)?;
    }
    executable(&share.join("run"), include_bytes!("node/guest.sh"))?;
    fs::write(share.join("containerd.toml"), include_str!("node/containerd.toml"))?;
    fs::write(share.join("cni.conflist"), include_str!("node/cni.conflist"))?;
    let mut images = std::process::Command::new(workspace.built("podlapse-guest"));
    let busybox = workspace.tools.join("node/bin/busybox");
    sh::output(images.arg("images").arg(share.join("images")).arg("--busybox").arg(busybox))?;

    let disk = dir.join("share.img");
    let mut make = setup::e2fs(&workspace.tools, "mke2fs")?;
    sh::output(make.args(["-q", "-t", "ext4", "-d"]).arg(&share).arg(&disk).arg("256M"))?;
    Ok(disk)
}

fn executable(path: &Path, data: &[u8]) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, data)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn boot(workspace: &Workspace, share: &Path, log: &Path) -> Result<String> {
    let image = workspace.tools.join("vm-node");
    let masked: String = MASKED.iter().map(|unit| format!("systemd.mask={unit} ")).collect();
    let append = format!(
        "console=ttyS0 panic=-1 quiet root=/dev/vda rw systemd.hostname=node {masked}\
         systemd.machine_id=0123456789abcdef0123456789abcdef systemd.condition_needs_update=no \
         systemd.condition_first_boot=no {COMMAND}"
    );
    let mut qemu = qemu::command(workspace);
    qemu.args(["-m", "2G", "-append", &append]);
    qemu.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initrd.img"));
    for (disk, snapshot) in [(image.join("disk.img").as_path(), "on"), (share, "off")] {
        let path = disk.display().to_string().replace(',', ",,");
        qemu.arg("-drive").arg(format!("file={path},format=raw,if=virtio,snapshot={snapshot}"));
    }
    qemu::run(qemu, log, TIMEOUT)
}

fn verdict(out: &Path) -> Result<String> {
    let read = |name: &str| {
        let path = out.join(name);
        fs::read_to_string(&path).with_context(|| format!("the guest left no {}", path.display()))
    };
    let truth = serde_json::from_str(&read("three.truth")?)?;
    check::pods(&serde_json::from_str(&read("pods.json")?)?, &truth).context("what podlapse pods says of pod three")?;
    let mut verdict = vec![read("versions")?.lines().collect::<Vec<_>>().join(", ")];
    let pods = [("demo", "trampoline"), ("three", "trampoline"), ("crun", "tracepoint"), ("late", "trampoline")];
    for (pod, backend) in pods {
        let (traces, truth) = (read(&format!("{pod}.json"))?, read(&format!("{pod}.truth"))?);
        let [trace] = traces.lines().collect::<Vec<_>>()[..] else {
            bail!("{} traces of pod {pod}", traces.lines().count());
        };
        let (trace, truth): (Value, Value) = (serde_json::from_str(trace)?, serde_json::from_str(&truth)?);
        let named = check::start(&trace, &truth).with_context(|| format!("the trace of pod {pod}"))?;
        let by = &trace["node"]["probes"]["socket"];
        ensure!(by == backend, "the sockets of pod {pod} were read by {by}, not {backend}");
        if pod == "late" {
            check::late(&trace).context("the trace of a pod whose client is older than podlapse")?;
        }
        verdict.push(format!("{pod} complete by {backend}s, {named}"));
    }
    verdict.push("podlapse pods agrees".to_owned());
    Ok(verdict.join("; "))
}
