//! Known answers: the JSON contract against its schema, table and detail at several widths.

use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;
use crate::export::tests::close;
use crate::export::{Charset, Tree};
use crate::ids::{ContainerId, PodUid, SandboxId, Tgid};
use crate::pods::{
    Cgroup, Container, ContainerState, Init, Kind, Listing, Match, Membership, Node, Pod, Runtime, Sandbox,
    SandboxState,
};

fn cgroup(path: &str, limits: &[(&str, &str)]) -> Cgroup {
    let membership = |controllers: &str, path: &str| Membership { controllers: controllers.into(), path: path.into() };
    Cgroup {
        path: path.into(),
        memberships: vec![membership("", path), membership("name=systemd", "/elsewhere")],
        limits: limits.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect(),
    }
}

fn init(pid: u32, first: u32, path: &str) -> Init {
    let namespaces = Namespaces { net: 4_026_532_201, ipc: 12, uts: 13, pid: first, mnt: first + 1, user: 1 };
    Init {
        pid: Tgid(pid),
        shim: Some(Tgid(90)),
        namespaces,
        node: Some(Namespaces { net: 3, ipc: 4, uts: 5, pid: 6, mnt: 7, user: 1 }),
        oom_score_adj: Some(-998),
        cgroup: Some(cgroup(path, &[("cpu.max", "50000 100000"), ("memory.max", "134217728"), ("cpuset.cpus", "")])),
    }
}

fn full() -> Listing {
    let id = |letter: &str| letter.repeat(64);
    let app = Container {
        id: ContainerId(id("b")),
        name: Some("app".into()),
        attempt: Some(1),
        state: Some(ContainerState::Running),
        created: Some(1),
        started: Some(2),
        image: Some("registry.example/shop/web:1".into()),
        image_id: Some("sha256:1".into()),
        image_digest: Some("sha256:2".into()),
        init: Some(init(101, 30, "/kubepods/podx/b")),
        ..Container::default()
    };
    let old = Container {
        state: Some(ContainerState::Exited),
        attempt: Some(0),
        finished: Some(3),
        exit_code: Some(137),
        init: None,
        id: ContainerId(id("c")),
        ..app.clone()
    };
    let sandbox = Sandbox {
        id: Some(SandboxId(id("a"))),
        attempt: Some(0),
        state: Some(SandboxState::Ready),
        created: Some(1),
        handler: Some("crun".into()),
        ips: vec!["10.0.0.1".into()],
        image: Some("pause:1".into()),
        init: Some(init(100, 20, "/kubepods/podx/a")),
        containers: vec![old, app],
        ..Sandbox::default()
    };
    let runtime = Runtime {
        socket: Some("/run/containerd/containerd.sock".into()),
        name: Some("containerd".into()),
        version: Some("1.6.20".into()),
        pid: Some(Tgid(80)),
    };
    let pod = Pod {
        runtime: runtime.clone(),
        uid: Some(PodUid("9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11".into())),
        namespace: Some("shop".into()),
        name: Some("web".into()),
        qos: Some("burstable"),
        cgroup: Some(cgroup("/kubepods/podx", &[])),
        sandboxes: vec![sandbox],
        notes: vec!["a note".into()],
    };
    let node = Node { name: "n".into(), boot_id: "b".into(), kernel: "6.1".into() };
    let nothing = Pod {
        sandboxes: vec![Sandbox { containers: vec![Container::default()], ..Sandbox::default() }],
        ..Pod::default()
    };
    Listing {
        node,
        runtimes: vec![runtime],
        pods: vec![nothing, pod],
        notes: vec!["gone".into()],
        ..Listing::default()
    }
}

