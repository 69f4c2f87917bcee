//! Debian's Prometheus scrapes the agent: what it stored is what the JSON Lines say, and promtool has nothing to say.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::{Cri, Node, Options, http, podlapse, tools};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const STARTS: usize = 4;

/// A Prometheus that scrapes one address each second; killed when it is dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(dir: &Path, scraped: &str) -> Result<Prometheus> {
        let config = dir.join("prometheus.yml");
        let target = format!("[{{job_name: podlapse, static_configs: [{{targets: ['{scraped}']}}]}}]");
        std::fs::write(&config, format!("global: {{scrape_interval: 1s}}\nscrape_configs: {target}\n"))?;
        // Free now; another process that takes it meanwhile fails the test.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let log = std::fs::File::create(dir.join("prometheus.log"))?;
        let mut command = Command::new(tools::prometheus("prometheus")?);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--enable-feature=exemplar-storage");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        Ok(Prometheus { child, address })
    }

    /// What its API answers: the part `data`.
    fn get(&self, path: &str) -> Result<Value> {
        let reply = http::get_tcp(&self.address, path)?;
        ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.body);
        let mut document: Value = serde_json::from_str(&reply.body)?;
        Ok(document["data"].take())
    }

    /// The value of an expression that gives one number.
    fn number(&self, expression: &str) -> Result<Option<f64>> {
        let found = self.get(&format!("/api/v1/query?query={expression}"))?;
        Ok(found["result"][0]["value"][1].as_str().and_then(|value| value.parse().ok()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stores_what_the_traces_say() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (api, lines) = (node.dir().join("agent.sock"), node.dir().join("agent.jsonl"));
    let (listen, path) = (format!("unix:{}", api.display()), lines.to_str().context("not UTF-8")?);
    let options = ["--metrics-listen", "127.0.0.1:0", "--api-listen", &listen, "--lines", path];
    let agent = podlapse::start(&node, &["agent"], &options)?;
    let said = agent.says("listening on 127.0.0.1:", PATIENCE)?;
    let address = said.rsplit(' ').next().context("no address")?.to_owned();
    let agent = agent.attached()?;
    let folder = tempfile::tempdir()?;
    let prometheus = Prometheus::start(folder.path(), &address)?;
    for number in 0..STARTS {
        let pod = Pod::new(&format!("web-{number}"), "shop")?.on_node(node.cgroup());
        Cri::connect(&node.socket()).await?.start_pod(&pod, &[Container::new("app")]).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    let counted = "sum(podlapse_start_duration_seconds_count)";
    // It may not listen yet.
    while prometheus.number(counted).ok().flatten() != Some(STARTS as f64) {
        ensure!(Instant::now() < deadline, "Prometheus has not {STARTS} starts: {:?}", prometheus.number(counted));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let text = std::fs::read_to_string(&lines)?;
    let documents = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let traces: Vec<&Value> = documents.iter().filter(|document| document["schema"] == "podlapse.trace/v1").collect();
    let total: f64 = traces.iter().filter_map(|trace| trace["total_ns"].as_u64()).sum::<u64>() as f64 / 1e9;
    let sum = prometheus.number("sum(podlapse_start_duration_seconds_sum)")?.context("no sum")?;
    ensure!((sum - total).abs() < 1e-6, "{sum} s in Prometheus, {total} s in the traces");
    exemplars(&prometheus, &traces)?;
    promtool(&address)?;
    agent.interrupt()?;
    ensure!(agent.wait(PATIENCE)?.status.success());
    node.stop()
}

/// Each exemplar that it stored leads to one of the traces.
fn exemplars(prometheus: &Prometheus, traces: &[&Value]) -> Result<()> {
    let query = "/api/v1/query_exemplars?query=podlapse_stage_duration_seconds_bucket&start=0&end=9999999999";
    let found = prometheus.get(query)?;
    let series = found.as_array().context("no series")?;
    let stored: Vec<&Value> = series.iter().filter_map(|series| series["exemplars"].as_array()).flatten().collect();
    ensure!(stored.len() > 10, "only {} exemplars", stored.len());
    for exemplar in stored {
        let id = &exemplar["labels"]["trace_id"];
        ensure!(traces.iter().any(|trace| trace["trace_id"] == *id), "an exemplar of another trace: {exemplar}");
    }
    Ok(())
}

/// The text format as promtool wants it.
fn promtool(address: &str) -> Result<()> {
    let text = http::get_tcp(address, "/metrics")?.body;
    let mut command = Command::new(tools::prometheus("promtool")?);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no stdin")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => bail!("promtool: {said}"),
    }
}
