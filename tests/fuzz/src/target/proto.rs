//! The protobuf reader on any message of any method: however it is cut, and whatever stands where nothing is listed.

use crate::cri::Fields;
use crate::cri::allow::Allow;
use crate::cri::schema;
use crate::input::Input;
use crate::wire::parts::{Mask, Piece, Scanner, Taken};

/// One method of each kind of request and reply; the envelope of ttrpc leads to all of the task API.
pub(crate) const METHODS: [(&str, &str); 18] = [
    ("runtime.v1.RuntimeService", "RunPodSandbox"),
    ("runtime.v1.RuntimeService", "CreateContainer"),
    ("runtime.v1.RuntimeService", "StartContainer"),
    ("runtime.v1.RuntimeService", "StopContainer"),
    ("runtime.v1.RuntimeService", "ListPodSandbox"),
    ("runtime.v1.RuntimeService", "PodSandboxStatus"),
    ("runtime.v1.RuntimeService", "ListContainers"),
    ("runtime.v1.RuntimeService", "ContainerStatus"),
    ("runtime.v1.RuntimeService", "ExecSync"),
    ("runtime.v1.RuntimeService", "GetContainerEvents"),
    ("runtime.v1.RuntimeService", "Version"),
    ("runtime.v1.ImageService", "PullImage"),
    ("runtime.v1.ImageService", "ImageStatus"),
    ("containerd.task.v2.Task", "Create"),
    ("containerd.task.v2.Task", "State"),
    ("containerd.task.v3.Task", "Kill"),
    ("containerd.task.v3.Task", "Events"),
    ("containerd.services.events.ttrpc.v1.Events", "Forward"),
];

/// What is read of message number `n`.
pub(crate) fn allow(n: u8) -> &'static Allow {
    let (service, method) = METHODS[usize::from(n / 2) % METHODS.len()];
    match n {
        255 => &schema::TTRPC_REQUEST,
        254 => &schema::TTRPC_RESPONSE,
        _ if n.is_multiple_of(2) => schema::request(service, method),
        _ => schema::response(service, method),
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) fields: Fields,
    rpc: (String, String, Option<u64>, u32, String),
    pub(crate) malformed: bool,
    dropped: u64,
    bits: Vec<u8>,
}

/// Reads `pieces`, the beginning of a message of `len` bytes.
pub(crate) fn read(allow: &'static Allow, pieces: &[&[u8]], len: usize) -> Read {
    let bytes = pieces.concat();
    let (mut scanner, mut taken, mut bits) = (Scanner::new(allow, len as u64), Taken::new(), vec![0; bytes.len()]);
    let mut whole = Piece::new(&bytes);
    for piece in pieces {
        scanner.feed(whole.take(piece.len()), &mut Mask::on(&mut bits), &mut taken);
    }
    let malformed = scanner.malformed();
    let Taken { fields, dropped, service, method, timeout_ns, code, message, .. } = taken;
    Read { fields, rpc: (service, method, timeout_ns, code, message), malformed, dropped, bits }
}

/// Message number, length of pieces, how much is not there, a byte for what is not kept, the message.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let allow = allow(input.byte());
    let mut sizes = input.sizes();
    let beyond = usize::from(input.byte());
    let other = input.byte();
    let message = input.rest();
    let len = message.len() + beyond;

    let whole = read(allow, &[message], len);
    assert_eq!(read(allow, &sizes.cut(message), len), whole, "in pieces");
    for other in [0, other] {
        let kept: Vec<u8> = message.iter().zip(&whole.bits).map(|(m, kept)| m & kept | other & !kept).collect();
        assert_eq!(read(allow, &[&kept], len), whole, "what is not kept decides nothing");
    }
    let cut = &message[..message.len() / 2];
    let prefix = read(allow, &[cut], len);
    assert!(whole.fields.0.starts_with(&prefix.fields.0), "a prefix gives nothing else");
    assert_eq!(prefix.bits, whole.bits[..cut.len()], "a prefix keeps nothing else");
}
