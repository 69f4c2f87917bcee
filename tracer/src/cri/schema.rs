//! The allow-list itself: for each method of the CRI and of the task API, the fields that may become values.
//!
//! Sources: kubernetes/cri-api `pkg/apis/runtime/{v1,v1alpha2}/api.proto` (the numbers used here are the same in both),
//! containerd `api/runtime/task/{v2,v3}/shim.proto`, `api/runtime/sandbox/v1/sandbox.proto`, `api/events/task.proto`,
//! `api/types/event.proto`. Never on it: annotations, labels, envs, auth, commands and their output, `info` maps,
//! process specs. A method that is not here is read not at all; the containerd API's replies carry whole specs.

use super::allow::{Allow, Leaf, NOTHING, Take, enter, number, present, size, text};
use super::call::Field::*;

static POD_METADATA: Allow = Allow(&[text(1, PodName), text(2, PodUid), text(3, PodNamespace), number(4, PodAttempt)]);
static NAMESPACES: Allow = Allow(&[number(1, NetworkMode), number(2, PidMode), number(3, IpcMode)]);
static SANDBOX_SECURITY: Allow = Allow(&[enter(1, &NAMESPACES)]);
static SANDBOX_LINUX: Allow = Allow(&[text(1, CgroupParent), enter(2, &SANDBOX_SECURITY)]);
static SANDBOX_CONFIG: Allow = Allow(&[enter(1, &POD_METADATA), enter(8, &SANDBOX_LINUX)]);
static CONTAINER_METADATA: Allow = Allow(&[text(1, ContainerName), number(2, ContainerAttempt)]);
static IMAGE_SPEC: Allow = Allow(&[text(1, Image)]);
static CONTAINER_CONFIG: Allow = Allow(&[enter(1, &CONTAINER_METADATA), enter(2, &IMAGE_SPEC)]);
static IN_IMAGE_SPEC: Allow = Allow(&[enter(1, &IMAGE_SPEC)]);

static SANDBOX_ID: Allow = Allow(&[text(1, SandboxId)]);
static CONTAINER_ID: Allow = Allow(&[text(1, ContainerId)]);

static VERSION_REPLY: Allow = Allow(&[text(2, RuntimeName), text(3, RuntimeVersion)]);
static RUN_SANDBOX: Allow = Allow(&[enter(1, &SANDBOX_CONFIG), text(2, RuntimeHandler)]);
static POD_NETWORK: Allow = Allow(&[text(1, PodIp)]);
// containers_statuses (3) is left out: the state of a container must not be read as that of the sandbox.
static SANDBOX_STATUS_REPLY: Allow = Allow(&[enter(1, &SANDBOX_STATUS)]);
static SANDBOX_STATUS: Allow = Allow(&[
    text(1, SandboxId),
    enter(2, &POD_METADATA),
    number(3, State),
    enter(5, &POD_NETWORK),
    text(9, RuntimeHandler),
]);
static SANDBOX_FILTER: Allow = Allow(&[text(1, SandboxId), present(2, Filter), present(3, Filter)]);
static LIST_SANDBOX: Allow = Allow(&[enter(1, &SANDBOX_FILTER)]);
static SANDBOX_ITEM: Allow =
    Allow(&[text(1, SandboxId), enter(2, &POD_METADATA), number(3, State), text(7, RuntimeHandler)]);
static LIST_SANDBOX_REPLY: Allow = Allow(&[enter(1, &SANDBOX_ITEM)]);

static CREATE_CONTAINER: Allow =
    Allow(&[text(1, SandboxId), enter(2, &CONTAINER_CONFIG), enter(3, &CREATE_SANDBOX_CONFIG)]);
static CREATE_SANDBOX_CONFIG: Allow = Allow(&[enter(1, &POD_METADATA)]);
static STOP_CONTAINER: Allow = Allow(&[text(1, ContainerId), number(2, Timeout)]);
static CONTAINER_FILTER: Allow =
    Allow(&[text(1, ContainerId), present(2, Filter), text(3, SandboxId), present(4, Filter)]);
static LIST_CONTAINERS: Allow = Allow(&[enter(1, &CONTAINER_FILTER)]);
static CONTAINER_ITEM: Allow = Allow(&[
    text(1, ContainerId),
    text(2, SandboxId),
    enter(3, &CONTAINER_METADATA),
    enter(4, &IMAGE_SPEC),
    text(5, ImageRef),
    number(6, State),
]);
static LIST_CONTAINERS_REPLY: Allow = Allow(&[enter(1, &CONTAINER_ITEM)]);
static CONTAINER_STATUS: Allow = Allow(&[
    text(1, ContainerId),
    enter(2, &CONTAINER_METADATA),
    number(3, State),
    number(7, ExitCode),
    enter(8, &IMAGE_SPEC),
    text(9, ImageRef),
]);
static CONTAINER_STATUS_REPLY: Allow = Allow(&[enter(1, &CONTAINER_STATUS)]);
// Never cmd (2): the lengths of its words tell one probe from another.
static EXEC_SYNC: Allow = Allow(&[text(1, ContainerId), size(2, ExecWord), number(3, Timeout)]);
static EXEC_SYNC_REPLY: Allow = Allow(&[number(3, ExecExitCode)]);
static EVENT_SANDBOX: Allow = Allow(&[text(1, SandboxId), enter(2, &POD_METADATA)]);
static CONTAINER_EVENT: Allow = Allow(&[text(1, ContainerId), enter(4, &EVENT_SANDBOX)]);

