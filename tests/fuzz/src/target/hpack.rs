//! Header blocks against a model of their encoder that knows everything, joined late anywhere: what is known is right,
//! what is not known is the same entry each time, and what was inserted since is known.

use std::collections::{BTreeMap, VecDeque};

use httlib_huffman::encode as huffman;

use crate::input::Input;
use crate::wire::parts::{Table, decode_block};

type Field = (Vec<u8>, Vec<u8>);

/// RFC 7541, 4.1.
fn size((name, value): &Field) -> usize {
    32 + name.len() + value.len()
}

/// The encoder: its table, newest first, with each entry's number.
struct Model {
    table: VecDeque<(usize, Field)>,
    max: usize,
    inserted: usize,
    /// The block under way, and what it says: each field, and which entry it is.
    block: Vec<u8>,
    fields: Vec<(Field, Option<usize>)>,
}

impl Model {
    fn evict(&mut self) {
        while self.table.iter().map(|(_, field)| size(field)).sum::<usize>() > self.max {
            self.table.pop_back();
        }
    }

    /// 5.1.
    fn integer(&mut self, first: u8, prefix: u32, value: usize) {
        let limit = (1 << prefix) - 1;
        let Some(mut rest) = value.checked_sub(limit) else {
            self.block.push(first | u8::try_from(value).unwrap());
            return;
        };
        self.block.push(first | u8::try_from(limit).unwrap());
        while rest >= 128 {
            self.block.push(u8::try_from(rest % 128).unwrap() | 0x80);
            rest /= 128;
        }
        self.block.push(u8::try_from(rest).unwrap());
    }

    fn string(&mut self, text: &[u8], coded: bool) {
        let mut short = Vec::new();
        let coded = coded && huffman(text, &mut short).is_ok();
        let bytes = if coded { short } else { text.to_vec() };
        self.integer(if coded { 0x80 } else { 0 }, 7, bytes.len());
        self.block.extend(bytes);
    }

    /// A literal, with its name from the table where there is an index.
    fn literal(&mut self, (first, prefix): (u8, u32), index: usize, name: &[u8], value: &[u8], coded: bool) {
        self.integer(first, prefix, index);
        if index == 0 {
            self.string(name, coded);
        }
        self.string(value, coded);
    }
}

/// First byte odd: any block at all. Else choices of an encoder, and of when its reader joins.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() % 2 == 1 {
        return any_block(&mut input);
    }
    let mut model = Model { table: VecDeque::new(), max: 4096, inserted: 0, block: vec![], fields: vec![] };
    let mut table = Table::new();
    // Which entries the reader has seen inserted, whether it knows the table's size, and what it calls the others.
    let (mut joined, mut sized) = (0, true);
    let mut opaque: BTreeMap<u32, usize> = BTreeMap::new();
    while !input.is_over() {
        let op = input.byte();
        let coded = op & 0x10 != 0;
        match op & 0x0f {
            0..=6 => {
                let entry = input.below(model.table.len() + 1);
                // From the dynamic table, or of its own.
                let from_table = model.table.get(entry).map(|(_, (name, _))| name.clone());
                let index = if from_table.is_some() { 62 + entry } else { 0 };
                let name = from_table.unwrap_or_else(|| input.run().iter().copied().take(40).collect());
                let n = usize::from(input.byte());
                let field = (name, input.bytes(n).to_vec());
                if op & 0x0f < 5 {
                    model.literal((0x40, 6), index, &field.0, &field.1, coded);
                    model.fields.push((field.clone(), None));
                    model.table.push_front((model.inserted, field));
                    model.inserted += 1;
                    model.evict();
                } else {
                    model.literal((if op & 0x0f == 5 { 0 } else { 0x10 }, 4), index, &field.0, &field.1, coded);
                    model.fields.push((field, None));
                }
            }
            7..=11 => {
                let entry = input.below(model.table.len().max(1));
                if let Some((number, field)) = model.table.get(entry).cloned() {
                    model.integer(0x80, 7, 62 + entry);
                    model.fields.push((field, Some(number)));
                }
            }
            12 if model.block.is_empty() => {
                model.max = input.below(6000);
                model.integer(0x20, 5, model.max);
                sized = true;
                model.evict();
            }
            13 if model.block.is_empty() => {
                // A reader that was there before loses a block; another one comes new, and does not know the size.
                if coded {
                    table = Table::new();
                    sized = model.max == 4096;
                }
                table.forget();
                opaque.clear();
                joined = model.inserted;
            }
            _ => end_of_block(&mut model, &mut table, joined, sized, &mut opaque),
        }
    }
    end_of_block(&mut model, &mut table, joined, sized, &mut opaque);
}

fn end_of_block(model: &mut Model, table: &mut Table, joined: usize, sized: bool, opaque: &mut BTreeMap<u32, usize>) {
    let block = std::mem::take(&mut model.block);
    let mut expected = std::mem::take(&mut model.fields).into_iter();
    let result = decode_block(table, &block, &mut |header| {
        let ((name, value), entry) = expected.next().expect("no field more than were encoded");
        assert!(header.name.is_none_or(|n| n == name), "a wrong name");
        assert!(header.value.is_none_or(|v| v == value), "a wrong value");
        assert_eq!(header.literal, entry.is_none());
        let known = header.name.is_some() && header.value.is_some();
        match (entry, header.opaque) {
            (_, Some(id)) => {
                let entry = entry.expect("an opaque entry stands for one of the table");
                assert!(!known && entry < joined, "an entry of before");
                assert_eq!(*opaque.entry(id).or_insert(entry), entry, "it stands for another entry now");
            }
            (Some(entry), None) if joined == 0 => assert!(known, "entry {entry} was seen"),
            // Its name may be that of an entry of before.
            (Some(entry), None) if entry >= joined && sized => {
                assert!(header.value.is_some(), "entry {entry} was seen")
            }
            _ => {}
        }
    });
    if sized {
        assert!(result.is_ok() && expected.next().is_none(), "a block that its encoder made");
    }
}

fn any_block(input: &mut Input<'_>) {
    let late = input.byte() % 2 == 1;
    let mut table = Table::new();
    if late {
        table.forget();
    }
    while !input.is_over() {
        let mut fields = 0;
        let block = input.run();
        let _ = decode_block(&mut table, block, &mut |_| fields += 1);
        assert!(fields <= block.len(), "a field takes a byte");
    }
}
