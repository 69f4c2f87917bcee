//! Round trip, every kind of bad file, and what the file may never hold.

use std::fs;
use std::io::{self, Cursor, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::ids::{ConnId, MonotonicNs, Tgid, Tid};
use crate::record::{Bytes, Direction, Event, Exec, Record};

fn header() -> Header {
    Header {
        tool: "podlapse test".into(),
        created: "2026-01-01T00:00:00Z".into(),
        arguments: vec!["record".into()],
        node: Some(Node {
            kernel: "6.1.0".into(),
            monotonic_ns: 5,
            realtime_ns: 1_767_225_600_000_000_000,
            backends: [("socket".into(), "tracepoint".into())].into(),
        }),
        settle_ns: 2_000_000_000,
        stuck_after_ns: 0,
        containers: None,
        selection: Selection { pod: Some(("default".into(), "web".into())), next: Some(1), ..Selection::default() },
    }
}

fn record(at: u64, event: Event) -> Record {
    Record { at: MonotonicNs(at), tgid: Tgid(1), tid: Tid(1), event }
}

fn bytes(data: &[u8]) -> Event {
    Event::Bytes(Bytes {
        conn: ConnId(1),
        offset: 0,
        other_at: MonotonicNs(0),
        fd: 3,
        direction: Direction::In,
        len: u32::try_from(data.len()).unwrap(),
        data: data.to_vec(),
    })
}

/// Three frames of two records each, and the end.
fn file() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for second in 0..3u64 {
        writer.write(&mut record(second * 10_000_000_000, bytes(b"payload"))).unwrap();
        writer.write(&mut record(second * 10_000_000_000 + 1_000_000_000, Event::Tick)).unwrap();
    }
    writer.finish().unwrap()
}

fn read(file: &[u8]) -> (Vec<Record>, Option<String>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(Box::new(Cursor::new(file.to_vec()))) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error.to_string())),
    };
    loop {
        match reader.read() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error.to_string())),
        }
    }
}

#[test]
fn round_trip_with_payload_zeroed() {
    let (records, error) = read(&file());
    assert_eq!(error, None);
    assert_eq!(records.len(), 6);
    assert_eq!(records[0], record(0, bytes(&[0; 7])));
    assert_eq!(records[5], record(21_000_000_000, Event::Tick));
    let reader = Reader::new(Box::new(Cursor::new(file()))).unwrap();
    assert_eq!(reader.header(), &header());
}

#[test]
fn the_engine_is_fed_what_the_file_holds() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut exec = Exec {
        parent: Tgid(1),
        cgroup: crate::ids::CgroupId(1),
        namespaces: crate::record::Namespaces::default(),
        container: true,
        incomplete: false,
        comm: "sh".into(),
        oom_score_adj: 0,
        filename: "/bin/sh".into(),
        argv: vec!["sh".into(), "-c".into(), "SECRET".into()],
        cni: Vec::new(),
    };
    let mut seen = record(0, Event::Exec(exec.clone()));
    writer.write(&mut seen).unwrap();
    exec.argv.truncate(1);
    assert_eq!(seen, record(0, Event::Exec(exec)));
    assert_eq!(read(&writer.finish().unwrap()).0, [seen]);
}

/// The head's length, and where each frame of `file` ends.
fn frame_ends(file: &[u8]) -> (usize, Vec<usize>) {
    let body = file.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).unwrap().0 + 1;
    let (mut at, mut ends) = (body, Vec::new());
    while at < file.len() {
        at += zstd::zstd_safe::find_frame_compressed_size(&file[at..]).unwrap();
        ends.push(at);
    }
    (body, ends)
}

