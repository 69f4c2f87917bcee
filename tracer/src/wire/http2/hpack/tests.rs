//! RFC 7541's examples, cut and spoilt; tables that are joined late.

use proptest::prelude::*;

use super::*;

type Field = (Option<Vec<u8>>, Option<Vec<u8>>);

fn fields(table: &mut Table, block: &[u8]) -> (Vec<Field>, Result<(), Malformed>) {
    let mut out = vec![];
    let result = decode(table, block, &mut |header| {
        out.push((header.name.map(<[u8]>::to_vec), header.value.map(<[u8]>::to_vec)));
    });
    (out, result)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |n, d| n << 4 | u8::try_from(char::from(*d).to_digit(16).unwrap()).unwrap()))
        .collect()
}

/// Table size, and blocks with what they decode to: RFC 7541, C.3 (plain), C.4 (Huffman) and C.6 (with eviction).
const SAMPLES: &[(usize, &[(&str, &str)])] = &[
    (
        4096,
        &[
            (
                "828684410f7777772e6578616d706c652e636f6d",
                ":method: GET|:scheme: http|:path: /|:authority: www.example.com",
            ),
            (
                "828684be58086e6f2d6361636865",
                ":method: GET|:scheme: http|:path: /|:authority: www.example.com|cache-control: no-cache",
            ),
            (
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
                ":method: GET|:scheme: https|:path: /index.html|:authority: www.example.com|custom-key: custom-value",
            ),
        ],
    ),
    (
        4096,
        &[
            ("828684418cf1e3c2e5f23a6ba0ab90f4ff", ":method: GET|:scheme: http|:path: /|:authority: www.example.com"),
            (
                "828684be5886a8eb10649cbf",
                ":method: GET|:scheme: http|:path: /|:authority: www.example.com|cache-control: no-cache",
            ),
            (
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
                ":method: GET|:scheme: https|:path: /index.html|:authority: www.example.com|custom-key: custom-value",
            ),
        ],
    ),
    (
        256,
        &[
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
                ":status: 302|cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|location: https://www.example.com",
            ),
            (
                "4883640effc1c0bf",
                ":status: 307|cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|location: https://www.example.com",
            ),
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                ":status: 200|cache-control: private|date: Mon, 21 Oct 2013 20:13:22 GMT|location: https://www.example.com|content-encoding: gzip|set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ],
    ),
];

fn show(fields: &[Field]) -> String {
    let half = |half: &Option<Vec<u8>>| half.as_ref().map_or("?".into(), |h| String::from_utf8_lossy(h).into_owned());
    fields.iter().map(|(n, v)| format!("{}: {}", half(n), half(v))).collect::<Vec<_>>().join("|")
}

fn table(size: usize) -> Table {
    let mut table = Table::new();
    table.resize(size);
    table
}

#[test]
fn known_answers() {
    for (size, blocks) in SAMPLES {
        let mut table = table(*size);
        for (block, expected) in *blocks {
            let (decoded, result) = fields(&mut table, &hex(block));
            assert_eq!((show(&decoded).as_str(), result), (*expected, Ok(())));
        }
    }
}

#[test]
fn a_cut_block_gives_no_wrong_field() {
    for (size, blocks) in SAMPLES {
        for (n, (block, expected)) in blocks.iter().enumerate() {
            let block = hex(block);
            for end in 0..block.len() {
                let mut table = table(*size);
                for (before, _) in &blocks[..n] {
                    fields(&mut table, &hex(before)).1.unwrap();
                }
                let (decoded, _) = fields(&mut table, &block[..end]);
                let shown = show(&decoded);
                assert!(expected.starts_with(&shown), "{shown}");
                assert!(shown.len() < expected.len());
            }
        }
    }
}

#[test]
fn trailing_garbage_is_refused() {
    for garbage in [&[0x80][..], &[0x7f], &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0x20], &[0x40, 1], &[0x40, 0x81, 0]]
    {
        for (size, blocks) in SAMPLES {
            let mut table = table(*size);
            let block = [hex(blocks[0].0).as_slice(), garbage].concat();
            assert_eq!(fields(&mut table, &block).1, Err(Malformed), "{garbage:x?}");
        }
    }
}

