//! `podlapse agent` beside a real node: what it counts is what its JSON Lines say, and it goes on whatever happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::podlapse::{Running, Starting};
use podlapse_tests::{Cri, Node, Options, durations, http, podlapse, trace};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

struct Agent {
    socket: PathBuf,
    lines: PathBuf,
}

impl Agent {
    /// Beside the node; it attaches.
    fn start(node: &Node) -> Result<(Agent, Starting)> {
        let agent = Agent { socket: node.dir().join("agent.sock"), lines: node.dir().join("agent.jsonl") };
        let metrics = format!("unix:{}", node.dir().join("metrics.sock").display());
        let api = format!("unix:{}", agent.socket.display());
        let lines = agent.lines.to_str().context("not UTF-8")?;
        let options = ["--metrics-listen", &metrics, "--api-listen", &api, "--lines", lines];
        let starting = podlapse::start(node, &["agent"], &options)?;
        Ok((agent, starting))
    }

    fn get(&self, path: &str) -> Result<String> {
        let reply = http::get(&self.socket, path, "*/*")?;
        ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.body);
        Ok(reply.body)
    }

    fn metrics(&self, accept: &str) -> Result<Metrics> {
        let reply = http::get(&self.socket, "/metrics", accept)?;
        ensure!(reply.status == 200, "{}", reply.body);
        Ok(Metrics(reply.body))
    }

    /// Waits until so many starts are counted.
    async fn counted(&self, starts: f64) -> Result<Metrics> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics("*/*")?;
            let counted = metrics.sum("podlapse_start_duration_seconds_count", &[]);
            if counted >= starts {
                return Ok(metrics);
            }
            ensure!(Instant::now() < deadline, "only {counted} of {starts} starts are counted:\n{}", metrics.0);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn traces(&self) -> Result<Vec<Value>> {
        let lines = std::fs::read_to_string(&self.lines)?;
        let documents = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(documents.into_iter().filter(|document| document["schema"] == "podlapse.trace/v1").collect())
    }
}

/// A text of metrics.
struct Metrics(String);

impl Metrics {
    /// The sum of the values of a metric whose labels hold all of these.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let of = |line: &str| {
            let (series, value) = line.split(" # ").next()?.split_once(' ')?;
            let (known, set) = series.split_once('{').unwrap_or((series, ""));
            let all = labels.iter().all(|label| set.trim_end_matches('}').split(',').any(|it| it == *label));
            (known == name && all).then(|| value.parse::<f64>().ok()).flatten()
        };
        self.0.lines().filter_map(of).sum()
    }
}

async fn start_pods(node: &Node) -> Result<()> {
    let cri = Cri::connect(&node.socket()).await?;
    for number in 0..5 {
        let pod = Pod::new(&format!("web-{number}"), "shop")?.on_node(node.cgroup());
        cri.clone().start_pod(&pod, &[Container::new("app")]).await?;
    }
    let pod = Pod::new("broken", "shop")?.on_node(node.cgroup());
    let mut app = Container::new("app");
    app.command = vec!["/does-not-exist".into()];
    ensure!(cri.clone().start_pod(&pod, &[app]).await.is_err(), "a container without an entrypoint starts");
    Ok(())
}

/// Counts, sums and buckets are those of the traces.
fn agree(metrics: &Metrics, traces: &[Value]) -> Result<()> {
    let complete: Vec<Value> = traces.iter().filter(|trace| trace["outcome"] == "complete").cloned().collect();
    for (stage, values) in durations::of(&complete)?.iter().filter(|(stage, _)| *stage != "start") {
        let labels = [&*format!("stage=\"{stage}\""), "outcome=\"complete\""];
        let name = |part: &str| format!("podlapse_stage_duration_seconds_{part}");
        let count = metrics.sum(&name("count"), &labels);
        ensure!(count == values.len() as f64, "{stage}: {count} values, not {}", values.len());
        let (sum, exact) = (metrics.sum(&name("sum"), &labels), values.iter().sum::<u64>() as f64 / 1e9);
        ensure!((sum - exact).abs() < 1e-6, "{stage}: sum {sum}, not {exact}");
        for bound in ["0.001", "0.01", "0.1", "2.5"] {
            let within = |ns: &&u64| **ns as f64 / 1e9 <= bound.parse::<f64>().unwrap_or_default();
            let exact = values.iter().filter(within).count() as f64;
            let bucket = metrics.sum(&name("bucket"), &[labels[0], labels[1], &format!("le=\"{bound}\"")]);
            ensure!(bucket == exact, "{stage}: {bucket} up to {bound} s, not {exact}");
        }
    }
    Ok(())
}

