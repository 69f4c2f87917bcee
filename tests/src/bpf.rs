//! What a process holds in the kernel: BPF programs, maps and links by their ids, which never come again.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// `bpf(2)` commands that open something by its id, and how `/proc/PID/fdinfo` calls the id.
const KINDS: [(&str, libc::c_long); 3] = [("prog_id:", 13), ("map_id:", 14), ("link_id:", 30)];

/// An object in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    kind: usize,
    id: u32,
}

/// Everything of that sort that a process holds.
///
/// # Errors
/// When its descriptors cannot be read.
pub fn held(pid: u32) -> Result<Vec<Object>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(Path::new(&dir)).with_context(|| format!("cannot list {dir}"))?.flatten() {
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for line in info.lines() {
            let kind = KINDS.iter().position(|(name, _)| line.starts_with(name));
            let id = line.split_ascii_whitespace().nth(1).and_then(|id| id.parse().ok());
            objects.extend(kind.zip(id).map(|(kind, id)| Object { kind, id }));
        }
    }
    Ok(objects)
}

/// Whether the kernel still has it.
///
/// # Errors
/// When the kernel does not say.
pub fn exists(object: Object) -> Result<bool> {
    // `union bpf_attr` of these commands: id, next_id, open_flags.
    let attr = [object.id, 0, 0];
    // SAFETY: the attribute is a live array of the size that is told; the kernel only reads it.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, KINDS[object.kind].1, attr.as_ptr(), size_of_val(&attr)) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        ensure!(error.raw_os_error() == Some(libc::ENOENT), "{}{}: {error}", KINDS[object.kind].0, object.id);
        return Ok(false);
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    unsafe { libc::close(i32::try_from(fd)?) };
    Ok(true)
}
