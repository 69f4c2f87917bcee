//! One call, as the events that the wire decoders give of it.

use crate::ids::{ConnId, MonotonicNs, Tgid};

/// Identity of a call: its connection and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// Connection.
    pub conn: ConnId,
    /// HTTP/2 or ttrpc stream id.
    pub stream: u32,
}

/// What carries the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// gRPC over HTTP/2; the traced process is the server.
    Grpc,
    /// ttrpc; the traced process is the client (shims) or the server (task events).
    Ttrpc,
}

/// How the method's name is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodSource {
    /// `:path` was a literal in this call's header block, or ttrpc's own field.
    Literal,
    /// `:path` came from the HPACK table, from an entry whose insertion was seen.
    Table,
    /// The table entry is from before the attach, or lost with a gap; what the call did tells which method it is.
    Inferred,
    /// The table entry is from before the attach, or lost with a gap: the name is not known.
    Opaque,
}

/// An entry of a client's header table that stands for a method whose name was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// How often the table became unknown before.
    pub epoch: u32,
    /// How many entries were inserted between this one and the first block of the epoch; it stays the same while the
    /// table moves on.
    pub entry: u32,
}

/// What a request's header block says beside its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSigns {
    /// Fields in the block.
    pub fields: u32,
    /// This block put its `:path` into the table: no older entry of the epoch holds the same one.
    pub inserted: bool,
    /// The path is an entry of before the attach, and which one it is cannot be told from the fields' order.
    pub placeless: bool,
    /// `containerd-namespace` was among the fields: a call of the containerd API.
    pub namespace: bool,
}

/// The start of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStart {
    /// Call.
    pub key: CallKey,
    /// Exit of the read (server) or entry of the write (client) that carried the first byte of its headers.
    pub at: MonotonicNs,
    /// Protocol.
    pub protocol: Protocol,
    /// `runtime.v1.RuntimeService`, `containerd.task.v2.Task`, …; empty when opaque.
    pub service: String,
    /// `RunPodSandbox`, `Create`, …; empty when opaque.
    pub method: String,
    /// Source of the name.
    pub source: MethodSource,
    /// `user-agent`, where readable.
    pub user_agent: Option<String>,
    /// Process at the client's end, where known.
    pub client: Option<Tgid>,
    /// `grpc-timeout` or ttrpc `timeout_nano`, in nanoseconds.
    pub timeout_ns: Option<u64>,
    /// Where the name of an opaque or inferred call stands.
    pub slot: Option<Slot>,
    /// The header block's form.
    pub signs: HeaderSigns,
}

/// An opaque call that has a name now, as a whole: parts that are not here follow as events of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its start, with the name.
    pub start: CallStart,
    /// Its first request message and when it was complete.
    pub request: Option<(MonotonicNs, Fields)>,
    /// Its first response message and when it was complete.
    pub response: Option<(MonotonicNs, Fields)>,
    /// Its end.
    pub end: Option<(MonotonicNs, Ending)>,
    /// From what the name was inferred.
    pub evidence: String,
}

/// An opaque call that is over and may have been one of several methods; its name may still follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Its start, without a name.
    pub start: CallStart,
    /// When it was over.
    pub end: MonotonicNs,
    /// Sandbox and container ids that it carried.
    pub ids: Vec<String>,
    /// Methods that it may have been; none when it is not known to be a call of the CRI.
    pub candidates: Vec<&'static str>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a status: gRPC code (0 is OK) and message, percent-decoded, with URL user info and query removed.
    Status {
        /// Code.
        code: u32,
        /// Message.
        message: String,
    },
    /// The stream ended without a readable status.
    NoStatus,
    /// `RST_STREAM` with this HTTP/2 error code, sent by the client.
    ResetByClient(u32),
    /// `RST_STREAM` with this HTTP/2 error code, sent by the server.
    ResetByServer(u32),
    /// The connection ended first.
    ConnectionClosed,
    /// The runtime's process ended first, and with it the connection.
    RuntimeRestarted,
}

