//! `podlapse replay` of recorded kubelet traffic: the same bytes again, truncated files, outputs that take nothing.

mod capture;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use podlapse::engine::{Engine, Update};
use podlapse::export::write_json;
use podlapse::ids::MonotonicNs;
use podlapse::record::{Event, Record};
use podlapse::recording::{Header, Selection, Writer};
use podlapse::trace::Trace;
use serde_json::Value;
use tempfile::TempDir;

fn podlapse(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podlapse"));
    command.args(arguments).stdin(Stdio::null()).env_remove("COLUMNS");
    command
}

fn run(arguments: &[&str]) -> Output {
    podlapse(arguments).output().unwrap()
}

/// kubelet's traffic with containerd, as a live run would see it.
fn records() -> Vec<Record> {
    let begin = [Event::Clock { realtime: 1_767_225_600_000_000_000 }, Event::Mark(tracer_ebpf::mark::ATTACHED)];
    let mut records: Vec<Record> = begin.into_iter().map(|event| capture::record(MonotonicNs(0), event)).collect();
    records.extend(capture::records(capture::NAMES[0]));
    let last = records.last().map_or(0, |record| record.at.0);
    records.extend((1..50).map(|tick| capture::record(MonotonicNs(last + tick * 100_000_000), Event::Tick)));
    records
}

