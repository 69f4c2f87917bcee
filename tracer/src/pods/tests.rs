//! Joining and finding, on small nodes.

use expect_test::{Expect, expect};

use super::*;
use crate::ids::{ContainerId, PodUid, SandboxId, Tgid};
use crate::record::Namespaces;

const UID: &str = "9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11";
const OTHER: &str = "11111111-2ff2-4e5c-8e47-1d8a2f5f0a11";

/// An id as containerd has them, of one letter.
fn id(letter: char) -> String {
    letter.to_string().repeat(64)
}

fn cgroup(uid: &str, letter: char) -> String {
    format!("/kubepods/burstable/pod{uid}/{}", id(letter))
}

fn process(pid: u32, parent: u32, ns_pids: &[u32], paths: &[&str]) -> (Tgid, Process) {
    let group = |path: &&str| Membership { controllers: String::new(), path: (*path).to_owned() };
    let process = Process {
        parent: Tgid(parent),
        ns_pids: ns_pids.to_vec(),
        cgroups: paths.iter().map(group).collect(),
        namespaces: Namespaces { net: 100 + pid, ..Namespaces::default() },
        ..Process::default()
    };
    (Tgid(pid), process)
}

fn shim(pid: u32, letter: char) -> (Tgid, Process) {
    let (pid, process) = process(pid, 1, &[pid], &["/system.slice/containerd.service"]);
    let shim = Shim { id: Some(id(letter)), address: Some("/run/c.sock".into()) };
    (pid, Process { shim: Some(shim), ..process })
}

fn container(letter: char, name: &str, claimed: Option<u32>) -> Container {
    let state = Some(ContainerState::Running);
    Container { id: ContainerId(id(letter)), name: Some(name.into()), state, claimed, ..Container::default() }
}

fn sandbox(letter: char, uid: &str, name: &str, claimed: Option<u32>, containers: Vec<Container>) -> Sandbox {
    Sandbox {
        id: Some(SandboxId(id(letter))),
        pod: Names { uid: Some(PodUid(uid.into())), namespace: Some("shop".into()), name: Some(name.into()) },
        attempt: Some(0),
        state: Some(SandboxState::Ready),
        claimed,
        containers,
        ..Sandbox::default()
    }
}

/// The runtime is process 10.
fn runtime(sandboxes: Vec<Sandbox>) -> Inventory {
    let runtime = Runtime { socket: Some("/run/c.sock".into()), pid: Some(Tgid(10)), ..Runtime::default() };
    Inventory { runtime, sandboxes, notes: Vec::new() }
}

/// The runtime, the pod `web` (sandbox a, app b with a child, sidecar c) and the shim of it.
fn web() -> Processes {
    let [a, b, c] = ['a', 'b', 'c'].map(|letter| cgroup(UID, letter));
    [
        process(10, 1, &[10], &["/system.slice/containerd.service"]),
        shim(20, 'a'),
        process(21, 20, &[21, 1], &[&a]),
        process(22, 20, &[22, 1], &[&b]),
        process(23, 22, &[23, 2], &[&format!("{b}/workers")]),
        // An exec: a child of the shim as the first process is.
        process(24, 20, &[24, 3], &[&b]),
        process(25, 20, &[25, 1], &[&c]),
        // The OCI runtime at work.
        process(26, 20, &[26], &["/system.slice/containerd.service"]),
    ]
    .into_iter()
    .collect()
}

fn web_listed() -> Vec<Inventory> {
    let containers = vec![container('b', "app", Some(22)), container('c', "side", Some(25))];
    vec![runtime(vec![sandbox('a', UID, "web", Some(21), containers)])]
}

fn text(pods: &[Pod]) -> String {
    let mut text = String::new();
    let init = |init: &Option<Init>| {
        init.as_ref().map_or_else(String::new, |init| {
            let cgroup = init.cgroup.as_ref().map_or("", |cgroup| cgroup.path.as_str());
            let cgroup = cgroup.rsplit('/').next().unwrap_or("");
            let shim = init.shim.map_or_else(|| "-".to_owned(), |shim| shim.to_string());
            format!(" pid {} shim {shim} cgroup {}", init.pid, cgroup.get(..2).unwrap_or(cgroup))
        })
    };
    for pod in pods {
        let name = pod.name.as_deref().unwrap_or("?");
        let uid = pod.uid.as_ref().map_or("?", |uid| uid.as_str());
        let qos = pod.qos.unwrap_or("?");
        text += &format!(
            "{name} {} {qos} {}\n",
            &uid[..4.min(uid.len())],
            pod.cgroup.as_ref().map_or("-", |own| &own.path)
        );
        for sandbox in &pod.sandboxes {
            let id = sandbox.id.as_ref().map_or("?", |id| &id.0[..2]);
            text += &format!("  sandbox {id}{}\n", init(&sandbox.init));
            for container in &sandbox.containers {
                let name = container.name.as_deref().unwrap_or("?");
                text += &format!("  {name} {}{}\n", &container.id.0[..2], init(&container.init));
            }
        }
        for note in &pod.notes {
            text += &format!(
                "  note: {}\n",
                ['a', 'b', 'c', 'd']
                    .iter()
                    .fold(note.clone(), |note, letter| { note.replace(&id(*letter), &letter.to_string()) })
            );
        }
    }
    text
}

