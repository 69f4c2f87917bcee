//! Traffic of clients that nobody would write: every method of the CRI in any order, overlapping and repeated, beside
//! the containerd API, over connections whose header tables behave as Go's do. The truth is known.

use std::collections::BTreeMap;

use podlapse::cri::CallKey;
use podlapse::ids::ConnId;
use podlapse::record::Direction;

use super::capture::{Chunk, Traffic, What};
use super::model::{Reply, Request, Runtime, pod_metadata};
use super::proto::Message;
use super::random::Random;
use crate::hpack::Encoder;

const RUNTIME: [&str; 37] = [
    "Version",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "StreamPodSandboxes",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "StreamContainers",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "Exec",
    "Attach",
    "PortForward",
    "ContainerStats",
    "ListContainerStats",
    "StreamContainerStats",
    "PodSandboxStats",
    "ListPodSandboxStats",
    "StreamPodSandboxStats",
    "UpdateRuntimeConfig",
    "Status",
    "CheckpointContainer",
    "CheckpointPod",
    "RestorePod",
    "GetContainerEvents",
    "ListMetricDescriptors",
    "ListPodSandboxMetrics",
    "StreamPodSandboxMetrics",
    "RuntimeConfig",
    "UpdatePodSandboxResources",
];
const IMAGE: [&str; 6] = ["ListImages", "StreamImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"];
/// What the states hang on comes more often than the rest.
const OFTEN: [&str; 10] = [
    "RunPodSandbox",
    "CreateContainer",
    "CreateContainer",
    "StartContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "ListPodSandbox",
    "ContainerStatus",
];
const FOREIGN: [&str; 16] = [
    "containers.v1.Containers/Get",
    "containers.v1.Containers/List",
    "containers.v1.Containers/Delete",
    "tasks.v1.Tasks/Get",
    "tasks.v1.Tasks/Start",
    "tasks.v1.Tasks/Kill",
    "tasks.v1.Tasks/Pause",
    "tasks.v1.Tasks/Resume",
    "tasks.v1.Tasks/Delete",
    "images.v1.Images/Delete",
    "version.v1.Version/Version",
    "introspection.v1.Introspection/Server",
    "sandbox.v1.Controller/Create",
    "sandbox.v1.Controller/Stop",
    "sandbox.v1.Controller/Shutdown",
    "snapshots.v1.Snapshots/Remove",
];

/// A client's connection.
#[derive(Debug, Default)]
struct Conn {
    client: Encoder,
    server: Encoder,
    next: u32,
    /// One in so many of its calls is of the containerd API; 0: none.
    foreign: usize,
    /// Its calls of the containerd API say their namespace.
    namespace: bool,
}

/// What is still to come of a call.
#[derive(Debug)]
enum Step {
    Execute(CallKey, Request),
    Answer(CallKey, Reply),
}

/// Plays `calls` calls.
pub fn play(seed: u64, calls: usize) -> Traffic {
    let mut play = Play {
        random: Random(seed),
        runtime: Runtime::default(),
        conns: BTreeMap::new(),
        steps: BTreeMap::new(),
        traffic: Traffic { name: format!("client, seed {seed}"), ..Traffic::default() },
        at: 0,
    };
    for (conn, foreign, namespace) in [(1, 0, false), (2, 0, false), (3, 4, true), (4, 4, false), (5, 1, true)] {
        play.conns.insert(conn, Conn { next: 1, foreign, namespace, ..Conn::default() });
        play.chunk(conn, What::Open);
        play.chunk(conn, What::Bytes(Direction::In, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()));
        play.chunk(conn, What::Bytes(Direction::Out, b"\0\0\0\x04\0\0\0\0\0".to_vec()));
    }
    for _ in 0..calls {
        play.call();
    }
    play.run(u64::MAX);
    play.traffic
}

struct Play {
    random: Random,
    runtime: Runtime,
    conns: BTreeMap<u64, Conn>,
    /// By time, and a number that tells steps of one time apart.
    steps: BTreeMap<(u64, u64), Step>,
    traffic: Traffic,
    at: u64,
}

impl Play {
    fn chunk(&mut self, conn: u64, what: What) {
        self.traffic.chunks.push(Chunk { at: self.at, conn, what });
    }

