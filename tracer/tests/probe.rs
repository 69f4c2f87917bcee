//! The probe against this process: it listens like a runtime, and podlapse watches it. Needs root and BPF; where that
//! is missing it says so and passes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use podlapse::ids::Tgid;
use podlapse::probe::{Backend, Bootstrap, Choice, Options, ProbeError, Session, Status};
use podlapse::record::{Direction, Event, Record, Role, SocketOp};

/// Reads and writes as runtimes do, which are Go programs, by read and write: the standard library's streams receive
/// and send.
fn plain(stream: UnixStream) -> File {
    File::from(OwnedFd::from(stream))
}

/// Answers nothing; each connection is read until it ends.
fn serve(listener: UnixListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = plain(stream.unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while stream.read(&mut buffer).is_ok_and(|len| len > 0) {}
            });
        }
    });
}

fn say(path: &Path, message: &[u8]) {
    UnixStream::connect(path).unwrap().write_all(message).unwrap();
    // The reader is another thread.
    std::thread::sleep(Duration::from_millis(50));
}

/// Whether a process is still taking hooks away.
fn is_detaching() -> bool {
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    names
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok())
        .any(|name| name == "podlapse-detach\n")
}

#[tokio::test]
async fn a_process_is_watched_from_its_sockets_to_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runtime.sock");
    let listener = UnixListener::bind(&path).unwrap();
    serve(listener);
    let early = UnixStream::connect(&path).unwrap();
    std::thread::sleep(Duration::from_millis(50));

    let options = Options { socket: Some(path.clone()), bootstrap: Bootstrap::Off, ..Options::default() };
    let mut session = match Session::attach(options, || ()).await {
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::Capabilities(_) | ProbeError::NoPrograms)) => {
            return println!("skipped: {error}");
        }
        session => session.unwrap(),
    };
    for hook in session.hooks() {
        if let Status::Refused(reason) = &hook.status {
            println!("{} refused: {reason}", hook.name);
        }
    }
    let me = Tgid(std::process::id());
    assert_eq!(session.runtime_pid(), me);

    plain(early).write_all(b"early").unwrap();
    let large: Vec<u8> = (0..60_000u32).map(|byte| byte as u8).collect();
    say(&path, &large);
    let status = Command::new("/bin/sh")
        .args(["-c", "exit 3", "argument"])
        .env("CNI_COMMAND", "ADD")
        .env("SECRET", "hunter2")
        .env("LONG", "x".repeat(4095) + "CNI_NOT=a variable")
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    let mut records = session.next().await.unwrap();
    records.extend(session.finish().await);
    let end = Instant::now();
    drop(session);
    assert!(end.elapsed() < Duration::from_millis(1500), "detaching held this process up for {:?}", end.elapsed());
    while is_detaching() {
        assert!(end.elapsed() < Duration::from_secs(60), "the hooks are still attached");
        std::thread::sleep(Duration::from_millis(50));
    }

    assert!(records.is_sorted_by_key(|record| record.at), "not in time order");
    // Signs of what happened while the hooks were being attached may come before.
    let own =
        |r: &&Record| matches!(r.event, Event::Node(_) | Event::Clock { .. } | Event::Process(_) | Event::Mark(_));
    assert!(matches!(records.iter().find(own).unwrap().event, Event::Node(_)));
    assert!(matches!(records.last().unwrap().event, Event::Tick));
    let is_me = |record: &&Record| record.tgid == me;
    assert!(records.iter().filter(is_me).any(|r| matches!(&r.event, Event::Process(p) if p.role == Role::Myself)));
    assert!(!records.iter().any(|r| matches!(r.event, Event::Lost { .. })), "records were lost");

    // Both ends of the early connection are this process's. The reader was inside its read already and is not seen, as
    // no call is whose entry was before attach; Go's runtimes poll first, so that they are never inside.
    let found = records.iter().filter_map(|record| match &record.event {
        Event::Socket(it) if it.op == SocketOp::Found && it.path == path.to_str().unwrap() => Some((it.conn, it.peer)),
        _ => None,
    });
    let found: HashMap<_, _> = found.collect();
    assert_eq!(found.values().collect::<Vec<_>>(), [&Some(me); 2]);
    let early = records.iter().find_map(|record| match &record.event {
        Event::Bytes(piece) if found.contains_key(&piece.conn) => Some(piece),
        _ => None,
    });
    let early = early.expect("bytes of the early connection");
    assert_eq!((early.direction, early.offset, early.data.as_slice()), (Direction::Out, 0, b"early".as_slice()));

    let accepted = records.iter().rev().find_map(|record| match &record.event {
        Event::Socket(socket) if socket.op == SocketOp::Accept => Some(socket),
        _ => None,
    });
    let accepted = accepted.expect("the later connection is accepted");
    assert_eq!((accepted.path.as_str(), accepted.peer), (path.to_str().unwrap(), Some(me)));
    let mut stream = Vec::new();
    for record in &records {
        if let Event::Bytes(piece) = &record.event
            && piece.conn == accepted.conn
        {
            assert_eq!((piece.direction, piece.offset), (Direction::In, stream.len() as u64));
            stream.extend(&piece.data);
            stream.resize(stream.len() + piece.len as usize - piece.data.len(), 0);
        }
    }
    assert_eq!(stream.len(), large.len());
    assert_eq!(stream[..32_768], large[..32_768]);

    let (child, exec) = records
        .iter()
        .find_map(|record| match &record.event {
            Event::Exec(exec) if exec.filename == "/bin/sh" => Some((record.tgid, exec)),
            _ => None,
        })
        .expect("the child's exec is seen");
    assert_eq!(exec.parent, me);
    assert_eq!(exec.argv, ["/bin/sh", "-c", "exit 3", "argument"]);
    assert_eq!(exec.cni, [("CNI_COMMAND".to_owned(), "ADD".to_owned())]);
    assert!(!exec.container && !exec.incomplete);
    assert!(!format!("{records:?}").contains("hunter2"));
    let exit = records.iter().find(|record| record.tgid == child && matches!(record.event, Event::Exit(_)));
    assert!(matches!(&exit.unwrap().event, Event::Exit(exit) if exit.status == Some(3)));
}

#[tokio::test]
async fn trampolines_are_taken_or_their_refusal_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runtime.sock");
    serve(UnixListener::bind(&path).unwrap());
    let only = |backend| Options {
        socket: Some(path.clone()),
        bootstrap: Bootstrap::Off,
        backend: Choice::Only(backend),
        ..Options::default()
    };
    let by = |session: &Session| session.node_now().backends["socket"].clone();
    match Session::attach(only(Backend::Trampoline), || ()).await {
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::Capabilities(_) | ProbeError::NoPrograms)) => {
            return println!("skipped: {error}");
        }
        Err(ProbeError::Trampolines(reason)) => assert!(!reason.is_empty()),
        session => assert_eq!(by(&session.unwrap()), "trampoline"),
    }
    assert_eq!(by(&Session::attach(only(Backend::Tracepoint), || ()).await.unwrap()), "tracepoint");
}
