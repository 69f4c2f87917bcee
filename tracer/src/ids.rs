//! Newtypes for the times and identities that podlapse handles; no bare integer crosses a module in their place.

use std::fmt;

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicNs(pub u64);

impl MonotonicNs {
    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: MonotonicNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! number_id {
    ($(#[$doc:meta] $name:ident($inner:ty);)*) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

number_id! {
    /// A process (thread group) id in podlapse's own pid namespace; 0 is a process that is not visible there.
    Tgid(u32);
    /// A thread id in podlapse's own pid namespace.
    Tid(u32);
    /// A connection, unique for the life of the programs.
    ConnId(u64);
    /// A cgroup's `kernfs` id, unique within its hierarchy.
    CgroupId(u64);
}

macro_rules! text_id {
    ($(#[$doc:meta] $name:ident;)*) => {$(
        #[$doc]
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub String);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_id! {
    /// A pod's UID (`metadata.uid`).
    PodUid;
    /// A pod sandbox id, 64 hex digits with containerd.
    SandboxId;
    /// A container id, 64 hex digits with containerd.
    ContainerId;
}
