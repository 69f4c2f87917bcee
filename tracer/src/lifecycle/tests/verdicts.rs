//! Why starts failed: each reason from its signs, with the runtime's text and with every text blanked.

use std::fmt::Write as _;

use expect_test::expect_file;

use super::containerd::{NEWNET, Pod, container, create_container, network, oci, sandbox, sandbox_signs};
use super::dsl::{Item, RUNTIME, Stream, id};
use super::life::verdicts as life;
use crate::cri::{Ending, Field};
use crate::engine::Config;
use crate::ids::Tgid;
use crate::record::{Event, Sys};
use crate::trace::{Outcome, Verdict};

/// A failure: the reason that is right, the text of the runtime, and the stream that has this text.
struct Case(&'static str, &'static str, fn(&str) -> Stream);

const APP: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                   failed: unable to start container process: ";

const CASES: &[Case] = &[
    Case("no_cni_config", "failed to setup network for sandbox \"1a\": cni plugin not initialized", |text| {
        no_network(text, false)
    }),
    Case(
        "plugin_missing",
        "plugin type=\"bridge\" failed (add): failed to find plugin \"bridge\" in path [/opt/cni/bin]",
        |text| no_network(text, true),
    ),
    Case(
        "plugin_missing",
        "plugin type=\"bridge\" failed (add): failed to find plugin \"dhcp\" in path [/opt/cni/bin]",
        |text| plugin_fails(text, false),
    ),
    Case(
        "ipam_exhausted",
        "plugin type=\"bridge\" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.254",
        |text| plugin_fails(text, true),
    ),
    Case(
        "cni_daemon_not_ready",
        "plugin type=\"flannel\" failed (add): loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
        |text| plugin_fails(text, false),
    ),
    Case(
        "cni_auth_failed",
        "plugin type=\"calico\" failed (add): error getting ClusterInformation: connection is unauthorized: Unauthorized",
        |text| plugin_fails(text, false),
    ),
    Case(
        "cni_agent_down",
        "plugin type=\"cilium-cni\" failed (add): unable to connect to Cilium agent: dial unix /var/run/cilium/cilium.sock: connect: no such file or directory",
        |text| plugin_fails(text, false),
    ),
    Case("cni_bad_output", "plugin type=\"bridge\" failed (add): netplugin failed: \"Segmentation fault\"", |text| {
        plugin_fails(text, false)
    }),
    Case(
        "cni_bad_output",
        "plugin type=\"bridge\" failed (add): failed to unmarshal raw result: invalid character 'e' in literal null (expecting 'u')",
        |text| ended(plugin_fails(text, false), 1002, Some(0), None),
    ),
    Case("cni_killed", "plugin type=\"bridge\" failed (add): signal: killed", |text| {
        ended(plugin_fails(text, false), 1002, None, Some(9))
    }),
    Case("cni_failed", "plugin type=\"bridge\" failed (add): der Schlüssel fehlt", |text| plugin_fails(text, false)),
    Case(
        "runtime_handler_unknown",
        "unable to get OCI runtime for sandbox \"1a\": no runtime for \"kata-qemu\" is configured",
        |text| refused(text, 2),
    ),
    Case(
        "pause_image_auth",
        "failed to get sandbox image \"r.io/pause:3.5\": failed to pull image: 401 Unauthorized",
        networked,
    ),
    Case(
        "pause_image_unreachable",
        "failed to get sandbox image \"r.io/pause:3.5\": failed to do request: dial tcp: lookup r.io: no such host",
        networked,
    ),
    Case(
        "pause_image_missing",
        "failed to get sandbox image \"localhost/pause\": pull: localhost/pause: not found",
        |text| refused(text, 5),
    ),
    Case(
        "image_not_found",
        "failed to pull and unpack image \"r.io/a:1\": failed to resolve reference \"r.io/a:1\": r.io/a:1: not found",
        |text| pull(text, 5),
    ),
    Case(
        "image_auth",
        "failed to resolve reference \"r.io/a:1\": pull access denied, repository does not exist or may require authorization",
        |text| pull(text, 2),
    ),
    Case(
        "registry_unreachable",
        "failed to do request: Head \"https://r.io/v2/a\": dial tcp 10.0.0.1:443: connect: connection refused",
        |text| pull(text, 2),
    ),
    Case(
        "registry_unreachable",
        "failed to resolve image: failed to do request: Head \"https://127.0.0.1:5002/v2/a/manifests/1\": EOF",
        |text| pull(text, 2),
    ),
    Case(
        "image_auth",
        "failed to resolve image: pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
        |text| pull(text, 2),
    ),
    Case("no_progress_timeout", "failed to pull and unpack image \"r.io/a:1\": context canceled", |text| pull(text, 1)),
    Case("sandbox_exited", "sandbox container \"1a\" is not running", pause_died),
    Case(
        "sandbox_exited",
        "failed to get sandbox container task: no running task found: task 1a not found: not found",
        pause_died,
    ),
    Case(
        "working_dir_missing",
        "chdir to cwd (\"/nope\") set in config.json failed: no such file or directory",
        |text| create_fails(text, 108_000),
    ),
    Case("working_dir_missing", "error during container init: mkdir /etc/passwd: not a directory: unknown", |text| {
        create_fails(text, 108_000)
    }),
    Case("working_dir_missing", "chdir to `/etc/passwd`: Not a directory: unknown", |text| create_fails(text, 108_650)),
    Case("entrypoint_not_found", "exec: \"/no\": stat /no: no such file or directory", |text| {
        create_fails(text, 108_650)
    }),
    Case("entrypoint_not_found", "exec: \"no\": executable file not found in $PATH", |text| {
        create_fails(text, 108_650)
    }),
    // crun 1.28 looks a whole path up before init gives up its privileges.
    Case("entrypoint_not_found", "executable file `/no` not found: No such file or directory", |text| {
        create_fails(text, 108_000)
    }),
    Case(
        "entrypoint_not_executable",
        "the path `/plain` exists but it is not executable: Operation not permitted",
        |text| create_fails(text, 108_000),
    ),
    Case("entrypoint_not_executable", "exec: \"/etc/passwd\": permission denied", |text| create_fails(text, 108_650)),
    Case(
        "apparmor_profile_missing",
        "unable to apply apparmor profile: apparmor failed to apply profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        |text| create_fails(text, 108_000),
    ),
    Case(
        "cgroup_limit",
        "unable to apply cgroup configuration: mkdir /sys/fs/cgroup/kubepods/x: no space left on device",
        |text| create_fails(text, 98_400),
    ),
    Case(
        "systemd_slow",
        "unable to start unit \"cri-containerd-1c1.scope\": Timeout waiting for systemd to create cri-containerd-1c1.scope",
        |text| create_fails(text, 98_400),
    ),
    Case("init_oom", "container init was OOM-killed (memory limit too low?)", oom),
    Case("init_oom", "copying bootstrap data to pipe caused: write init-p: broken pipe", oom),
    Case(
        "init_oom",
        "error setting cgroup config for procHooks process: unable to set memory limit to 1048576 (current usage: 2568192, peak usage: 2793472)",
        no_room,
    ),
    Case("init_oom", "failed to start containerd task \"1c1\": cannot start a stopped process: unknown", oom_unnoticed),
    Case("hook_failed", "error running hook #0: error running hook: exit status 1, stdout: , stderr: no driver", hook),
    Case("shim_died", "failed to start sandbox \"1a\": ttrpc: closed: unknown", shim),
    Case("shim_died", "failed to create shim task: ttrpc: closed: unknown", shim_of_container),
    Case("cgroup_frozen", "container's cgroup unexpectedly frozen", frozen),
    Case("exec_failed", "", |_| exec_fails()),
    Case("call_failed", "¡algo salió mal!", |text| refused(text, 2)),
];

