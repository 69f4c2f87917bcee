//! podlapse's times of the CRI calls against two independent clocks: containerd's debug log and the client's own.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, Times};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use serde_json::Value;

const STARTS: usize = 20;

/// One call as podlapse saw it, on CLOCK_MONOTONIC.
struct Seen {
    start: u64,
    end: u64,
}

fn seen(trace: &Value, method: &str) -> Result<Seen> {
    let calls = trace::calls(trace, method);
    ensure!(calls.len() == 1, "{} calls of {method}", calls.len());
    let at = |edge: &str| trace::monotonic(trace, &calls[0][edge]);
    Ok(Seen { start: at("start_ns")?, end: at("end_ns")? })
}

/// Nanoseconds of the day of a `time="2026-…T12:34:56.123456789Z"` in a log line.
fn time_of(line: &str) -> Option<i128> {
    let time = line.split_once("time=\"")?.1.split_once('"')?.0;
    of_day(time)
}

fn of_day(rfc3339: &str) -> Option<i128> {
    let time = rfc3339.split_once('T')?.1.split(['Z', '+', '-']).next()?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':').map(|part| part.parse::<i128>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let fraction: i128 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction)
}

/// When containerd said that it got a request and that it has done it.
fn logged(log: &str, request: &str, reply: &str) -> Result<(i128, i128)> {
    let find = |text: &str| log.lines().find(|line| line.contains(text)).and_then(time_of);
    let start = find(request).with_context(|| format!("containerd's log has no {request:?}"))?;
    let end = find(reply).with_context(|| format!("containerd's log has no {reply:?}"))?;
    Ok((start, end))
}

#[derive(Default)]
struct Differences(BTreeMap<String, Vec<i128>>);

impl Differences {
    fn add(&mut self, what: String, nanoseconds: i128) {
        self.0.entry(what).or_default().push(nanoseconds);
    }

    /// Past the capture of a test's output: these figures are what the test is read for.
    fn print(&mut self) -> std::io::Result<()> {
        let mut out = std::io::stderr();
        writeln!(out, "\ndifferences in µs, {STARTS} starts:              min   median      max")?;
        for (what, values) in &mut self.0 {
            values.sort_unstable();
            let us = |value: i128| value as f64 / 1e3;
            let (first, middle, last) = (values[0], values[values.len() / 2], values[values.len() - 1]);
            writeln!(out, "{what:<40} {:>8.1} {:>8.1} {:>8.1}", us(first), us(middle), us(last))?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn calls_are_timed_as_others_time_them() -> Result<()> {
    let node = Node::start(Options::default())?;
    let next = STARTS.to_string();
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "--next", &next, "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut started = Vec::new();
    for number in 0..STARTS {
        let pod = Pod::new(&format!("timed-{number}"), "default")?.on_node(node.cgroup());
        let pod_started = cri.start_pod(&pod, &[Container::new("app")]).await?;
        cri.remove_pod(&pod_started.id, &pod.cgroup_parent).await?;
        started.push(pod_started);
    }
    let traces = podlapse.traces()?;
    ensure!(traces.len() == STARTS, "{} traces", traces.len());
    let log = std::fs::read_to_string(node.log())?;

    let mut differences = Differences::default();
    for pod in &started {
        let trace = traces.iter().find(|trace| trace["pod"]["uid"] == pod.uid).context("a start was missed")?;
        trace::sound(trace)?;
        // Wall time of the trace's start against its monotonic time.
        let wall = of_day(trace["start"]["time"].as_str().context("no start.time")?).context("no time")?;
        let offset = wall - i128::from(trace::monotonic(trace, &Value::from(0))?);
        let container = &pod.containers[0];
        let (sandbox, id) = (&pod.id, &container.id);
        let calls: [(&str, Times, String, String); 3] = [
            (
                "RunPodSandbox",
                pod.run,
                format!("RunPodSandbox for &PodSandboxMetadata{{Name:{},Uid:{}", pod.name, pod.uid),
                format!("returns sandbox id \\\"{sandbox}\\\""),
            ),
            (
                "CreateContainer",
                container.create,
                format!("CreateContainer within sandbox \\\"{sandbox}\\\" for container"),
                format!("returns container id \\\"{id}\\\""),
            ),
            (
                "StartContainer",
                container.start,
                format!("StartContainer for \\\"{id}\\\""),
                format!("StartContainer for \\\"{id}\\\" returns successfully"),
            ),
        ];
        let mut before = 0;
        for (method, client, request, reply) in &calls {
            let seen = seen(trace, method)?;
            let (log_start, log_end) = logged(&log, request, reply)?;
            let (start, end) = (i128::from(seen.start), i128::from(seen.end));
            differences.add(format!("{method} request − client"), start - i128::from(client.start.0));
            differences.add(format!("client − {method} reply"), i128::from(client.end.0) - end);
            differences.add(format!("log − {method} request"), log_start - offset - start);
            differences.add(format!("{method} reply − log"), end - (log_end - offset));

            // The order of things: the client asks, podlapse sees it, the server answers, the client has it.
            ensure!(client.start.0 <= seen.start, "{method} seen before it was sent");
            ensure!(seen.start < seen.end, "{method} ended before it began");
            ensure!(seen.end <= client.end.0, "{method} seen to end after the client had its reply");
            ensure!(before <= seen.start, "{method} out of order");
            before = seen.end;
        }
    }
    differences.print()?;
    node.stop()
}