static PULL_IMAGE: Allow = Allow(&[enter(1, &IMAGE_SPEC), enter(3, &CREATE_SANDBOX_CONFIG)]);
static IMAGE_REF: Allow = Allow(&[text(1, ImageRef)]);
static IMAGE_STATUS_REPLY: Allow = Allow(&[enter(1, &IMAGE_REF)]);

static TASK_AND_EXEC: Allow = Allow(&[text(1, TaskId), text(2, ExecId)]);
static TASK: Allow = Allow(&[text(1, TaskId)]);
static TASK_CREATE: Allow = Allow(&[text(1, TaskId), text(2, Bundle)]);
static TASK_KILL: Allow = Allow(&[text(1, TaskId), text(2, ExecId), number(3, Signal)]);
static TASK_PID: Allow = Allow(&[number(1, Pid)]);
static TASK_DELETE_REPLY: Allow = Allow(&[number(1, Pid), number(2, ExitStatus)]);
static TASK_WAIT_REPLY: Allow = Allow(&[number(1, ExitStatus)]);
// Status (4) is no CRI state and is left out.
static TASK_STATE_REPLY: Allow =
    Allow(&[text(1, TaskId), text(2, Bundle), number(3, Pid), number(9, ExitStatus), text(11, ExecId)]);
static TASK_CONNECT_REPLY: Allow = Allow(&[number(2, Pid)]);
static SHIM_SANDBOX_CREATE: Allow = Allow(&[text(1, SandboxId), text(2, Bundle)]);

static ENVELOPE: Allow = Allow(&[text(3, Topic), enter(4, &ANY)]);
static FORWARD: Allow = Allow(&[enter(1, &ENVELOPE)]);
static ANY: Allow = Allow(&[(1, Take::Text(Leaf::TypeUrl)), (2, Take::AnyValue)]);
static EVENT_CREATE: Allow = Allow(&[text(1, TaskId), text(2, Bundle), number(6, Pid)]);
static EVENT_START: Allow = Allow(&[text(1, TaskId), number(2, Pid)]);
static EVENT_EXIT: Allow = Allow(&[text(1, TaskId), text(2, ExecId), number(3, Pid), number(4, ExitStatus)]);
static EVENT_DELETE: Allow = Allow(&[text(1, TaskId), number(2, Pid), number(3, ExitStatus), text(5, ExecId)]);
static EVENT_EXEC: Allow = Allow(&[text(1, TaskId), text(2, ExecId), number(3, Pid)]);

/// ttrpc `Request` (containerd/ttrpc `request.proto`); metadata (5) is not read.
pub static TTRPC_REQUEST: Allow = Allow(&[
    (1, Take::Text(Leaf::Service)),
    (2, Take::Text(Leaf::Method)),
    (3, Take::Payload),
    (4, Take::Number(Leaf::TimeoutNs)),
]);
/// ttrpc `Response`.
pub static TTRPC_RESPONSE: Allow = Allow(&[enter(1, &STATUS), (2, Take::Payload)]);
static STATUS: Allow = Allow(&[(1, Take::Number(Leaf::Code)), (2, Take::Text(Leaf::Message))]);

/// Which API a service name belongs to.
enum Api {
    Runtime,
    Image,
    Task,
    Sandbox,
    Events,
}

fn api(service: &str) -> Option<Api> {
    Some(match service {
        // Without a package: inferred, and the version is not known.
        "runtime.v1.RuntimeService" | "runtime.v1alpha2.RuntimeService" | "RuntimeService" => Api::Runtime,
        "runtime.v1.ImageService" | "runtime.v1alpha2.ImageService" | "ImageService" => Api::Image,
        "containerd.task.v2.Task" | "containerd.task.v3.Task" => Api::Task,
        "containerd.runtime.sandbox.v1.Sandbox" => Api::Sandbox,
        "containerd.services.events.ttrpc.v1.Events" => Api::Events,
        _ => return None,
    })
}

/// Whether a gRPC service is of the containerd API, which its own clients speak on the same socket (`ctr`, nerdctl,
/// cadvisor): `containerd.services.content.v1.Content` and its like.
pub fn is_foreign(service: &str) -> bool {
    service.starts_with("containerd.services.") || service.starts_with("containerd.types.")
}

/// Whether a gRPC service is the CRI's RuntimeService.
pub fn is_runtime(service: &str) -> bool {
    matches!(api(service), Some(Api::Runtime))
}

/// Whether a gRPC service is the CRI's ImageService.
pub fn is_image(service: &str) -> bool {
    matches!(api(service), Some(Api::Image))
}

