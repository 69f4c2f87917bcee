//! The guest's files: busybox, podlapse and `podlapse-guest` with their shared libraries, and an `init`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cpio::Cpio;
use crate::sh;

/// No tracefs: podlapse copes by itself. The lines around each backend's verdict are what [`super::verdict`] looks for on
/// the console. What hangs is ended, and the kernel says where its tasks are.
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
bounded() {
    timeout -s KILL 150 \"$@\" && return
    code=$?
    [ $code = 137 ] && echo 8 > /proc/sysrq-trigger && echo t > /proc/sysrq-trigger && sleep 5
    return $code
}
for backend in tracepoint trampoline; do
    bounded podlapse doctor --hooks --backend $backend -o json > /tmp/verdict
    code=$?
    echo
    echo podlapse-vm-begin $(uname -r) $backend
    cat /tmp/verdict
    echo
    echo podlapse-vm-end $code
    bounded podlapse-guest payload $backend > /tmp/payload 2>&1
    echo podlapse-vm-payload $? $(tail -n 1 /tmp/payload)
done
poweroff -f
";

/// The archive for a kernel of the same architecture as this machine.
pub(super) fn build(busybox: &Path, programs: &[PathBuf]) -> Result<Vec<u8>> {
    let mut files = vec![(PathBuf::from("/bin/busybox"), read(busybox)?)];
    let mut shared = BTreeSet::new();
    for program in programs {
        let name = program.file_name().context("a program without a name")?;
        files.push((Path::new("/bin").join(name), without_debug_info(program)?));
        shared.extend(libraries(program)?);
    }
    for library in shared {
        let data = read(&library)?;
        files.push((library, data));
    }

    let mut cpio = Cpio::default();
    let mut dirs: BTreeSet<PathBuf> = ["/dev", "/proc", "/sys", "/run", "/tmp"].map(PathBuf::from).into();
    dirs.extend(files.iter().flat_map(|(path, _)| path.ancestors().skip(1).map(Path::to_path_buf)));
    // Sorted, so a parent comes before its children.
    for dir in dirs.iter().filter(|dir| dir.parent().is_some()) {
        cpio.dir(&relative(dir));
    }
    cpio.file("init", INIT.as_bytes());
    for (path, data) in &files {
        cpio.file(&relative(path), data);
    }
    Ok(cpio.finish())
}

fn relative(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Debug information is most of a dev build; the guest's memory has better uses.
pub(super) fn without_debug_info(program: &Path) -> Result<Vec<u8>> {
    let stripped = program.with_extension("vm");
    let strip = Command::new("strip").arg("-g").arg("-o").arg(&stripped).arg(program).output();
    match strip {
        Ok(output) if output.status.success() => read(&stripped),
        _ => read(program),
    }
}

/// The shared libraries of a program, its dynamic loader included.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let table = sh::output(Command::new("ldd").arg(program))?;
    Ok(table.lines().filter_map(library).map(PathBuf::from).collect())
}

/// `libc.so.6 => /lib/…/libc.so.6 (0x…)` or `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn library(line: &str) -> Option<&str> {
    let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
    path.starts_with('/').then(|| path.split(" (").next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::library;

    #[test]
    fn lines_of_ldd() {
        assert_eq!(library("\tlinux-vdso.so.1 (0x7ff)"), None);
        assert_eq!(library("\tlibc.so.6 => /lib/libc.so.6 (0x7ff)"), Some("/lib/libc.so.6"));
        assert_eq!(library("\t/lib64/ld-linux.so.2 (0x7ff)"), Some("/lib64/ld-linux.so.2"));
    }
}
