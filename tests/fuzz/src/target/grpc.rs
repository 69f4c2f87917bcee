//! gRPC's messages out of a stream's bytes: each gives what the reader makes of it alone, also of an unknown method that
//! becomes known by its first bytes, and around a hole.

use super::proto::{allow, read};
use crate::check::{Surroundings, kept};
use crate::cri::{Field, Fields, Value};
use crate::cri::allow::Allow;
use crate::input::Input;
use crate::wire::parts::{Mask, MessageStep, Messages, Piece};

#[derive(Clone, Copy, PartialEq)]
enum Method {
    Known,
    /// Its name is found with the first bytes of the first message.
    Found,
    Unknown,
}

/// A message in the stream.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    /// Where it begins, where its body does, and where it ends.
    span: (usize, usize, usize),
    fields: Fields,
}

/// What the stream holds, by the letter of the specification.
fn truth(stream: &[u8], allow: &'static Allow, method: Method) -> Vec<Message> {
    let (mut messages, mut at) = (Vec::new(), 0);
    while let Some((&[compressed, l3, l2, l1, l0], rest)) = stream[at..].split_first_chunk() {
        let len = u32::from_be_bytes([l3, l2, l1, l0]) as usize;
        let Some(body) = rest.get(..len) else { break };
        let fields = match (compressed, method) {
            (0, Method::Unknown) => Fields::default(),
            (1, _) => Fields(vec![(Field::Compressed, Value::Number(1))]),
            (0, _) => read(allow, &[body], len).fields,
            _ => break,
        };
        messages.push(Message { span: (at, at + 5, at + 5 + len), fields });
        at += 5 + len;
    }
    messages
}

/// Reads pieces, of which one may be a hole of that length; gives each message's fields and what is kept.
fn assemble(pieces: &[Result<&[u8], usize>], allow: &'static Allow, method: Method) -> (Vec<Fields>, Vec<Vec<u8>>) {
    let mut messages = Messages::new((method == Method::Known).then_some(allow));
    let (mut found, mut out) = (Vec::new(), Vec::new());
    let mut around = Surroundings::default();
    for bytes in pieces {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(hole) => {
                found.extend(messages.gap(*hole as u64, &mut around.context(Mask::off())));
                continue;
            }
        };
        let mut bits = vec![0; bytes.len()];
        let mut cx = around.context(Mask::on(&mut bits));
        let mut piece = Piece::new(bytes);
        while !piece.is_empty() {
            match messages.next(&mut piece, &mut cx) {
                Some(MessageStep::Message(fields)) => found.push(fields),
                Some(MessageStep::Opaque { start, complete }) => {
                    let fields = match method {
                        Method::Unknown => messages.pass(),
                        Method::Known | Method::Found => messages.read(start, allow, &mut cx),
                    };
                    assert_eq!(fields.is_some(), complete, "over when it is complete");
                    found.extend(fields);
                }
                None => {}
            }
        }
        out.push(kept(bytes, &bits));
    }
    (found, out)
}

/// Message number, how the method is known, length of pieces, a hole, the stream.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let allow = allow(input.byte());
    let method = [Method::Known, Method::Found, Method::Unknown][input.below(3)];
    let mut sizes = input.sizes();
    let (hole, len) = (input.number(), input.below(64));
    let stream = input.rest();

    let truth = truth(stream, allow, method);
    let fields: Vec<Fields> = truth.iter().map(|message| message.fields.clone()).collect();
    let pieces: Vec<Result<&[u8], usize>> = sizes.cut(stream).into_iter().map(Ok).collect();
    let (found, kept) = assemble(&pieces, allow, method);
    assert_eq!(found, fields, "as the specification has it");
    let kept: Vec<Result<&[u8], usize>> = kept.iter().map(|piece| Ok(&piece[..])).collect();
    assert_eq!(assemble(&kept, allow, method).0, fields, "from what is kept");

    let hole = hole % (stream.len() + 1);
    let end = (hole + len).min(stream.len());
    let holed = [Ok(&stream[..hole]), Err(end - hole), Ok(&stream[end..])];
    if hole == end {
        return;
    }
    let (found, _) = assemble(&holed, allow, method);
    let whole = truth.iter().filter(|message| message.span.2 <= hole).count();
    assert_eq!(&found[..whole.min(found.len())], &fields[..whole], "before the hole");
    match truth.get(whole).filter(|message| message.span.1 <= hole && end <= message.span.2) {
        // The hole is within a message: that one tells less, the others all.
        Some(_) => {
            assert_eq!(found.len(), fields.len(), "no message more, and none less");
            assert!(fields[whole].0.starts_with(&found[whole].0), "the message with the hole");
            assert_eq!(&found[whole + 1..], &fields[whole + 1..], "behind the hole");
        }
        None if truth.get(whole).is_some() => assert_eq!(found.len(), whole, "where the next begins is not known"),
        None => {}
    }
}
