//! Names that come late change when an event is told, not what it says.

use std::collections::BTreeSet;

use super::super::containerd::{Pod, attempt, container};
use super::super::dsl::Stream;
use super::calls::exec_sync;
use super::{APP, LOG, SHIM, events, line, running, stopped};

/// A pod's whole life: a restart, an end by itself, a stop, removal.
fn life() -> Stream {
    let (mut s, pod): (Stream, Pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    exec_sync(&mut s, (133_000, 138_000), ("0", 3), 0);
    exec_sync(&mut s, (300_000, 310_000), ("1", 3), 1);
    exec_sync(&mut s, (1_300_000, 1_310_000), ("1", 3), 0);
    s.exit(3_000_000, LOG, 1);
    attempt(&mut s, &pod, 4_000_000, "log", "/bin/log", 1);
    s.signal(5_000_000, (4242, "bash"), APP, 1);
    s.oom(5_500_000, LOG + 400, 1_000);
    s.killed(5_500_100, LOG + 400, 9);
    stopped(&mut s, &pod, 6_000_000);
    s.killed(7_000_000, SHIM, 9);
    s
}

fn told(mut stream: Stream) -> BTreeSet<String> {
    stream.tick(60_000_000);
    events(stream).iter().map(line).collect()
}

#[test]
fn in_any_delay() {
    let exact = told(life());
    assert!(exact.len() > 17, "{exact:#?}");
    for delay in [1, 500, 9_000, 60_000, 3_000_000, 30_000_000] {
        let late = told(life().named_late(|_| Some(delay)));
        let missing: Vec<_> = exact.difference(&late).collect();
        let more: Vec<_> = late.difference(&exact).collect();
        assert!(missing.is_empty() && more.is_empty(), "{delay}: without {missing:#?}, with {more:#?}");
    }
}

/// Each method has its own time, as slots do.
#[test]
fn each_method_in_its_own_delay() {
    let exact = told(life());
    for seed in 0..24_u64 {
        let delay = |method: &str| {
            let hash = method.bytes().fold(seed.wrapping_mul(0x9e37_79b9), |h, b| h.wrapping_mul(31) ^ u64::from(b));
            hash % 7_000_000
        };
        let late = told(life().named_late(|start| Some(delay(&start.method))));
        let missing: Vec<_> = exact.difference(&late).collect();
        let more: Vec<_> = late.difference(&exact).collect();
        assert!(missing.is_empty() && more.is_empty(), "{seed}: without {missing:#?}, with {more:#?}");
    }
}