/// Cut anywhere, a recording gives the records of every whole frame, says how much it does not read, and never panics.
#[test]
fn truncated_anywhere() {
    let whole = file();
    let (all, _) = read(&whole);
    let (body, ends) = frame_ends(&whole);
    for end in body..whole.len() {
        let frames = ends.iter().filter(|frame| **frame <= end).count();
        let (records, error) = read(&whole[..end]);
        assert_eq!(records, all[..2 * frames], "cut at {end}");
        let rest = end - ends[..frames].last().unwrap_or(&body);
        match error {
            None => assert!(rest == 0 && frames > 0, "cut at {end}"),
            Some(error) => assert_eq!(
                error,
                format!(
                    "recording is truncated after {} records: the {rest} bytes behind them are no whole frame; its \
                     writer was killed, the disk was full, or the copy is incomplete",
                    2 * frames
                )
            ),
        }
    }
    for end in 0..body {
        let (records, error) = read(&whole[..end]);
        assert!(records.is_empty() && error.is_some(), "a part of a head is no recording");
    }
}

/// Whatever stands behind the last whole frame, what is before it is read.
#[test]
fn anything_behind_the_last_whole_frame() {
    let whole = file();
    let (all, _) = read(&whole);
    let (_, ends) = frame_ends(&whole);
    let half = &whole[ends[1]..ends[2] - 1];
    let again = &whole[ends[0]..];
    for behind in [&[0; 4096][..], &[0xff; 3], b"text", &[half, &[0; 100]].concat(), &[half, again].concat()] {
        let (records, error) = read(&[&whole[..ends[1]], behind].concat());
        assert_eq!(records, all[..4]);
        let says = format!("after 4 records, the {} bytes behind them are not read: ", behind.len());
        let error = error.unwrap();
        assert!(error.contains(&says) || error.contains("recording is truncated after 4 records"), "{error}");
    }
}

#[test]
fn a_frame_of_no_whole_records() {
    let whole = file();
    let mut raw = Vec::new();
    crate::record::encode_into(&record(1, Event::Tick), &mut raw);
    crate::record::encode_into(&record(2, Event::Tick), &mut raw);
    let frame = zstd::bulk::compress(&raw[..raw.len() - 1], 1).unwrap();
    let (records, error) = read(&[&whole[..], &frame, &whole[frame_ends(&whole).0..]].concat());
    assert_eq!(records.len(), 6);
    assert!(error.unwrap().starts_with("recording is damaged after 6 records, the "));
}

#[test]
fn damaged_anywhere() {
    let whole = file();
    let (all, _) = read(&whole);
    let (body, ends) = frame_ends(&whole);
    for at in body..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let (records, error) = read(&damaged);
        assert!(error.is_some(), "damage at {at} went unseen");
        // Some bits of a frame say nothing of its own, but of what follows it.
        let before = 2 * ends.iter().filter(|end| **end <= at).count();
        assert!(records.len() >= before && all.starts_with(&records), "damage at {at}");
        assert!(error.unwrap().starts_with("recording is "));
    }
}

#[test]
fn what_is_not_a_recording() {
    for garbage in
        [&b""[..], b"\n", b"podlapse-recording", b"podlapse-recording one\n{}\n", b"\x7fELF\0\0", &[0xff; 500]]
    {
        let error = read(garbage).1.unwrap();
        assert_eq!(error, "not a podlapse recording: name a file that `podlapse record` wrote");
    }
    let header = read(b"podlapse-recording 1\n{\"tool\":1}\n").1.unwrap();
    assert!(header.starts_with("recording's header is damaged: "), "{header}");
    let long = [b"podlapse-recording 1\n".to_vec(), vec![b' '; 70_000]].concat();
    assert_eq!(read(&long).1.unwrap(), "recording's header is damaged: its line is too long");
}

#[test]
fn other_versions() {
    let of = |version: &str| read(format!("podlapse-recording {version}\nanything").as_bytes()).1.unwrap();
    for newer in ["2", "4294967295", "4294967296", "99999999999999999999999999"] {
        let says = "this podlapse reads 1: it was made by a newer podlapse, use that one";
        assert_eq!(of(newer), format!("recording has format version {newer}, {says}"));
    }
    let none = "recording has format version 0, this podlapse reads 1: no podlapse wrote that, the file is damaged";
    assert_eq!(of("0"), none);
    for other in ["", "+1", "-1", "1.0", "1 ", "x", &"9".repeat(100)] {
        assert_eq!(of(other), "not a podlapse recording: name a file that `podlapse record` wrote", "{other}");
    }
}

