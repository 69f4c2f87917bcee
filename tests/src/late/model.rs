//! A runtime that is a table: it answers the CRI as containerd does, and parts of the containerd API.
//!
//! What containerd does where it matters here: stopping and removing what is not there is OK; a container starts once;
//! only a running one is entered, checkpointed or has its log reopened; a status of what is not there is NOT_FOUND.

use std::collections::BTreeMap;

use super::proto::Message;
use super::random::Random;

/// What a call asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// `/runtime.v1.RuntimeService/…`, `/containerd.services.…`.
    pub path: String,
    /// The message.
    pub body: Message,
    /// The sandbox or container that it names.
    pub id: String,
    /// A filter of a list: 0 none, 1 a state, 2 a label.
    pub filter: usize,
    /// Seconds, or how much there is of something.
    pub amount: u64,
}

/// What comes of it: messages, or a status.
pub type Reply = Result<Vec<Message>, (u32, String)>;

/// A container's state, as the CRI numbers it.
const CREATED: u64 = 0;
const RUNNING: u64 = 1;
const EXITED: u64 = 2;

#[derive(Clone, Debug)]
struct Container {
    sandbox: String,
    state: u64,
}

/// What there is.
#[derive(Debug, Default)]
pub struct Runtime {
    /// Sandboxes, and whether they are not ready.
    sandboxes: BTreeMap<String, bool>,
    containers: BTreeMap<String, Container>,
    gone: Vec<String>,
    images: Vec<String>,
}

const TIME: u64 = 1_767_000_000_000_000_000;

impl Runtime {
    /// Some sandbox's id, or one of what is gone.
    pub fn sandbox(&self, random: &mut Random) -> String {
        let ids: Vec<&String> = self.sandboxes.keys().collect();
        self.some(&ids, random)
    }

    /// Some container's id, or one of what is gone.
    pub fn container(&self, random: &mut Random) -> String {
        let ids: Vec<&String> = self.containers.keys().collect();
        self.some(&ids, random)
    }

    fn some(&self, ids: &[&String], random: &mut Random) -> String {
        let gone = random.one_in(12).then(|| random.of(&self.gone)).flatten();
        gone.cloned().or_else(|| random.of(ids).map(|id| (*id).clone())).unwrap_or_else(|| random.id())
    }

    /// How many sandboxes and containers there are.
    pub fn len(&self) -> (usize, usize) {
        (self.sandboxes.len(), self.containers.len())
    }

    /// Something happens that nobody asked for: a container ends by itself, or a sandbox's pause does.
    pub fn happens(&mut self, random: &mut Random) {
        let running: Vec<String> =
            self.containers.iter().filter(|(_, c)| c.state == RUNNING).map(|(id, _)| id.clone()).collect();
        if let Some(id) = random.of(&running)
            && let Some(container) = self.containers.get_mut(id)
        {
            container.state = EXITED;
        }
        let ready: Vec<String> =
            self.sandboxes.iter().filter(|(_, not_ready)| !**not_ready).map(|(id, _)| id.clone()).collect();
        if let Some(id) = random.of(&ready)
            && let Some(not_ready) = self.sandboxes.get_mut(id)
        {
            *not_ready = true;
        }
    }

    /// Answers.
    pub fn answer(&mut self, request: &Request, random: &mut Random) -> Reply {
        let (service, method) = request.path.rsplit_once('/').unwrap_or_default();
        match service.rsplit('.').next().unwrap_or_default() {
            "RuntimeService" => self.runtime(method, request, random),
            "ImageService" => self.image(method, request, random),
            _ => self.foreign(method, request, random),
        }
    }

