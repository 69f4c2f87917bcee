//! What goes wrong in a pod's life, a verdict each; `cargo xtask cases --synthetic` prints them with those of starts.

use super::super::containerd::{Pod, container, network};
use super::super::dsl::{RUNTIME, Stream};
use super::super::verdicts::exit;
use super::calls::exec_sync;
use super::{APP, PAUSE, SHIM, app, events, running, stopped};
use crate::cri::Field;
use crate::trace::Verdict;

/// A reason, and what has it.
pub(in crate::lifecycle::tests) struct Case(pub(in crate::lifecycle::tests) &'static str, fn() -> Stream);

pub(in crate::lifecycle::tests) const CASES: &[Case] = &[
    Case("oom_killed", || {
        with(|s| {
            s.oom(5_000_000, APP, 0);
            s.killed(5_000_100, APP, 9);
        })
    }),
    Case("oom_killed", || {
        with(|s| {
            s.oom(5_000_000, 7777, 0);
            s.task_event(5_010_000, "/tasks/oom", &app(), &[]);
        })
    }),
    Case("shim_died", || with(|s| s.killed(5_000_000, SHIM, 9))),
    Case("grace_exceeded", || {
        with(|s| {
            s.runc_kill(5_000_000, SHIM, 1500, (&app(), APP), 15);
            s.runc_kill(7_000_000, SHIM, 1501, (&app(), APP), 9);
            s.killed(7_000_100, APP, 9);
        })
    }),
    Case("killed", || {
        with(|s| {
            s.signal(5_000_000, (4242, "bash"), APP, 9);
            s.killed(5_000_100, APP, 9);
        })
    }),
    Case("killed", || {
        with(|s| {
            s.signal(5_000_000, (4242, "bash"), APP, 2);
            s.exit(5_000_100, APP, 130);
        })
    }),
    Case("crashed", || {
        with(|s| {
            s.signal_with(5_000_000, (APP, "app"), APP, 6, (-6, 0));
            s.killed(5_000_100, APP, 6);
        })
    }),
    Case("crashed", || with(|s| s.killed(5_000_000, APP, 31))),
    Case("exited_with_error", || with(|s| s.exit(5_000_000, APP, 1))),
    Case("poststart_failed", || with(|s| exec_sync(s, (133_000, 140_000), ("0", 3), 1))),
    Case("cni_del_failed", || {
        with(|s| {
            let pod = Pod::new("web", "1", 1000);
            s.cni((5_010_000, 5_020_000), RUNTIME, 1511, "bridge", &pod.env("DEL"));
            exit(s, 1511, Some(1), None);
        })
    }),
    Case("sandbox_exited", || with(|s| s.killed(5_000_000, PAUSE, 9))),
];

fn with(what: impl FnOnce(&mut Stream)) -> Stream {
    let (mut s, _) = running();
    what(&mut s);
    s
}

impl Case {
    /// The first verdict.
    pub(in crate::lifecycle::tests) fn verdict(&self) -> Verdict {
        verdicts((self.1)()).into_iter().next().expect("a verdict")
    }
}

fn verdicts(mut stream: Stream) -> Vec<Verdict> {
    stream.tick(60_000_000);
    events(stream).into_iter().filter_map(|event| event.verdict).collect()
}

#[test]
fn what_goes_well_has_none() {
    let stop = with(|s| stopped(s, &Pod::new("web", "1", 1000), 5_000_000));
    let good_end = with(|s| s.exit(5_000_000, APP, 0));
    let killed_at_once = with(|s| {
        let app = app();
        s.call((5_000_000, 5_100_000), "StopContainer", &[(Field::ContainerId, &app)], &[]);
        s.runc_kill(5_010_000, SHIM, 1500, (&app, APP), 9);
        s.killed(5_010_100, APP, 9);
    });
    // The name of the stop never comes.
    let unnamed = with(|s| {
        s.runc_kill(5_010_000, SHIM, 1500, (&app(), APP), 15);
        s.exit(5_010_100, APP, 1);
    });
    let mut cleanup = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    network(&mut cleanup, &pod);
    exit(&mut cleanup, 1004, Some(1), None);
    cleanup.cni((41_000, 43_000), RUNTIME, 1006, "bridge", &pod.env("DEL"));
    exit(&mut cleanup, 1006, Some(7), None);
    cleanup.failing_call((0, 46_000), "RunPodSandbox", &pod.request(), "plugin failed");
    let host = Pod { host_network: true, ..Pod::new("web", "1", 1000) };
    let mut on_host = Stream::new();
    super::super::containerd::sandbox(&mut on_host, &host);
    container(&mut on_host, &host, 80_000, "app", "/bin/app");
    for (index, stream) in [stop, good_end, killed_at_once, unnamed, cleanup, on_host].into_iter().enumerate() {
        assert_eq!(verdicts(stream), [], "{index}");
    }
}
