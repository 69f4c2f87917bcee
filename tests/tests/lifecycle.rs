//! `--lifecycle`: a pod is followed to its removal, also one that ran before podlapse came, and one whose sandbox is made
//! again. podlapse ends by itself, and a replay says the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedContainer, StartedPod};
use podlapse_tests::podlapse::{Ended, Running};
use podlapse_tests::{Cri, Node, Options, podlapse};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::block_in_place;

/// It hears SIGTERM, and is ready after two seconds.
const APP: &str = "trap 'exit 0' TERM; sleep 2; : > /tmp/ready; while :; do sleep 0.1; done";
const PROBE: [&str; 3] = ["/bin/sh", "-c", "[ -e /tmp/ready ]"];

/// What comes of a probe that fails first, and of the calls of a person.
const FIRST_HALF: &str = "probe app-0, probe app-0, ready, exec app-0, attach app-0, port_forward, ";
/// What comes of an app that is killed, and of the pod's end. That containerd takes the network down once more when the
/// sandbox is removed is none of it.
const SECOND_HALF: &str = "signal app-0, exit app-0, removed app-0, stop app-1, signal app-1, exit app-1, stopped app-1, \
    stop side-0, signal side-0, exit side-0, stopped side-0, sandbox_stop, cni_del, cni_del, cni_del, cni_del, \
    sandbox_stopped, removed app-1, removed side-0, sandbox_removed";

fn app() -> Container {
    Container::new("app").command(&["/bin/sh", "-c", APP])
}

fn side() -> Container {
    Container::new("side").command(&["/bin/sh", "-c", APP])
}

fn web(node: &Node) -> Result<Pod> {
    Ok(Pod::new("web", "shop")?.on_node(node.cgroup()))
}

/// Follows the pod; the recording.
fn follow(node: &Node) -> Result<(Running, PathBuf)> {
    let file = node.dir().join("life.plr");
    let path = file.to_str().context("the node's folder is not UTF-8")?;
    let options = ["--pod", "shop/web", "--lifecycle", "-o", "json"];
    Ok((podlapse::attach(node, &["record", path], &options)?, file))
}

/// What podlapse said, which ended by itself; a replay says the same.
struct Told {
    events: Vec<Value>,
    traces: Vec<Value>,
}

impl Told {
    fn by(running: Running, file: &Path) -> Result<Told> {
        let ended: Ended = block_in_place(|| running.wait(Duration::from_secs(90)))?;
        ensure!(ended.status.success(), "podlapse ended with {}:\n{}", ended.status, ended.stderr);
        ensure!(podlapse::replay(file, &["-o", "json"])? == ended.stdout, "the replay differs");
        let (events, traces) = ended.traces()?.into_iter().partition(|it| it["schema"] == "podlapse.event/v1");
        Ok(Told { events, traces })
    }