    /// One call begins; others go on meanwhile.
    fn call(&mut self) {
        let pause = 1_000_000 * (1 + self.random.below(60) as u64);
        self.run(self.at + pause);
        self.at += pause;
        if self.random.one_in(20) {
            self.runtime.happens(&mut self.random);
        }
        let conn = 1 + self.random.below(self.conns.len()) as u64;
        let Some(foreign) = self.conns.get(&conn).map(|conn| conn.foreign) else { return };
        let request = match foreign > 0 && self.random.one_in(foreign) {
            true => self.foreign(),
            false => self.cri(),
        };
        let key = self.begin(conn, &request);
        // Most are short, some overlap many others.
        let longest = if self.random.one_in(4) { 400 } else { 20 };
        let execute = 1_000_000 * (1 + self.random.below(longest) as u64);
        self.step(self.at + execute, Step::Execute(key, request));
    }

    fn step(&mut self, at: u64, step: Step) {
        let number = self.random.number();
        self.steps.insert((at, number), step);
    }

    /// What happens until `until`.
    fn run(&mut self, until: u64) {
        while let Some(entry) = self.steps.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), step) = entry.remove_entry();
            self.at = at;
            match step {
                Step::Execute(key, request) => {
                    let reply = self.runtime.answer(&request, &mut self.random);
                    let later = 1_000_000 * (1 + self.random.below(30) as u64);
                    self.step(at + later, Step::Answer(key, reply));
                }
                Step::Answer(key, reply) => self.end(key, &reply),
            }
        }
    }

    fn begin(&mut self, id: u64, request: &Request) -> CallKey {
        let timeout = format!("{}m", 119_990 + self.random.below(10));
        let Some(conn) = self.conns.get_mut(&id) else { unreachable!("connections are never taken out") };
        let key = CallKey { conn: ConnId(id), stream: conn.next };
        conn.next += 2;
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", request.path.as_str()),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.72.1"),
            ("te", "trailers"),
            ("grpc-timeout", &timeout),
        ];
        if conn.namespace && request.path.starts_with("/containerd.") {
            fields.push(("containerd-namespace", "k8s.io"));
        }
        // Every other connection is gRPC's C core's, which begins with these two.
        if id % 2 == 1 {
            fields[..4].rotate_left(2);
        }
        let block = block(&mut conn.client, &fields);
        let mut bytes = frame(1, 4, key.stream, &block);
        bytes.extend(frame(0, 1, key.stream, &grpc(&request.body)));
        self.chunk(id, What::Bytes(Direction::In, bytes));
        self.traffic.truth.insert(key, request.path.clone());
        key
    }

    fn end(&mut self, key: CallKey, reply: &Reply) {
        let Some(conn) = self.conns.get_mut(&key.conn.0) else { return };
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        let mut bytes = Vec::new();
        match reply {
            Ok(messages) => {
                bytes.extend(frame(1, 4, key.stream, &block(&mut conn.server, &head)));
                for message in messages {
                    for piece in grpc(message).chunks(16_384) {
                        bytes.extend(frame(0, 0, key.stream, piece));
                    }
                }
                let block = block(&mut conn.server, &[("grpc-status", "0"), ("grpc-message", "")]);
                bytes.extend(frame(1, 5, key.stream, &block));
            }
            Err((code, message)) => {
                let code = code.to_string();
                let fields = [head[0], head[1], ("grpc-status", &code), ("grpc-message", message)];
                bytes.extend(frame(1, 5, key.stream, &block(&mut conn.server, &fields)));
            }
        }
        self.chunk(key.conn.0, What::Bytes(Direction::Out, bytes));
    }

    fn foreign(&mut self) -> Request {
        let name = self.random.of(&FOREIGN).copied().unwrap_or_default();
        let id = match name.starts_with("sandbox") {
            true => self.runtime.sandbox(&mut self.random),
            false => self.runtime.container(&mut self.random),
        };
        let amount = self.random.below(4) as u64;
        let body = match name.rsplit('/').next().unwrap_or_default() {
            "Version" | "Server" | "List" => Message::new(),
            "Kill" => Message::new().text(1, &id).text(2, if amount == 0 { "probe" } else { "" }).number(3, 9),
            "Stop" => Message::new().text(1, &id).number(2, amount),
            _ => Message::new().text(1, &id),
        };
        let amount = u64::from(name.starts_with("tasks"));
        Request { path: format!("/containerd.services.{name}"), body, id, filter: 0, amount }
    }

    fn cri(&mut self) -> Request {
        let (sandboxes, containers) = self.runtime.len();
        let method = match self.random.below(10) {
            0..4 => self.random.of(&OFTEN),
            4..9 => self.random.of(&RUNTIME),
            _ => self.random.of(&IMAGE),
        };
        let method = match method.copied().unwrap_or_default() {
            // A node holds so many.
            "RunPodSandbox" | "RestorePod" if sandboxes > 8 => "RemovePodSandbox",
            "CreateContainer" if containers > 16 => "RemoveContainer",
            method => method,
        };
        let service = if IMAGE.contains(&method) { "ImageService" } else { "RuntimeService" };
        let sandbox = method.contains("Pod") || matches!(method, "CreateContainer" | "PortForward");
        let id = match sandbox {
            true => self.runtime.sandbox(&mut self.random),
            false => self.runtime.container(&mut self.random),
        };
        let (filter, amount) = (self.random.below(3), self.random.below(6) as u64);
        let body = body(method, &id, filter, amount);
        Request { path: format!("/runtime.v1.{service}/{method}"), body, id, filter, amount }
    }
}