    fn runtime(&mut self, method: &str, request: &Request, random: &mut Random) -> Reply {
        let id = &request.id;
        let state = self.containers.get(id).map(|container| container.state);
        let running = |reply: Message| match state {
            Some(RUNNING) => Ok(vec![reply]),
            Some(_) => Err((2, format!("container {id:?} is not running"))),
            None => Err((5, format!("an error occurred when try to find container {id:?}: not found"))),
        };
        let empty = Ok(vec![Message::new()]);
        match method {
            "Version" => {
                Ok(vec![Message::new().text(1, "0.1.0").text(2, "containerd").text(3, "v2.3.0").text(4, "v1")])
            }
            "RunPodSandbox" => {
                let id = random.id();
                self.sandboxes.insert(id.clone(), false);
                Ok(vec![Message::new().text(1, id)])
            }
            "StopPodSandbox" => {
                if let Some(not_ready) = self.sandboxes.get_mut(id) {
                    *not_ready = true;
                    let own = self.containers.values_mut().filter(|c| c.sandbox == *id && c.state == RUNNING);
                    own.for_each(|container| container.state = EXITED);
                }
                empty
            }
            "RemovePodSandbox" => {
                if self.sandboxes.remove(id).is_some() {
                    self.gone.push(id.clone());
                    let gone = self.containers.extract_if(.., |_, c| c.sandbox == *id).map(|(id, _)| id);
                    self.gone.extend(gone);
                }
                empty
            }
            "PodSandboxStatus" => match self.sandboxes.get(id) {
                Some(not_ready) => {
                    Ok(vec![verbose(Message::new().message(1, sandbox_status(id, *not_ready)), request)])
                }
                None => Err((5, format!("an error occurred when try to find sandbox {id:?}: not found"))),
            },
            "ListPodSandbox" => {
                Ok(vec![self.list_sandboxes(request).fold(Message::new(), |list, m| list.message(1, m))])
            }
            "StreamPodSandboxes" => Ok(self.list_sandboxes(request).map(|m| Message::new().message(1, m)).collect()),
            "CreateContainer" => match self.sandboxes.get(id) {
                Some(false) => {
                    let own = random.id();
                    self.containers.insert(own.clone(), Container { sandbox: id.clone(), state: CREATED });
                    Ok(vec![Message::new().text(1, own)])
                }
                _ => Err((2, format!("failed to find sandbox id {id:?}: not found"))),
            },
            "StartContainer" => match self.containers.get_mut(id) {
                Some(container) if container.state == CREATED => {
                    container.state = if random.one_in(8) { EXITED } else { RUNNING };
                    match random.one_in(10) {
                        true => {
                            container.state = EXITED;
                            Err((2, "failed to create containerd task: OCI runtime create failed".into()))
                        }
                        false => empty,
                    }
                }
                Some(_) => Err((2, "container is in CONTAINER_RUNNING state".into())),
                None => running(Message::new()),
            },
            "StopContainer" => {
                if let Some(container) = self.containers.get_mut(id)
                    && container.state == RUNNING
                {
                    container.state = EXITED;
                }
                empty
            }
            "RemoveContainer" => {
                if self.containers.remove(id).is_some() {
                    self.gone.push(id.clone());
                }
                empty
            }
            "ListContainers" => {
                Ok(vec![self.list_containers(request).fold(Message::new(), |list, m| list.message(1, m))])
            }
            "StreamContainers" => Ok(self.list_containers(request).map(|m| Message::new().message(1, m)).collect()),
            "ContainerStatus" => match state {
                Some(state) => Ok(vec![verbose(Message::new().message(1, container_status(id, state)), request)]),
                None => running(Message::new()),
            },
            "UpdateContainerResources" => match state {
                Some(_) => empty,
                None => running(Message::new()),
            },
            "ReopenContainerLog" | "CheckpointContainer" => running(Message::new()),
            "ExecSync" => {
                let output = match random.below(5) {
                    0 | 1 => String::new(),
                    2 => random.id(),
                    3 => "\u{8}\u{1}".into(),
                    _ => "ok\n".into(),
                };
                let code = if random.one_in(3) { 1 } else { 0 };
                running(Message::new().text(1, output).number(3, code))
            }
            "Exec" | "Attach" => running(Message::new().text(1, "http://127.0.0.1:41000/exec/TOKEN")),
            "PortForward" | "PodSandboxStats" | "CheckpointPod" | "UpdatePodSandboxResources" => {
                match (self.sandboxes.get(id), method) {
                    (None, _) => Err((5, format!("failed to find sandbox {id:?}: not found"))),
                    (_, "PortForward") => Ok(vec![Message::new().text(1, "http://127.0.0.1:41000/portforward/TOKEN")]),
                    (_, "PodSandboxStats") => Ok(vec![Message::new().message(1, pod_stats(id))]),
                    _ => empty,
                }
            }
            "ContainerStats" => running(Message::new().message(1, stats(id))),
            "ListContainerStats" => {
                Ok(vec![self.containers.keys().fold(Message::new(), |list, id| list.message(1, stats(id)))])
            }
            "StreamContainerStats" => {
                Ok(self.containers.keys().map(|id| Message::new().message(1, stats(id))).collect())
            }
            "ListPodSandboxStats" => {
                Ok(vec![self.sandboxes.keys().fold(Message::new(), |list, id| list.message(1, pod_stats(id)))])
            }
            "StreamPodSandboxStats" => {
                Ok(self.sandboxes.keys().map(|id| Message::new().message(1, pod_stats(id))).collect())
            }
            "ListPodSandboxMetrics" => {
                Ok(vec![self.sandboxes.keys().fold(Message::new(), |list, id| list.message(1, metrics(id)))])
            }
            "StreamPodSandboxMetrics" => {
                Ok(self.sandboxes.keys().map(|id| Message::new().message(1, metrics(id))).collect())
            }
            "ListMetricDescriptors" => {
                let one = Message::new().text(1, "container_cpu_usage").text(2, "CPU").text(3, "id");
                Ok(vec![Message::new().message(1, one)])
            }
            "GetContainerEvents" => {
                let event = |(id, container): (&String, &Container)| {
                    let sandbox = sandbox_status(&container.sandbox, false);
                    Message::new().text(1, id).number(2, 1).number(3, TIME).message(4, sandbox)
                };
                Ok(self.containers.iter().take(3).map(event).collect())
            }
            "Status" => {
                let condition = |name: &str| Message::new().text(1, name).number(2, 1);
                let conditions =
                    Message::new().message(1, condition("RuntimeReady")).message(1, condition("NetworkReady"));
                Ok(vec![verbose(Message::new().message(1, conditions), request)])
            }
            "RuntimeConfig" => Ok(vec![Message::new().message(1, Message::new().number(1, request.amount % 2))]),
            "UpdateRuntimeConfig" => empty,
            "RestorePod" => {
                let id = random.id();
                self.sandboxes.insert(id.clone(), false);
                Ok(vec![Message::new().text(1, id)])
            }
            other => Err((12, format!("unknown method {other} for service runtime.v1.RuntimeService"))),
        }
    }

