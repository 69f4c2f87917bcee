use expect_test::expect;

use super::*;

fn listed() -> v1::Container {
    v1::Container {
        id: "c".into(),
        pod_sandbox_id: "s".into(),
        metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 2 }),
        image: Some(v1::ImageSpec { image: "listed:1".into(), ..Default::default() }),
        image_ref: "sha256:listed".into(),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: 5,
        ..Default::default()
    }
}

fn sandbox() -> v1::PodSandbox {
    let meta = v1::PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "shop".into(), attempt: 1 };
    v1::PodSandbox { id: "s".into(), metadata: Some(meta), created_at: 4, ..Default::default() }
}

fn status(state: v1::ContainerState) -> v1::ContainerStatusResponse {
    let status = v1::ContainerStatus {
        state: state.into(),
        started_at: 6,
        finished_at: 7,
        exit_code: 3,
        image: Some(v1::ImageSpec { image: "repo/app:1".into(), ..Default::default() }),
        image_ref: "repo/app@sha256:manifest".into(),
        ..Default::default()
    };
    let info = [("info".to_owned(), r#"{"pid":42,"config":{"envs":[{"key":"K","value":"SECRET"}]}}"#.to_owned())];
    v1::ContainerStatusResponse { status: Some(status), info: info.into() }
}

fn found(container: Result<v1::ContainerStatusResponse, Code>, pod: Result<(), Code>) -> Inventory {
    let mut found = Found::default();
    found.container(&listed(), container);
    found.sandbox(&sandbox(), pod.map(|()| v1::PodSandboxStatusResponse::default()));
    found.inventory(Runtime::default())
}

#[test]
fn list_and_status_together() {
    let inventory = found(Ok(status(v1::ContainerState::ContainerExited)), Ok(()));
    let container = &inventory.sandboxes[0].containers[0];
    expect![[r#"
        Container {
            id: ContainerId(
                "c",
            ),
            name: Some(
                "app",
            ),
            attempt: Some(
                2,
            ),
            state: Some(
                Exited,
            ),
            created: Some(
                5,
            ),
            started: Some(
                6,
            ),
            finished: Some(
                7,
            ),
            exit_code: Some(
                3,
            ),
            image: Some(
                "repo/app:1",
            ),
            image_id: Some(
                "sha256:listed",
            ),
            image_digest: Some(
                "sha256:manifest",
            ),
            claimed: Some(
                42,
            ),
            init: None,
        }
    "#]]
    .assert_debug_eq(container);
    assert!(!format!("{inventory:?}").contains("SECRET"));
    let running = found(Ok(status(v1::ContainerState::ContainerRunning)), Ok(()));
    assert_eq!(running.sandboxes[0].containers[0].exit_code, None);
}

/// Between the list and the status a container or a whole pod may go.
#[test]
fn what_vanished_is_left_out_and_said() {
    let inventory = found(Err(Code::NotFound), Ok(()));
    assert_eq!(inventory.sandboxes[0].containers, []);
    assert_eq!(inventory.notes, ["container c was removed while the runtime was asked"]);
    let inventory = found(Ok(status(v1::ContainerState::ContainerRunning)), Err(Code::NotFound));
    assert_eq!(inventory.sandboxes, []);
    assert_eq!(
        inventory.notes,
        ["sandbox s was removed while the runtime was asked", "container c is of sandbox s, which is not there"]
    );
}

#[test]
fn without_a_status_the_list_counts() {
    let inventory = found(Err(Code::Unknown), Err(Code::Internal));
    let sandbox = &inventory.sandboxes[0];
    assert_eq!((sandbox.state, sandbox.claimed), (Some(SandboxState::Ready), None));
    let container = &sandbox.containers[0];
    assert_eq!((container.state, container.claimed), (Some(ContainerState::Running), None));
    assert_eq!((container.image.as_deref(), container.image_digest.as_deref()), (Some("listed:1"), None));
    assert_eq!(inventory.notes.len(), 2);
}

/// A socket that says something else than gRPC, and one that says nothing.
#[tokio::test]
async fn sockets_that_are_no_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (absent, dead, garbage) = (path("absent"), path("dead"), path("garbage"));
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let listener = std::os::unix::net::UnixListener::bind(&garbage).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whatever becomes of the bytes is the client's to find out.
            let _ = stream.and_then(|mut stream| std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 no\r\n\r\n"));
        }
    });
    for (path, says) in [(absent, "does not exist"), (dead, "nobody listens"), (garbage, "--bootstrap proc")] {
        let error = inventory(&path).await.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(path.to_str().unwrap()), "{error}");
    }
}
