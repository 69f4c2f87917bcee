use expect_test::expect;

use super::*;
use crate::export::samples;
use crate::lifecycle::Standing;

/// The lines that begin with one of these words, sorted: a registry's label sets have no order.
fn lines(text: &str, words: &[&str]) -> String {
    let wanted = |line: &&str| words.iter().any(|word| line.starts_with(word));
    let mut lines: Vec<&str> = text.lines().filter(wanted).collect();
    lines.sort_unstable();
    lines.iter().fold(String::new(), |all, line| all + line + "\n")
}

fn answered(method: &str, code: Option<u32>, took_ns: u64) -> Answered {
    Answered { method: method.to_owned(), code, took_ns }
}

#[test]
fn starts_are_counted_by_outcome_and_stage() {
    let mut metrics = Metrics::default();
    metrics.began();
    metrics.began();
    metrics.trace(&samples::complete());
    metrics.trace(&samples::failed());
    let text = metrics.text(Format::OpenMetrics);
    let counts = ["podlapse_starts", "podlapse_start_duration_seconds_count", "podlapse_verdicts"];
    expect![[r#"
        podlapse_start_duration_seconds_count{kind="pod",outcome="complete"} 1
        podlapse_start_duration_seconds_count{kind="pod",outcome="failed"} 1
        podlapse_starts_begun_total 2
        podlapse_starts_withdrawn_total 0
        podlapse_verdicts_total{stage="sandbox.cni.bridge",reason="cni_failed"} 1
    "#]]
    .assert_eq(&lines(&text, &counts));
    let sandbox = r#"podlapse_stage_duration_seconds_count{stage="sandbox","#;
    expect![[r#"
        podlapse_stage_duration_seconds_count{stage="sandbox",outcome="complete",runtime_handler=""} 1
        podlapse_stage_duration_seconds_count{stage="sandbox",outcome="failed",runtime_handler=""} 1
    "#]]
    .assert_eq(&lines(&text, &[sandbox]));
    assert!(text.ends_with("# EOF\n"));
}

/// An exemplar leads from a bucket to its trace; the older format has none.
#[test]
fn exemplars() {
    let mut metrics = Metrics::default();
    metrics.trace(&samples::complete());
    let start = r#"podlapse_start_duration_seconds_bucket{le="1.0","#;
    expect![[r#"
        podlapse_start_duration_seconds_bucket{le="1.0",kind="pod",outcome="complete"} 1 # {trace_id="0123456789abcdef0123456789abcdef"} 0.64 1767225600.64
    "#]]
    .assert_eq(&lines(&metrics.text(Format::OpenMetrics), &[start]));
    let text = metrics.text(Format::Text);
    assert!(!text.contains('#') || !text.contains("trace_id"), "{text}");
    assert!(!text.contains("# EOF"));
}

#[test]
fn labels_are_bounded() {
    let mut metrics = Metrics::default();
    for method in ["ListContainers", "", "no/such", &"X".repeat(41)] {
        metrics.call(&answered(method, Some(0), 1_000_000));
    }
    metrics.call(&answered("RunPodSandbox", Some(4_000_000), 1));
    metrics.call(&answered("RunPodSandbox", None, 1));
    for number in 0..200 {
        metrics.call(&answered(&format!("Method{number}"), Some(0), 1));
    }
    let text = metrics.text(Format::Text);
    assert_eq!(lines(&text, &[r#"podlapse_cri_calls_total{method="Method"#]).lines().count(), MAX_METHODS - 2);
    let named = ["other", "unknown", "List", "Run"].map(|name| format!(r#"podlapse_cri_calls_total{{method="{name}"#));
    expect![[r#"
        podlapse_cri_calls_total{method="ListContainers",code="0"} 1
        podlapse_cri_calls_total{method="RunPodSandbox",code="none"} 1
        podlapse_cri_calls_total{method="RunPodSandbox",code="other"} 1
        podlapse_cri_calls_total{method="other",code="0"} 140
        podlapse_cri_calls_total{method="unknown",code="0"} 1
    "#]]
    .assert_eq(&lines(&text, &named.each_ref().map(String::as_str)));
    let polls = "podlapse_cri_list_duration_seconds_count";
    expect![[r#"
        podlapse_cri_list_duration_seconds_count{method="ListContainers"} 1
    "#]]
    .assert_eq(&lines(&text, &[polls]));
    for number in 0..=MAX_STAGES {
        let mut trace = samples::complete();
        trace.pod.runtime_handler = Some(format!("handler-{number}"));
        metrics.trace(&trace);
    }
    let text = metrics.text(Format::Text);
    let sets = lines(&text, &["podlapse_stage_duration_seconds_count"]).lines().count();
    assert_eq!(sets, MAX_STAGES);
    assert!(!lines(&text, &["podlapse_stage_durations_left_out_total"]).ends_with(" 0\n"));
}

#[test]
fn what_is_open_and_missed() {
    let metrics = Metrics::default();
    let standing = Standing { open_starts: 2, oldest_ns: Some(1_500_000_000), lost_records: 3, ..Standing::default() };
    let progress = Progress { standing, held: 1, records: 70, payload: 4096, programs_ns: Some(2_000_000) };
    metrics.progress(&progress);
    // Later, and nothing new: a counter never falls.
    metrics.progress(&Progress { records: 71, programs_ns: None, ..progress });
    let words = ["open_starts", "held_starts", "oldest", "records", "payload", "lost", "bpf_run"];
    let words = words.map(|word| format!("podlapse_{word}"));
    expect![[r#"
        podlapse_bpf_run_seconds_total 0.002
        podlapse_held_starts 1
        podlapse_lost_records_total 3
        podlapse_oldest_open_start_seconds 1.5
        podlapse_open_starts 2
        podlapse_payload_bytes_total 4096
        podlapse_records_total 71
    "#]]
    .assert_eq(&lines(&metrics.text(Format::Text), &words.each_ref().map(String::as_str)));
    let own = lines(&metrics.text(Format::Text), &["podlapse_process_resident_memory_bytes "]);
    assert!(own.trim_end().rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 1_000_000, "{own}");
}