/// Their recording, as `podlapse record` would have made it.
fn recording(dir: &TempDir, selection: Selection) -> PathBuf {
    let path = dir.path().join("start.plr");
    let header = Header {
        tool: "podlapse test".into(),
        created: "2026-01-01T00:00:00.000000000Z".into(),
        arguments: vec!["record".into()],
        node: None,
        settle_ns: 2_000_000_000,
        stuck_after_ns: 0,
        containers: None,
        selection,
    };
    let mut writer = Writer::create(&path, true, &header).unwrap();
    for mut record in records() {
        writer.write(&mut record).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn replay_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(&dir, Selection::default());
    for format in ["json", "tree"] {
        let first = run(&["replay", text(&file), "-o", format]);
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
        assert!(!first.stdout.is_empty() && first.stdout == run(&["replay", text(&file), "-o", format]).stdout);
    }
    let nobody = ["replay", text(&file), "--pod", "no/body"];
    let output = run(&nobody);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no pod start in the recording matches; --all"));
}

#[test]
fn a_line_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(&dir, Selection { pod: Some(("no".into(), "body".into())), ..Selection::default() });
    let list = |arguments: &[&str]| {
        let output = run(&[&["replay", text(&file), "--list"], arguments].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    expect_test::expect![[r#"
        pod                kind     outcome                           start     total  containers                reason                               uid
        default/web-node1  pod      partial  2026-01-01T00:00:11.682002897Z  695.9 ms           3                     -  d7fa6df575f256aee91d664b057c1c7a
        default/bad-node1  pod      failed   2026-01-01T00:00:25.682588247Z  163.8 ms           1  entrypoint_not_found  cef03912b7cd83abeb691ec1bee54df1
        default/bad-node1  restart  failed   2026-01-01T00:00:26.303188448Z  69.21 ms           1  entrypoint_not_found  cef03912b7cd83abeb691ec1bee54df1
        default/bad-node1  restart  failed   2026-01-01T00:00:39.221878002Z  60.43 ms           1  entrypoint_not_found  cef03912b7cd83abeb691ec1bee54df1
        default/bad-node1  restart  failed   2026-01-01T00:01:03.222070587Z  65.24 ms           1  entrypoint_not_found  cef03912b7cd83abeb691ec1bee54df1
    "#]]
    .assert_eq(&list(&[]).1);
    let said = run(&["replay", text(&file), "--list"]).stderr;
    expect_test::expect![[r#"
        podlapse: the recording spans 114.5 s
    "#]]
    .assert_eq(&String::from_utf8_lossy(&said));
    // From the fourth start on, by either clock.
    let rest = list(&["--from", "30s"]).1;
    assert!(list(&[]).1.ends_with(rest.split_once('\n').unwrap().1) && rest.lines().count() == 3, "{rest}");
    assert_eq!(list(&["--from", "2026-01-01T00:00:30Z"]).1, rest);
    assert_eq!(list(&["--pod", "default/web-node1"]).1.lines().count(), 2);
    assert_eq!(list(&["--from", "1h"]), (Some(1), String::new()));
    assert_eq!(list(&["-o", "json"]).0, Some(2));
    let late = run(&["replay", text(&file), "--all", "--from", "1h"]);
    assert!(String::from_utf8_lossy(&late.stderr).contains("no pod start in the recording matches"), "{late:?}");
    let traces = run(&["replay", text(&file), "--from", "30s", "-o", "json"]);
    assert_eq!(String::from_utf8_lossy(&traces.stdout).lines().count(), 2);
}

#[test]
fn replay_of_a_truncated_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(&dir, Selection::default());
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let output = run(&["replay", text(&file), "-o", "json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "{stderr}");
    assert!(stderr.contains("recording is truncated"), "{stderr}");
    fs::write(&file, &whole[..400]).unwrap();
    let output = run(&["replay", text(&file)]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("recording is truncated"));
}

#[test]
fn replay_into_outputs_that_take_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(&dir, Selection::default());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = podlapse(&["replay", text(&file)]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = podlapse(&["replay", text(&file)]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

/// What a recording leaves out changes no trace: the engine on the raw records gives what replay prints.
#[test]
fn redaction_changes_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(&dir, Selection::default());
    let (mut engine, mut updates) = (Engine::default(), Vec::new());
    for record in &records() {
        engine.feed(record, &mut updates);
    }
    let mut traces: Vec<Trace> = Vec::new();
    for update in updates {
        if let Update::Finished(trace) = update {
            traces.retain(|earlier| earlier.trace_id != trace.trace_id);
            traces.push(*trace);
        }
    }
    traces.extend(
        engine.open().into_iter().filter(|open| traces.iter().all(|t| t.trace_id != open.trace_id)).collect::<Vec<_>>(),
    );
    let mut lines: Vec<String> = traces
        .iter()
        .map(|trace| {
            let mut line = Vec::new();
            write_json(&mut line, trace).unwrap();
            String::from_utf8(line).unwrap().trim_end().to_owned()
        })
        .collect();
    let replayed = run(&["replay", text(&file), "--all", "-o", "json"]).stdout;
    let mut replayed: Vec<String> = String::from_utf8(replayed).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    replayed.sort();
    assert_eq!(lines, replayed);
}

/// A real start, recorded by this format's version: containerd 1.6, runc, bridge CNI, one container, made by
/// `podlapse record start-v1.plr --containers 1 -- podlapse-node pod`. Later versions have to read it, too.
#[test]
fn a_real_start_of_format_version_1() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/start-v1.plr");
    let output = run(&["replay", text(&file), "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, run(&["replay", text(&file), "-o", "json"]).stdout);
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = serde_json::from_str(include_str!("../../docs/trace-v1.schema.json")).unwrap();
    let errors: Vec<String> =
        jsonschema::draft202012::new(&schema).unwrap().iter_errors(&trace).map(|error| error.to_string()).collect();
    assert_eq!(errors, [""; 0]);
    assert_eq!(trace["outcome"], "complete");
    assert_eq!(trace["containers"][0]["exec"]["path"], "/bin/sleep");
    assert_eq!(trace["quality"]["lost_records"], 0);
    let calls = trace["spans"].as_array().unwrap().iter().filter(|span| span["call"]["code"] == "OK");
    let names: Vec<_> = calls.map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["RunPodSandbox", "CreateContainer", "StartContainer"]);
    let stages = trace["stages"].as_array().unwrap();
    let sum: u64 = stages.iter().map(|stage| stage["self_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), trace["total_ns"].as_u64());
}
