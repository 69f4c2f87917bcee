//! What the kernel has, from the files that say so below a root folder.

use std::fs;
use std::path::Path;

use super::report::Check;

/// Oldest kernel that podlapse supports.
const OLDEST: (u32, u32) = (5, 10);

pub(super) fn checks(root: &Path) -> Vec<Check> {
    let mut checks = vec![release(root), btf(root), tracefs(root)];
    checks.extend(lockdown(root));
    checks
}

fn release(root: &Path) -> Check {
    let Ok(release) = fs::read_to_string(root.join("proc/sys/kernel/osrelease")) else {
        return Check::warn("kernel", "unknown: /proc/sys/kernel/osrelease is not readable", "mount /proc");
    };
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST => {
            Check::bad("kernel", release, format!("podlapse needs Linux {}.{} or later", OLDEST.0, OLDEST.1))
        }
        _ => Check::ok("kernel", release),
    }
}

fn btf(root: &Path) -> Check {
    const PATH: &str = "sys/kernel/btf/vmlinux";
    match fs::metadata(root.join(PATH)) {
        Ok(found) => Check::ok("btf", format!("/{PATH}, {} KiB", found.len() / 1024)),
        Err(error) => Check::bad(
            "btf",
            format!("/{PATH}: {error}"),
            "podlapse needs a kernel built with CONFIG_DEBUG_INFO_BTF=y, and /sys mounted",
        ),
    }
}

/// `events/` is there where tracefs is mounted.
fn tracefs(root: &Path) -> Check {
    for path in ["sys/kernel/tracing", "sys/kernel/debug/tracing"] {
        match fs::metadata(root.join(path).join("events")) {
            Ok(_) => return Check::ok("tracefs", format!("/{path}")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Check::bad("tracefs", format!("/{path}: {error}"), "run podlapse as root");
            }
            Err(_) => {}
        }
    }
    if root.join("sys/kernel/tracing").is_dir() {
        Check::ok("tracefs", "not mounted; podlapse mounts it in a mount namespace of its own")
    } else {
        Check::bad(
            "tracefs",
            "/sys/kernel/tracing is missing",
            "podlapse needs a kernel with CONFIG_FTRACE=y, and /sys mounted",
        )
    }
}

/// Under confidentiality lockdown no BPF program may read kernel memory.
fn lockdown(root: &Path) -> Option<Check> {
    let modes = fs::read_to_string(root.join("sys/kernel/security/lockdown")).ok()?;
    let mode = modes.split('[').nth(1)?.split(']').next()?;
    Some(match mode {
        "confidentiality" => Check::bad(
            "lockdown",
            mode,
            "BPF programs may not read kernel memory in this mode: boot with lockdown=integrity or none",
        ),
        _ => Check::ok("lockdown", mode),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    fn check(files: &[(&str, &str)], want: &[(&str, Level)]) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let got: Vec<_> = checks(root.path()).into_iter().map(|check| (check.name, check.level)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn a_kernel_that_has_all() {
        check(
            &[
                ("proc/sys/kernel/osrelease", "5.10.0-9-amd64\n"),
                ("sys/kernel/btf/vmlinux", "btf"),
                ("sys/kernel/tracing/events/enable", ""),
                ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
            ],
            &[("kernel", Level::Ok), ("btf", Level::Ok), ("tracefs", Level::Ok), ("lockdown", Level::Ok)],
        );
    }

    #[test]
    fn a_kernel_that_has_nothing() {
        check(
            &[
                ("proc/sys/kernel/osrelease", "5.9.16\n"),
                ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"),
            ],
            &[("kernel", Level::Bad), ("btf", Level::Bad), ("tracefs", Level::Bad), ("lockdown", Level::Bad)],
        );
        check(&[], &[("kernel", Level::Warn), ("btf", Level::Bad), ("tracefs", Level::Bad)]);
    }
}
