//! What existed when podlapse came.

use super::containerd::{Pod, attempt, container, create_container, oci, sandbox, sandbox_signs};
use super::dsl::{Stream, id};
use crate::cri::Field;
use crate::engine::Config;
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};
use crate::record::{ContainerState, Event, ListSource, Listed, ListedContainer, ListedSandbox, Listing};
use crate::trace::{Outcome, StartKind, Trace};

fn pod() -> Pod {
    Pod::new("pair", "1", 1000)
}

fn listed(s: &mut Stream, at: u64, what: Listing) {
    s.record(at, 1, Event::Listed(Listed { asked: MonotonicNs(at * 1000), source: ListSource::Cri, what }));
}

/// The list of a node on which `pod` runs with these containers: name, id, state and init.
pub(super) fn list(s: &mut Stream, at: u64, pod: &Pod, containers: &[(&str, &str, ContainerState, u32)]) {
    listed(
        s,
        at,
        Listing::Sandbox(ListedSandbox {
            id: SandboxId(pod.sandbox.clone()),
            name: pod.name.into(),
            namespace: "default".into(),
            uid: PodUid(pod.uid.clone()),
            attempt: Some(3),
            ready: Some(true),
            pid: Some(Tgid(1023)),
            ip: "10.0.0.7".into(),
            ..ListedSandbox::default()
        }),
    );
    for (name, digits, state, pid) in containers {
        listed(
            s,
            at,
            Listing::Container(ListedContainer {
                id: ContainerId(id(digits)),
                sandbox: SandboxId(pod.sandbox.clone()),
                name: (*name).into(),
                attempt: Some(0),
                state: Some(*state),
                pid: Some(Tgid(*pid)).filter(|pid| pid.0 != 0),
                ..ListedContainer::default()
            }),
        );
    }
    listed(s, at, Listing::End { trouble: None });
}

fn feed(mut s: Stream) -> Vec<Trace> {
    s.tick(20_000_000);
    s.feed(Config::default())
}

fn containers(trace: &Trace) -> Vec<String> {
    let of = |peer: bool| if peer { " peer" } else { "" };
    trace.containers.iter().map(|c| format!("{}{}", c.name.as_deref().unwrap_or("?"), of(c.peer))).collect()
}

/// A restart in a sandbox from before has its pod and its peers.
#[test]
fn a_restart_in_an_old_sandbox() {
    let mut s = Stream::new();
    let pod = pod();
    let running = ContainerState::Running;
    let of_pod = [
        ("app", "1c1", ContainerState::Exited, 0),
        ("log", "1c2", running, 1143),
        ("gone", "1c3", running, 1163),
        ("made", "1c4", ContainerState::Created, 0),
    ];
    list(&mut s, 1_000, &pod, &of_pod);
    s.exit(2_000, 1163, 1);
    attempt(&mut s, &pod, 4_000_000, "app", "/bin/app", 1);
    let traces = feed(s);
    assert_eq!(traces.len(), 1);
    let trace = &traces[0];
    assert_eq!((trace.kind, trace.outcome), (StartKind::Container, Outcome::Complete));
    assert_eq!(containers(trace), ["log peer", "app"]);
    assert_eq!(trace.containers[0].pid, Some(Tgid(1143)));
    assert_eq!(
        (trace.sandbox.id.as_ref().map(SandboxId::as_str), trace.sandbox.pid),
        (Some(&*pod.sandbox), Some(Tgid(1023)))
    );
    assert_eq!((trace.pod.attempt, trace.pod.ip.as_deref()), (Some(3), Some("10.0.0.7")));
    assert!(trace.quality.notes.is_empty(), "{:?}", trace.quality.notes);
}

/// The sandbox was made before, its containers come after.
#[test]
fn between_the_sandbox_and_its_container() {
    let mut s = Stream::new();
    let pod = pod();
    list(&mut s, 1_000, &pod, &[("init", "1c0", ContainerState::Exited, 0)]);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].kind, traces[0].outcome), (1, StartKind::Pod, Outcome::Partial));
    assert_eq!((containers(&traces[0]), traces[0].pod.attempt), (vec!["app".to_owned()], Some(3)));
    assert_eq!(traces[0].quality.notes, ["begins_in_the_middle"]);
}