pub(super) fn exit(s: &mut Stream, pid: u32, code: Option<u8>, signal: Option<u8>) {
    for (_, item) in &mut s.items {
        if let Item::Record(record) = item
            && record.tgid.0 == pid
            && let Event::Exit(exit) = &mut record.event
        {
            (exit.status, exit.signal) = (code, signal);
        }
    }
}

fn ended(mut s: Stream, pid: u32, code: Option<u8>, signal: Option<u8>) -> Stream {
    exit(&mut s, pid, code, signal);
    s
}

fn pod() -> Pod {
    Pod::new("web", "1", 1000)
}

/// RunPodSandbox fails at once.
fn refused(text: &str, code: u32) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    let mut request = pod.request();
    request.push((Field::RuntimeHandler, "kata-qemu"));
    let key = s.begin_call(0, "RunPodSandbox", &request);
    s.end_call(2_000, key, Ending::Status { code, message: text.into() });
    s
}

/// The network namespace is made, and no plugin run but perhaps loopback.
fn no_network(text: &str, loopback: bool) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    s.sys((1_000, 1_500), (RUNTIME, 1900), Sys::Unshare, NEWNET, [""; 3]);
    s.sys(
        (1_600, 1_700),
        (RUNTIME, 1900),
        Sys::Mount,
        0x1000,
        ["/proc/1/task/1/ns/net", "/var/run/netns/cni-1", "none"],
    );
    if loopback {
        s.cni((3_000, 6_000), RUNTIME, 1001, "loopback", &pod.env("ADD"));
    }
    s.failing_call((0, 9_000), "RunPodSandbox", &pod.request(), text);
    s
}

