//! A client that finds the container's image, and makes no container of it.

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, sandbox};
use super::dsl::Stream;
use super::stuck::{SECOND, live, nobody};
use crate::cri::{Ending, Field};
use crate::engine::Update;

const APP: &str = "docker.io/library/app:1";
const ID: &str = "sha256:abc";

/// A try of kubelet's: it asks for the image; `id` is the answer.
fn asks(s: &mut Stream, at: u64, image: &str, id: &str) {
    s.call((at, at + 1_000), "ImageStatus", &[(Field::Image, image)], &[(Field::ImageRef, id)]);
}

/// What is told of each start that takes long.
fn check(s: Stream, until: u64, expect: Expect) {
    let (updates, _) = live(s, until, nobody);
    let mut out = String::new();
    for update in updates {
        let Update::Stuck(trace) = update else { continue };
        let verdict = trace.verdict.as_ref().unwrap();
        let (name, at) = (trace.pod.full_name(), crate::trace::seconds(trace.total_ns));
        let word = verdict.kubelet.as_deref().unwrap_or("-");
        out += &format!(
            "{name} at {at}: {} ({word}, {}): {}\n",
            verdict.reason,
            verdict.confidence.name(),
            verdict.message
        );
        if verdict.reason != "stuck" {
            verdict.evidence.iter().for_each(|sentence| out += &format!("  {sentence}\n"));
        }
    }
    expect.assert_eq(&out);
}

fn ready() -> (Stream, Pod) {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    sandbox(&mut s, &pod);
    (s, pod)
}

#[test]
fn a_missing_config_map() {
    let (mut s, _) = ready();
    for at in [1, 13, 26, 38] {
        asks(&mut s, at * SECOND, APP, ID);
    }
    check(
        s,
        41,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: no_create_container (CreateContainerConfigError, inferred): no CreateContainer came for 20.0 s
          the sandbox is ready for 20.0 s
          ImageStatus of docker.io/library/app:1 was asked 2 times since, last 7.1 s ago, and found it; no container was made of it
          no PullImage is open or failed
          no call is open: the next one is the client's to make
          the last sign is 20.0 s old: RunPodSandbox ended
        default/web at 40.1 s: no_create_container (CreateContainerConfigError, inferred): no CreateContainer came for 40.0 s
          the sandbox is ready for 40.0 s
          ImageStatus of docker.io/library/app:1 was asked 4 times since, last 2.1 s ago, and found it; no container was made of it
          no PullImage is open or failed
          no call is open: the next one is the client's to make
          the last sign is 40.0 s old: RunPodSandbox ended
    "#]],
    );
}

/// The image is pulled at each try (`imagePullPolicy: Always`).
#[test]
fn an_image_that_is_always_pulled() {
    let (mut s, pod) = ready();
    for at in [1, 13] {
        asks(&mut s, at * SECOND, APP, ID);
        let of = [(Field::Image, APP), (Field::PodUid, pod.uid.as_str()), (Field::PodName, "web")];
        s.call((at * SECOND + 2_000, at * SECOND + 900_000), "PullImage", &of, &[(Field::ImageRef, ID)]);
    }
    check(
        s,
        26,
        expect![[r#"
            default/web at 10.1 s: stuck (-, seen): between calls is open for 8.2 s
            default/web at 20.1 s: no_create_container (CreateContainerConfigError, inferred): no CreateContainer came for 20.0 s
              the sandbox is ready for 20.0 s
              ImageStatus of docker.io/library/app:1 was asked 2 times since, last 7.1 s ago, and found it; no container was made of it
              no PullImage is open or failed
              no call is open: the next one is the client's to make
              the last sign is 6.2 s old: PullImage ended
        "#]],
    );
}

/// Other pods start meanwhile, of the same image and of another one: what they asked for is theirs.
#[test]
fn other_pods_ask_too() {
    let (mut s, _) = ready();
    for (name, digit, pids, at) in [("one", "8", 10_000, 2), ("two", "9", 20_000, 8), ("three", "7", 30_000, 14)] {
        let other = Pod::new(name, digit, pids);
        s.offset = at * SECOND;
        sandbox(&mut s, &other);
        asks(&mut s, 79_000, "img", ID);
        container(&mut s, &other, 80_000, "app", "/bin/app");
        s.offset = 0;
    }
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );
}

/// One that waits for its image: it is not there, is pulled, or could not be pulled.
#[test]
fn an_image_that_is_not_there() {
    let (mut s, _) = ready();
    for at in [1, 13] {
        asks(&mut s, at * SECOND, APP, "");
    }
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );

    let (mut s, _) = ready();
    for at in [1, 13] {
        asks(&mut s, at * SECOND, APP, ID);
    }
    // Another pod's.
    s.begin_call(2 * SECOND, "PullImage", &[(Field::Image, "big"), (Field::PodUid, "9")]);
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );

    let (mut s, _) = ready();
    for at in [1, 13] {
        asks(&mut s, at * SECOND, APP, ID);
    }
    // Of no pod that is named, so that it may be this one's.
    let pull = s.begin_call(2 * SECOND, "PullImage", &[(Field::Image, APP)]);
    s.end_call(3 * SECOND, pull, Ending::Status { code: 2, message: "no route".into() });
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );
}

/// Two pods wait for their first container: whose question it was nobody says.
#[test]
fn two_that_wait() {
    let (mut s, _) = ready();
    s.offset = SECOND;
    sandbox(&mut s, &Pod::new("db", "2", 20_000));
    s.offset = 0;
    for at in [2, 14] {
        asks(&mut s, at * SECOND, APP, ID);
    }
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/db at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );
}

/// An init container runs: the next one is not waited for.
#[test]
fn an_init_container_runs() {
    let (mut s, pod) = ready();
    asks(&mut s, 79_000, APP, ID);
    container(&mut s, &pod, 80_000, "init", "/bin/app");
    for at in [2, 14] {
        asks(&mut s, at * SECOND, APP, ID);
    }
    check(s, 21, expect![""]);
}

/// kubelet asked once, and no more.
#[test]
fn asked_once() {
    let (mut s, _) = ready();
    asks(&mut s, SECOND, APP, ID);
    asks(&mut s, SECOND + 2_000, APP, ID);
    check(
        s,
        21,
        expect![[r#"
        default/web at 10.1 s: stuck (-, seen): between calls is open for 10.0 s
        default/web at 20.1 s: stuck (-, seen): between calls is open for 20.0 s
    "#]],
    );
}
