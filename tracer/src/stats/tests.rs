//! Known answers: what is counted of a trace, in which order it is shown, and that a log holds all of it.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::export::samples::{complete, failed, hostile};
use crate::trace::Span;

/// Rows as text: outcome, stage, group, count, min, median, max, own time in ms.
fn check(stats: &Stats, by: Option<By>, want: Expect) {
    let ms = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6));
    let mut text = String::new();
    for row in stats.rows(by) {
        let Row { entry, .. } = &row;
        text += &format!(
            "{} {} {} n={} {} {} {} own {} of {}\n",
            row.outcome,
            row.stage,
            row.group.as_deref().unwrap_or("-"),
            entry.count(),
            ms(entry.range_ns().map(|range| range.0)),
            ms(entry.quantile_ns(0.5)),
            ms(entry.range_ns().map(|range| range.1)),
            ms(Some(entry.self_ns)),
            ms(Some(row.total_ns)),
        );
    }
    want.assert_eq(&text);
}

fn of(traces: &[Trace], by: Option<By>) -> Stats {
    let mut stats = Stats::new(by);
    traces.iter().for_each(|trace| stats.add(trace));
    stats
}

/// Three starts that ended, in two namespaces and with two handlers, and one that goes on.
fn some(by: Option<By>) -> Stats {
    let mut other = complete();
    (other.pod.namespace, other.pod.runtime_handler) = (Some("shop".into()), Some("crun".into()));
    other.spans[0].end_ns = other.spans[0].end_ns.map(|end| end + 100_000_000);
    for span in &mut other.spans[6..8] {
        span.attributes.insert("container".into(), "web".into());
    }
    of(&[complete(), other, failed(), hostile()], by)
}