/// bridge fails, after its host-local or without; then comes the DEL, which fails too.
fn plugin_fails(text: &str, delegate: bool) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    network(&mut s, &pod);
    let gone: &[u32] = if delegate { &[1004, 1005] } else { &[1003, 1004, 1005] };
    s = s.without(|_, item| matches!(item, Item::Record(r) if gone.contains(&r.tgid.0) || new_task(r, gone)));
    exit(&mut s, 1002, Some(1), None);
    exit(&mut s, 1003, Some(1), None);
    s.cni((31_000, 33_000), RUNTIME, 1006, "bridge", &pod.env("DEL"));
    exit(&mut s, 1006, Some(7), None);
    s.failing_call((0, 36_000), "RunPodSandbox", &pod.request(), text);
    s
}

fn new_task(record: &crate::record::Record, pids: &[u32]) -> bool {
    matches!(&record.event, Event::NewTask(task) if pids.contains(&task.child.0))
}

/// The network is made, and nothing after it.
fn networked(text: &str) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    network(&mut s, &pod);
    s.failing_call((0, 45_000), "RunPodSandbox", &pod.request(), text);
    s
}

fn pull(text: &str, code: u32) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    sandbox(&mut s, &pod);
    let request = [(Field::PodUid, pod.uid.as_str()), (Field::Image, "r.io/a:1")];
    let key = s.begin_call(77_000, "PullImage", &request);
    s.end_call(79_000, key, Ending::Status { code, message: text.into() });
    s.tick(9_000_000);
    s
}

fn pause_died(text: &str) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    sandbox(&mut s, &pod);
    s.task_reply((66_500, 79_000), "Wait", &pod.sandbox, vec![(Field::ExitStatus, crate::cri::Value::Number(137))]);
    let request = [(Field::SandboxId, pod.sandbox.as_str()), (Field::ContainerName, "app"), (Field::PodUid, &pod.uid)];
    s.failing_call((80_000, 81_000), "CreateContainer", &request, text);
    s
}

/// StartContainer fails: runc create and init end badly at `at`.
fn create_fails(text: &str, at: u64) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    sandbox(&mut s, &pod);
    let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
    oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
    s = s.without(|when, _| when > at);
    s.exit(at + 100, pid + 3, 1);
    s.exit(at + 200, pid, 1);
    s.failing_call(
        (90_000, 125_000),
        "StartContainer",
        &[(Field::ContainerId, &id)],
        &format!("{}{text}", prefix(text)),
    );
    s
}

/// No text, no prefix.
fn prefix(text: &str) -> &'static str {
    if text.is_empty() { "" } else { APP }
}

fn init(s: &Stream) -> (u32, u32) {
    let mut pids = s.items.iter().filter_map(|(at, item)| match item {
        Item::Record(record) if *at > 103_000 && matches!(record.event, Event::Exit(_)) => Some(record.tgid.0),
        _ => None,
    });
    let create = pids.clone().min().unwrap_or_default();
    (pids.find(|pid| *pid != create).unwrap_or_default(), create)
}

pub(super) fn oom(text: &str) -> Stream {
    let mut s = create_fails(text, 106_500);
    let (init, _) = init(&s);
    s.record(106_550, 1, Event::Oom { victim: Tgid(init), rss_kib: 0 });
    ended(s, init, None, Some(9))
}