fn check(inventories: Vec<Inventory>, processes: &Processes, want: Expect) {
    want.assert_eq(&text(&join(inventories, processes)));
}

#[test]
fn a_pod_is_joined() {
    check(
        web_listed(),
        &web(),
        expect![[r#"
        web 9b0b burstable /kubepods/burstable/pod9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11
          sandbox aa pid 21 shim 20 cgroup aa
          app bb pid 22 shim 20 cgroup bb
          side cc pid 25 shim 20 cgroup cc
    "#]],
    );
}

/// The runtime does not say its pids: the cgroup tells the first process from its child and from an exec.
#[test]
fn without_verbose_status() {
    let mut listed = web_listed();
    let sandbox = &mut listed[0].sandboxes[0];
    sandbox.claimed = None;
    sandbox.containers.iter_mut().for_each(|container| container.claimed = None);
    assert_eq!(text(&join(listed, &web())), text(&join(web_listed(), &web())));
}

/// The runtime is in a pid namespace below podlapse's: its pid 7 is another process here.
#[test]
fn a_runtime_with_pids_of_its_own() {
    let [a, b] = ['a', 'b'].map(|letter| cgroup(UID, letter));
    let processes: Processes = [
        process(10, 1, &[10, 3], &["/"]),
        process(5, 1, &[5], &["/"]),
        process(7, 1, &[7], &[&cgroup(OTHER, 'd')]),
        shim(20, 'a'),
        process(21, 20, &[21, 5, 1], &[&a]),
        process(22, 20, &[22, 7, 1], &[&b]),
    ]
    .into_iter()
    .collect();
    let listed = || vec![runtime(vec![sandbox('a', UID, "web", Some(5), vec![container('b', "app", Some(7))])])];
    let want = expect![[r#"
        web 9b0b burstable /kubepods/burstable/pod9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11
          sandbox aa pid 21 shim 20 cgroup aa
          app bb pid 22 shim 20 cgroup bb
    "#]];
    want.assert_eq(&text(&join(listed(), &processes)));
    // Not visible from here: what it says about pids means nothing.
    let mut unseen = listed();
    unseen[0].runtime.pid = None;
    want.assert_eq(&text(&join(unseen, &processes)));
}

#[test]
fn a_disagreement_is_said_and_nothing_guessed() {
    let containers = vec![container('b', "app", Some(25)), container('d', "gone", Some(4711))];
    check(
        vec![runtime(vec![sandbox('a', UID, "web", Some(21), containers)])],
        &web(),
        expect![[r#"
        web 9b0b burstable /kubepods/burstable/pod9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11
          sandbox aa pid 21 shim 20 cgroup aa
          app bb
          gone dd
          note: the runtime says that container b has pid 25, but the cgroup of that process does not
          note: container d runs, but no process that is visible here is in its cgroup
    "#]],
    );
}

/// In the pod's or the node's pid namespace a first process cannot be told from an exec.
#[test]
fn several_first_processes() {
    let b = cgroup(UID, 'b');
    let processes: Processes =
        [shim(20, 'a'), process(30, 20, &[30], &[&b]), process(31, 20, &[31], &[&b])].into_iter().collect();
    check(
        vec![runtime(vec![sandbox('a', UID, "web", None, vec![container('b', "app", None)])])],
        &processes,
        expect![[r#"
        web 9b0b ? -
          sandbox aa
          app bb
          note: which process of container b is the first is not known: 30, 31
    "#]],
    );
}

#[test]
fn what_has_ended_has_no_process() {
    let mut listed = web_listed();
    listed[0].sandboxes[0].state = Some(SandboxState::NotReady);
    listed[0].sandboxes[0].containers[0].state = Some(ContainerState::Exited);
    listed[0].sandboxes[0].containers[1].state = Some(ContainerState::Created);
    check(
        listed,
        &web(),
        expect![[r#"
        web 9b0b ? -
          sandbox aa
          app bb
          side cc
    "#]],
    );
}

/// The same name again is another pod; the same UID again is another sandbox of the pod.
#[test]
fn uids_decide() {
    let mut again = sandbox('d', UID, "web", None, Vec::new());
    again.attempt = Some(1);
    let old = Sandbox { state: Some(SandboxState::NotReady), ..sandbox('b', OTHER, "web", None, Vec::new()) };
    let listed = vec![runtime(vec![again, old, sandbox('a', UID, "web", None, Vec::new())])];
    let none = Processes::default();
    let pods = join(listed, &none);
    let ids: Vec<Vec<&str>> = pods
        .iter()
        .map(|pod| pod.sandboxes.iter().filter_map(|own| own.id.as_ref()).map(|id| &id.0[..1]).collect())
        .collect();
    assert_eq!(ids, [vec!["b"], vec!["a", "d"]]);
    // A UID that two runtimes have is a pod of each.
    let two = [("/run/1", 'a'), ("/run/2", 'b')].map(|(socket, letter)| Inventory {
        runtime: Runtime { socket: Some(socket.into()), ..Runtime::default() },
        ..runtime(vec![sandbox(letter, UID, "web", None, Vec::new())])
    });
    let sockets: Vec<_> = join(two.into(), &none).into_iter().map(|pod| pod.runtime.socket).collect();
    assert_eq!(sockets, [Some("/run/1".into()), Some("/run/2".into())]);
}

#[test]
fn a_cgroup_of_another_pod() {
    let processes: Processes = [shim(20, 'd'), process(21, 20, &[21, 1], &[&cgroup(OTHER, 'a')])].into_iter().collect();
    check(
        vec![runtime(vec![sandbox('a', UID, "web", None, Vec::new())])],
        &processes,
        expect![[r#"
        web 9b0b ? -
          sandbox aa pid 21 shim 20 cgroup aa
          note: sandbox a is a child of shim 20, which was started for d
          note: the cgroup /kubepods/burstable/pod11111111-2ff2-4e5c-8e47-1d8a2f5f0a11 is of the pod with UID 11111111-2ff2-4e5c-8e47-1d8a2f5f0a11
    "#]],
    );
}

#[test]
fn from_proc_alone() {
    let docker = format!("/docker/{}", id('d'));
    let outside = process(40, 1, &[40], &[&docker]);
    let all: Processes = web().iter().map(|(pid, process)| (pid, process.clone())).chain([outside]).collect();
    let inventories = inventories(&all);
    assert_eq!(inventories.len(), 1);
    assert_eq!(inventories[0].runtime.socket.as_deref(), Some("/run/c.sock"));
    check(
        inventories,
        &all,
        expect![[r#"
        ? 9b0b burstable /kubepods/burstable/pod9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11
          sandbox aa pid 21 shim 20 cgroup aa
          ? bb pid 22 shim 20 cgroup bb
          ? cc pid 25 shim 20 cgroup cc
    "#]],
    );
}

/// A node in a container has a pod of the same UID, as static pods do; the shim cannot be read.
#[test]
fn one_uid_below_two_cgroups() {
    let outer = format!("/docker/{}{}", id('d'), cgroup(UID, 'b'));
    let processes: Processes =
        [process(21, 9, &[21, 1], &[&cgroup(UID, 'a')]), process(22, 9, &[22, 1], &[&outer])].into_iter().collect();
    let pods = join(inventories(&processes), &processes);
    let found: Vec<_> =
        pods.iter().map(|pod| pod.sandboxes.iter().map(|own| own.containers.len()).collect::<Vec<_>>()).collect();
    assert_eq!(found, [[1], [1]]);
    assert!(pods.iter().all(|pod| pod.sandboxes[0].id.is_none()));
}

/// What a query finds: kind, pod, sandbox and containers; or what it says.
fn query(query: &Query) -> String {
    let mut listed = web_listed();
    let mut other = sandbox('d', OTHER, "web", None, Vec::new());
    other.pod.namespace = Some("bank".into());
    listed[0].sandboxes.push(other);
    let processes = web();
    let pods = join(listed, &processes);
    match find(&pods, &processes, query) {
        Err(error) => ['a', 'b', 'c', 'd']
            .iter()
            .fold(error.to_string(), |text, letter| text.replace(&id(*letter), &letter.to_string())),
        Ok((pods, found)) => {
            let text = |pod: &Pod| {
                let letters = |sandbox: &Sandbox| {
                    let containers = sandbox.containers.iter().map(|own| own.id.0.as_str());
                    sandbox.id.iter().map(|id| id.as_str()).chain(containers).map(|id| &id[..1]).collect::<String>()
                };
                let sandboxes: Vec<String> = pod.sandboxes.iter().map(letters).collect();
                format!(" {}/{}", pod.namespace.as_deref().unwrap_or("?"), sandboxes.join("+"))
            };
            format!("{}{}", found.kind.name(), pods.iter().map(text).collect::<String>())
        }
    }
}

#[test]
fn by_name_and_uid() {
    let name = |text: &str| query(&Query::NameOrUid(text.into()));
    assert_eq!(name("web"), "pod bank/d shop/abc");
    assert_eq!(name(UID), "pod shop/abc");
    assert_eq!(name("we"), "no pod we runs here: `podlapse pods` lists all; check the namespace and --socket");
    assert_eq!(query(&Query::Name("shop".into(), "web".into())), "pod shop/abc");
    assert!(query(&Query::Name("shop".into(), "db".into())).starts_with("no pod shop/db"));
}

#[test]
fn by_pid() {
    let pid = |pid: u32| query(&Query::Pid(Tgid(pid)));
    assert_eq!(pid(20), "shim shop/abc");
    assert_eq!(pid(21), "sandbox shop/abc");
    assert_eq!(pid(22), "init shop/ab");
    assert_eq!(pid(23), "process shop/ab");
    assert_eq!(pid(24), "process shop/ab");
    assert_eq!(pid(25), "init shop/ac");
    assert_eq!(pid(26), "helper shop/abc");
    assert_eq!(pid(10), "process 10 belongs to no pod: its cgroups are /system.slice/containerd.service");
    assert!(pid(4711).starts_with("there is no process 4711"));
}

#[test]
fn by_the_pid_of_another_runtime() {
    let processes = web();
    let error = find(&[], &processes, &Query::Pid(Tgid(22))).unwrap_err();
    assert_eq!(error, NotFound::Foreign(Tgid(22), format!("container {}", id('b'))));
}

#[test]
fn by_id() {
    let by = |text: &str| query(&Query::Id(text.into()));
    assert_eq!(by(&id('b')), "container shop/ab");
    assert_eq!(by("cc"), "container shop/ac");
    assert_eq!(by("a"), "sandbox shop/abc");
    assert_eq!(by("e"), "no container or sandbox has an id that begins with e: `podlapse pods` lists all");
    let pods = join(
        vec![runtime(vec![sandbox(
            'a',
            UID,
            "web",
            None,
            vec![Container { id: ContainerId("a".into()), ..container('a', "x", None) }],
        )])],
        &Processes::default(),
    );
    let found = |text: &str| find(&pods, &Processes::default(), &Query::Id(text.into())).map(|(_, found)| found.kind);
    // A whole id is no prefix.
    assert_eq!(found("a"), Ok(Kind::Container));
    assert_eq!(found("aa"), Ok(Kind::Sandbox));
    let two = join(
        vec![runtime(vec![sandbox(
            'a',
            UID,
            "web",
            None,
            vec![Container { id: ContainerId(format!("{}b", &id('a')[1..])), ..container('a', "x", None) }],
        )])],
        &Processes::default(),
    );
    let error = find(&two, &Processes::default(), &Query::Id("aaa".into())).unwrap_err().to_string();
    assert!(error.contains(&id('a')) && error.contains("x of shop/web") && error.contains("give more"), "{error}");
}

#[test]
fn by_cgroup() {
    let by = |path: &str| query(&Query::Cgroup(path.into()));
    assert_eq!(by(&cgroup(UID, 'b')), "container shop/ab");
    assert_eq!(by(&format!("{}/workers/", cgroup(UID, 'b'))), "container shop/ab");
    assert_eq!(by(&cgroup(UID, 'a')), "sandbox shop/abc");
    assert_eq!(by(&format!("/kubepods/burstable/pod{UID}/")), "pod shop/abc");
    for none in ["/", "", "/kubepods/burstable", "/system.slice", &cgroup(UID, 'e'), &format!("/other/pod{UID}")] {
        assert!(by(none).contains("is no pod's and no container's"), "{none}");
    }
}
