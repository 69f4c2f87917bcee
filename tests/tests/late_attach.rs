//! Late attach: cuts of recorded traffic, and of a client that does everything in any order. No name is ever wrong.
//!
//! The long run of the same is `cargo xtask late-attach --thorough`.

use std::path::Path;

use podlapse_tests::late::{Cut, Damage, Score, Traffic, client};

fn scored(traffic: &Traffic, cuts: impl Iterator<Item = Cut>) -> Score {
    let mut score = Score::default();
    cuts.for_each(|cut| score.add(Score::of(traffic, &cut)));
    assert!(score.wrong.is_empty(), "{:#?}", score.wrong);
    println!("{}\n{score}", traffic.name);
    score
}

fn capture(name: &str) -> Traffic {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(format!("{name}.jsonl"));
    Traffic::read(&file).expect("a capture of the repository")
}

/// Every tenth of a capture.
fn cuts(traffic: &Traffic, kubelet: bool) -> impl Iterator<Item = Cut> {
    let chunks = traffic.chunks.len();
    (0..10).map(move |n| Cut { chunk: n * chunks / 10, kubelet, ..Cut::default() })
}

#[test]
fn kubelets_calls_have_names() {
    for name in ["kubelet-1.32-containerd-1.7", "kubelet-1.20-containerd-1.6-v1alpha2"] {
        let traffic = capture(name);
        let wire = scored(&traffic, cuts(&traffic, false)).share();
        assert!(wire <= 0.03, "{name}: {wire} of the calls are ambiguous from what the wire shows");
        let habits = scored(&traffic, cuts(&traffic, true)).share();
        assert!(habits <= wire, "{name}: {habits} with kubelet's habits, {wire} without");
    }
}

#[test]
fn damage_that_nobody_announced_gives_no_wrong_name() {
    for name in ["kubelet-1.20-containerd-1.6-v1alpha2", "crictl-1.36-containerd-1.6"] {
        let traffic = capture(name);
        for damage in [Damage::Dropped, Damage::Doubled] {
            let damaged = |(n, cut)| Cut { damage: Some((damage, n as u64)), inside: Some(n as u64), ..cut };
            scored(&traffic, cuts(&traffic, false).enumerate().map(damaged));
        }
    }
}

#[test]
fn a_client_of_no_habits_gets_no_wrong_name() {
    for seed in 1..4 {
        let traffic = client::play(seed, 2_000);
        let score = scored(&traffic, cuts(&traffic, false));
        for method in ["RunPodSandbox", "CreateContainer", "ContainerStatus", "PodSandboxStatus"] {
            let row = &score.rows[&format!("/runtime.v1.RuntimeService/{method}")];
            assert!(row.inferred > 0, "{method}: {row:?}");
        }
    }
}
