//! This machine.

/// What it is called and what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Host name.
    pub name: String,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// `uname -r`
    pub kernel: String,
}

impl Node {
    /// Asks the kernel.
    pub(crate) fn read() -> Node {
        let uname = rustix::system::uname();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Node {
            name: uname.nodename().to_string_lossy().into_owned(),
            boot_id: boot_id.trim().to_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
        }
    }
}
