//! Cutting a direction's bytes into frames, and finding a boundary again.

use crate::check::{Surroundings, kept};
use crate::input::Input;
use crate::wire::parts::{FrameStep, Frames, Head, Mask, Piece};

/// What came of a direction's bytes.
#[derive(Debug, Default, PartialEq)]
struct Cut {
    /// Frames, each with as much of its payload as came.
    frames: Vec<(Head, Vec<u8>)>,
    /// Bytes of payload.
    payload: u64,
    /// Bytes before a boundary, and boundaries lost.
    skipped: u64,
    lost: usize,
    refused: bool,
    /// The bytes as a recording keeps them, where payload is kept.
    kept: Vec<Vec<u8>>,
}

fn frames(start: u8, pieces: &[Vec<u8>]) -> Cut {
    let mut frames = match start % 3 {
        0 => Frames::client(),
        1 => Frames::server(),
        _ => Frames::middle(),
    };
    let mut cut = Cut::default();
    for bytes in pieces {
        let mut bits = vec![0; bytes.len()];
        let mut around = Surroundings::default();
        let mut cx = around.context(Mask::on(&mut bits));
        let mut piece = Piece::new(bytes);
        loop {
            match frames.step(&mut piece, &mut cx) {
                FrameStep::More => break,
                FrameStep::Payload { head, start, piece } => {
                    cx.mask.keep(piece);
                    cut.payload += piece.len() as u64;
                    if start == 0 {
                        cut.frames.push((head, Vec::new()));
                    }
                    let (last, payload) = cut.frames.last_mut().expect("a frame begins at 0");
                    assert!(*last == head && payload.len() == start as usize, "payload in order");
                    payload.extend_from_slice(piece.bytes);
                    assert!(payload.len() <= head.length as usize, "no more payload than the frame has");
                }
                FrameStep::Invalid => {
                    cut.lost += 1;
                    frames.lose();
                }
                FrameStep::NotHttp2 => {
                    cut.refused = true;
                    return cut;
                }
            }
        }
        assert!(piece.is_empty(), "all bytes are read");
        cut.skipped += around.counters.skipped_bytes;
        cut.kept.push(kept(bytes, &bits));
    }
    cut
}

/// Where the direction begins, length of pieces, its bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let start = input.byte();
    let mut sizes = input.sizes();
    let bytes = input.rest();
    let pieces: Vec<Vec<u8>> = sizes.cut(bytes).into_iter().map(<[u8]>::to_vec).collect();
    let cut = frames(start, &pieces);
    if !cut.refused {
        let kept = Cut { kept: cut.kept.clone(), ..frames(start, &cut.kept) };
        assert_eq!(kept, cut, "the same is found in what a recording keeps");
        let heads = cut.frames.len() as u64 * 9 + cut.lost as u64 * 9;
        assert!(heads + cut.payload + cut.skipped <= bytes.len() as u64, "each byte is read once");
    }
    let whole = frames(start, &[bytes.to_vec()]);
    if start % 3 < 2 && whole.lost == 0 {
        assert_eq!((&whole.frames, whole.refused), (&cut.frames, cut.refused), "cut in pieces");
    }
}
