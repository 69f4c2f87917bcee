//! Call events to starts: which pod a call is of, and what its messages tell.

mod before;
mod containers;
mod execs;
mod held;
mod late;
mod pulls;
mod replies;
mod tasks;
mod unread;

pub(super) use self::execs::exit_code;
pub(super) use self::tasks::TaskSeen;
use super::life::LifeCall;
use super::start::{Call, Method};
use super::unit::UnitKey;
use super::{Lifecycle, MAX_CALLS, StartKey, cgroup};
use crate::cri::{CallEvent, CallKey, CallStart, Field, Fields, Protocol, schema};
use crate::engine::Update;
use crate::ids::{ContainerId, MonotonicNs, PodUid, Tgid};
use crate::record::Role;
use crate::trace::PodInfo;

/// A call under way.
#[derive(Debug)]
pub(super) struct Pending {
    start: CallStart,
    about: About,
    /// The start that its first sign began, where the call itself comes after that.
    begun: Option<StartKey>,
    /// What is told of it besides a start.
    life: Option<Box<LifeCall>>,
}

/// What a call is about, once its request is known.
#[derive(Debug)]
enum About {
    /// Its request has not come yet.
    Unknown,
    /// A call of a start, or beside it.
    Start(StartKey),
    /// A call that makes something, whose request cannot be read.
    Unread,
    /// A pull of no known pod.
    Pull,
    /// PodSandboxStatus of a start.
    Status(StartKey),
    /// RemovePodSandbox.
    Removal(ContainerId),
    /// Version.
    Version,
    /// ContainerStatus of a unit.
    ContainerStatus(UnitKey),
    /// Call `index` of the task API about a unit.
    Task(UnitKey, usize),
    /// No start.
    Nothing,
}

/// A pull whose pod is known only when a container of its image is created.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) call: Call,
    pub(super) uid: Option<PodUid>,
}

impl Lifecycle {
    /// Takes one event of a call; what it changed goes to `updates`.
    pub fn call(&mut self, event: &CallEvent, updates: &mut Vec<Update>) {
        self.chores.call(event);
        self.queue.call(event);
        self.images.call(event);
        if !self.is_own(event) {
            self.health.call(event);
        }
        match event {
            CallEvent::Start(start) => {
                self.advance(start.at, updates);
                self.nameless_call(start);
                self.call_start(start);
            }
            CallEvent::Request { key, at, fields } => {
                self.advance(*at, updates);
                self.request(*key, *at, fields);
            }
            CallEvent::Response { key, at, fields } => {
                self.advance(*at, updates);
                self.response(*key, *at, fields);
            }
            CallEvent::End { key, at, ending } => {
                self.advance(*at, updates);
                self.call_end(*key, *at, ending);
            }
            CallEvent::Unasked { key, at, ending } => {
                self.advance(*at, updates);
                self.unasked(*key, *at, ending);
            }
            CallEvent::Named(named) => self.named(named, updates),
            CallEvent::Unnamed(unnamed) => {
                self.advance(unnamed.end, updates);
                self.unnamed(unnamed);
            }
            CallEvent::Undecoded { bytes, .. } => {
                self.losses.undecoded = self.losses.undecoded.saturating_add(*bytes);
            }
        }
        self.tell_all(updates);
    }

    /// Whether a call is podlapse's own, as far as its begin says.
    fn is_own(&self, event: &CallEvent) -> bool {
        let client = match event {
            CallEvent::Start(start) => start.client,
            CallEvent::Named(named) => named.start.client,
            _ => None,
        };
        let role = |tgid: Tgid| self.processes.get(tgid).map(|process| process.role);
        client.and_then(role) == Some(Role::Myself)
    }

