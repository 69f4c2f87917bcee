//! Walks the first bytes of a message level by level, over the forms of all methods that it may belong to.
//!
//! What decides is kept, and nothing else decides: tags, lengths and continuation bits of a level, once the whole level
//! has the form of a message that some method left has there; identifiers, by their form; top-level numbers. A level
//! that fails is kept not at all and reads as zeros in a recording, and zeros fail again. Text that may be a secret
//! under any method left is not looked into. It must never remove a method for a field that a newer API may have.

use std::ops::Range;

use super::Part;
use super::methods::Path;
use super::set::Set;
use super::shape::{Kind, Shape};
use super::wire::{Field, fields};

/// Deepest level, the message itself being 1; as long as a [`Path`].
const DEPTH: usize = 4;

/// Fields of the same number and level that are looked into.
const REPEATED: usize = 3;

/// Most facts of one message.
const MAX_FACTS: usize = 512;

/// Digits of a sandbox's, container's or image's id.
const ID_DIGITS: usize = 64;

/// What a field was found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Something.
    Present,
    /// This number.
    Number(u64),
    /// This identifier or public text.
    Text(String),
}

/// One field that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) path: Path,
    pub(super) found: Found,
    /// Bytes that it holds.
    pub(super) len: usize,
}

/// What a message says.
#[derive(Debug)]
pub(super) struct Walked {
    /// Methods whose form it has.
    pub(super) set: Set,
    /// A bit for each field number of the message itself.
    pub(super) top: u64,
    pub(super) facts: Vec<Fact>,
    /// All bits of these bytes decided.
    pub(super) whole: Vec<Range<usize>>,
    /// The continuation bits of these did.
    pub(super) continuation: Vec<Range<usize>>,
    /// Public text under every method of the CRI that is left: to be kept and told when no other API is.
    plain: Vec<(Path, Range<usize>)>,
}