fn terminate(running: Running) -> Result<podlapse::Ended> {
    let pid = rustix::process::Pid::from_raw(running.pid().cast_signed()).context("no pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let ended = running.wait(Duration::from_secs(5))?;
    ensure!(ended.status.success(), "the agent ended with {}:\n{}", ended.status, ended.stderr);
    Ok(ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_counts_is_what_it_writes() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (agent, starting) = Agent::start(&node)?;
    let running = starting.attached()?;
    ready(&agent, PATIENCE).await?;
    start_pods(&node).await?;
    let metrics = agent.counted(6.0).await?;
    let traces = agent.traces()?;
    ensure!(traces.len() == 6, "{} traces", traces.len());
    traces.iter().try_for_each(trace::sound)?;
    agree(&metrics, &traces)?;
    let value = |name: &str, labels: &[&str]| metrics.sum(name, labels);
    let outcome = |outcome: &str| value("podlapse_start_duration_seconds_count", &[&format!("outcome=\"{outcome}\"")]);
    ensure!((outcome("complete"), outcome("failed")) == (5.0, 1.0), "{}", metrics.0);
    let begun = value("podlapse_starts_begun_total", &[]) - value("podlapse_starts_withdrawn_total", &[]);
    let known = outcome("complete") + outcome("failed") + outcome("partial");
    let rest = value("podlapse_open_starts", &[]) + value("podlapse_held_starts", &[]);
    ensure!(begun == known + rest && rest == 0.0, "{begun} began, {known} are counted, {rest} are left");
    ensure!(value("podlapse_verdicts_total", &["reason=\"entrypoint_not_found\""]) == 1.0, "{}", metrics.0);
    let calls = |method: &str, code: u32| {
        value("podlapse_cri_calls_total", &[&format!("method=\"{method}\""), &format!("code=\"{code}\"")])
    };
    ensure!((calls("RunPodSandbox", 0), calls("StartContainer", 0)) == (6.0, 5.0), "{}", metrics.0);
    ensure!(value("podlapse_lost_records_total", &[]) == 0.0 && value("podlapse_records_total", &[]) > 100.0);
    ensure!(value("podlapse_process_cpu_seconds_total", &[]) > 0.0, "{}", metrics.0);
    leads_to_its_trace(&agent, &traces)?;
    are_told(&agent, &traces)?;
    many_at_once(&agent)?;
    terminate(running)?;
    ensure!(!agent.socket.exists(), "{} is still there", agent.socket.display());
    ensure!(agent.traces()?.len() == 6, "a trace was written twice");
    node.stop()
}

/// Each exemplar names one of the traces.
fn leads_to_its_trace(agent: &Agent, traces: &[Value]) -> Result<()> {
    let text = agent.metrics(OPEN_METRICS)?.0;
    let ids = text.lines().filter_map(|line| line.split_once("# {trace_id=\"")?.1.split('"').next());
    let ids: Vec<&str> = ids.collect();
    ensure!(ids.len() > 10, "{} exemplars", ids.len());
    let known = |id: &str| traces.iter().any(|trace| trace["trace_id"] == id);
    let strange = ids.into_iter().find(|id| !known(id));
    ensure!(strange.is_none(), "an exemplar of a trace that is not written: {strange:?}");
    Ok(())
}

/// `/api/v1/traces` gives the same documents.
fn are_told(agent: &Agent, traces: &[Value]) -> Result<()> {
    let told = |query: &str| -> Result<Vec<Value>> {
        let body = agent.get(&format!("/api/v1/traces{query}"))?;
        Ok(body.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    };
    let latest_first: Vec<Value> = traces.iter().rev().cloned().collect();
    ensure!(told("")? == latest_first, "the API tells other traces than the lines");
    ensure!(told("?limit=2")? == latest_first[..2], "not the latest two");
    let failed = told("?failed=true")?;
    ensure!(failed.len() == 1 && failed[0]["pod"]["name"] == "broken", "{failed:?}");
    let one = told("?pod=shop/web-3")?;
    ensure!(one.len() == 1 && one[0]["pod"]["name"] == "web-3", "{one:?}");
    Ok(())
}

/// A thousand scrapes, sixty-four at a time, get whole answers.
fn many_at_once(agent: &Agent) -> Result<()> {
    let scrape = || -> Result<()> {
        for _ in 0..16 {
            let reply = http::get(&agent.socket, "/metrics", OPEN_METRICS)?;
            ensure!(reply.status == 200 && reply.body.ends_with("# EOF\n"), "{} {}", reply.status, reply.body);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..64).map(|_| scope.spawn(scrape)).collect();
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(scraped) => scraped,
            Err(_) => bail!("a client panicked"),
        })
    })
}