/// What is read of a request.
pub fn request(service: &str, method: &str) -> &'static Allow {
    match (api(service), method) {
        (Some(Api::Runtime), "RunPodSandbox") => &RUN_SANDBOX,
        (
            Some(Api::Runtime),
            "StopPodSandbox"
            | "RemovePodSandbox"
            | "PodSandboxStatus"
            | "PodSandboxStats"
            | "PortForward"
            | "UpdatePodSandboxResources",
        ) => &SANDBOX_ID,
        (Some(Api::Runtime), "ListPodSandbox") => &LIST_SANDBOX,
        (Some(Api::Runtime), "CreateContainer") => &CREATE_CONTAINER,
        (Some(Api::Runtime), "StopContainer") => &STOP_CONTAINER,
        (
            Some(Api::Runtime),
            "StartContainer"
            | "RemoveContainer"
            | "ContainerStatus"
            | "UpdateContainerResources"
            | "ReopenContainerLog"
            | "Exec"
            | "Attach"
            | "ContainerStats"
            | "CheckpointContainer",
        ) => &CONTAINER_ID,
        (Some(Api::Runtime), "ExecSync") => &EXEC_SYNC,
        (Some(Api::Runtime), "ListContainers") => &LIST_CONTAINERS,
        (Some(Api::Image), "PullImage") => &PULL_IMAGE,
        (Some(Api::Image), "ImageStatus" | "RemoveImage") => &IN_IMAGE_SPEC,
        (Some(Api::Task), "Create") => &TASK_CREATE,
        (Some(Api::Task), "Start" | "Delete" | "Exec" | "Wait" | "State" | "ResizePty" | "CloseIO") => &TASK_AND_EXEC,
        (Some(Api::Task), "Kill") => &TASK_KILL,
        (Some(Api::Task), "Pids" | "Pause" | "Resume" | "Checkpoint" | "Update" | "Stats" | "Connect" | "Shutdown") => {
            &TASK
        }
        (Some(Api::Sandbox), "CreateSandbox") => &SHIM_SANDBOX_CREATE,
        (Some(Api::Sandbox), _) => &SANDBOX_ID,
        (Some(Api::Events), "Forward") => &FORWARD,
        _ => &NOTHING,
    }
}

/// What is read of a response.
pub fn response(service: &str, method: &str) -> &'static Allow {
    match (api(service), method) {
        (Some(Api::Runtime), "Version") => &VERSION_REPLY,
        (Some(Api::Runtime), "RunPodSandbox") => &SANDBOX_ID,
        (Some(Api::Runtime), "PodSandboxStatus") => &SANDBOX_STATUS_REPLY,
        (Some(Api::Runtime), "ListPodSandbox") => &LIST_SANDBOX_REPLY,
        (Some(Api::Runtime), "CreateContainer") => &CONTAINER_ID,
        (Some(Api::Runtime), "ContainerStatus") => &CONTAINER_STATUS_REPLY,
        (Some(Api::Runtime), "ListContainers") => &LIST_CONTAINERS_REPLY,
        (Some(Api::Runtime), "ExecSync") => &EXEC_SYNC_REPLY,
        (Some(Api::Runtime), "GetContainerEvents") => &CONTAINER_EVENT,
        (Some(Api::Image), "PullImage") => &IMAGE_REF,
        (Some(Api::Image), "ImageStatus") => &IMAGE_STATUS_REPLY,
        (Some(Api::Task), "Create" | "Start") => &TASK_PID,
        (Some(Api::Task), "Delete") => &TASK_DELETE_REPLY,
        (Some(Api::Task), "Wait") => &TASK_WAIT_REPLY,
        (Some(Api::Task), "State") => &TASK_STATE_REPLY,
        (Some(Api::Task), "Connect") => &TASK_CONNECT_REPLY,
        (Some(Api::Task), "Events") => &ENVELOPE,
        (Some(Api::Sandbox), "StartSandbox") => &TASK_PID,
        (Some(Api::Sandbox), "WaitSandbox") => &TASK_WAIT_REPLY,
        _ => &NOTHING,
    }
}

/// Whether a method may answer with more than one message, so that a status other than OK can follow a message.
pub fn streams(service: &str, method: &str) -> bool {
    match api(service) {
        Some(Api::Runtime | Api::Image) => method == "GetContainerEvents" || method.starts_with("Stream"),
        Some(Api::Task) => method == "Events",
        Some(Api::Sandbox | Api::Events) => false,
        None => !service.is_empty(),
    }
}

/// What is read of the message that an `Any` of this type URL holds.
pub fn any(type_url: &str) -> &'static Allow {
    match type_url.rsplit('/').next() {
        Some("containerd.events.TaskCreate") => &EVENT_CREATE,
        Some("containerd.events.TaskStart") => &EVENT_START,
        Some("containerd.events.TaskExit") => &EVENT_EXIT,
        Some("containerd.events.TaskDelete") => &EVENT_DELETE,
        Some("containerd.events.TaskExecAdded" | "containerd.events.TaskExecStarted") => &EVENT_EXEC,
        Some("containerd.events.TaskOOM" | "containerd.events.TaskPaused" | "containerd.events.TaskResumed") => &TASK,
        _ => &NOTHING,
    }
}