fn json(listing: &Listing, found: Option<&(Vec<Pod>, Match)>) -> Value {
    let mut out = Vec::new();
    write_pods_json(&mut out, listing, found).unwrap();
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn json_keeps_its_contract() {
    let mut schema = serde_json::from_str(include_str!("../../../../docs/pods-v1.schema.json")).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    close(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let mut listing = full();
    // An id is never empty; the default's is.
    listing.pods[0].sandboxes[0].containers[0].id = ContainerId("d".into());
    let found = (vec![listing.pods[1].clone()], Match { kind: Kind::Helper, pid: Some(Tgid(7)) });
    for value in [json(&listing, None), json(&listing, Some(&found)), json(&Listing::default(), None)] {
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, [""; 0]);
    }
    assert!(!validator.is_valid(&serde_json::json!({"schema": "podlapse.pods/v2"})));
}

#[test]
fn json_of_a_pod() {
    let value = json(&full(), None);
    let check = |pointer: &str, want: Value| assert_eq!(value.pointer(pointer), Some(&want), "{pointer}");
    check("/pods/1/sandboxes/0/containers/1/shared_with_sandbox", serde_json::json!(["net", "ipc", "uts", "user"]));
    check("/pods/1/sandboxes/0/shared_with_node", serde_json::json!(["user"]));
    check("/pods/1/sandboxes/0/containers/1/cgroup/limits/memory.max", "134217728".into());
    check("/pods/1/cgroup/hierarchies", serde_json::json!({"name=systemd": "/elsewhere"}));
    check("/pods/1/sandboxes/0/containers/0/exit_code", 137.into());
    check("/pods/1/sandboxes/0/containers/0/finished_at", "1970-01-01T00:00:00.000000003Z".into());
    assert_eq!(value.pointer("/pods/1/sandboxes/0/containers/0/pid"), None);
    check("/pods/0", serde_json::json!({"runtime": {}, "sandboxes": [{"containers": [{"id": ""}]}], "notes": []}));
}

fn table(width: usize, colour: bool, want: Expect) {
    let mut out = Vec::new();
    write_table(&mut out, &full().pods, &Tree { width, charset: Charset::Unicode, colour, min_ns: 0 }).unwrap();
    want.assert_eq(&String::from_utf8(out).unwrap().replace('\x1b', "^"));
}

#[test]
fn tables() {
    table(
        200,
        false,
        expect![[r#"
            POD       UID                                   CONTAINER  ID             STATE    PID  SHIM  OWN NAMESPACES       CPU   MEMORY  IMAGE                        RUNTIME
            ?                                               (sandbox)
            ?
            shop/web  9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11  (sandbox)  aaaaaaaaaaaaa  ready    100  90    net ipc uts pid mnt  500m  128Mi   pause:1                      /run/containerd/containerd.sock
            shop/web  9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11  app        ccccccccccccc  exited                                                 registry.example/shop/web:1  /run/containerd/containerd.sock
            shop/web  9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11  app        bbbbbbbbbbbbb  running  101  90    pid mnt              500m  128Mi   registry.example/shop/web:1  /run/containerd/containerd.sock
        "#]],
    );
    table(
        100,
        false,
        expect![[r#"
            POD       CONTAINER  ID             STATE    PID  SHIM  CPU   MEMORY  RUNTIME
            ?         (sandbox)
            ?
            shop/web  (sandbox)  aaaaaaaaaaaaa  ready    100  90    500m  128Mi   /run/containerd/cont…nerd.sock
            shop/web  app        ccccccccccccc  exited                            /run/containerd/cont…nerd.sock
            shop/web  app        bbbbbbbbbbbbb  running  101  90    500m  128Mi   /run/containerd/cont…nerd.sock
        "#]],
    );
    table(
        60,
        true,
        expect![[r#"
            ^[1mPOD       CONTAINER  ID             STATE    PID^[0m
            ?         (sandbox)
            ?
            shop/web  (sandbox)  aaaaaaaaaaaaa  ready    100
            ^[2mshop/web  app        ccccccccccccc  exited^[0m
            shop/web  app        bbbbbbbbbbbbb  running  101
        "#]],
    );
}

#[test]
fn detail() {
    let listing = full();
    let mut out = Vec::new();
    let tree = Tree { width: 90, charset: Charset::Ascii, colour: false, min_ns: 0 };
    write_detail(&mut out, &listing.pods[1..], &Match { kind: Kind::Process, pid: Some(Tgid(102)) }, &tree).unwrap();
    expect![[r#"
        process 102  in a container
        pod shop/web  uid 9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11  burstable
          runtime         containerd  1.6.20  /run/containerd/containerd.sock
          cgroup          /kubepods/podx
          note            a note
        sandbox aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  ready
          created         1970-01-01T00:00:00.000000001Z
          handler         crun
          addresses       10.0.0.1
          image           pause:1
          pid             100  shim 90  oom_score_adj -998
          namespaces      net 4026532201  ipc 12  uts 13  pid 20  mnt 21  user 1
            as node       user
          cgroup          /kubepods/podx/a
          limits          cpu.max=50000 100000  memory.max=134217728
        container app cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc  exited
        exit code 137
          created         1970-01-01T00:00:00.000000001Z
          started         1970-01-01T00:00:00.000000002Z
          finished        1970-01-01T00:00:00.000000003Z
          image           registry.example/shop/web:1
          image id        sha256:1
          image digest    sha256:2
        container app bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb  running
        attempt 1
          created         1970-01-01T00:00:00.000000001Z
          started         1970-01-01T00:00:00.000000002Z
          image           registry.example/shop/web:1
          image id        sha256:1
          image digest    sha256:2
          pid             101  shim 90  oom_score_adj -998
          namespaces      net 4026532201  ipc 12  uts 13  pid 30  mnt 31  user 1
            as sandbox    net  ipc  uts  user
            as node       user
          cgroup          /kubepods/podx/b
          limits          cpu.max=50000 100000  memory.max=134217728
    "#]]
    .assert_eq(&String::from_utf8(out).unwrap());
}