async fn ready(agent: &Agent, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match http::get(&agent.socket, "/readyz", "*/*") {
            Ok(reply) if reply.status == 200 => return Ok(()),
            other => ensure!(Instant::now() < deadline, "not ready: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// With no runtime it waits, alive and not ready; when one comes it attaches, and when that one goes and comes again
/// it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_and_goes() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    node.kill_containerd()?;
    let (agent, starting) = Agent::start(&node)?;
    let deadline = Instant::now() + PATIENCE;
    let reply = loop {
        match http::get(&agent.socket, "/readyz", "*/*") {
            Ok(reply) if reply.body.contains("containerd.sock") => break reply,
            other => ensure!(Instant::now() < deadline, "it does not say what it waits for: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    ensure!(reply.status == 503, "{reply:?}");
    ensure!(agent.get("/healthz")? == "ok\n");
    node.restart_containerd()?;
    let running = starting.attached()?;
    let mut names = BTreeMap::new();
    for round in 0..2 {
        ready(&agent, PATIENCE).await?;
        let pod = Pod::new(&format!("web-{round}"), "shop")?.on_node(node.cgroup());
        Cri::connect(&node.socket()).await?.start_pod(&pod, &[Container::new("app")]).await?;
        agent.counted(f64::from(round + 1)).await?;
        for trace in agent.traces()? {
            names.insert(trace["pod"]["name"].to_string(), trace["outcome"].to_string());
        }
        node.kill_containerd()?;
        node.restart_containerd()?;
        running.says("the runtime is back", PATIENCE)?;
    }
    ensure!(names.len() == 2 && names.values().all(|outcome| outcome == "\"complete\""), "{names:?}");
    terminate(running)?;
    node.stop()
}

/// A port that is taken, and a file that cannot be written, are said at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_said() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let said = |options: &[&str]| -> Result<String> {
        let ended = podlapse::run(&[&["agent", "--api-listen", "off"], options].concat())?;
        ensure!(ended.status.code() == Some(1), "{}: {}", ended.status, ended.stderr);
        Ok(ended.stderr)
    };
    let port = said(&["--metrics-listen", &address])?;
    ensure!(port.contains(&format!("cannot listen on {address}: Address already in use")), "{port}");
    let folder = Path::new("/proc/no/such.jsonl").display().to_string();
    let file = said(&["--metrics-listen", "off", "--lines", &folder])?;
    ensure!(file.contains(&format!("cannot write to {folder}")), "{file}");
    Ok(())
}
