//! `podlapse stages` on recordings and on its own logs: what it prints, and that nothing is lost on the way.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

mod program;

use program::{fails, podlapse, run, text};

const START: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/start-v1.plr");

fn stdout(arguments: &[&str]) -> Vec<u8> {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&stdout(&[arguments, &["-o", "json"]].concat())).unwrap()
}

/// `stages -o hdr` of the recorded start, as a file.
fn log(dir: &Path, name: &str, by: &[&str]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, stdout(&[&["stages", "--from", START, "-o", "hdr"], by].concat())).unwrap();
    path
}

#[test]
fn a_recording() {
    let table = String::from_utf8(stdout(&["stages", "--from", START])).unwrap();
    assert!(table.starts_with("complete: 1 start\nstage "), "{table}");
    let line =
        |stage: &str| table.lines().find(|line| line.split_whitespace().next() == Some(stage)).map(str::to_owned);
    assert!(line("start").unwrap().ends_with("204.8 ms  204.8 ms  204.8 ms  204.8 ms  204.8 ms  204.8 ms  100.0%"));
    assert!(line("sandbox.oci.create.cgroup_join").unwrap().contains("21.02 ms"), "{table}");
    assert_eq!(line("container.exec"), None, "a point has no duration");
    assert!(table.is_ascii());
}

/// Every span's duration and every stage's own time in the table is the one of the trace.
#[test]
fn the_numbers_of_the_trace() {
    let trace: Value = serde_json::from_slice(&stdout(&["replay", START, "-o", "json"])).unwrap();
    let stages = json(&["stages", "--from", START]);
    let rows = stages["rows"].as_array().unwrap();
    let mut shares = 0;
    for stage in trace["stages"].as_array().unwrap().iter().filter(|stage| stage["wall_ns"] != 0) {
        let row = rows.iter().find(|row| row["stage"] == stage["stage"]).unwrap_or_else(|| panic!("no {stage}"));
        assert_eq!(row["self_ns"], stage["self_ns"], "{stage}");
        assert_eq!(row["count"], stage["count"], "{stage}");
        shares += row["self_ns"].as_u64().unwrap();
        let spans = trace["spans"].as_array().unwrap().iter().filter(|span| span["stage"] == stage["stage"]);
        let durations = spans.map(|span| span["end_ns"].as_u64().unwrap() - span["start_ns"].as_u64().unwrap());
        if let Some(longest) = durations.max() {
            assert_eq!(row["max_ns"], longest, "{stage}");
        }
    }
    assert_eq!(Some(shares), trace["total_ns"].as_u64());
}

#[test]
fn logs_and_recordings_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), "log", &[]);
    let twice = json(&["stages", "--from", START, START]);
    for files in [[START, text(&log)], [text(&log), START], [text(&log), text(&log)]] {
        let merged = json(&["stages", "--from", files[0], files[1]]);
        assert_eq!((&merged["rows"], &merged["starts"]), (&twice["rows"], &twice["starts"]), "{files:?}");
    }
    assert_eq!(twice["starts"]["complete"], 2);
    assert!(stdout(&["stages", "--from", text(&log), "-o", "hdr"]) == fs::read(&log).unwrap(), "the log changes");
}

#[test]
fn broken_down() {
    let dir = tempfile::tempdir().unwrap();
    let groups = |arguments: &[&str]| {
        let rows = json(&[&["stages"], arguments].concat());
        let groups = rows["rows"].as_array().unwrap().iter().map(|row| row["group"].as_str().unwrap_or("-").to_owned());
        groups.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
    };
    for (by, want) in [
        ("plugin", "bridge host-local loopback portmap"),
        ("handler", "-"),
        ("namespace", "default"),
        ("image", "localhost/podlapse-busybox:1"),
    ] {
        assert_eq!(groups(&["--from", START, "--by", by]), want);
        let log = log(dir.path(), by, &["--by", by]);
        assert_eq!(groups(&["--from", text(&log), START, "--by", by]), want);
        assert_eq!(json(&["stages", "--from", text(&log)])["rows"], json(&["stages", "--from", START])["rows"], "{by}");
    }
    let plain = log(dir.path(), "plain", &[]);
    fails(&["stages", "--from", text(&plain), "--by", "image"], 1, &["was made without --by image"]);
}

#[test]
fn side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), "log", &[]);
    let table = String::from_utf8(stdout(&["stages", "--compare", START, text(&log)])).unwrap();
    assert!(table.starts_with("complete: A 1 start, B 1 start\n"), "{table}");
    let compared = json(&["stages", "--compare", START, text(&log)]);
    for row in compared["rows"].as_array().unwrap() {
        assert_eq!(row["a"], row["b"]);
        assert!(row["ratio"].as_object().unwrap().values().all(|ratio| ratio == 1.0), "{row}");
    }
}

#[test]
fn json_keeps_its_contract() {
    let schema = serde_json::from_str(include_str!("../../docs/stages-v1.schema.json")).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for arguments in [&["--from", START][..], &["--from", START, "--by", "plugin"], &["--compare", START, START]] {
        let document = json(&[&["stages"], arguments].concat());
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, [""; 0], "{document}");
    }
    assert!(!validator.is_valid(&serde_json::json!({"schema": "podlapse.stages/v1"})));
}

#[test]
fn files_that_hold_no_stages() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    fails(&["stages", "--from", text(&dir.path().join("absent"))], 1, &["absent: No such file"]);
    fails(&["stages", "--from", text(&file("script", b"#!/bin/sh\n"))], 1, &["not a podlapse recording"]);
    fails(&["stages", "--from", START, text(&file("foreign", b"#[StartTime: 1.0 (x)]\n"))], 1, &["foreign"]);
    let log = fs::read(log(dir.path(), "log", &[])).unwrap();
    let cut = file("cut", &log[..log.len() - 9]);
    fails(&["stages", "--from", text(&cut)], 1, &["is damaged in line"]);
    let nothing = b"podlapse-recording 1\n{\"tool\":\"t\",\"created\":\"\",\"arguments\":[],\"settle_ns\":0}\n";
    fails(&["stages", "--from", text(&file("nothing", nothing))], 1, &["nothing"]);
    fails(&["stages", "--compare", START, text(dir.path())], 1, &["Is a directory"]);
}

/// Half of a pipe is no answer, and nobody has to wait for the rest.
#[test]
fn a_signal_ends_the_wait_for_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let log = fs::read(log(dir.path(), "log", &[])).unwrap();
    let mut command = podlapse(&["stages", "--from", "/dev/stdin"]);
    let mut podlapse = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = podlapse.stdin.take().unwrap();
    // More than a pipe holds: it is being read.
    pipe.write_all(&log.repeat(1 + (1 << 20) / log.len())).unwrap();
    let kill = Command::new("kill").args(["-TERM", &podlapse.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut out = Vec::new();
    podlapse.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let status = podlapse.wait().unwrap();
    drop(pipe);
    assert_eq!((status.signal(), out.len()), (Some(15), 0), "{status}");
}
