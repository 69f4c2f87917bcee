//! Calls about a container that runs: hooks, probes, streams, limits.

use expect_test::expect;

use super::super::containerd::container;
use super::super::dsl::Stream;
use super::{APP, SHIM, app, check, running};
use crate::cri::{Ending, Field, Value};
use crate::record::{Connect, Event};

/// An ExecSync of `app` whose command's word has that length.
pub(super) fn exec_sync(s: &mut Stream, times: (u64, u64), (timeout, word): (&str, u64), code: u64) {
    let app = app();
    let mut request = vec![(Field::ContainerId, app.as_str())];
    if timeout != "0" {
        request.push((Field::Timeout, timeout));
    }
    let key = s.begin_call_with(times.0, "ExecSync", &request, &[(Field::ExecWord, word)]);
    s.reply(times.1, key, vec![(Field::ExecExitCode, Value::Number(code))]);
    s.end_call(times.1, key, Ending::Status { code: 0, message: String::new() });
}

fn connect(s: &mut Stream, at: u64, port: u32, accepted: bool) {
    let address = "10.88.0.7".parse().unwrap();
    let connect = Connect { start: crate::ids::MonotonicNs((at - 100) * 1000), address, port, accepted };
    s.record(at, 50, Event::Connect(connect));
}

fn address(s: &mut Stream, at: u64, sandbox: &str) {
    s.call((at, at + 1_000), "PodSandboxStatus", &[(Field::SandboxId, sandbox)], &[(Field::PodIp, "10.88.0.7")]);
}