/// runc create does not look at init any more when that is killed, and ends well.
fn oom_unnoticed(text: &str) -> Stream {
    let mut s = create_fails(text, 109_000);
    let (init, create) = init(&s);
    s.record(109_050, 1, Event::Oom { victim: Tgid(init), rss_kib: 0 });
    let s = ended(s, init, None, Some(9));
    ended(s, create, Some(0), None)
}

fn hook(text: &str) -> Stream {
    let mut s = create_fails(text, 106_500);
    let (_, create) = init(&s);
    s.process((106_400, 106_550), create, 2003, "/usr/bin/nvidia-hook prestart");
    ended(s, 2003, Some(1), None)
}

fn shim(text: &str) -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    sandbox_signs(&mut s, &pod);
    s = s.without(|at, _| at > 43_600);
    s.record(43_800, 1011, Event::Exit(crate::record::Exit { status: None, signal: Some(9), comm: "shim".into() }));
    s.failing_call((0, 45_000), "RunPodSandbox", &pod.request(), text);
    s
}

/// The shim is killed while runc create runs; containerd then ends runc, too, and every wait is over.
fn shim_of_container(text: &str) -> Stream {
    let mut s = create_fails(text, 106_500);
    let (_, create) = init(&s);
    s.task_reply((66_500, 106_700), "Wait", &pod().sandbox, Vec::new());
    let killed = crate::record::Exit { status: None, signal: Some(9), comm: "shim".into() };
    s.record(106_600, 1011, Event::Exit(killed));
    ended(s, create, None, Some(9))
}

/// cgroup v1 refuses a limit below what is used.
fn no_room(text: &str) -> Stream {
    let mut s = create_fails(text, 106_500);
    let (_, create) = init(&s);
    let dir = cgroup(&s);
    s.write((106_450, 106_460), create, &dir, "memory.limit_in_bytes", "1048576");
    if let Some((_, Item::Record(record))) = s.items.last_mut()
        && let Event::CgroupWrite(write) = &mut record.event
    {
        write.ret = -16;
    }
    s
}

fn frozen(text: &str) -> Stream {
    let mut s = create_fails(text, 106_500);
    let (_, create) = init(&s);
    let dir = cgroup(&s);
    s.write((106_450, 106_460), create, &dir, "freezer.state", "FROZEN");
    s
}

/// The last one that was written to.
fn cgroup(s: &Stream) -> String {
    let dir = s.items.iter().rev().find_map(|(_, item)| match item {
        Item::Record(record) => match &record.event {
            Event::CgroupWrite(write) => Some(write.dir.clone()),
            _ => None,
        },
        Item::Call(_) => None,
    });
    dir.unwrap_or_default()
}