    fn list_sandboxes(&self, request: &Request) -> impl Iterator<Item = Message> {
        self.sandboxes.iter().filter(|(_, not_ready)| request.filter == 0 || (request.filter == 1 && !**not_ready)).map(
            |(id, not_ready)| {
                let item = Message::new().text(1, id).message(2, pod_metadata()).number(3, u64::from(*not_ready));
                item.number(4, TIME).message(5, label()).text(7, "runc")
            },
        )
    }

    fn list_containers(&self, request: &Request) -> impl Iterator<Item = Message> {
        self.containers
            .iter()
            .filter(|(_, container)| request.filter == 0 || (request.filter == 1 && container.state == RUNNING))
            .map(|(id, container)| {
                let item = Message::new().text(1, id).text(2, &container.sandbox).message(3, container_metadata());
                let item = item.message(4, image_spec()).text(5, "sha256:0").number(6, container.state);
                item.number(7, TIME).message(8, label())
            })
    }

    fn image(&mut self, method: &str, request: &Request, random: &mut Random) -> Reply {
        match method {
            "ListImages" => Ok(vec![self.images.iter().fold(Message::new(), |list, id| list.message(1, image(id)))]),
            "StreamImages" => Ok(self.images.iter().map(|id| Message::new().message(1, image(id))).collect()),
            "ImageStatus" => Ok(vec![match self.images.first().filter(|_| !random.one_in(3)) {
                Some(id) => verbose(Message::new().message(1, image(id)), request),
                None => Message::new(),
            }]),
            "PullImage" => {
                let id = format!("sha256:{}", random.id());
                if self.images.len() < 4 {
                    self.images.push(id.clone());
                }
                Ok(vec![Message::new().text(1, id)])
            }
            "RemoveImage" => {
                self.images.pop();
                Ok(vec![Message::new()])
            }
            _ => {
                let value = |n| Message::new().number(1, n);
                let usage = Message::new().number(1, TIME).message(2, Message::new().text(1, "/var/lib/containerd"));
                Ok(vec![Message::new().message(1, usage.message(3, value(4096)).message(4, value(7)))])
            }
        }
    }