/// An event of a call, in wire order for its connection; only [`CallEvent::Named`] comes later than what it tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// Its headers were read.
    Start(CallStart),
    /// A request message is complete.
    Request {
        /// Call.
        key: CallKey,
        /// When its last byte was moved.
        at: MonotonicNs,
        /// Allow-listed fields.
        fields: Fields,
    },
    /// A response message is complete.
    Response {
        /// Call.
        key: CallKey,
        /// When its last byte was moved.
        at: MonotonicNs,
        /// Allow-listed fields.
        fields: Fields,
    },
    /// The call is over.
    End {
        /// Call.
        key: CallKey,
        /// Entry of the write (server) or exit of the read (client) that carried the end.
        at: MonotonicNs,
        /// How.
        ending: Ending,
    },
    /// A call is over whose request came before its connection was watched.
    Unasked {
        /// Call.
        key: CallKey,
        /// Entry of the write that carried the end.
        at: MonotonicNs,
        /// How.
        ending: Ending,
    },
    /// An opaque call's name was found out.
    Named(Box<Named>),
    /// An opaque call ended without one.
    Unnamed(Box<Unnamed>),
    /// Bytes of a connection were lost or not understood.
    Undecoded {
        /// Connection.
        conn: ConnId,
        /// When it was noticed.
        at: MonotonicNs,
        /// How many bytes.
        bytes: u64,
    },
}

/// Fields that a message may give a value for; nothing else of a body ever becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named after the CRI and task API fields that they carry")]
pub enum Field {
    PodName,
    PodNamespace,
    PodUid,
    PodAttempt,
    RuntimeHandler,
    CgroupParent,
    /// NamespaceMode: 0 POD, 1 CONTAINER, 2 NODE, 3 TARGET.
    NetworkMode,
    PidMode,
    IpcMode,
    SandboxId,
    ContainerId,
    ContainerName,
    ContainerAttempt,
    /// Image as requested, `ImageSpec.image`.
    Image,
    /// Digest or id in a reply.
    ImageRef,
    /// Task API: container id of the task (a sandbox's id for its pause container).
    TaskId,
    /// Task API: exec id; empty for init.
    ExecId,
    /// Task API: bundle path.
    Bundle,
    /// Task API: host pid.
    Pid,
    /// Task API: exit status.
    ExitStatus,
    /// Task API: signal of Kill.
    Signal,
    /// Events API: topic.
    Topic,
    /// Version reply.
    RuntimeName,
    RuntimeVersion,
    /// PodSandboxStatus reply: address of the pod.
    PodIp,
    /// ContainerStatus and PodSandboxStatus replies.
    State,
    ExitCode,
    /// StopContainer grace, ExecSync timeout, seconds.
    Timeout,
    /// ExecSync: how long each word of its command is; never the word.
    ExecWord,
    /// ExecSync reply.
    ExecExitCode,
    /// List requests: 1 when not everything is asked for.
    Filter,
    /// No field of a message: it is compressed (gRPC's flag is 1), and nothing of it was read.
    Compressed,
    /// No field of a message: its bytes, of one that has more than a mebibyte.
    Length,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text; bytes that are not UTF-8 are replaced, and length is bounded.
    Text(String),
    /// A varint.
    Number(u64),
}

/// The allow-listed fields of one message, in wire order; a repeated field occurs repeatedly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(Field, Value)>);

impl Fields {
    /// The last text of `field` (protobuf: the last one wins).
    pub fn text(&self, field: Field) -> Option<&str> {
        self.0.iter().rev().find_map(|(f, v)| match v {
            Value::Text(text) if *f == field => Some(text.as_str()),
            _ => None,
        })
    }

    /// The last number of `field`.
    pub fn number(&self, field: Field) -> Option<u64> {
        self.0.iter().rev().find_map(|(f, v)| match v {
            Value::Number(number) if *f == field => Some(*number),
            _ => None,
        })
    }
}
