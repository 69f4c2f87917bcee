//! `podlapse diff`: two traces side by side, and files that hold none.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const START: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/start-v1.plr");

fn run(arguments: &[&str], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podlapse"));
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

fn stdout(arguments: &[&str], stdin: &[u8]) -> Vec<u8> {
    let output = run(arguments, stdin);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn trace() -> Value {
    serde_json::from_slice(&stdout(&["replay", START, "-o", "json"], b"")).unwrap()
}

/// The recorded start, with a slower bridge, without portmap and with another plugin.
fn slower() -> Value {
    let mut trace = trace();
    trace["total_ns"] = (trace["total_ns"].as_u64().unwrap() + 50_000_000).into();
    trace["pod"]["name"] = "slow".into();
    let stages = trace["stages"].as_array_mut().unwrap();
    stages.retain(|stage| stage["stage"] != "sandbox.cni.portmap");
    for stage in stages.iter_mut().filter(|stage| stage["stage"] == "sandbox.cni.bridge") {
        stage["self_ns"] = (stage["self_ns"].as_u64().unwrap() + 50_000_000).into();
    }
    stages.push(
        serde_json::json!({"stage": "sandbox.cni.firewall", "wall_ns": 2_000_000, "self_ns": 1_000_000, "count": 1}),
    );
    trace
}

#[test]
fn two_traces() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.json"), dir.path().join("b.json"));
    fs::write(&a, trace().to_string()).unwrap();
    fs::write(&b, serde_json::to_string_pretty(&slower()).unwrap()).unwrap();
    let table = String::from_utf8(stdout(&["diff", text(&a), text(&b)], b"")).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["A", "default/sample", "complete"]);
    assert_eq!(lines[1][..3], ["B", "default/slow", "complete"]);
    assert_eq!(lines[3].join(" "), "total 204.8 ms 254.8 ms +50.00 ms 1.24 204.8 ms 254.8 ms +50.00 ms 1.24");
    let line = |at: usize| lines[at].join(" ");
    assert!(line(4).starts_with("sandbox.cni.bridge ") && line(4).contains(" +50.00 ms "), "{table}");
    assert!(line(4).ends_with(" = 1.00"), "its wall time is the same: {table}");
    assert!(line(5).starts_with("sandbox.cni.portmap ") && line(5).contains(" ms - -"), "{table}");
    assert_eq!(lines[6].join(" "), "sandbox.cni.firewall - 1.000 ms +1.000 ms - - 2.000 ms +2.000 ms -");
    assert!(lines[7..].iter().all(|line| line.contains(&"=")), "{table}");

    let lines = format!("{}\n{}\n", trace(), slower());
    assert_eq!(stdout(&["diff", "-"], lines.as_bytes()), table.as_bytes(), "two lines of one file");
    assert_eq!(stdout(&["diff", text(&a), "-"], slower().to_string().as_bytes()), table.as_bytes());
}

#[test]
fn json_keeps_its_contract() {
    let schema = serde_json::from_str(include_str!("../../docs/diff-v1.schema.json")).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let lines = format!("{}\n{}\n", trace(), slower());
    let document: Value = serde_json::from_slice(&stdout(&["diff", "-", "-o", "json"], lines.as_bytes())).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert_eq!(errors, [""; 0]);
    assert_eq!(document["stages"][0]["self_change_ns"], 50_000_000);
    assert_eq!(document["stages"][1].get("b"), None);
    let sum: i64 = document["stages"].as_array().unwrap().iter().map(|s| s["self_change_ns"].as_i64().unwrap()).sum();
    let first = trace();
    let gone =
        first["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == "sandbox.cni.portmap").unwrap();
    assert_eq!(sum, 50_000_000 - gone["self_ns"].as_i64().unwrap() + 1_000_000);
    assert!(!validator.is_valid(&serde_json::json!({"schema": "podlapse.diff/v1"})));
}

#[test]
fn files_that_hold_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let good = file("good", trace().to_string().as_bytes());
    let mut broken = trace();
    broken["total_ns"] = "long".into();
    for (name, content, says) in [
        ("garbage", &b"\xff\xfe"[..], "is no JSON"),
        ("recording", b"podlapse-recording 1\n", "podlapse replay"),
        ("cut", &trace().to_string().as_bytes()[..100], "is no JSON"),
        ("foreign", b"{\"a\": 1}", "JSON without a schema"),
        ("list", b"[1, 2]", "JSON without a schema"),
        ("stages", b"{\"schema\": \"podlapse.stages/v1\"}", "podlapse.stages/v1"),
        ("broken", broken.to_string().as_bytes(), "does not keep to podlapse.trace/v1"),
        ("empty", b"", "holds no trace"),
        ("three", format!("{0}\n{0}\n{0}", trace()).as_bytes(), "holds 3 traces, not 1"),
    ] {
        let path = file(name, content);
        for arguments in [["diff", text(&path), text(&good)], ["diff", text(&good), text(&path)]] {
            let output = run(&arguments, b"");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{name}");
            assert!(stderr.contains(says) && stderr.contains(name), "{name} does not say {says:?}: {stderr}");
        }
    }
    let one = run(&["diff", text(&good)], b"");
    assert!(String::from_utf8_lossy(&one.stderr).contains("holds 1 trace, not 2: name a second file"));
    let absent = run(&["diff", "/no/such", text(&good)], b"");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("cannot read /no/such: No such file"));
}