#[test]
fn a_hook() {
    let (mut s, _) = running();
    exec_sync(&mut s, (133_000, 180_000), ("0", 3), 0);
    check(
        s,
        expect![[r#"
        180000 default/web post_start app lasted=47000 exit=0 after_ns=63000000
    "#]],
    );
}

/// kubelet makes no other container before its hook has ended.
#[test]
fn a_command_that_is_no_hook() {
    let (mut s, pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    exec_sync(&mut s, (260_000, 280_000), ("0", 3), 7);
    check(
        s,
        expect![[r#"
        280000 default/web exec app lasted=20000 exit=7 after_ns=163000000
    "#]],
    );
}

/// kubelet kills the container for it.
#[test]
fn a_hook_that_fails() {
    let (mut s, _) = running();
    exec_sync(&mut s, (133_000, 180_000), ("0", 3), 7);
    s.call((190_000, 290_000), "StopContainer", &[(Field::ContainerId, &app()), (Field::Timeout, "30")], &[]);
    s.runc_kill(200_000, SHIM, 1500, (&app(), APP), 15);
    s.exit(280_000, APP, 143);
    check(
        s,
        expect![[r#"
            180000 default/web post_start app lasted=47000 exit=7 after_ns=63000000
              poststart / poststart_failed inferred: the PostStart hook failed: kubelet kills the container for it
                its command exited with 7
            190000 default/web stop app grace_s=30 because=poststart_failed
            200000 default/web signal app by=runc pid 1500 signal=15 for=stop
            280000 default/web exit app lasted=163000 exit=143 asked=true
            290000 default/web stopped app lasted=100000 killed=false
        "#]],
    );
    let (mut s, _) = running();
    s.failing_call((133_000, 140_000), "ExecSync", &[(Field::ContainerId, &app())], "no such process");
    check(
        s,
        expect![[r#"
            140000 default/web post_start app lasted=7000 code=2 after_ns=23000000
              poststart / poststart_failed inferred: the PostStart hook failed: kubelet kills the container for it
                no such process
        "#]],
    );
}

/// The first result and those that are other than the one before; two probes by their shape.
#[test]
fn exec_probes() {
    let (mut s, _) = running();
    for (second, code) in [(1, 1), (2, 1), (3, 0), (4, 0), (5, 1), (6, 0)] {
        exec_sync(&mut s, (second * 1_000_000, second * 1_000_000 + 20_000), ("1", 9), code);
        exec_sync(&mut s, (second * 1_000_000 + 500_000, second * 1_000_000 + 520_000), ("1", 5), 0);
    }
    // A PreStop hook, and a probe that fails for the stop.
    exec_sync(&mut s, (8_000_000, 8_100_000), ("0", 4), 0);
    s.call((8_200_000, 8_300_000), "StopContainer", &[(Field::ContainerId, &app()), (Field::Timeout, "30")], &[]);
    exec_sync(&mut s, (8_210_000, 8_220_000), ("1", 9), 1);
    s.runc_kill(8_205_000, SHIM, 1500, (&app(), APP), 15);
    s.exit(8_290_000, APP, 0);
    check(
        s,
        expect![[r#"
            1020000 default/web probe app lasted=20000 exit=1 after_ns=903000000 via=exec
            1520000 default/web probe app lasted=20000 exit=0 after_ns=1403000000 via=exec
            3020000 default/web probe app lasted=20000 exit=0 after_ns=2903000000 via=exec failed=2
            3020000 default/web ready - after_ns=3020000000
            5020000 default/web probe app lasted=20000 exit=1 after_ns=4903000000 via=exec
            6020000 default/web probe app lasted=20000 exit=0 after_ns=5903000000 via=exec failed=1
            8100000 default/web exec app lasted=100000 exit=0 after_ns=7983000000
            8200000 default/web stop app grace_s=30
            8205000 default/web signal app by=runc pid 1500 signal=15 for=stop
            8290000 default/web exit app lasted=8173000 exit=0 asked=true
            8300000 default/web stopped app lasted=100000 killed=false
        "#]],
    );
}

/// A probe that its client gave up failed; one whose client went away did not.
#[test]
fn probes_that_got_no_answer() {
    let (mut s, _) = running();
    let request = [(Field::ContainerId, app()), (Field::Timeout, "1".to_owned())];
    let request = request.each_ref().map(|(field, value)| (*field, value.as_str()));
    let key = s.begin_call(5_000_000, "ExecSync", &request);
    s.end_call(6_000_000, key, Ending::Status { code: 4, message: "timeout 1s exceeded".into() });
    let key = s.begin_call(7_000_000, "ExecSync", &request);
    s.end_call(7_100_000, key, Ending::ConnectionClosed);
    check(
        s,
        expect![[r#"
        6000000 default/web probe app lasted=1000000 code=4 after_ns=5883000000 via=exec
    "#]],
    );
}

/// Ready when the last of its probes has succeeded once.
#[test]
fn ready() {
    let (mut s, pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    address(&mut s, 200_000, &pod.sandbox);
    connect(&mut s, 1_000_000, 80, false);
    connect(&mut s, 2_000_000, 80, false);
    exec_sync(&mut s, (3_000_000, 3_020_000), ("1", 9), 0);
    connect(&mut s, 4_000_000, 80, true);
    connect(&mut s, 5_000_000, 80, false);
    connect(&mut s, 6_000_000, 80, true);
    check(
        s,
        expect![[r#"
        3020000 default/web probe app lasted=20000 exit=0 after_ns=2903000000 via=exec
        4000000 default/web probe - lasted=100 via=connect port=80 failed=2
        4000000 default/web ready - after_ns=4000000000
    "#]],
    );
}

/// All that was seen had succeeded before the start was over.
#[test]
fn ready_early() {
    let (mut s, _) = running();
    exec_sync(&mut s, (140_000, 150_000), ("1", 9), 0);
    check(
        s,
        expect![[r#"
        150000 default/web probe app lasted=10000 exit=0 after_ns=33000000 via=exec
        150000 default/web ready - after_ns=150000000
    "#]],
    );
}

#[test]
fn streams_and_limits() {
    let (mut s, pod) = running();
    let app = app();
    for (second, method) in [(5, "Exec"), (6, "Attach"), (7, "UpdateContainerResources")] {
        s.call((second * 1_000_000, second * 1_000_000 + 500), method, &[(Field::ContainerId, &app)], &[]);
    }
    s.call((8_000_000, 8_000_500), "PortForward", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.failing_call((9_000_000, 9_000_500), "Exec", &[(Field::ContainerId, &app)], "container not running");
    // Of no container that is known; one that only asks.
    s.call((9_100_000, 9_100_500), "Exec", &[(Field::ContainerId, "deadbeef")], &[]);
    s.call((9_200_000, 9_200_500), "ContainerStatus", &[(Field::ContainerId, &app)], &[]);
    check(
        s,
        expect![[r#"
        5000500 default/web exec app lasted=500
        6000500 default/web attach app lasted=500
        7000500 default/web update app lasted=500
        8000500 default/web port_forward - lasted=500
        9000500 default/web exec app lasted=500 code=2
    "#]],
    );
}
