//! What `/proc` says of a process that a start waits for, at one instant: what the kernel has it wait for.

use super::decode::{DecodeError, Reader, text};
use super::encode::{Writer, length};
use crate::ids::MonotonicNs;

/// No syscall.
const NONE: u32 = u32::MAX;

/// What a process does; of several threads, the record's. Texts that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// When the process was created, to a hundredth of a second.
    pub started: MonotonicNs,
    /// The thread's state, a letter of proc_pid_stat(5).
    pub state: Option<char>,
    /// The syscall that it is in, by the number of its architecture.
    pub syscall: Option<u32>,
    /// The process's `comm`.
    pub comm: String,
    /// The syscall's name.
    pub syscall_name: String,
    /// The function of the kernel that it waits in.
    pub wchan: String,
    /// Its stack in the kernel, a frame each, innermost first.
    pub stack: Vec<String>,
}

impl Waiting {
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        let stack = self.stack.join("\n");
        let strings = [&self.comm, &self.syscall_name, &self.wchan, &stack];
        w.u64(self.started.0);
        w.u32(self.state.map_or(0, u32::from));
        w.u32(self.syscall.unwrap_or(NONE));
        strings.iter().for_each(|string| w.u32(length(string.len())));
        strings.iter().for_each(|string| w.bytes(string.as_bytes()));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Waiting, DecodeError> {
        let started = MonotonicNs(r.u64("started")?);
        let state = char::from_u32(r.u32("state")?).filter(|letter| *letter != '\0');
        let syscall = Some(r.u32("syscall")?).filter(|number| *number != NONE);
        let mut lens = [0; 4];
        for len in &mut lens {
            *len = r.u32("str_len")?;
        }
        let mut strings = [const { String::new() }; 4];
        for (string, len) in strings.iter_mut().zip(lens) {
            *string = text(r.take(len, "strings")?);
        }
        let [comm, syscall_name, wchan, stack] = strings;
        let stack = stack.split('\n').filter(|frame| !frame.is_empty()).map(str::to_owned).collect();
        Ok(Waiting { started, state, syscall, comm, syscall_name, wchan, stack })
    }
}
