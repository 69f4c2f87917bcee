//! `podlapse health` and `podlapse stages --agent`: the built binary against an agent's own routes.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::thread::JoinHandle;

use podlapse::agent::{Listener, Shared, api_routes, metrics_routes, serve};
use podlapse::stats::Stats;
use serde_json::Value;
use tokio::sync::oneshot;

mod program;

use program::{fails, podlapse, run, text};

const START: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/start-v1.plr");

/// An agent that serves until it is dropped.
struct Agent {
    shared: Arc<Shared>,
    tcp: String,
    unix: String,
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Agent {
    fn start(dir: &Path, name: &str) -> Agent {
        let shared = Shared::new("waiting for a runtime");
        let (tcp, path) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), dir.join(name));
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (address, kept) = (tcp.local_addr().unwrap(), Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                tcp.set_nonblocking(true).unwrap();
                unix.set_nonblocking(true).unwrap();
                let tcp = Listener::Tcp(tokio::net::TcpListener::from_std(tcp).unwrap());
                let unix = Listener::Unix(tokio::net::UnixListener::from_std(unix).unwrap());
                tokio::spawn(serve(tcp, metrics_routes(Arc::clone(&kept))));
                tokio::spawn(serve(unix, api_routes(kept)));
                let _ = stopped.await;
            });
        });
        Agent { shared, tcp: address.to_string(), unix: format!("unix:{}", text(&path)), serving: Some((stop, thread)) }
    }

    /// It saw the recorded start, so many times.
    fn saw(&self, times: usize) {
        let log = stdout(&run(&["stages", "--from", START, "-o", "hdr"]));
        let stats = Stats::from_log(&log).unwrap();
        (0..times).for_each(|_| self.shared.lock().stats.merge(&stats));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.serving.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

fn stdout(output: &Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.clone()
}

#[test]
fn health() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), "api.sock");
    for url in [&agent.tcp, &agent.unix, &format!("http://{}/", agent.tcp)] {
        let output = run(&["health", "--url", url]);
        assert_eq!((stdout(&output).len(), output.stderr.len()), (0, 0), "{url}");
        fails(&["health", "--ready", "--url", url], 1, &["/readyz", "503", "waiting for a runtime"]);
    }
    agent.shared.lock().unready = None;
    stdout(&run(&["health", "--ready", "--url", &agent.tcp]));
    // The container's own environment says where its agent listens.
    stdout(&podlapse(&["health"]).env("PODLAPSE_METRICS_LISTEN", &agent.tcp).output().unwrap());
    let (tcp, unix) = (agent.tcp.clone(), agent.unix.clone());
    drop(agent);
    for url in [tcp, unix] {
        fails(&["health", "--url", &url], 1, &["no agent answers on", &url]);
    }
}

#[test]
fn stages_of_agents_are_those_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Agent::start(dir.path(), "one.sock"), Agent::start(dir.path(), "two.sock"));
    let idle = Agent::start(dir.path(), "idle.sock");
    fails(&["stages", "--agent", &idle.unix], 1, &["no pod start is over"]);
    one.saw(1);
    two.saw(2);
    fails(&["stages", "--agent", &one.tcp], 1, &["404", "there are /metrics"]);
    let agents = ["stages", "--agent", &one.unix, &two.unix, &idle.unix];
    for format in ["json", "table", "hdr"] {
        let files = stdout(&run(&["stages", "--from", START, START, "-o", format]));
        let agent = stdout(&run(&["stages", "--agent", &two.unix, "-o", format]));
        assert_eq!(String::from_utf8_lossy(&agent), String::from_utf8_lossy(&files), "{format}");
    }
    let all: Value = serde_json::from_slice(&stdout(&run(&[&agents[..], &["-o", "json"]].concat()))).unwrap();
    assert_eq!(all["starts"]["complete"], 3);
    let plugins = stdout(&run(&[&agents[..], &["--by", "plugin"]].concat()));
    assert_eq!(plugins, stdout(&run(&["stages", "--from", START, START, START, "--by", "plugin"])));
    fails(&["stages", "--agent", &one.unix, "--by", "image"], 1, &["not by image"]);
}