fn body(method: &str, id: &str, filter: usize, amount: u64) -> Message {
    let named = Message::new().text(1, id);
    let image = Message::new().text(1, "busybox:1");
    let config = Message::new().message(1, pod_metadata()).text(2, "web").text(3, "/var/log/pods");
    match method {
        "Version" => Message::new().text(1, if amount == 0 { "" } else { "0.1.0" }),
        "RunPodSandbox" => Message::new().message(1, config).text(2, if amount == 0 { "crun" } else { "" }),
        "CreateContainer" => {
            let own = Message::new().message(1, Message::new().text(1, "main")).message(2, image);
            let own = own.text(3, "sleep").message(6, Message::new().text(1, "KEY").text(2, "S3CR3T"));
            named.message(2, own).message(3, config)
        }
        "StopContainer" => named.number(2, amount),
        "PodSandboxStatus" | "ContainerStatus" => named.number(2, u64::from(amount.is_multiple_of(3))),
        "UpdateContainerResources" if amount > 0 => named.message(2, Message::new().number(1, 100_000).number(3, 512)),
        "UpdatePodSandboxResources" if amount > 0 => named.message(3, Message::new().number(3, 512)),
        "ExecSync" => {
            let words = (0..amount % 3).fold(named.text(2, "true"), |message, _| message.text(2, "x"));
            words.number(3, amount / 2)
        }
        "Exec" => named.text(2, "sh").number(3, amount % 2).number(4, 1).number(5, 1),
        "Attach" => named.number(2, amount % 2).number(4, 1),
        "PortForward" => named.text(2, [80]),
        "CheckpointContainer" => named.text(2, "/var/lib/kubelet/checkpoints/checkpoint-web.tar").number(3, amount),
        "CheckpointPod" => named.text(2, "/var/lib/kubelet/checkpoints/pod"),
        "RestorePod" => Message::new().text(1, "/var/lib/kubelet/checkpoints/pod").message(2, config),
        "ListPodSandbox" | "StreamPodSandboxes" => filtered(filter, 3),
        "ListContainers" | "StreamContainers" => filtered(filter, 4),
        "Status" => Message::new().number(1, u64::from(amount.is_multiple_of(3))),
        "UpdateRuntimeConfig" => {
            Message::new().message(1, Message::new().message(1, Message::new().text(1, "10.0.0.0/24")))
        }
        "ImageStatus" => Message::new().message(1, image).number(2, u64::from(amount.is_multiple_of(3))),
        "RemoveImage" => Message::new().message(1, image),
        "PullImage" if amount.is_multiple_of(2) => Message::new().message(1, image),
        "PullImage" => {
            let auth = Message::new().text(1, "user").text(2, "S3CR3T");
            Message::new().message(1, image).message(2, auth).message(3, config)
        }
        _ if method.starts_with("List") || method.starts_with("Stream") => Message::new(),
        "GetContainerEvents" | "RuntimeConfig" | "ImageFsInfo" => Message::new(),
        _ => named,
    }
}

fn filtered(filter: usize, label: u8) -> Message {
    let pair = Message::new().text(1, "io.kubernetes.pod.uid").text(2, "none");
    match (filter, label) {
        (0, _) => Message::new(),
        (1, 4) => Message::new().message(1, Message::new().message(2, Message::new().number(1, 1))),
        (1, _) => Message::new().message(1, Message::new().message(2, Message::new())),
        _ => Message::new().message(1, Message::new().message(label, pair)),
    }
}

fn grpc(message: &Message) -> Vec<u8> {
    let length = u32::try_from(message.0.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &message.0].concat()
}

fn block(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    encoder.encode(fields.iter().copied()).expect("such fields encode")
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
