//! A recorded start on a whole Debian node (systemd driver, cgroup v2 alone, containerd 1.7, runc 1.1): what PID 1 did is
//! part of it. Made by `cargo xtask vm --node`, which keeps its recordings.

use std::fmt::Write as _;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

#[test]
fn pid_1_makes_the_cgroups() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/systemd-v1.plr");
    let output = Command::new(env!("CARGO_BIN_EXE_podlapse")).args(["replay", file, "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (outcome, quality) = (&trace["outcome"], &trace["quality"]);
    let mut out = format!("{outcome}, lost {}, undecoded {}\n", quality["lost_records"], quality["undecoded_bytes"]);
    for span in trace["spans"].as_array().unwrap() {
        let stage = span["stage"].as_str().unwrap();
        if stage == "kubelet.prepare" || stage.ends_with("cgroup_join") {
            let (from, to) = (span["start_ns"].as_u64().unwrap() / 1000, span["end_ns"].as_u64().unwrap() / 1000);
            let manager = span["attributes"]["cgroup_manager"].as_str().unwrap_or("?");
            writeln!(out, "{stage} {from}..{to} us by {manager}").unwrap();
        }
    }
    for container in [&trace["sandbox"]].into_iter().chain(trace["containers"].as_array().unwrap()) {
        let (name, cgroup) = (container["name"].as_str().unwrap_or("sandbox"), &container["cgroup"]);
        let path = cgroup["path"].as_str().unwrap().rsplit('/').next().unwrap();
        let scope = format!("cri-containerd-{}.scope", container["id"].as_str().unwrap());
        assert_eq!(path, scope, "{name}");
        let limits = &cgroup["limits"];
        writeln!(out, "{name} cpu.max {} memory.max {}", limits["cpu.max"], limits["memory.max"]).unwrap();
    }
    expect![[r#"
        "complete", lost 0, undecoded 0
        kubelet.prepare 0..171415 us by ?
        sandbox.oci.create.cgroup_join 5337703..6495291 us by pid 1
        container.start.oci.create.cgroup_join 19865363..20532568 us by pid 1
        container.start.oci.create.cgroup_join 34251686..34547610 us by pid 1
        container.start.oci.create.cgroup_join 40168145..40773993 us by pid 1
        sandbox cpu.max "max 100000" memory.max "max"
        init cpu.max "max 100000" memory.max "max"
        app-1 cpu.max "50000 100000" memory.max "134217728"
        app-2 cpu.max "50000 100000" memory.max "134217728"
    "#]]
    .assert_eq(&out);
}
