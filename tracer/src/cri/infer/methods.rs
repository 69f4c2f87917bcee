//! The methods of the CRI: the form of their messages, what their success needs and gives, and what no other API has.
//!
//! Source: kubernetes/cri-api `api.proto` up to 1.36 and its main branch; for what success needs and gives, also
//! containerd `internal/cri/server` and CRI-O `server`.

use super::messages as m;
use super::set::Set;
use super::shape::Shape;

/// Where in a message a field stands: field numbers from the outside in, the rest 0.
pub(super) type Path = [u8; 4];

/// What a method's id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Sandbox,
    Container,
}

/// Fields that together no other gRPC API on a runtime's socket is known to have (containerd `api/services`).
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) request: &'static [Path],
    pub(super) response: &'static [Path],
}

/// What is known of a method.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Of ImageService, not RuntimeService.
    pub(super) image: bool,
    /// What the id in field 1 of its request names.
    pub(super) object: Option<Object>,
    pub(super) request: &'static Shape,
    pub(super) response: &'static Shape,
    /// Fields of the request without which no runtime says OK.
    pub(super) needs: &'static [u8],
    /// Fields that its response has when it is OK.
    pub(super) gives: &'static [u8],
    /// Its response may be any number of messages.
    pub(super) streams: bool,
    pub(super) proofs: &'static [Proof],
}

const fn p1(a: u8) -> Path {
    [a, 0, 0, 0]
}

const fn p2(a: u8, b: u8) -> Path {
    [a, b, 0, 0]
}

const fn p3(a: u8, b: u8, c: u8) -> Path {
    [a, b, c, 0]
}

const NO: &[Path] = &[];
const UNPROVEN: &[Proof] = &[];
const SANDBOX_ITEM: &[Proof] =
    &[Proof { request: NO, response: &[p2(1, 1), p3(1, 2, 1), p3(1, 2, 2), p3(1, 2, 3), p2(1, 4)] }];
const CONTAINER_ITEM: &[Proof] =
    &[Proof { request: NO, response: &[p2(1, 1), p2(1, 2), p3(1, 3, 1), p3(1, 4, 1), p2(1, 7)] }];
const STATS_ITEM: &[Proof] = &[
    Proof { request: NO, response: &[p3(1, 1, 1), [1, 1, 2, 1], p3(1, 2, 1), p3(1, 2, 2)] },
    Proof { request: NO, response: &[p3(1, 1, 1), [1, 1, 2, 1], p2(1, 4)] },
];
const POD_STATS_ITEM: &[Proof] =
    &[Proof { request: NO, response: &[p3(1, 1, 1), [1, 1, 2, 1], [1, 1, 2, 2], [1, 1, 2, 3]] }];
const METRICS_ITEM: &[Proof] = &[
    Proof { request: NO, response: &[p2(1, 1), p3(1, 2, 1), p3(1, 2, 2)] },
    Proof { request: NO, response: &[p2(1, 1), p3(1, 3, 1), [1, 3, 2, 1]] },
];
const IMAGE_ITEM: &[Proof] = &[Proof { request: NO, response: &[p2(1, 1), p2(1, 4)] }];
const RESOURCES: &[Proof] = &[
    Proof { request: &[p1(1), p2(2, 1)], response: NO },
    Proof { request: &[p1(1), p2(2, 2)], response: NO },
    Proof { request: &[p1(1), p2(2, 3)], response: NO },
    Proof { request: &[p1(1), p2(2, 4)], response: NO },
];

macro_rules! methods {
    ($($method:ident $image:literal $object:expr, $request:ident $response:ident $needs:expr, $gives:expr,
       $streams:literal $proofs:expr;)*) => {
        /// A method of the CRI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Method { $($method,)* }

        /// All of them, in the enum's order.
        static TABLE: &[Entry] = &[$(Entry {
            name: stringify!($method),
            image: $image,
            object: $object,
            request: &m::$request,
            response: &m::$response,
            needs: $needs,
            gives: $gives,
            streams: $streams,
            proofs: $proofs,
        },)*];

        const ALL: &[Method] = &[$(Method::$method,)*];
    };
}

const S: Option<Object> = Some(Object::Sandbox);
const C: Option<Object> = Some(Object::Container);
const N: Option<Object> = None;

