//! Security labels that init takes.

use expect_test::expect;

use super::containerd::{Pod, sandbox};
use super::dsl::{Item, Stream};
use crate::cri::Field;
use crate::engine::Config;
use crate::ids::{CgroupId, MonotonicNs};
use crate::record::{CgroupWrite, Event};

/// The sandbox's `runc create` and its init.
const CREATE: u32 = 1020;
const INIT: u32 = 1023;

fn label(s: &mut Stream, times: (u64, u64), pid: u32, place: (&str, &str), ret: i64) {
    let (exit, cgroup) = (MonotonicNs(times.1 * 1000), CgroupId(0));
    let (dir, file, value) = (place.0.into(), place.1.into(), String::new());
    s.record(times.0, pid, Event::CgroupWrite(CgroupWrite { exit, ret, cgroup, dir, file, value }));
}

/// What a trace shows of init from its pivot_root on.
fn late(s: Stream) -> String {
    let traces = s.feed(Config::default());
    let spans = traces[0].spans.iter().filter(|span| span.start_ns >= 56_000_000 && span.stage.contains(".create."));
    spans.fold(String::new(), |text, span| {
        let errno = span.attributes.get("errno").map_or(String::new(), |errno| format!(" errno {errno}"));
        let end = span.end_ns.unwrap_or_default() / 1000;
        format!("{text}{} {}..{end}{errno}\n", span.stage, span.start_ns / 1000)
    })
}

fn started() -> Stream {
    let mut s = Stream::new();
    sandbox(&mut s, &Pod::new("web", "1", 1000));
    s
}

#[test]
fn of_apparmor() {
    let mut s = started();
    label(&mut s, (56_700, 56_800), INIT, ("apparmor", "exec"), 30);
    // Its keys' label, and another process's.
    label(&mut s, (50_500, 50_600), INIT, ("attr", "keycreate"), 30);
    label(&mut s, (56_900, 56_950), CREATE, ("attr", "exec"), 30);
    expect![[r#"
        sandbox.oci.create.pivot 56000..56600
        sandbox.oci.create.lsm 56700..56800
        sandbox.oci.create.mounts 57000..57100
        sandbox.oci.create.state 57100..57310
        sandbox.oci.create.privileges 57500..57610
        sandbox.oci.create.seccomp 57610..59200
        sandbox.oci.create.finish 59200..60000
    "#]]
    .assert_eq(&late(s));
}

/// Without no_new_privs runc compiles the filter right after it; the last write tells how it went.
#[test]
fn of_selinux() {
    let mut s = started()
        .without(|at, item| matches!(item, Item::Record(r) if r.tgid.0 == INIT) && (57_500..58_000).contains(&at));
    label(&mut s, (57_400, 57_410), INIT, ("attr", "exec"), -22);
    label(&mut s, (57_420, 57_450), INIT, ("attr", "exec"), 40);
    expect![[r#"
        sandbox.oci.create.pivot 56000..56600
        sandbox.oci.create.mounts 57000..57100
        sandbox.oci.create.state 57100..57310
        sandbox.oci.create.lsm 57400..57450
        sandbox.oci.create.seccomp 57450..59200
        sandbox.oci.create.finish 59200..60000
    "#]]
    .assert_eq(&late(s));
}

#[test]
fn refused() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    super::containerd::sandbox_signs(&mut s, &pod);
    let mut s =
        s.without(|at, item| at > 56_650 && matches!(item, Item::Record(r) if (CREATE..=INIT + 1).contains(&r.tgid.0)));
    label(&mut s, (56_700, 56_800), INIT, ("apparmor", "exec"), -2);
    s.exit(56_900, INIT, 1);
    s.exit(57_000, CREATE, 1);
    s.failing_call(
        (0, 58_000),
        "RunPodSandbox",
        &[(Field::PodName, "web"), (Field::PodUid, &pod.uid)],
        "no such profile",
    );
    let traces = s.clone().feed(Config::default());
    let verdict = traces[0].verdict.as_ref().expect("a verdict");
    assert_eq!(verdict.stage, "sandbox.oci.create.lsm");
    expect![[r#"
        sandbox.oci.create.pivot 56000..56600
        sandbox.oci.create.lsm 56700..56800 errno 2
    "#]]
    .assert_eq(&late(s));
}