    fn all(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|it| it["event"] == event).collect()
    }

    fn only(&self, event: &str, container: &str, attempt: u32) -> Result<&Value> {
        let is = |it: &&Value| it["container"]["name"] == container && it["container"]["attempt"] == attempt;
        let found: Vec<&Value> = self.all(event).into_iter().filter(is).collect();
        ensure!(found.len() == 1, "{} {event} of {container} {attempt}, not one:\n{}", found.len(), self.story());
        Ok(found[0])
    }

    /// Event, container and attempt, in order of time.
    fn story(&self) -> String {
        let at = |it: &&Value| it["monotonic_ns"].as_str().and_then(|text| text.parse::<u64>().ok());
        let mut events: Vec<&Value> = self.events.iter().collect();
        events.sort_by_key(at);
        let word = |it: &&Value| {
            let what = it["event"].as_str().unwrap_or("?");
            match (it["container"]["name"].as_str(), it["container"]["attempt"].as_u64()) {
                (Some(name), Some(attempt)) => format!("{what} {name}-{attempt}"),
                (Some(name), None) => format!("{what} {name}"),
                _ => what.to_owned(),
            }
        };
        events.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

fn kill(pid: u32) -> Result<()> {
    Ok(kill_process(Pid::from_raw(pid.cast_signed()).context("no pid")?, Signal::KILL)?)
}

/// As kubelet ends a pod.
async fn end(cri: &mut Cri, sandbox: &str, containers: &[&StartedContainer]) -> Result<()> {
    for container in containers {
        cri.stop_container(&container.id, 30).await.ok("StopContainer")?;
    }
    cri.stop_pod_sandbox(sandbox).await.ok("StopPodSandbox")?;
    for container in containers {
        cri.remove_container(&container.id).await.ok("RemoveContainer")?;
    }
    cri.remove_pod_sandbox(sandbox).await.ok("RemovePodSandbox")?;
    Ok(())
}

/// kubelet probes the app until it is ready; somebody looks into it.
async fn used(cri: &mut Cri, started: &StartedPod) -> Result<()> {
    let app = &started.containers[0].id;
    for _ in 0..20 {
        let (probe, _) = cri.exec_sync(app, &PROBE, 1).await.ok("ExecSync")?;
        if probe.exit_code == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cri.exec(app, &["/bin/true"]).await.ok("Exec")?;
    cri.attach(app).await.ok("Attach")?;
    cri.port_forward(&started.id, 80).await.ok("PortForward")?;
    // The start settles.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(())
}

fn is_told_of_use(told: &Told) -> Result<()> {
    let probes = told.all("probe");
    let [bad, good] = &probes[..] else { anyhow::bail!("{} probes: {}", probes.len(), told.story()) };
    ensure!(bad["exit_code"] == 1 && bad["attributes"]["via"] == "exec" && bad["verdict"].is_null(), "{bad}");
    let failed = good["attributes"]["failed"].as_str().and_then(|failed| failed.parse::<u32>().ok());
    ensure!(good["exit_code"] == 0 && failed.is_some_and(|failed| failed > 0), "{good}");
    for (event, method) in [("exec", "Exec"), ("attach", "Attach"), ("port_forward", "PortForward")] {
        let found = told.all(event);
        ensure!(
            found.len() == 1 && found[0]["call"]["method"] == method && found[0]["call"]["code"] == "OK",
            "{found:?}"
        );
    }
    ensure!(told.all("ready").len() == 1, "{}", told.story());
    ensure!(told.story() == [FIRST_HALF, SECOND_HALF].concat(), "{}", told.story());
    Ok(())
}

/// The app is killed and made again, then the pod ends.
async fn second_half(cri: &mut Cri, pod: &Pod, started: &StartedPod) -> Result<StartedContainer> {
    let [first, side] = &started.containers[..] else { anyhow::bail!("two containers") };
    let second = cri.restart_container(pod, &started.id, &app(), first).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cri.remove_container(&first.id).await.ok("RemoveContainer")?;
    end(cri, &started.id, &[&second, side]).await?;
    Ok(second)
}

/// What is told of that.
fn second_half_is_right(told: &Told, started: &StartedPod, second: &StartedContainer) -> Result<()> {
    let ours = format!("(pid {})", std::process::id());
    // Just after the attach nobody knows whether a stop had been asked for.
    let killed = told.only("exit", "app", 0)?;
    let by = killed["attributes"]["sender"].as_str().unwrap_or_default();
    ensure!(killed["signal"] == 9 && killed["attributes"]["asked"] != "true" && by.contains(&ours), "{killed}");
    ensure!(killed["verdict"]["reason"] == "killed" && killed["verdict"]["stage"] == "container.run", "{killed}");
    ensure!(killed["container"]["id"] == started.containers[0].id.as_str(), "{killed}");

    // In the same sandbox, beside the same peer.
    let restart = told.traces.iter().find(|trace| trace["kind"] == "container").context("no restart")?;
    ensure!(
        restart["sandbox"]["id"] == started.id.as_str() && restart["pod"]["uid"] == started.uid.as_str(),
        "{restart}"
    );
    let ids: Vec<&Value> = restart["containers"].as_array().into_iter().flatten().map(|it| &it["id"]).collect();
    ensure!(ids == [started.containers[1].id.as_str(), second.id.as_str()], "{ids:?}");

    for (name, attempt) in [("app", 1), ("side", 0)] {
        let [stop, stopped] = [told.only("stop", name, attempt)?, told.only("stopped", name, attempt)?];
        ensure!(stop["attributes"]["grace_s"] == "30" && stop["call"]["method"] == "StopContainer", "{stop}");
        ensure!(stopped["attributes"]["killed"] == "false" && stopped["call"]["code"] == "OK", "{stopped}");
        let exit = told.only("exit", name, attempt)?;
        ensure!(exit["exit_code"] == 0 && exit["attributes"]["asked"] == "true" && exit["verdict"].is_null(), "{exit}");
        let signal = told.only("signal", name, attempt)?;
        ensure!(signal["signal"] == 15 && signal["attributes"]["for"] == "stop", "{signal}");
        ensure!(signal["process"]["comm"].as_str().is_some_and(|comm| comm.starts_with("runc")), "{signal}");
        told.only("removed", name, attempt)?;
    }

    let plugins: Vec<&str> = told.all("cni_del").into_iter().filter_map(|it| it["process"]["comm"].as_str()).collect();
    for plugin in ["loopback", "bridge", "host-local", "portmap"] {
        ensure!(plugins.iter().filter(|it| **it == plugin).count() == 1, "{plugin} is not once in {plugins:?}");
    }
    ensure!(
        told.all("cni_del").into_iter().all(|it| it["exit_code"] == 0 && it["verdict"].is_null()),
        "a plugin failed"
    );
    let last = told.events.last().context("no event")?;
    ensure!(last["event"] == "sandbox_removed" && last["attributes"]["last"] == "true", "{last}");
    let whose =
        told.events.iter().all(|it| it["pod"]["uid"] == started.uid.as_str() && it["sandbox"] == started.id.as_str());
    ensure!(whose, "an event of another pod");
    let verdicts = told.events.iter().filter(|it| !it["verdict"].is_null()).count();
    ensure!(verdicts == 1, "{verdicts} verdicts");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn from_start_to_removal() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (podlapse, file) = follow(&node)?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = web(&node)?;
    let started = cri.start_pod(&pod, &[app(), side()]).await?;
    // A pod beside it, of which nothing is to be told.
    let other = Pod::new("other", "shop")?.on_node(node.cgroup());
    let beside = cri.start_pod(&other, &[Container::new("app")]).await?;
    kill(beside.containers[0].pid)?;

    used(&mut cri, &started).await?;
    let second = second_half(&mut cri, &pod, &started).await?;
    let told = Told::by(podlapse, &file)?;
    println!("{}", told.story());
    is_told_of_use(&told)?;
    second_half_is_right(&told, &started, &second)?;
    ensure!(
        told.traces.len() == 2 && told.traces.iter().all(|trace| trace["outcome"] == "complete"),
        "not two good starts"
    );
    node.stop()
}

/// The client's connection is older than podlapse, too: its calls get their names late.
#[tokio::test(flavor = "multi_thread")]
async fn that_ran_before() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = web(&node)?;
    let started = cri.start_pod(&pod, &[app(), side()]).await?;
    let (podlapse, file) = follow(&node)?;
    // What exists is listed beside the run.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = second_half(&mut cri, &pod, &started).await?;
    let told = Told::by(podlapse, &file)?;
    println!("{}", told.story());
    second_half_is_right(&told, &started, &second)?;
    ensure!(told.story() == SECOND_HALF, "{}", told.story());
    ensure!(told.traces.len() == 1, "{} starts, not the restart alone", told.traces.len());
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_sandbox_is_made_again() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (podlapse, file) = follow(&node)?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut pod = web(&node)?;
    let old = cri.start_pod(&pod, &[app()]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    kill(old.pid)?;
    // As kubelet does when it finds the sandbox not ready: what is left of it ends, the new one starts, the old one goes.
    cri.stop_container(&old.containers[0].id, 30).await.ok("StopContainer")?;
    cri.stop_pod_sandbox(&old.id).await.ok("StopPodSandbox")?;
    pod.attempt = 1;
    let mut again = app();
    again.attempt = 1;
    let new = cri.start_pod(&pod, &[again]).await?;
    cri.remove_container(&old.containers[0].id).await.ok("RemoveContainer")?;
    cri.remove_pod_sandbox(&old.id).await.ok("RemovePodSandbox")?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    end(&mut cri, &new.id, &[&new.containers[0]]).await?;

    let told = Told::by(podlapse, &file)?;
    println!("{}", told.story());
    let died = told.all("sandbox_exit");
    ensure!(died.len() == 1 && died[0]["verdict"]["reason"] == "sandbox_exited", "{died:?}");
    ensure!(died[0]["sandbox"] == old.id.as_str(), "{}", died[0]);
    let removed = told.all("sandbox_removed");
    let removed: Vec<_> = removed.iter().map(|it| (&it["sandbox"], &it["attributes"]["last"])).collect();
    ensure!(removed.len() == 2, "{removed:?}");
    ensure!(removed[0].0 == old.id.as_str() && removed[0].1 == "false", "{removed:?}");
    ensure!(removed[1].0 == new.id.as_str() && removed[1].1 == "true", "{removed:?}");
    let attempts: Vec<_> =
        told.traces.iter().map(|trace| (&trace["sandbox"]["id"], &trace["pod"]["attempt"])).collect();
    ensure!(attempts.len() == 2 && attempts[0] == (&old.id.into(), &0.into()), "{attempts:?}");
    ensure!(attempts[1] == (&new.id.into(), &1.into()), "{attempts:?}");
    node.stop()
}

/// Ctrl-C: what is known is there already; of a pod to which nothing happened there is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn until_somebody_has_enough() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let started = cri.start_pod(&web(&node)?, &[app()]).await?;
    let (podlapse, _) = follow(&node)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    podlapse.interrupt()?;
    let ended = block_in_place(|| podlapse.wait(Duration::from_secs(30)))?;
    ensure!(ended.status.code() == Some(1) && ended.stdout.is_empty(), "{}", ended.status);
    ensure!(
        ended.stderr.contains("no sign of pod shop/web was seen: it runs, and nothing happened to it"),
        "{}",
        ended.stderr
    );
    podlapse::detached()?;

    std::fs::remove_file(node.dir().join("life.plr"))?;
    let (podlapse, file) = follow(&node)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    kill(started.containers[0].pid)?;
    cri.ended(&started.containers[0].id).await?;
    podlapse.interrupt()?;
    let told = Told::by(podlapse, &file)?;
    ensure!(told.story() == "signal app-0, exit app-0" && told.traces.is_empty(), "{}", told.story());
    node.stop()
}
