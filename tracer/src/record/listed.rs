//! What existed when podlapse came, or when the runtime came back: its lists over the CRI, or what `/proc` shows.
//!
//! A list is one record a sandbox, one a container, and an end. Identities and states only: no label, no annotation,
//! no environment.

use tracer_ebpf as abi;

use super::decode::{DecodeError, Reader, text};
use super::encode::{Writer, length};
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};

/// A part of a list. The record's time is when the answer was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// When the question was asked. What is said held at some instant between this and the record's time.
    pub asked: MonotonicNs,
    /// Who says so.
    pub source: ListSource,
    /// What is said.
    pub what: Listing,
}

/// Who made a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListSource {
    /// The runtime, over the CRI.
    Cri,
    /// Cgroup paths, shims' arguments and namespaces in `/proc`: no names, no images, nothing that has ended.
    Proc,
}

/// What a part of a list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// A pod sandbox exists.
    Sandbox(ListedSandbox),
    /// A container exists.
    Container(ListedContainer),
    /// The list is over.
    End {
        /// Why it does not hold everything; None: it does.
        trouble: Option<String>,
    },
}

/// A pod sandbox. Texts that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedSandbox {
    /// Its id.
    pub id: SandboxId,
    /// `metadata.name` of the pod.
    pub name: String,
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.uid` of the pod.
    pub uid: PodUid,
    /// Counts the sandboxes of one pod.
    pub attempt: Option<u32>,
    /// Whether it is ready.
    pub ready: Option<bool>,
    /// Runtime handler; empty for the default one, too.
    pub handler: String,
    /// When it was made, in ns since the epoch.
    pub created: Option<u64>,
    /// Its process (pause), where there is one.
    pub pid: Option<Tgid>,
    /// The path of its own cgroup, as [`super::Process::cgroup`] has it.
    pub cgroup: String,
    /// Address in a network namespace of its own.
    pub ip: String,
}

/// A container. Texts that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedContainer {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox that it is in.
    pub sandbox: SandboxId,
    /// `metadata.name`.
    pub name: String,
    /// Counts the containers of one name in one pod.
    pub attempt: Option<u32>,
    /// Image reference.
    pub image: String,
    /// How far it is.
    pub state: Option<ContainerState>,
    /// When it was made, in ns since the epoch.
    pub created: Option<u64>,
    /// Its init, where it has one.
    pub pid: Option<Tgid>,
    /// The path of its own cgroup, as [`super::Process::cgroup`] has it.
    pub cgroup: String,
    /// How it ended.
    pub exit_code: Option<i32>,
}

/// `ContainerState` of the CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
}

/// The head of each part.
#[derive(Default)]
struct Fixed {
    created: Option<u64>,
    state: u32,
    attempt: Option<u32>,
    pid: Option<Tgid>,
    exit_code: Option<i32>,
}

impl Listed {
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        let (what, fixed, strings) = match &self.what {
            Listing::Sandbox(it) => (abi::listed::SANDBOX, it.fixed(), it.strings()),
            Listing::Container(it) => (abi::listed::CONTAINER, it.fixed(), it.strings()),
            Listing::End { trouble } => {
                (abi::listed::END, Fixed::default(), [trouble.as_deref().unwrap_or_default(), "", "", "", "", "", ""])
            }
        };
        w.u64(self.asked.0);
        w.u64(fixed.created.unwrap_or(0));
        w.u32(what);
        w.u32(match self.source {
            ListSource::Cri => abi::list_source::CRI,
            ListSource::Proc => abi::list_source::PROC,
        });
        w.u32(fixed.state);
        let attempt = fixed.attempt.map_or(0, |_| abi::listed_flag::ATTEMPT);
        let exit_code = fixed.exit_code.map_or(0, |_| abi::listed_flag::EXIT_CODE);
        w.u32(attempt | exit_code);
        w.u32(fixed.attempt.unwrap_or(0));
        w.u32(fixed.pid.map_or(0, |pid| pid.0));
        w.i32(fixed.exit_code.unwrap_or(0));
        strings.iter().for_each(|string| w.u32(length(string.len())));
        strings.iter().for_each(|string| w.bytes(string.as_bytes()));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Listed, DecodeError> {
        let asked = MonotonicNs(r.u64("asked")?);
        let created = Some(r.u64("created")?).filter(|ns| *ns != 0);
        let what = r.u32("what")?;
        let source = match r.u32("source")? {
            abi::list_source::CRI => ListSource::Cri,
            abi::list_source::PROC => ListSource::Proc,
            _ => return Err(DecodeError::Value("source")),
        };
        let state = r.u32("state")?;
        let flags = r.u32("flags")?;
        let attempt = Some(r.u32("attempt")?).filter(|_| flags & abi::listed_flag::ATTEMPT != 0);
        let pid = Some(Tgid(r.u32("pid")?)).filter(|pid| pid.0 != 0);
        let exit_code = Some(r.i32("exit_code")?).filter(|_| flags & abi::listed_flag::EXIT_CODE != 0);
        let mut lens = [0; 7];
        for len in &mut lens {
            *len = r.u32("str_len")?;
        }
        let mut strings = [const { String::new() }; 7];
        for (string, len) in strings.iter_mut().zip(lens) {
            *string = text(r.take(len, "strings")?);
        }
        let fixed = Fixed { created, state, attempt, pid, exit_code };
        let what = match what {
            abi::listed::SANDBOX => Listing::Sandbox(ListedSandbox::of(fixed, strings)),
            abi::listed::CONTAINER => Listing::Container(ListedContainer::of(fixed, strings)),
            abi::listed::END => {
                let [trouble, ..] = strings;
                Listing::End { trouble: Some(trouble).filter(|text| !text.is_empty()) }
            }
            _ => return Err(DecodeError::Value("what")),
        };
        Ok(Listed { asked, source, what })
    }
}

impl ListedSandbox {
    fn fixed(&self) -> Fixed {
        let state = match self.ready {
            Some(true) => abi::listed_state::READY,
            Some(false) => abi::listed_state::NOT_READY,
            None => abi::listed_state::UNKNOWN,
        };
        Fixed { created: self.created, state, attempt: self.attempt, pid: self.pid, exit_code: None }
    }

    fn strings(&self) -> [&str; 7] {
        [self.id.as_str(), &self.name, &self.namespace, self.uid.as_str(), &self.handler, &self.cgroup, &self.ip]
    }

    fn of(fixed: Fixed, [id, name, namespace, uid, handler, cgroup, ip]: [String; 7]) -> ListedSandbox {
        let ready = match fixed.state {
            abi::listed_state::READY => Some(true),
            abi::listed_state::NOT_READY => Some(false),
            _ => None,
        };
        let (id, uid) = (SandboxId(id), PodUid(uid));
        let Fixed { created, attempt, pid, .. } = fixed;
        ListedSandbox { id, name, namespace, uid, attempt, ready, handler, created, pid, cgroup, ip }
    }
}

impl ListedContainer {
    fn fixed(&self) -> Fixed {
        let state = match self.state {
            Some(ContainerState::Created) => abi::listed_state::CREATED,
            Some(ContainerState::Running) => abi::listed_state::RUNNING,
            Some(ContainerState::Exited) => abi::listed_state::EXITED,
            None => abi::listed_state::UNKNOWN,
        };
        let Self { created, attempt, pid, exit_code, .. } = *self;
        Fixed { created, state, attempt, pid, exit_code }
    }

    fn strings(&self) -> [&str; 7] {
        [self.id.as_str(), self.sandbox.as_str(), &self.name, &self.image, &self.cgroup, "", ""]
    }

    fn of(fixed: Fixed, [id, sandbox, name, image, cgroup, ..]: [String; 7]) -> ListedContainer {
        let state = match fixed.state {
            abi::listed_state::CREATED => Some(ContainerState::Created),
            abi::listed_state::RUNNING => Some(ContainerState::Running),
            abi::listed_state::EXITED => Some(ContainerState::Exited),
            _ => None,
        };
        let (id, sandbox) = (ContainerId(id), SandboxId(sandbox));
        let Fixed { created, attempt, pid, exit_code, .. } = fixed;
        ListedContainer { id, sandbox, name, attempt, image, state, created, pid, cgroup, exit_code }
    }
}