fn exec_fails() -> Stream {
    let (mut s, pod) = (Stream::new(), pod());
    sandbox(&mut s, &pod);
    let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
    s.call((90_000, 132_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
    let init = pid + 3;
    s = s.without(|_, item| matches!(item, Item::Record(r) if r.tgid.0 == init && matches!(r.event, Event::Exec(_))));
    s.failing_sys((117_000, 117_100), (init, init), Sys::Execve, 0, ["/bin/app", "", ""], -8);
    s.exit(118_000, init, 255);
    s.tick(5_000_000);
    s
}

fn verdict(stream: Stream) -> Verdict {
    let traces = stream.feed_last(Config::default());
    let verdict = traces[0].verdict.clone().expect("a verdict");
    assert!(crate::diagnose::reason(&verdict.reason).is_some(), "{} is not in the list", verdict.reason);
    assert!(crate::trace::lookup(&verdict.stage).is_some(), "{} is not registered", verdict.stage);
    verdict
}

fn found(of: &Verdict) -> String {
    format!("{} {} {}", of.reason, of.stage, of.confidence.name())
}

/// Without a text the reason may be a wider one, and the stage is the same.
#[test]
fn reasons() {
    let (mut table, mut same_reason, mut same_stage) = (String::new(), 0, 0);
    for Case(right, text, stream) in CASES {
        let (with, blank) = (verdict(stream(text)), verdict(stream("")));
        assert_eq!(&with.reason, right, "{text}");
        same_reason += usize::from(blank.reason == with.reason);
        same_stage += usize::from(blank.stage == with.stage);
        let _ = writeln!(table, "{} | {}", found(&with), found(&blank));
    }
    for case in life::CASES {
        let verdict = case.verdict();
        assert_eq!(verdict.reason, case.0);
        // No text says it.
        let _ = writeln!(table, "{0} | {0}", found(&verdict));
        (same_reason, same_stage) = (same_reason + 1, same_stage + 1);
    }
    let _ = writeln!(table, "blanked: reason {same_reason}, stage {same_stage} of {}", CASES.len() + life::CASES.len());
    // `cargo xtask cases --synthetic` prints it.
    expect_file!["./verdicts.txt"].assert_eq(&table);
}

/// A wider reason than the right one.
fn is_wider(found: &str, right: &str) -> bool {
    let wider: &[&str] = match right {
        "entrypoint_not_found" | "entrypoint_not_executable" | "working_dir_missing" => &["entrypoint_unusable"],
        _ => &["cni_failed"],
    };
    found == right || found == "call_failed" || wider.contains(&found)
}

#[test]
fn bad_texts_give_no_wrong_reason() {
    for Case(right, text, stream) in CASES {
        let cut = (0..text.len()).filter(|at| text.is_char_boundary(*at)).step_by(7).map(|at| text[..at].to_owned());
        let encoded = text.replace(' ', "%20").replace('"', "%22");
        let foreign = "不允许的操作：找不到文件".to_owned();
        let broken = text.replace(['i', 'o'], "\u{fffd}");
        for text in cut.chain([encoded, foreign, broken]) {
            let found = verdict(stream(&text)).reason;
            assert!(is_wider(&found, right), "{found} for {right}: {text}");
        }
    }
}

/// The names of a pod's things in a text decide nothing.
#[test]
fn names_are_no_texts() {
    for Case(_, text, _) in CASES {
        let name: String =
            text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let found = verdict(refused(&format!("failed to do it for pod {name:?}"), 2));
        assert_eq!(found.reason, "call_failed", "{name}");
    }
}

#[test]
fn a_reserved_name_follows_from_its_holder() {
    let (mut s, first) = (Stream::new(), pod());
    s.begin_call(0, "RunPodSandbox", &first.request());
    network(&mut s, &first);
    s = s.without(|at, _| at > 24_000);
    let retry = Pod::new("web", "2", 3000);
    let text = format!(
        "failed to reserve sandbox name \"web_default\": name \"web_default\" is reserved for \"{}\"",
        first.sandbox
    );
    s.failing_call((30_000, 30_500), "RunPodSandbox", &retry.request(), &text);
    let traces = s.feed_last(Config::default());
    let of = |uid: &str| traces.iter().find(|t| t.pod.uid.as_ref().is_some_and(|u| u.as_str() == uid)).unwrap();
    let verdict = of(&retry.uid).verdict.as_ref().unwrap();
    assert_eq!(
        (verdict.reason.as_str(), &verdict.is_consequence_of),
        ("name_reserved", &Some(of(&first.uid).trace_id.clone()))
    );
    // Nobody that was seen.
    let unknown = format!("name \"a\" is reserved for \"{}\"", id("f0"));
    let found = self::verdict(refused(&unknown, 2));
    assert_eq!((found.reason.as_str(), found.is_consequence_of), ("name_reserved", None));
    assert!(found.evidence.iter().any(|text| text.contains(&id("f0"))), "{:?}", found.evidence);
}

#[test]
fn what_did_not_fail_has_no_verdict() {
    let whole = |pod: &Pod| {
        let mut s = Stream::new();
        sandbox(&mut s, pod);
        container(&mut s, pod, 80_000, "app", "/bin/app");
        s.tick(5_000_000);
        s
    };
    let host = Pod { host_network: true, ..pod() };
    // A helper of a plugin that fails, an early end of the app.
    let mut early = whole(&pod());
    exit(&mut early, 1005, Some(1), None);
    for stream in [whole(&pod()), whole(&host), early] {
        let traces = stream.feed_last(Config::default());
        assert_eq!((traces[0].outcome, &traces[0].verdict), (Outcome::Complete, &None));
    }
}