    fn foreign(&mut self, method: &str, request: &Request, random: &mut Random) -> Reply {
        let id = &request.id;
        let missing = Err((5, format!("container {id:?}: not found")));
        let container = Message::new().text(1, id).message(2, label()).text(3, "busybox").text(6, "overlayfs");
        let process = Message::new().text(2, id).number(3, 4711).number(4, 2).text(5, "/run/fifo");
        match method {
            // containerd's sandbox controller looks for the sandbox first.
            "Stop" | "Shutdown" if !self.sandboxes.contains_key(id) => missing,
            "Get" if !self.containers.contains_key(id) => missing,
            "Get" if request.amount.is_multiple_of(2) => Ok(vec![Message::new().message(1, container)]),
            "Get" => Ok(vec![Message::new().message(1, process)]),
            "List" => Ok(vec![Message::new().message(1, container)]),
            "Version" => Ok(vec![Message::new().text(1, "v2.3.0").text(2, "abcdef")]),
            "Server" => Ok(vec![Message::new().text(1, random.id()).number(2, 77)]),
            "Start" => Ok(vec![Message::new().number(1, 4711)]),
            "Create" => Ok(vec![Message::new().text(1, id)]),
            "Kill" => {
                if let Some(container) = self.containers.get_mut(id)
                    && container.state == RUNNING
                {
                    container.state = EXITED;
                }
                Ok(vec![Message::new()])
            }
            // Pause, Resume, Delete of the containerd API's own entry, Stop and Shutdown of a sandbox controller.
            _ => Ok(vec![Message::new()]),
        }
    }
}

fn verbose(message: Message, request: &Request) -> Message {
    match request.amount % 3 {
        0 => message.message(2, Message::new().text(1, "info").text(2, "{\"secret\":1}")),
        _ => message,
    }
}

fn label() -> Message {
    Message::new().text(1, "io.kubernetes.pod.uid").text(2, "0123")
}

/// `PodSandboxMetadata`.
pub fn pod_metadata() -> Message {
    Message::new().text(1, "web").text(2, "5fca0a4c-3a5e-4c3e-8d3a-1f0f0f0f0f0f").text(3, "default")
}

fn container_metadata() -> Message {
    Message::new().text(1, "main")
}

fn image_spec() -> Message {
    Message::new().text(1, "busybox:1")
}

fn sandbox_status(id: &str, not_ready: bool) -> Message {
    let status = Message::new().text(1, id).message(2, pod_metadata()).number(3, u64::from(not_ready));
    status.number(4, TIME).message(7, label())
}

fn container_status(id: &str, state: u64) -> Message {
    let status = Message::new().text(1, id).message(2, container_metadata()).number(3, state).number(4, TIME);
    status.message(8, image_spec()).text(9, "sha256:0").message(12, label()).text(15, "/var/log/0.log")
}

fn stats(id: &str) -> Message {
    let value = |n| Message::new().number(1, n);
    let attributes = Message::new().text(1, id).message(2, container_metadata()).message(3, label());
    let cpu = Message::new().number(1, TIME).message(2, value(77));
    Message::new().message(1, attributes).message(2, cpu.clone()).message(3, cpu)
}

fn pod_stats(id: &str) -> Message {
    let attributes = Message::new().text(1, id).message(2, pod_metadata()).message(3, label());
    let cpu = Message::new().number(1, TIME).message(2, Message::new().number(1, 9));
    Message::new().message(1, attributes).message(2, Message::new().message(1, cpu))
}

fn metrics(id: &str) -> Message {
    let metric = Message::new().text(1, "container_cpu").number(2, TIME).message(5, Message::new().number(1, 3));
    Message::new().text(1, id).message(2, metric)
}

fn image(id: &str) -> Message {
    Message::new().text(1, id).text(2, "busybox:1").number(4, 2_000_000)
}
