//! tracefs: where it is, how to have it, and what a tracepoint's `format` file says.

use std::io;
use std::path::PathBuf;

use rustix::mount::{MountFlags, MountPropagationFlags};

use super::ProbeError;

const MOUNT_POINT: &str = "/sys/kernel/tracing";

/// A tracefs, by its root.
#[derive(Clone, Debug)]
pub(crate) struct Tracefs(PathBuf);

/// One field of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

impl Tracefs {
    /// The node's tracefs. Where it is not mounted it is mounted for the calling thread alone, in a mount namespace
    /// of its own that is gone with the thread. Must come before aya's first attach, which caches what it finds.
    ///
    /// # Errors
    /// [`ProbeError::NoTracefs`].
    pub(crate) fn open() -> Result<Tracefs, ProbeError> {
        let root = Tracefs(MOUNT_POINT.into());
        if !root.is_there() {
            mount().map_err(|source| ProbeError::NoTracefs { path: root.0.clone(), source })?;
        }
        Ok(root)
    }

    fn is_there(&self) -> bool {
        self.0.join("events").is_dir()
    }

    /// Whether the kernel has a tracepoint.
    pub(crate) fn has(&self, category: &str, event: &str) -> bool {
        self.event(category, event).is_dir()
    }

    /// Directory of a tracepoint.
    pub(crate) fn event(&self, category: &str, event: &str) -> PathBuf {
        self.0.join("events").join(category).join(event)
    }

    /// The fields of a tracepoint.
    ///
    /// # Errors
    /// [`ProbeError::Format`].
    pub(crate) fn format(&self, category: &str, event: &str) -> Result<Vec<Field>, ProbeError> {
        let path = self.event(category, event).join("format");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ProbeError::Format { path: path.clone(), what: error.to_string() })?;
        Ok(text.lines().filter_map(field).collect())
    }

    /// Offset of a tracepoint's field that must have that size.
    ///
    /// # Errors
    /// [`ProbeError::Format`].
    pub(crate) fn field(&self, category: &str, event: &str, name: &str, size: u32) -> Result<u32, ProbeError> {
        let fields = self.format(category, event)?;
        let wrong = |what| Err(ProbeError::Format { path: self.event(category, event).join("format"), what });
        match fields.iter().find(|field| field.name == name) {
            Some(field) if field.size == size => Ok(field.offset),
            Some(field) => wrong(format!("field {name} has {} bytes, expected {size}", field.size)),
            None => wrong(format!("it has no field {name}")),
        }
    }

    /// Offset of a syscall entry's first argument, whatever its name: arguments are 8 bytes apart behind the number.
    ///
    /// # Errors
    /// [`ProbeError::Format`].
    pub(crate) fn first_argument(&self, category: &str, event: &str) -> Result<u32, ProbeError> {
        let fields = self.format(category, event)?;
        let arguments = fields.iter().skip_while(|field| field.name != "__syscall_nr").skip(1);
        let offsets: Vec<u32> = arguments.filter(|field| field.size == 8).map(|field| field.offset).collect();
        let even = offsets.windows(2).all(|pair| pair[1] == pair[0] + 8);
        offsets.first().copied().filter(|_| even).ok_or_else(|| ProbeError::Format {
            path: self.event(category, event).join("format"),
            what: "its arguments are not 8 bytes apart".to_owned(),
        })
    }
}

fn mount() -> io::Result<()> {
    // SAFETY: CLONE_NEWNS alone: descriptors stay shared, only the mounts (and with them the working directory) of the
    // calling thread become its own.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("tracefs", MOUNT_POINT, "tracefs", flags, None)?;
    Ok(())
}

/// `\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;`
fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?.to_owned();
    let mut number = |key| parts.next()?.strip_prefix(key)?.parse().ok();
    Some(Field { name, offset: number("offset:")?, size: number("size:")? })
}

#[cfg(test)]
mod tests {
    use super::{Field, Tracefs, field};

    const READ: &str = "name: sys_enter_read\nID: 842\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char * buf;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:size_t count;\toffset:32;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"fd: 0x%08lx\", ((unsigned long)(REC->fd))\n";

    #[test]
    fn format_files_are_read_below_any_root() {
        let root = tempfile::tempdir().unwrap();
        let event = root.path().join("events/syscalls/sys_enter_read");
        std::fs::create_dir_all(&event).unwrap();
        std::fs::write(event.join("format"), READ).unwrap();
        let tracefs = Tracefs(root.path().to_owned());
        assert!(tracefs.is_there() && tracefs.has("syscalls", "sys_enter_read"));
        assert!(!tracefs.has("syscalls", "sys_enter_write"));
        assert_eq!(tracefs.field("syscalls", "sys_enter_read", "__syscall_nr", 4).unwrap(), 8);
        assert_eq!(tracefs.first_argument("syscalls", "sys_enter_read").unwrap(), 16);
        let error = tracefs.field("syscalls", "sys_enter_read", "ret", 8).unwrap_err().to_string();
        assert!(error.contains("no field ret"), "{error}");
        let error = tracefs.format("syscalls", "sys_enter_write").unwrap_err().to_string();
        assert!(error.contains("sys_enter_write/format"), "{error}");
    }

    #[test]
    fn field_lines() {
        let known = |name: &str, offset, size| Some(Field { name: name.to_owned(), offset, size });
        assert_eq!(field("\tfield:__data_loc char[] comm;\toffset:12;\tsize:4;\tsigned:0;"), known("comm", 12, 4));
        assert_eq!(field("\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;"), known("comm", 8, 16));
        assert_eq!(field("\tfield:char *buf;\toffset:24;\tsize:8;\tsigned:0;"), known("buf", 24, 8));
        assert_eq!(field("format:"), None);
    }
}
