//! What was written to a container's cgroup files, and what held at its exec.

use super::containerd::{Pod, container, sandbox};
use super::dsl::{CGROUP, Item, Stream, id};
use crate::engine::Config;
use crate::ids::CgroupId;
use crate::record::{CgroupWrite, Event};
use crate::trace::Trace;

/// `runc create` of `app`.
const CREATE: u32 = 1120;

fn app() -> Stream {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.without(
        |_, item| matches!(item, Item::Record(r) if r.tgid.0 == CREATE && matches!(r.event, Event::CgroupWrite(_))),
    )
}

fn trace(mut s: Stream) -> Trace {
    s.tick(9_000_000);
    s.feed(Config::default()).remove(0)
}

fn failing(s: &mut Stream, at: u64, file: &str, value: &str, errno: i64) {
    let exit = crate::ids::MonotonicNs((at + 10) * 1000);
    let (dir, file, value) = (id("1c1"), file.into(), value.into());
    s.record(
        at,
        CREATE,
        Event::CgroupWrite(CgroupWrite { exit, ret: -errno, cgroup: CgroupId(CGROUP), dir, file, value }),
    );
}

#[test]
fn the_last_write_before_the_exec_that_succeeded() {
    let mut s = app();
    let own = id("1c1");
    s.write((105_000, 105_010), CREATE, &own, "memory.max", "1048576\n");
    failing(&mut s, 105_100, "memory.max", "4096", 16);
    s.write((105_200, 105_210), CREATE, &own, "memory.max", "134217728\n");
    s.write((105_300, 105_310), CREATE, &own, "cpu.cfs_quota_us", "50000");
    failing(&mut s, 105_400, "cpu.cfs_quota_us", "1", 22);
    // Neither a limit nor the container's own cgroup.
    s.write((105_500, 105_510), CREATE, &own, "devices.deny", "a *:* rwm");
    s.write((105_600, 105_610), CREATE, "kubepods", "cpuset.cpus", "0-1");
    // After the exec, by the runtime itself.
    s.write((130_000, 130_010), 100, &own, "memory.max", "99");
    let trace = trace(s);
    let app = &trace.containers[0];
    let limits: Vec<_> = app.limits.iter().map(|(file, value)| format!("{file}={value}")).collect();
    assert_eq!(limits, ["cpu.cfs_quota_us=50000", "memory.max=134217728"]);
    let writes: Vec<String> = app
        .writes
        .iter()
        .map(|w| format!("{} {} {:?} by {} {:?} at {}", w.file, w.value, w.errno, w.pid, w.comm.as_deref(), w.at_ns))
        .collect();
    expect_test::expect![[r#"
        memory.max 1048576 None by 1120 Some("exe") at 105000000
        memory.max 4096 Some(16) by 1120 Some("exe") at 105100000
        memory.max 134217728 None by 1120 Some("exe") at 105200000
        cpu.cfs_quota_us 50000 None by 1120 Some("exe") at 105300000
        cpu.cfs_quota_us 1 Some(22) by 1120 Some("exe") at 105400000
        memory.max 99 None by 100 None at 130000000"#]]
    .assert_eq(&writes.join("\n"));
}

/// A sandbox's limits are not its containers', whose ids share a prefix with it.
#[test]
fn each_has_its_own() {
    let mut s = app();
    s.write((55_000, 55_010), 1020, &id("1a"), "cpu.shares", "2");
    s.write((105_000, 105_010), CREATE, &id("1c1"), "cpu.shares", "512");
    let trace = trace(s);
    assert_eq!(trace.sandbox.limits["cpu.shares"], "2");
    assert_eq!(trace.containers[0].limits["cpu.shares"], "512");
}

#[test]
fn no_more_than_so_many_are_kept() {
    let mut s = app();
    for number in 0..100 {
        s.write((105_000 + number, 105_001 + number), CREATE, &id("1c1"), "pids.max", &number.to_string());
    }
    let trace = trace(s);
    assert_eq!((trace.containers[0].writes.len(), trace.quality.evicted), (64, 36));
}
