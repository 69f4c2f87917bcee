//! Whatever the order, and whatever is missing: no panic, and every trace adds up.

use proptest::prelude::*;

use super::containerd::{Pod, container, sandbox};
use super::dsl::{Item, Stream};
use super::render;
use crate::engine::{Config, Update};
use crate::ids::{MonotonicNs, Tgid};
use crate::lifecycle::Lifecycle;
use crate::record::ContainerState;
use crate::trace::Trace;

fn stream() -> Vec<Item> {
    let mut s = Stream::new();
    for (digit, name, pids) in [("1", "one", 1000), ("2", "two", 1050)] {
        let pod = Pod::new(name, digit, pids);
        s.offset += 500;
        sandbox(&mut s, &pod);
        container(&mut s, &pod, 80_000, "app", "/bin/app");
    }
    s.tick(5_000_000);
    s.items.sort_by_key(|(at, _)| *at);
    s.items.into_iter().map(|(_, item)| item).collect()
}

/// Every second call has its name late.
fn late() -> Vec<Item> {
    let mut s = super::late::busy();
    let running = ContainerState::Running;
    let (one, two) = (Pod::new("one", "1", 1000), Pod::new("two", "2", 5000));
    super::listed::list(
        &mut s,
        100_000,
        &one,
        &[("app", "1c1", ContainerState::Created, 0), ("x", "1c9", running, 1123)],
    );
    super::listed::list(&mut s, 6_000_000, &two, &[("app", "2c1", running, 5123), ("first", "2c2", running, 0)]);
    let mut calls = 0;
    let late = s.named_late(|_| {
        calls += 1;
        (calls % 2 == 0).then_some(500_000)
    });
    late.items.into_iter().map(|(_, item)| item).collect()
}

fn feed<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<Trace> {
    let mut lifecycle = Lifecycle::new(Config::default());
    let mut updates = Vec::new();
    let mut open = Vec::new();
    for (index, item) in items.enumerate() {
        match item {
            Item::Record(record) => lifecycle.feed(record, &mut updates),
            Item::Call(event) => lifecycle.call(event, &mut updates),
        }
        if index % 16 == 0 {
            open = lifecycle.open();
        }
    }
    let all = updates.into_iter().filter_map(|update| match update {
        Update::Started(trace) | Update::Stuck(trace) | Update::Finished(trace) => Some(*trace),
        Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => None,
    });
    all.chain(open).collect()
}

fn adds_up(traces: &[Trace]) -> Result<(), TestCaseError> {
    for trace in traces {
        prop_assert_eq!(trace.stages.iter().map(|s| s.self_ns).sum::<u64>(), trace.total_ns);
        prop_assert!(trace.named_ns <= trace.total_ns);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_order(items in Just(stream()).prop_shuffle()) {
        adds_up(&feed(items.iter()))?;
    }

    /// Names, what they are about, and lists of what exists.
    #[test]
    fn any_order_of_names_and_lists(items in Just(late()).prop_shuffle()) {
        adds_up(&feed(items.iter()))?;
    }

    #[test]
    fn any_part(keep in prop::collection::vec(prop::bool::weighted(0.8), 400)) {
        let items = stream();
        let kept = items.iter().zip(keep.iter().cycle()).filter(|(_, keep)| **keep).map(|(item, _)| item);
        adds_up(&feed(kept))?;
    }

    /// Pids, threads and times mixed up.
    #[test]
    fn any_nonsense(changes in prop::collection::vec((0usize..400, 0u32..12, 0u64..200_000_000), 0..300)) {
        let mut items = stream();
        let count = items.len();
        for (index, pid, at) in changes {
            let other = items[(index * 7) % count].clone();
            match (&mut items[index % count], other) {
                (Item::Record(record), Item::Record(other)) => {
                    record.tgid = Tgid([0, 1, 100, 1001, 1002, 1011, 1020, 1021, 1023, 1073, 1123, 1173][pid as usize]);
                    record.at = MonotonicNs(at);
                    if pid % 3 == 0 {
                        record.event = other.event;
                    }
                }
                (item, other) => *item = other,
            }
        }
        adds_up(&feed(items.iter()))?;
    }

    /// Twenty pods at once, all with plugins and containers of the same names: each as if it were alone.
    #[test]
    fn pods_do_not_mix(offsets in prop::collection::vec(0u64..100_000, 20)) {
        let (mut all, mut alone) = (Stream::new(), Vec::new());
        for (number, offset) in (0u32..).zip(&offsets) {
            let pod = Pod::new("same", &format!("{:x}", 16 + number), 1000 * (number + 1));
            let mut one = Stream::new();
            for s in [&mut all, &mut one] {
                s.offset = *offset;
                sandbox(s, &pod);
                container(s, &pod, 80_000, "app", "/bin/app");
                s.offset = 0;
            }
            one.tick(5_000_000);
            alone.extend(one.feed(Config::default()).iter().map(render::trace));
        }
        all.tick(5_000_000);
        let mut all: Vec<String> = all.feed(Config::default()).iter().map(render::trace).collect();
        all.sort_unstable();
        alone.sort_unstable();
        prop_assert!(all == alone);
    }

    #[test]
    fn twice_the_same(items in Just(stream()).prop_shuffle()) {
        prop_assert_eq!(format!("{:?}", feed(items.iter())), format!("{:?}", feed(items.iter())));
    }
}