/// Whether a recording that stops at a frame's end is whole is told by its last frame.
#[test]
fn the_end_is_known() {
    let ended = |file: &[u8]| {
        let mut reader = Reader::new(Box::new(Cursor::new(file.to_vec()))).unwrap();
        while let Ok(Some(_)) = reader.read() {}
        reader.is_ended()
    };
    let whole = file();
    let (body, ends) = frame_ends(&whole);
    assert!(ended(&whole));
    for frames in 1..ends.len() {
        assert!(!ended(&whole[..ends[frames - 1]]), "cut after {frames} frames");
    }
    assert!(!ended(&[&whole[..], &whole[body..ends[0]]].concat()), "more came behind the end");
    assert_eq!(read(&Writer::new(Vec::new(), &header()).unwrap().finish().unwrap()), (Vec::new(), None));
}

/// Readable while it is being written: what is a second old is in the file.
#[test]
fn flushed_each_second() {
    let path = tempfile::tempdir().unwrap();
    let path = path.path().join("rec");
    let mut writer = Writer::create(&path, false, &header()).unwrap();
    for tick in 0..=10 {
        writer.write(&mut record(tick * 100_000_000, Event::Tick)).unwrap();
    }
    assert_eq!(read(&fs::read(&path).unwrap()).0.len(), 11);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn never_over_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let create = |name: &str, force| {
        let path = dir.path().join(name);
        let error = Writer::create(&path, force, &header()).err()?;
        Some(error.to_string().replace(dir.path().to_str().unwrap(), "DIR"))
    };
    fs::write(dir.path().join("old"), "old").unwrap();
    symlink(dir.path().join("old"), dir.path().join("link")).unwrap();
    symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    let symlink = "is a symlink: a recording never replaces one, choose another name";
    assert_eq!(create("old", false).unwrap(), "DIR/old exists: choose another name, or --force to replace it");
    assert_eq!(create("link", true).unwrap(), format!("DIR/link {symlink}"));
    assert_eq!(create("dangling", true).unwrap(), format!("DIR/dangling {symlink}"));
    assert!(create("dir", true).unwrap().starts_with("DIR/dir is a directory"));
    assert!(create("no/such", true).unwrap().starts_with("cannot create the recording DIR/no/such: "));
    assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
    assert_eq!(create("old", true), None);
    assert_eq!(create("new", false), None);
}

/// What a disk took before it was full is read up to the last whole frame, however much it took.
#[test]
fn disk_full_at_every_byte() {
    let whole = file();
    let (all, _) = read(&whole);
    let (body, ends) = frame_ends(&whole);
    for room in body..whole.len() {
        let mut disk = Disk { kept: Vec::new(), room };
        let mut writer = Writer::new(&mut disk, &header()).unwrap();
        let failed = (0..3u64).find_map(|second| {
            writer.write(&mut record(second * 10_000_000_000, bytes(b"payload"))).ok()?;
            writer.write(&mut record(second * 10_000_000_000 + 1_000_000_000, Event::Tick)).err()
        });
        // Where it has room for all records, it has none for the end.
        let failed = failed.or_else(|| writer.finish().err()).unwrap();
        assert!(failed.to_string().starts_with("no space left for the recording"));
        assert_eq!(disk.kept, whole[..room]);
        assert_eq!(read(&disk.kept).0, all[..(2 * ends.iter().filter(|end| **end <= room).count()).min(6)]);
    }
}

struct Disk {
    kept: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = data.len().min(self.room - self.kept.len());
        self.kept.extend(&data[..len]);
        if len == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(len) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