#[test]
fn what_a_forgotten_table_held_is_opaque_and_what_came_since_is_exact() {
    let mut table = Table::new();
    fields(&mut table, &hex(SAMPLES[0].1[0].0)).1.unwrap();
    table.forget();
    let (decoded, _) = fields(&mut table, &hex("82be"));
    assert_eq!(show(&decoded), ":method: GET|?: ?");
    // A new field, then it and the opaque one behind it; then a value whose name is opaque.
    let (decoded, _) = fields(&mut table, &hex("4001610162 be bf 7f00 0163"));
    assert_eq!(show(&decoded), "a: b|a: b|?: ?|?: c");
    // A table that was emptied holds nothing, opaque or not.
    let (decoded, result) = fields(&mut table, &hex("20 3fe11f be"));
    assert_eq!((decoded, result), (vec![], Err(Malformed)));
}

/// Which of the opaque entries each field of a block is.
fn opaque(table: &mut Table, block: &[u8]) -> Vec<Option<u32>> {
    let mut out = vec![];
    decode(table, block, &mut |header| out.push(header.opaque)).unwrap();
    out
}

#[test]
fn an_opaque_entry_keeps_its_place() {
    let mut table = Table::new();
    table.forget();
    // The newest two; an insertion later; and behind what was inserted since there is nothing else than they.
    assert_eq!(opaque(&mut table, &hex("be bf 82")), [Some(0), Some(1), None]);
    assert_eq!(opaque(&mut table, &hex("4001610162 be bf c0")), [None, None, Some(0), Some(1)]);
    table.forget();
    assert_eq!(opaque(&mut table, &hex("be")), [Some(0)], "of another epoch");
}

/// A sender of the table's inserts: literals, and indices to what is still in its table.
fn blocks() -> impl Strategy<Value = Vec<Vec<(u8, Vec<u8>)>>> {
    let field = (0_u8..12, proptest::collection::vec(any::<u8>(), 0..60));
    proptest::collection::vec(proptest::collection::vec(field, 1..6), 2..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joined_late_nothing_is_wrong(blocks in blocks(), join in any::<prop::sample::Index>()) {
        let join = join.index(blocks.len());
        let (mut sender, mut exact) = (Vec::<(Vec<u8>, Vec<u8>)>::new(), Table::new());
        let (mut late, mut again) = (Table::new(), Table::new());
        late.forget();
        again.forget();
        let mut entries = std::collections::BTreeMap::new();
        for (n, block) in blocks.iter().enumerate() {
            let (mut bytes, mut sent) = (vec![], vec![]);
            for (pick, value) in block {
                let size = |t: &[(Vec<u8>, Vec<u8>)]| t.iter().map(|(n, v)| 32 + n.len() + v.len()).sum::<usize>();
                match sender.get(usize::from(*pick)) {
                    Some(field) => {
                        bytes.push(0x80 | (62 + pick));
                        sent.push(field.clone());
                    }
                    None => {
                        let name = vec![b'n', *pick];
                        bytes.extend([0x40, 2]);
                        bytes.extend(&name);
                        bytes.push(u8::try_from(value.len()).unwrap());
                        bytes.extend(value);
                        sender.insert(0, (name.clone(), value.clone()));
                        while size(&sender) > 4096 {
                            sender.pop();
                        }
                        sent.push((name, value.clone()));
                    }
                }
            }
            let sent: Vec<Field> = sent.into_iter().map(|(n, v)| (Some(n), Some(v))).collect();
            let (decoded, result) = fields(&mut exact, &bytes);
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(&decoded, &sent);
            if n >= join {
                let (decoded, result) = fields(&mut late, &bytes);
                prop_assert_eq!(result, Ok(()));
                for (decoded, sent) in decoded.iter().zip(&sent) {
                    prop_assert!(decoded == sent || *decoded == (None, None));
                }
                // An opaque entry is the same one for as long as it is there.
                for (entry, sent) in opaque(&mut again, &bytes).into_iter().zip(sent) {
                    let Some(entry) = entry else { continue };
                    prop_assert_eq!(entries.entry(entry).or_insert(sent.clone()), &sent);
                }
            }
        }
    }

    #[test]
    fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let mut table = Table::new();
        for block in &blocks {
            if fields(&mut table, block).1.is_err() {
                table.forget();
            }
        }
    }
}