/// Methods that have the same form at some place.
type Form = (Set, &'static Shape);

/// Walks a message's first bytes.
pub(super) fn walk(set: Set, part: Part, bytes: &[u8], complete: bool) -> Walked {
    let mut walk = Walk { bytes, out: Walked::nothing() };
    let mut forms: Vec<Form> = Vec::new();
    for method in set.methods() {
        let shape = match part {
            Part::Request => method.entry().request,
            Part::Response => method.entry().response,
        };
        add(&mut forms, method.set(), shape);
    }
    let end = if complete { bytes.len() } else { usize::MAX };
    let left = if forms.is_empty() { Set::EMPTY } else { walk.level(forms, 0..end, [0; DEPTH], 0) };
    if left.is_empty() {
        // It may have failed at its last field: of what was found before, a recording would hold a part that fails sooner.
        walk.out = Walked::nothing();
    }
    walk.out.set = left.or(set.and(Set::FOREIGN));
    walk.out
}

impl Walked {
    fn nothing() -> Walked {
        Walked { set: Set::EMPTY, top: 0, facts: vec![], whole: vec![], continuation: vec![], plain: vec![] }
    }

    /// Keeps and takes the public text: to be called when no other API is left.
    pub(super) fn take_plain(&mut self, bytes: &[u8]) {
        for (path, range) in std::mem::take(&mut self.plain) {
            let text = String::from_utf8_lossy(&bytes[range.clone()]).into_owned();
            self.facts.retain(|fact| fact.path != path || fact.found != Found::Present);
            self.facts.push(Fact { path, found: Found::Text(text), len: range.len() });
            self.whole.push(range);
        }
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    out: Walked,
}

impl Walk<'_> {
    /// Walks one level; gives the methods that have its form.
    fn level(&mut self, forms: Vec<Form>, range: Range<usize>, path: Path, depth: usize) -> Set {
        let Some((fields, cut)) = fields(self.bytes, range) else { return Set::EMPTY };
        let mut forms = fitting(forms, &fields);
        if forms.is_empty() {
            return Set::EMPTY;
        }
        if depth == 0 {
            self.out.top = fields.iter().fold(0, |top, field| top | bit(field.number));
        }
        self.out.whole.push(cut);
        let mut seen: Vec<u32> = Vec::new();
        for field in &fields {
            self.out.whole.push(field.head.clone());
            let inner = extend(path, depth, field.number);
            seen.push(field.number);
            let before = seen.iter().filter(|n| **n == field.number).count();
            if field.wire_type == 2 && depth + 1 < DEPTH && before <= REPEATED {
                self.inside(&mut forms, field, inner, depth + 1);
                if forms.is_empty() {
                    return Set::EMPTY;
                }
            }
            self.note(field, &forms, inner, depth);
        }
        forms.iter().fold(Set::EMPTY, |set, (s, _)| set.or(*s))
    }

    /// Takes down what a field is found to hold, and keeps what that hangs on.
    fn note(&mut self, field: &Field, forms: &[Form], path: Path, depth: usize) {
        let held = self.bytes.get(field.content.clone());
        let cut = field.content.start..field.content.end.min(self.bytes.len());
        let found = match (field.wire_type, held) {
            (0, _) if depth == 0 => {
                self.out.whole.push(cut);
                Found::Number(field.value)
            }
            (0, _) => {
                self.out.continuation.push(cut);
                Found::Present
            }
            (2, Some(held)) if all(forms, field.number, |kind| matches!(kind, Kind::Id | Kind::Plain)) => {
                match (identifier(held), all(forms, field.number, |kind| matches!(kind, Kind::Plain))) {
                    (Some(id), _) => {
                        self.out.whole.push(cut);
                        Found::Text(id)
                    }
                    (None, true) => {
                        self.out.plain.push((path, cut));
                        Found::Present
                    }
                    // An id that does not look like one proves nothing.
                    (None, false) => return,
                }
            }
            _ => Found::Present,
        };
        if self.out.facts.len() < MAX_FACTS {
            self.out.facts.push(Fact { path, found, len: field.content.len() });
        }
    }

    /// Looks into a field that is a message under some method left, and a secret under none.
    fn inside(&mut self, forms: &mut Vec<Form>, field: &Field, path: Path, depth: usize) {
        let mut inner: Vec<Form> = Vec::new();
        for (set, shape) in forms.iter() {
            match shape.get(field.number) {
                Some(Kind::Message(shape)) if !shape.0.is_empty() => add(&mut inner, *set, shape),
                None | Some(Kind::Secret | Kind::Message(_)) => return,
                Some(Kind::Plain | Kind::Id | Kind::Text | Kind::Number | Kind::Packed) => {}
            }
        }
        if inner.is_empty() {
            return;
        }
        let out = &self.out;
        let mark = (out.facts.len(), out.whole.len(), out.continuation.len(), out.plain.len());
        let left = self.level(inner, field.content.clone(), path, depth);
        if left.is_empty() {
            self.out.facts.truncate(mark.0);
            self.out.whole.truncate(mark.1);
            self.out.continuation.truncate(mark.2);
            self.out.plain.truncate(mark.3);
        }
        // No name and no id begins with a control character, as nearly each message does. Its tag was kept.
        let control = !left.is_empty() && self.bytes.get(field.content.start).is_some_and(u8::is_ascii_control);
        forms.retain(|(_, shape)| {
            !control || !matches!(shape.get(field.number), Some(Kind::Plain | Kind::Id | Kind::Text))
        });
        for (set, shape) in forms.iter_mut() {
            if matches!(shape.get(field.number), Some(Kind::Message(_))) {
                *set = set.and(left);
            }
        }
        forms.retain(|(set, _)| !set.is_empty());
    }
}

/// The forms that the fields of a level fit. One that knows all of them is preferred to one that would have to be newer.
fn fitting(forms: Vec<Form>, fields: &[Field]) -> Vec<Form> {
    let fits: Vec<(Form, bool)> =
        forms.into_iter().filter_map(|form| fit(form.1, fields).map(|known| (form, known))).collect();
    let known = fits.iter().any(|(_, known)| *known);
    fits.into_iter().filter(|(_, k)| *k == known).map(|(form, _)| form).collect()
}

/// Whether a level has this form; `Some(false)`: only if the form grew.
fn fit(shape: &Shape, fields: &[Field]) -> Option<bool> {
    let mut known = 0;
    for field in fields {
        match shape.get(field.number) {
            Some(kind) => {
                let empty = field.wire_type == 2 && field.content.is_empty();
                // proto3 does not encode an empty string.
                if !kind.allows(field.wire_type) || (empty && matches!(kind, Kind::Id | Kind::Plain)) {
                    return None;
                }
                known += 1;
            }
            None if field.number > shape.highest() => {}
            None => return None,
        }
    }
    // A message of unknown fields alone is more likely no such message.
    (known > 0 || fields.is_empty() || shape.0.is_empty()).then_some(known == fields.len())
}

fn all(forms: &[Form], number: u32, holds: impl Fn(Kind) -> bool) -> bool {
    forms.iter().all(|(_, shape)| shape.get(number).is_some_and(&holds))
}

fn add(forms: &mut Vec<Form>, set: Set, shape: &'static Shape) {
    match forms.iter_mut().find(|(_, other)| std::ptr::eq(*other, shape)) {
        Some((methods, _)) => *methods = methods.or(set),
        None => forms.push((set, shape)),
    }
}

/// A field number's bit in [`Walked::top`].
pub(super) fn bit(number: u32) -> u64 {
    1 << number.min(63)
}

fn extend(mut path: Path, depth: usize, number: u32) -> Path {
    if let Some(place) = path.get_mut(depth) {
        *place = u8::try_from(number).unwrap_or(u8::MAX);
    }
    path
}

/// An identifier: 64 hex digits, perhaps behind `sha256:`.
fn identifier(bytes: &[u8]) -> Option<String> {
    let digits = bytes.strip_prefix(b"sha256:").unwrap_or(bytes);
    let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == ID_DIGITS && digits.iter().all(hex)).then(|| String::from_utf8_lossy(bytes).into_owned())
}
