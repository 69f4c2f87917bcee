//! What was under way when podlapse came: plugins and the OCI runtime that already ran.

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, sandbox_signs};
use super::dsl::{Item, RUNTIME, Stream};
use crate::cri::{Ending, Field};
use crate::engine::Config;
use crate::trace::{Outcome, Trace};

/// The bridge plugin of `network` ran since 3 100 µs, and podlapse came then.
const CAME: u64 = 10_000;

fn pod() -> Pod {
    Pod::new("pair", "1", 1000)
}

fn good() -> Ending {
    Ending::Status { code: 0, message: String::new() }
}

/// A sandbox's making from `CAME` on.
fn from_then_on(s: &mut Stream, pod: &Pod) {
    let mut whole = Stream::default();
    sandbox_signs(&mut whole, pod);
    let early = |at: u64, item: &Item| at < CAME && matches!(item, Item::Record(_));
    s.items.extend(whole.without(early).items);
    s.found_helper((3_100, CAME), RUNTIME, pod.pids + 2, "/opt/cni/bin/bridge", &pod.env("ADD"));
}

fn feed(s: Stream) -> Vec<Trace> {
    s.feed_last(Config::default())
}

/// Spans at the top and their ends, in µs of the trace, and what is known of the whole.
fn check(trace: &Trace, expect: Expect) {
    let mut text = format!("{} {:?} {}", trace.pod.full_name(), trace.outcome, trace.total_ns / 1000);
    if let Some(verdict) = &trace.verdict {
        text += &format!(" {} {}", verdict.stage, verdict.reason);
    }
    text.push('\n');
    for span in trace.spans.iter().filter(|span| span.parent.is_none()) {
        let end = span.end_ns.map_or("open".to_owned(), |end| (end / 1000).to_string());
        text += &format!("{} {} to {end}\n", span.stage, span.start_ns / 1000);
    }
    trace.quality.notes.iter().for_each(|note| text += &format!("{note}\n"));
    expect.assert_eq(&text);
}

#[test]
fn a_plugin_hangs() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("ADD"));
    // A delegate, and what a script runs.
    s.found_helper((4_000, CAME), 1002, 1003, "/opt/cni/bin/host-local", &pod.env("ADD"));
    s.found_helper((5_000, CAME), 1003, 1004, "sleep 1000", &pod.env("ADD"));
    s.tick(9_000_000);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].sandbox.id.as_ref().map(|id| id.0.as_str())), (1, Some(&*pod.sandbox)));
    let open: Vec<_> = traces[0].spans.iter().filter(|span| span.end_ns.is_none()).collect();
    let open: Vec<_> = open.iter().map(|span| (&*span.stage, span.process.as_ref().map(|it| it.pid.0))).collect();
    let plugins = [("sandbox.cni.bridge", Some(1002)), ("sandbox.cni.host-local", Some(1003))];
    assert_eq!(open, [&[("sandbox", None), ("sandbox.cni", None)], &plugins[..]].concat());
    check(
        &traces[0],
        expect![[r#"
        default/pair InProgress 8996900
        sandbox 0 to open
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
}

/// The call is open until its reply comes, or at the latest until the pod's next call.
#[test]
fn it_goes_on() {
    let went_on = |replies: &[(u64, bool, Ending)]| {
        let (mut s, pod) = (Stream::new(), pod());
        from_then_on(&mut s, &pod);
        for (at, other, ending) in replies {
            s.unasked(*at, *other, ending.clone());
        }
        container(&mut s, &pod, 80_000, "app", "/bin/app");
        s.tick(20_000_000);
        let traces = feed(s);
        assert_eq!((traces.len(), traces[0].containers.len()), (1, 1));
        traces.into_iter().next().unwrap()
    };
    check(
        &went_on(&[(76_000, false, good())]),
        expect![[r#"
        default/pair Partial 128900
        sandbox 0 to 72900
        kubelet.gap 72900 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
    // Others came in between: before the sandbox runs, and on a connection that is not the pod's.
    let others = [(50_000, false, good()), (76_000, false, good()), (77_000, false, Ending::NoStatus)];
    check(
        &went_on(&others),
        expect![[r#"
        default/pair Partial 128900
        sandbox 0 to 73900
        kubelet.gap 73900 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
    check(
        &went_on(&[(76_000, false, good()), (77_000, true, good())]),
        expect![[r#"
        default/pair Partial 128900
        sandbox 0 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
        reply_not_seen: RunPodSandbox
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
    check(
        &went_on(&[]),
        expect![[r#"
        default/pair Partial 128900
        sandbox 0 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
        reply_not_seen: RunPodSandbox
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
}

/// A container's attempt counts over all sandboxes: in the new one it is the first.
#[test]
fn a_sandbox_that_is_made_again() {
    let (mut s, pod) = (Stream::new(), pod());
    from_then_on(&mut s, &pod);
    s.unasked(76_000, false, good());
    super::containerd::attempt(&mut s, &pod, 80_000, "app", "/bin/app", 1);
    s.tick(20_000_000);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].outcome, traces[0].containers.len()), (1, Outcome::Partial, 1));
}

#[test]
fn the_plugin_fails() {
    let failed = |message: Option<String>, again: bool| {
        let (mut s, pod) = (Stream::new(), pod());
        s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("ADD"));
        s.exit(20_000, 1002, 1);
        s.cni((21_000, 22_000), RUNTIME, 1005, "bridge", &pod.env("DEL"));
        message.into_iter().for_each(|message| s.unasked(23_000, false, Ending::Status { code: 2, message }));
        if again {
            s.call((900_000, 976_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, "1b")]);
        }
        s.tick(9_000_000);
        let traces = feed(s);
        assert_eq!(traces.len(), 1 + usize::from(again));
        traces.into_iter().next().unwrap()
    };
    let own = format!("failed to setup network for sandbox \"{}\": plugin type=\"bridge\" failed", pod().sandbox);
    check(
        &failed(Some(own), false),
        expect![[r#"
        default/pair Failed 19900 sandbox.cni.bridge call_failed
        sandbox 0 to 19900
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
    // Another call's failure says nothing; the next RunPodSandbox of the pod does.
    check(
        &failed(Some("no such image".to_owned()), true),
        expect![[r#"
        default/pair Failed 896900 sandbox no_status
        sandbox 0 to 896900
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox
    "#]],
    );
}

/// A plugin of another command, one of no pod, and what was there all along begin nothing.
#[test]
fn what_is_no_start() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("DEL"));
    let mut env = pod.env("ADD");
    env.retain(|(name, _)| name != "CNI_ARGS");
    s.found_helper((3_100, CAME), RUNTIME, 1003, "/opt/cni/bin/bridge", &env);
    s.found_helper((3_100, CAME), RUNTIME, 1004, "/usr/bin/stargz", &[]);
    s.unasked(20_000, false, good());
    s.tick(9_000_000);
    assert!(feed(s).is_empty());
}