/// In a sandbox that was made again the first container is no restart, whatever its attempt.
#[test]
fn a_rebuilt_sandbox_under_way() {
    let mut s = Stream::new();
    list(&mut s, 1_000, &pod(), &[]);
    attempt(&mut s, &pod(), 80_000, "app", "/bin/app", 1);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].kind, traces[0].outcome), (1, StartKind::Pod, Outcome::Partial));
}

/// podlapse came inside RunPodSandbox: what is left of it is of the same trace.
#[test]
fn inside_the_sandboxs_making() {
    let mut s = Stream::new();
    let mut pod = pod();
    pod.host_network = true;
    sandbox_signs(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Partial));
    assert_eq!(traces[0].total_ns, 91_010_000, "from the shim's clone to the last call's end");
    assert!(traces[0].spans.iter().any(|span| span.stage == "sandbox.oci.create" && span.parent.is_none()));
}

/// podlapse came inside StartContainer: no call is seen, before or after its list.
#[test]
fn inside_a_containers_start() {
    for at in [89_000, 93_000, 900_000] {
        let mut s = Stream::new();
        let pod = pod();
        let state = if at < 100_000 { ContainerState::Created } else { ContainerState::Running };
        list(&mut s, at, &pod, &[("app", "1c1", state, 0), ("log", "1c2", ContainerState::Running, 1143)]);
        oci(&mut s, &pod, 95_000, &id("1c1"), 1120, "/bin/app", true);
        let traces = feed(s);
        assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Partial), "listed at {at}");
        assert_eq!((containers(&traces[0]), traces[0].pod.name.as_deref()), (vec!["app".to_owned()], Some("pair")));
        assert!(traces[0].spans.iter().any(|span| span.stage == "container.start.oci.create"));
        let notes = &traces[0].quality.notes;
        assert_eq!(*notes, ["begins_in_the_middle", "call_not_seen: StartContainer of app"]);
    }
}

/// podlapse came between CreateContainer and StartContainer.
#[test]
fn between_creation_and_start() {
    let mut s = Stream::new();
    let pod = pod();
    list(&mut s, 1_000, &pod, &[("app", "1c1", ContainerState::Created, 0)]);
    s.call((90_000, 132_000), "StartContainer", &[(Field::ContainerId, &id("1c1"))], &[]);
    oci(&mut s, &pod, 95_000, &id("1c1"), 1120, "/bin/app", true);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Partial));
    assert_eq!((containers(&traces[0]), traces[0].pod.name.as_deref()), (vec!["app".to_owned()], Some("pair")));
    assert_eq!(traces[0].sandbox.id.as_ref().map(SandboxId::as_str), Some(&*pod.sandbox));
}

/// What ran before becomes no start, whatever happens to it, and a list of what was seen to start changes nothing.
#[test]
fn nothing_that_ran_before() {
    let mut s = Stream::new();
    let pod = pod();
    let running = ContainerState::Running;
    list(&mut s, 1_000, &pod, &[("app", "1c1", running, 1123), ("log", "1c2", running, 1143)]);
    let of_app = id("1c1");
    s.call((2_000, 3_000), "ExecSync", &[(Field::ContainerId, &of_app)], &[]);
    s.process((2_100, 2_900), 1011, 1200, &format!("runc --root /r exec --process /tmp/p --detach {of_app}"));
    s.write((4_000, 4_100), 1, &of_app, "memory.max", "1");
    s.call((5_000, 6_000), "StopContainer", &[(Field::ContainerId, &of_app)], &[]);
    s.exit(5_500, 1123, 1);
    s.call((7_000, 8_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.call((9_000, 9_500), "RemovePodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    assert!(feed(s).is_empty());

    let whole = |with: bool| {
        let mut s = Stream::new();
        sandbox(&mut s, &pod);
        container(&mut s, &pod, 80_000, "app", "/bin/app");
        create_container(&mut s, &pod, 200_000, "log");
        if with {
            list(&mut s, 210_000, &pod, &[("app", "1c1", running, 1123), ("log", "1c0", ContainerState::Created, 0)]);
        }
        format!("{:?}", feed(s))
    };
    assert_eq!(whole(true), whole(false));
}
