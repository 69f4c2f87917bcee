//! The built binary, without privileges and without a node: usage, bad input, closed outputs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

mod program;

use program::{fails, podlapse, run, text};

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &["bogus"][..],
        &["trace", "--pod", "noslash"],
        &["trace", "--uid", ""],
        &["trace", "--next", "0"],
        &["trace", "--settle", "2"],
        &["trace", "--socket", "relative.sock"],
        &["trace", "--force"],
        &["trace", "extra"],
        &["record"],
        &["replay"],
        &["replay", "f", "--all", "--next", "2"],
        &["replay", "f", "-o", "xml"],
        &["doctor", "--socket", "relative.sock"],
        &["replay", "f", "--list", "--min", "2ms"],
        &["replay", "f", "--from=-5s"],
        &["replay", "f", "--from", "-5s"],
        &["stages", "--count", "0"],
        &["stages", "--by", "node"],
        &["stages", "--from"],
        &["stages", "--from", "f", "--count", "2"],
        &["stages", "--compare", "f"],
        &["stages", "--agent"],
        &["stages", "--agent", "nonsense"],
        &["stages", "--agent", "a:1", "--from", "f"],
        &["stages", "--agent", "a:1", "--count", "2"],
        &["health", "--url", "https://a:1"],
        &["health", "--url", "off"],
        &["agent", "--api-listen", "0.0.0.0:1"],
        &["agent", "--api-listen", "[fd00::1]:1"],
        &["agent", "--lines-max-size", "64"],
        &["agent", "--lines-keep", "-1"],
        &["stages", "--compare", "f", "g", "-o", "hdr"],
        &["pods", "--pid", "0"],
        &["pods", "--pid", "1", "--pod", "web"],
        &["pods", "--container", ""],
        &["pods", "--bootstrap", "guess"],
        &["pods", "--socket", "relative.sock"],
        &["diff"],
        &["diff", "a", "b", "c"],
        &["completions", "nosuchshell"],
    ] {
        fails(arguments, 2, &["--help"]);
    }
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn help_is_on_stdout() {
    for arguments in [&["--help"][..], &["trace", "--help"], &["replay", "-h"], &["--version"]] {
        let output = run(arguments);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn completions_and_man_pages() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(String::from_utf8_lossy(&run(&["completions", shell]).stdout).contains("podlapse"), "{shell}");
    }
    let page = run(&["man"]).stdout;
    assert!(String::from_utf8_lossy(&page).contains("podlapse\\-trace"));
    for command in
        ["trace", "record", "replay", "stages", "agent", "health", "pods", "diff", "doctor", "completions", "man"]
    {
        let page = run(&["man", command]);
        assert!(page.status.success() && page.stdout.starts_with(b".ie"), "{command}");
    }
    fails(&["man", "nothing"], 1, &["nothing", "--help"]);
}

#[test]
fn files_that_are_no_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    fails(&["replay", text(&dir.path().join("absent"))], 1, &["absent", "No such file"]);
    fails(&["replay", text(dir.path())], 1, &["is a directory"]);
    for (name, content) in [("empty", &b""[..]), ("garbage", &[0xfe; 5000]), ("script", b"#!/bin/sh\n")] {
        fails(&["replay", text(&file(name, content))], 1, &["not a podlapse recording"]);
    }
    let newer = file("newer", b"podlapse-recording 7\n{}\n");
    fails(&["replay", text(&newer)], 1, &["format version 7", "newer podlapse"]);
    let head = file("head", b"podlapse-recording 1\n{}\n");
    fails(&["replay", text(&head)], 1, &["header is damaged"]);
}

#[test]
fn outputs_that_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (link, old) = (dir.path().join("link"), dir.path().join("old"));
    fs::write(&old, "old").unwrap();
    symlink(&old, &link).unwrap();
    // Before any privilege is asked for.
    fails(&["record", text(&link)], 1, &["is a symlink"]);
    fails(&["record", text(&link), "--force"], 1, &["is a symlink"]);
    fails(&["trace", "--record", text(&old)], 1, &["exists", "--force"]);
    fails(&["record", "/dev/full", "--force"], 1, &["not a regular file"]);
    fails(&["record", text(dir.path()), "--force"], 1, &["is a directory"]);
    assert_eq!(fs::read(&old).unwrap(), b"old");
}

#[test]
fn stdout_that_takes_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = podlapse(&["completions", "bash"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot write to stdout: No space left"), "{stderr}");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = podlapse(&["man"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "a reader that had enough is no failure");
}

/// A recording whose run saw nothing.
const NO_RECORDS: &[u8] = b"podlapse-recording 1\n{\"tool\":\"t\",\"created\":\"\",\"arguments\":[],\"settle_ns\":0}\n";

#[test]
fn a_recording_without_starts() {
    let start = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/start-v1.plr");
    fails(&["replay", start, "--pod", "no/such"], 1, &["no pod start in the recording matches", "--all"]);
    let whole = fs::read(start).unwrap();
    let body = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 1;
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    // A frame without content.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00];
    fs::write(&empty, [&whole[..body], &frame].concat()).unwrap();
    fails(&["replay", text(&empty), "--all"], 1, &["holds no pod start"]);
}

#[test]
fn a_file_that_may_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0; exec \"$0\" completions bash > out", env!("CARGO_BIN_EXE_podlapse")]);
    let output = limited.current_dir(dir.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {stderr}", output.status);
    assert!(stderr.contains("cannot write to stdout: File too large"), "{stderr}");
}

/// Under `nohup` the end of the session ends nothing; otherwise the second signal does, at once.
#[test]
fn an_ignored_hangup_stays_ignored() {
    for (trap, ended) in [("", true), ("trap '' HUP; ", false)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{trap}exec \"$0\" replay /dev/stdin"), env!("CARGO_BIN_EXE_podlapse")]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(NO_RECORDS).unwrap();
        // The last handler that is installed.
        let last = if ended { rustix::process::Signal::HUP } else { rustix::process::Signal::TERM };
        while !catches(child.id(), last) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = rustix::process::Pid::from_child(&child);
        for _ in 0..2 {
            rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        // A busy machine takes its time; what is to go on had 200 ms to end.
        while ended && child.try_wait().unwrap().is_none() {
            rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let running = child.try_wait().unwrap().is_none();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!((running, output.status.code()), (!ended, Some(1)), "{trap}");
    }
}

fn catches(pid: u32, signal: rustix::process::Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn without_privileges() {
    // Root drops them; anybody else has none.
    let mut command = if rustix::process::geteuid().is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--clear-groups", "--inh-caps=-all", env!("CARGO_BIN_EXE_podlapse")]);
        setpriv
    } else {
        podlapse(&[])
    };
    let output = command.args(["trace", "--timeout", "1s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("not root") && stderr.contains("sudo"), "{stderr}");
}

#[test]
fn a_command_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rec");
    for name in ["/no/such/program", "no-such-program", text(dir.path())] {
        fails(&["record", text(&file), "--", name], 1, &["cannot run", name]);
        assert!(!file.exists(), "{name} leaves a recording");
    }
}