    fn call_start(&mut self, start: &CallStart) {
        let role = |tgid: Tgid| self.processes.get(tgid).map(|process| process.role);
        if start.client.and_then(role) == Some(Role::Myself) || !is_interesting(start) {
            return;
        }
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&start.key) {
            self.calls.pop_first();
            self.losses.evicted += 1;
        }
        self.calls.insert(start.key, Pending { start: start.clone(), about: About::Unknown, begun: None, life: None });
    }

    fn request(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        let Some(pending) = self.calls.get(&key).filter(|p| matches!(p.about, About::Unknown)) else { return };
        let (start, begun) = (pending.start.clone(), pending.begun);
        let sandbox = || id(fields, Field::SandboxId);
        let life = self.life_asked(&start, fields);
        let about = match (start.protocol, start.method.as_str()) {
            (Protocol::Grpc, "RunPodSandbox" | "CreateContainer" | "StartContainer")
                if unread::is_compressed(fields) =>
            {
                Some(About::Unread)
            }
            (Protocol::Grpc, "RunPodSandbox") => Some(self.run_pod_sandbox(start, begun, fields)),
            (Protocol::Grpc, "CreateContainer") => self.create_container(start, fields),
            (Protocol::Grpc, "StartContainer") => self.start_container(start, fields),
            (Protocol::Grpc, "ExecSync") => self.exec_sync(start, fields),
            (Protocol::Grpc, "PullImage") => Some(self.pull_image(start, fields)),
            (Protocol::Grpc, "StopPodSandbox") => {
                self.stop(at, sandbox());
                None
            }
            (Protocol::Grpc, "RemovePodSandbox") => self.stop(at, sandbox()).map(About::Removal),
            (Protocol::Grpc, "PodSandboxStatus") => sandbox().and_then(|id| self.start_of_unit(&id)).map(About::Status),
            (Protocol::Grpc, "Version") => Some(About::Version),
            (Protocol::Grpc, "ContainerStatus") => {
                id(fields, Field::ContainerId).and_then(|id| self.units.find(&id)).map(About::ContainerStatus)
            }
            (Protocol::Ttrpc, "Forward") => {
                self.task_event(at, fields);
                None
            }
            (Protocol::Ttrpc, method) => self.task(method, start.at, fields),
            (Protocol::Grpc, _) => self.other_call(start, fields),
        };
        let Some(pending) = self.calls.get_mut(&key) else { return };
        match about {
            None if life.is_none() => {
                self.calls.remove(&key);
            }
            about => (pending.about, pending.life) = (about.unwrap_or(About::Nothing), life),
        }
    }

    fn run_pod_sandbox(&mut self, call: CallStart, begun: Option<StartKey>, fields: &Fields) -> About {
        let uid = text(fields, Field::PodUid).map(PodUid);
        let pod = PodInfo {
            namespace: text(fields, Field::PodNamespace),
            name: text(fields, Field::PodName),
            uid,
            attempt: attempt(fields),
            runtime_handler: text(fields, Field::RuntimeHandler).filter(|handler| !handler.is_empty()),
            qos: fields.text(Field::CgroupParent).and_then(cgroup::qos).map(str::to_owned),
            ip: None,
        };
        let key = match begun {
            Some(key) => self.begin_earlier(key, call.at, pod),
            None => {
                pod.uid.iter().for_each(|uid| self.given_up(call.at, uid));
                self.begin(call.at, pod)
            }
        };
        self.join(key, Method::RunPodSandbox, call, None, None)
    }

    fn join(
        &mut self,
        key: StartKey,
        method: Method,
        call: CallStart,
        container: Option<usize>,
        image: Option<String>,
    ) -> About {
        let call = Call { client: self.client(&call), ..new_call(method, call, container, image) };
        self.reconsider(key, call.start.at);
        let Some(start) = self.starts.get_mut(&key) else { return About::Unknown };
        start.calls.push(call);
        self.touched.insert(key);
        About::Start(key)
    }

    /// Who sent a call: its `user-agent`, and the process, where that is known.
    pub(super) fn client(&self, call: &CallStart) -> Option<String> {
        let Some(pid) = call.client.filter(|pid| *pid != Tgid(0)) else { return call.user_agent.clone() };
        let name = self.processes.get(pid).and_then(|process| process.name.as_deref());
        let process = name.map_or_else(|| format!("pid {pid}"), |name| format!("{name}, pid {pid}"));
        Some(call.user_agent.as_ref().map_or_else(|| process.clone(), |agent| format!("{agent} ({process})")))
    }

    /// StopPodSandbox or RemovePodSandbox: nothing more is to be waited for. The id, if any start is of that sandbox.
    fn stop(&mut self, at: MonotonicNs, sandbox: Option<ContainerId>) -> Option<ContainerId> {
        let sandbox = sandbox?;
        let mut keys = self.starts_in(&sandbox);
        keys.retain(|key| self.starts.get(key).is_some_and(|start| start.begin <= at));
        for key in &keys {
            if let Some(start) = self.starts.get_mut(key) {
                start.stopped = Some(start.stopped.map_or(at, |stopped| stopped.min(at)));
            }
            self.reconsider(*key, at);
        }
        self.touched.extend(&keys);
        (!keys.is_empty()).then_some(sandbox)
    }
}

/// Whether a call says anything about a start.
fn is_interesting(start: &CallStart) -> bool {
    let service = start.service.as_str();
    match start.protocol {
        Protocol::Grpc if schema::is_runtime(service) => {
            matches!(start.method.as_str(), "PodSandboxStatus" | "ContainerStatus" | "Version") || !asks(&start.method)
        }
        Protocol::Grpc => schema::is_image(service) && start.method == "PullImage",
        Protocol::Ttrpc if service == "containerd.services.events.ttrpc.v1.Events" => start.method == "Forward",
        Protocol::Ttrpc => {
            let method = matches!(start.method.as_str(), "Create" | "Start" | "Wait" | "Kill" | "Delete");
            service.starts_with("containerd.task.") && method
        }
    }
}

/// Whether a method of the CRI only asks, or streams what happens.
pub(super) fn asks(method: &str) -> bool {
    ["List", "Get", "Stream"].iter().any(|verb| method.starts_with(verb))
        || ["Status", "Stats", "Version", "Info", "Config", "Check"].iter().any(|noun| method.ends_with(noun))
}

pub(super) fn new_call(method: Method, start: CallStart, container: Option<usize>, image: Option<String>) -> Call {
    Call {
        key: start.key,
        method,
        start,
        candidates: Vec::new(),
        client: None,
        container,
        image,
        held: None,
        image_ref: None,
        exit_code: None,
        replied: false,
        before: false,
        end: None,
    }
}

pub(super) fn text(fields: &Fields, field: Field) -> Option<String> {
    fields.text(field).map(str::to_owned)
}

pub(super) fn id(fields: &Fields, field: Field) -> Option<ContainerId> {
    fields.text(field).filter(|id| !id.is_empty()).map(|id| ContainerId(id.to_owned()))
}

/// A pod's attempt, of a message that was read: it names the pod, then. What proto3 leaves out is its default.
fn attempt(fields: &Fields) -> Option<u32> {
    let named = fields.text(Field::PodName).is_some();
    named.then(|| fields.number(Field::PodAttempt).map_or(0, saturate))
}

fn saturate(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