#[test]
fn spans_and_starts() {
    let stats = some(None);
    assert_eq!((stats.open, stats.starts("complete"), stats.starts("failed")), (1, 2, 1));
    check(
        &stats,
        None,
        expect![[r#"
            complete start - n=2 640.0 640.0 640.0 own 1280.0 of 1280.0
            complete sandbox - n=2 412.0 412.1 512.0 own 456.0 of 1280.0
            complete sandbox.netns - n=2 6.0 6.0 6.0 own 0.0 of 1280.0
            complete sandbox.cni - n=2 178.0 178.0 178.0 own 0.0 of 1280.0
            complete sandbox.cni.bridge - n=2 161.0 161.0 161.0 own 0.0 of 1280.0
            complete sandbox.cni.host-local - n=2 13.0 13.0 13.0 own 0.0 of 1280.0
            complete sandbox.cni.portmap - n=2 17.0 17.0 17.0 own 0.0 of 1280.0
            complete sandbox.runtime - n=2 0.0 0.0 0.0 own 0.0 of 1280.0
            complete container.create - n=2 55.0 55.0 55.0 own 0.0 of 1280.0
            complete container.create.runtime - n=2 0.0 0.0 0.0 own 0.0 of 1280.0
            complete container.start - n=2 168.0 168.0 168.0 own 824.0 of 1280.0
            complete container.start.runtime - n=2 0.0 0.0 0.0 own 0.0 of 1280.0
            failed start - n=1 640.0 640.0 640.0 own 640.0 of 640.0
            failed sandbox - n=1 640.0 640.0 640.0 own 228.0 of 640.0
            failed sandbox.cni - n=1 580.0 580.0 580.0 own 0.0 of 640.0
            failed sandbox.cni.bridge - n=1 580.0 580.0 580.0 own 0.0 of 640.0
            failed sandbox.runtime - n=1 0.0 0.0 0.0 own 0.0 of 640.0
            failed container.start - n=0 - - - own 412.0 of 640.0
        "#]],
    );
}

#[test]
fn broken_down() {
    check(
        &some(None),
        Some(By::Plugin),
        expect![[r#"
            complete sandbox.cni.bridge bridge n=2 161.0 161.0 161.0 own 0.0 of 1280.0
            complete sandbox.cni.host-local host-local n=2 13.0 13.0 13.0 own 0.0 of 1280.0
            complete sandbox.cni.portmap portmap n=2 17.0 17.0 17.0 own 0.0 of 1280.0
            failed sandbox.cni.bridge bridge n=1 580.0 580.0 580.0 own 0.0 of 640.0
        "#]],
    );
    check(
        &some(Some(By::Image)),
        Some(By::Image),
        expect![[r#"
        complete container.create docker.io/library/busybox:1.36 n=1 55.0 55.0 55.0 own 0.0 of 1280.0
        complete container.create.runtime docker.io/library/busybox:1.36 n=1 0.0 0.0 0.0 own 0.0 of 1280.0
        complete container.start docker.io/library/busybox:1.36 n=1 168.0 168.0 168.0 own 0.0 of 1280.0
        complete container.start.runtime docker.io/library/busybox:1.36 n=1 0.0 0.0 0.0 own 0.0 of 1280.0
    "#]],
    );
    let rows = |by: By| some(Some(by)).rows(Some(by)).into_iter().filter(|row| row.stage == START);
    let starts = |by| rows(by).map(|row| (row.outcome, row.group, row.entry.count())).collect::<Vec<_>>();
    let text = |text: &str| Some(text.to_owned());
    let row = |outcome: &str, group, count| (outcome.to_owned(), group, count);
    assert_eq!(
        starts(By::Handler),
        [row("complete", None, 1), row("complete", text("crun"), 1), row("failed", None, 1)]
    );
    assert_eq!(
        starts(By::Namespace),
        [row("complete", text("default"), 1), row("complete", text("shop"), 1), row("failed", text("default"), 1)]
    );
}

#[test]
fn parts_of_a_plugin() {
    let mut trace = complete();
    trace.spans[4].stage = "sandbox.cni.bridge.netns".into();
    trace.spans[5].stage = "sandbox.cni.bridge.host".into();
    let rows = of(&[trace], None).rows(Some(By::Plugin));
    assert!(rows.len() == 3 && rows.iter().all(|row| row.group.as_deref() == Some("bridge")), "{rows:?}");
}

#[test]
fn all_stages_in_the_order_of_a_start() {
    let mut stages = [
        "own",
        "container.exec",
        "container.start.shim",
        "image.pull",
        "sandbox.runtime",
        "sandbox.cni.x",
        "sandbox.cni",
    ]
    .to_vec();
    stages.extend(["container.start", "kubelet.gap", "sandbox", "start", "kubelet.prepare", "sandbox.shim"]);
    stages.sort_by(|a, b| rows::in_a_start(a).cmp(&rows::in_a_start(b)));
    expect![[r#"
        start
        kubelet.prepare
        kubelet.gap
        sandbox
        sandbox.cni
        sandbox.cni.x
        sandbox.shim
        sandbox.runtime
        image.pull
        container.start
        container.start.shim
        container.exec
        own"#]]
    .assert_eq(&stages.join("\n"));
}

#[test]
fn outside_the_range() {
    let mut entry = Entry::default();
    for ns in [0, 999, 1_000, 1_001, HIGHEST_NS, HIGHEST_NS + 1] {
        entry.record(ns);
    }
    assert_eq!((entry.count(), entry.below, entry.above), (6, 2, 1));
    assert_eq!(entry.range_ns(), Some((LOWEST_NS, HIGHEST_NS)));
    assert_eq!((entry.quantile_ns(0.0), entry.quantile_ns(1.0)), entry.range_ns().unzip());
    assert_eq!(Entry::default().quantile_ns(0.5), None);
}

#[test]
fn only_so_many_keys() {
    let mut trace = complete();
    let span = trace.spans[1].clone();
    trace.spans = (0..MAX_KEYS + 7).map(|n| Span { stage: format!("sandbox.cni.{n}"), ..span.clone() }).collect();
    trace.stages.clear();
    let stats = of(&[trace], None);
    assert_eq!((stats.entries().count(), stats.left_out), (MAX_KEYS, 8), "one key is of whole starts");
}

fn same(a: &Stats, b: &Stats) {
    let text = |stats: &Stats| {
        let entries = stats.entries().map(|(key, e)| {
            let values: Vec<_> =
                e.histogram().iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
            format!("{key:?} {:?} {} {} {} {values:?}\n", e.range_ns(), e.self_ns, e.below, e.above)
        });
        format!("{:?} {} {} {}\n", stats.by(), stats.open, stats.left_out, stats.lost_records)
            + &entries.collect::<String>()
    };
    assert_eq!(text(a), text(b));
}

#[test]
fn a_log_holds_all_of_it() {
    for by in [None, Some(By::Namespace), Some(By::Image), Some(By::Handler)] {
        let stats = some(by);
        let log = stats.to_log();
        let back = Stats::from_log(&log).unwrap();
        same(&stats, &back);
        assert_eq!(back.to_log(), log, "the same bytes again");
        let (mut twice, joined) = (stats.clone(), [&log[..], &log].concat());
        twice.merge(&stats);
        same(&twice, &Stats::from_log(&joined).unwrap());
        assert_eq!(back.interval, stats.interval);
    }
}

#[test]
fn a_log_is_text() {
    let log = String::from_utf8(some(None).to_log()).unwrap();
    let lines = log.lines().filter(|line| !line.contains("sandbox") && !line.contains("container"));
    // How it is compressed is another's business.
    let lines: Vec<&str> = lines.map(|line| line.split_inclusive(",HISTF").next().unwrap_or(line)).collect();
    expect![[r##"
        #[podlapse.stages/v1 unit=ns by=- open=1 left_out=0 lost=0 from_ns=1767225600000000001 to_ns=1767225600640000001]
        #[Histogram log format version 1.3]
        #[StartTime: 1767225600.000 (seconds since epoch)]
        #[podlapse.own stage=start;outcome=complete self_ns=640000000 below=0 above=0 min_ns=640000000 max_ns=640000000]
        #[podlapse.own stage=start;outcome=complete;handler=crun self_ns=640000000 below=0 above=0 min_ns=640000000 max_ns=640000000]
        #[podlapse.own stage=start;outcome=failed self_ns=640000000 below=0 above=0 min_ns=640000000 max_ns=640000000]
        "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
        #[MaxValueDivisor: 1000000.000]
        Tag=stage=start;outcome=complete,1767225600.000,0.640,640.156,HISTF
        Tag=stage=start;outcome=complete;handler=crun,1767225600.000,0.640,640.156,HISTF
        Tag=stage=start;outcome=failed,1767225600.000,0.640,640.156,HISTF"##]].assert_eq(&lines.join("\n"));
}

#[test]
fn logs_that_are_none() {
    let (log, by) = (some(None).to_log(), some(Some(By::Image)).to_log());
    let error = |log: &[u8]| Stats::from_log(log).map(drop).unwrap_err().to_string();
    assert!(error(b"").contains("first line"));
    assert!(error(b"#[StartTime: 0.000 (seconds since epoch)]\n").contains("first line"));
    assert!(error(&[&log[..], &by].concat()).contains("--by"));
    let text = String::from_utf8(log).unwrap();
    for (from, to) in
        [("unit=ns", "unit=ms"), ("self_ns=", "selfns="), ("Tag=stage=", "Tag=stag="), (",HISTF", ",ISTF")]
    {
        assert!(error(text.replace(from, to).as_bytes()).contains("is damaged in line"), "{from}");
    }
}

#[test]
fn a_log_that_is_cut_between_two_lines() {
    let log = String::from_utf8(some(None).to_log()).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let cut = lines[..lines.len() - 2].concat();
    let error = Stats::from_log(cut.as_bytes()).map(drop).unwrap_err().to_string();
    assert_eq!(error, "the log is cut short: 2 of its histograms are missing");
    // Also where another one follows that has them.
    assert!(Stats::from_log((cut + &log).as_bytes()).is_err());
}

#[test]
fn a_log_that_claims_any_number() {
    let mut log = String::from_utf8(some(None).to_log()).unwrap();
    for name in ["open", "left_out", "lost", "self_ns", "below", "above"] {
        let (before, after) = (format!(" {name}="), format!(" {name}={}", u64::MAX));
        let parts: Vec<&str> = log.split(&before).collect();
        log = parts.join(&(after + " was="));
    }
    let stats = Stats::from_log((log.clone() + &log).as_bytes()).unwrap();
    assert_eq!((stats.open, stats.left_out, stats.lost_records), (u64::MAX, u64::MAX, u64::MAX));
    let mut table = Vec::new();
    crate::export::write_stages(&mut table, &stats, None, None, crate::export::Charset::Ascii).unwrap();
    assert!(stats.rows(Some(By::Handler)).iter().all(|row| row.total_ns == u64::MAX), "{stats:?}");
}

#[test]
fn a_length_that_lies() {
    let (mut deflate, mut body) = (flate2::Compress::new(flate2::Compression::default(), true), Vec::with_capacity(64));
    let head = [0x1c, 0x84, 0x93, 0x13, 0xff, 0xff, 0xff, 0xff];
    deflate.compress_vec(&head, &mut body, flate2::FlushCompress::Finish).unwrap();
    let bytes = [&[0x1c, 0x84, 0x93, 0x14, 0, 0, 0, body.len() as u8], &body[..]].concat();
    let line = format!(
        "Tag=stage=a;outcome=b,0.0,0.0,0.0,{}\n",
        base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes)
    );
    let log = format!("{LOG_MAGIC} unit=ns by=- open=0 left_out=0 lost=0]\n{line}");
    assert!(Stats::from_log(log.as_bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What the documentation promises: each quantile is the exact one, but for three digits.
    #[test]
    fn quantiles_are_exact_to_three_digits(mut values in prop::collection::vec(LOWEST_NS..HIGHEST_NS, 1..200), quantile in 0.0..=1.0f64) {
        let mut entry = Entry::default();
        values.iter().for_each(|value| entry.record(*value));
        values.sort_unstable();
        let place = ((quantile * values.len() as f64).ceil() as usize).max(1) - 1;
        let (exact, got) = (values[place], entry.quantile_ns(quantile).unwrap());
        prop_assert!(entry.histogram().equivalent(exact, got), "{exact} {got}");
        prop_assert!(got.abs_diff(exact) <= exact / 1000, "{exact} {got}");
    }

    #[test]
    fn any_name_survives_a_tag(stage in ".*", handler in prop::option::of(".*"), group in prop::option::of(".*")) {
        let key = Key { stage, outcome: "complete".into(), handler, group };
        let tag = key.tag(Some(By::Image));
        prop_assert!(!tag.contains([',', ' ', '\n', '\r']));
        prop_assert_eq!(Key::parse(&tag, Some(By::Image)), Some(key));
    }

    #[test]
    fn a_damaged_log_is_an_error_or_a_log(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut log = some(None).to_log();
        let at = at.index(log.len());
        log[at] = byte;
        if cut {
            log.truncate(at);
        }
        let _ = Stats::from_log(&log);
    }
}