methods! {
    Version false N, VERSION VERSION_REPLY &[], &[1], false
        &[Proof { request: NO, response: &[p1(1), p1(2), p1(3), p1(4)] }];
    RunPodSandbox false N, RUN_SANDBOX ID &[1], &[1], false
        &[Proof { request: &[p3(1, 1, 1), p3(1, 1, 2), p3(1, 1, 3)], response: NO }];
    StopPodSandbox false S, ID NOTHING &[1], &[], false UNPROVEN;
    RemovePodSandbox false S, ID NOTHING &[1], &[], false UNPROVEN;
    PodSandboxStatus false S, ID_VERBOSE SANDBOX_STATUS_REPLY &[1], &[1], false SANDBOX_ITEM;
    ListPodSandbox false N, LIST_SANDBOX LIST_SANDBOX_REPLY &[], &[], false SANDBOX_ITEM;
    StreamPodSandboxes false N, LIST_SANDBOX LIST_SANDBOX_REPLY &[], &[1], true SANDBOX_ITEM;
    CreateContainer false S, CREATE_CONTAINER ID &[1, 2], &[1], false
        &[Proof { request: &[p1(1), p3(2, 1, 1), p3(2, 2, 1)], response: NO }];
    StartContainer false C, ID NOTHING &[1], &[], false UNPROVEN;
    StopContainer false C, ID_VERBOSE NOTHING &[1], &[], false UNPROVEN;
    RemoveContainer false C, ID NOTHING &[1], &[], false UNPROVEN;
    ListContainers false N, LIST_CONTAINERS LIST_CONTAINERS_REPLY &[], &[], false CONTAINER_ITEM;
    StreamContainers false N, LIST_CONTAINERS LIST_CONTAINERS_REPLY &[], &[1], true CONTAINER_ITEM;
    ContainerStatus false C, ID_VERBOSE CONTAINER_STATUS_REPLY &[1], &[1], false
        &[Proof { request: NO, response: &[p2(1, 1), p3(1, 2, 1), p2(1, 4)] }];
    UpdateContainerResources false C, UPDATE_CONTAINER NOTHING &[1], &[], false RESOURCES;
    ReopenContainerLog false C, ID NOTHING &[1], &[], false UNPROVEN;
    ExecSync false C, EXEC_SYNC EXEC_SYNC_REPLY &[1, 2], &[], false &[
        Proof { request: &[p1(1), p1(2), p1(3)], response: &[p1(1)] },
        Proof { request: &[p1(1), p1(2), p1(3)], response: &[p1(3)] },
    ];
    Exec false C, EXEC URL &[1, 2], &[1], false &[
        Proof { request: &[p1(1), p1(2), p1(4)], response: &[p1(1)] },
        Proof { request: &[p1(1), p1(2), p1(5)], response: &[p1(1)] },
        Proof { request: &[p1(1), p1(2), p1(6)], response: &[p1(1)] },
    ];
    Attach false C, ATTACH URL &[1], &[1], false &[Proof { request: &[p1(1), p1(4)], response: &[p1(1)] }];
    PortForward false S, PORT_FORWARD URL &[1], &[1], false UNPROVEN;
    ContainerStats false C, ID CONTAINER_STATS_REPLY &[1], &[1], false STATS_ITEM;
    ListContainerStats false N, LIST_CONTAINER_STATS CONTAINER_STATS_REPLY &[], &[], false STATS_ITEM;
    StreamContainerStats false N, LIST_CONTAINER_STATS CONTAINER_STATS_REPLY &[], &[1], true STATS_ITEM;
    PodSandboxStats false S, ID POD_STATS_REPLY &[1], &[1], false POD_STATS_ITEM;
    ListPodSandboxStats false N, LIST_POD_STATS POD_STATS_REPLY &[], &[], false POD_STATS_ITEM;
    StreamPodSandboxStats false N, LIST_POD_STATS POD_STATS_REPLY &[], &[1], true POD_STATS_ITEM;
    UpdateRuntimeConfig false N, UPDATE_CONFIG NOTHING &[], &[], false UNPROVEN;
    Status false N, VERBOSE STATUS_REPLY &[], &[1], false
        &[Proof { request: NO, response: &[p3(1, 1, 1), p3(1, 1, 2)] }];
    CheckpointContainer false C, CHECKPOINT NOTHING &[1, 2], &[], false UNPROVEN;
    CheckpointPod false S, CHECKPOINT_POD NOTHING &[1, 2], &[], false UNPROVEN;
    RestorePod false N, RESTORE_POD ID &[1], &[1], false UNPROVEN;
    GetContainerEvents false N, NOTHING EVENT &[], &[1], true
        &[Proof { request: NO, response: &[p1(1), p1(3), p2(4, 1)] }];
    ListMetricDescriptors false N, NOTHING DESCRIPTORS_REPLY &[], &[], false UNPROVEN;
    ListPodSandboxMetrics false N, NOTHING POD_METRICS_REPLY &[], &[], false METRICS_ITEM;
    StreamPodSandboxMetrics false N, NOTHING POD_METRICS_REPLY &[], &[1], true METRICS_ITEM;
    RuntimeConfig false N, NOTHING CONFIG_REPLY &[], &[], false UNPROVEN;
    UpdatePodSandboxResources false S, UPDATE_SANDBOX NOTHING &[1], &[], false UNPROVEN;
    ListImages true N, LIST_IMAGES LIST_IMAGES_REPLY &[], &[], false IMAGE_ITEM;
    StreamImages true N, LIST_IMAGES LIST_IMAGES_REPLY &[], &[1], true IMAGE_ITEM;
    ImageStatus true N, IMAGE_STATUS IMAGE_STATUS_REPLY &[1], &[], false IMAGE_ITEM;
    PullImage true N, PULL_IMAGE PULL_IMAGE_REPLY &[1], &[1], false &[
        Proof { request: &[p2(1, 1), p3(3, 1, 1), p3(3, 1, 2), p3(3, 1, 3)], response: NO },
        Proof { request: &[p2(1, 1)], response: &[p1(1)] },
    ];
    RemoveImage true N, IN_IMAGE NOTHING &[1], &[], false UNPROVEN;
    ImageFsInfo true N, NOTHING FS_INFO_REPLY &[], &[], false
        &[Proof { request: NO, response: &[p2(1, 1), p3(1, 2, 1), p3(1, 3, 1)] }];
}

impl Method {
    /// All methods.
    pub(super) fn all() -> impl Iterator<Item = Method> {
        ALL.iter().copied()
    }

    /// The method of that name.
    pub(super) fn named(name: &str) -> Option<Method> {
        Method::all().find(|method| method.entry().name == name)
    }

    /// What is known of it.
    pub(super) fn entry(self) -> &'static Entry {
        // The table has the enum's order and length.
        &TABLE[self as usize]
    }

    /// It alone.
    pub(super) const fn set(self) -> Set {
        Set(1 << self as u32)
    }
}
