//! The forms of the CRI's messages, to the depth that tells them apart.
//!
//! Source: kubernetes/cri-api `pkg/apis/runtime/v1/api.proto`; `v1alpha2` has the same numbers, and fewer. What stands
//! deeper than the walk goes is [`ANY`].

use super::shape::Kind::{Id, Message, Number, Packed, Plain, Secret, Text};
use super::shape::Shape;

/// A message that is not looked into: no field of it is known, so none contradicts.
pub(super) static ANY: Shape = Shape(&[]);

static MAP: Shape = Shape(&[(1, Secret), (2, Secret)]);
static VALUE: Shape = Shape(&[(1, Number)]);

static POD_METADATA: Shape = Shape(&[(1, Plain), (2, Plain), (3, Plain), (4, Number)]);
static CONTAINER_METADATA: Shape = Shape(&[(1, Plain), (2, Number)]);
static IMAGE_SPEC: Shape = Shape(&[(1, Plain), (2, Message(&MAP)), (18, Plain), (19, Plain), (20, Plain)]);
static RESOURCES: Shape = Shape(&[
    (1, Number),
    (2, Number),
    (3, Number),
    (4, Number),
    (5, Number),
    (6, Secret),
    (7, Secret),
    (8, Message(&ANY)),
    (9, Message(&MAP)),
    (10, Number),
]);
static SANDBOX_LINUX: Shape =
    Shape(&[(1, Plain), (2, Message(&ANY)), (3, Message(&MAP)), (4, Message(&RESOURCES)), (5, Message(&RESOURCES))]);
static SANDBOX_CONFIG: Shape = Shape(&[
    (1, Message(&POD_METADATA)),
    (2, Secret),
    (3, Secret),
    (4, Message(&ANY)),
    (5, Message(&ANY)),
    (6, Message(&MAP)),
    (7, Message(&MAP)),
    (8, Message(&SANDBOX_LINUX)),
    (9, Message(&ANY)),
]);
static CONTAINER_CONFIG: Shape = Shape(&[
    (1, Message(&CONTAINER_METADATA)),
    (2, Message(&IMAGE_SPEC)),
    (3, Secret),
    (4, Secret),
    (5, Secret),
    (6, Message(&MAP)),
    (7, Message(&ANY)),
    (8, Message(&ANY)),
    (9, Message(&MAP)),
    (10, Message(&MAP)),
    (11, Secret),
    (12, Number),
    (13, Number),
    (14, Number),
    (15, Message(&ANY)),
    (16, Message(&ANY)),
    (17, Message(&ANY)),
    (18, Number),
]);

pub(super) static NOTHING: Shape = Shape(&[]);
pub(super) static ID: Shape = Shape(&[(1, Id)]);
pub(super) static ID_VERBOSE: Shape = Shape(&[(1, Id), (2, Number)]);
pub(super) static VERBOSE: Shape = Shape(&[(1, Number)]);

pub(super) static VERSION: Shape = Shape(&[(1, Plain)]);
pub(super) static VERSION_REPLY: Shape = Shape(&[(1, Plain), (2, Plain), (3, Plain), (4, Plain)]);
pub(super) static RUN_SANDBOX: Shape = Shape(&[(1, Message(&SANDBOX_CONFIG)), (2, Plain)]);

static SANDBOX_STATUS: Shape = Shape(&[
    (1, Id),
    (2, Message(&POD_METADATA)),
    (3, Number),
    (4, Number),
    (5, Message(&ANY)),
    (6, Message(&ANY)),
    (7, Message(&MAP)),
    (8, Message(&MAP)),
    (9, Plain),
]);
pub(super) static SANDBOX_STATUS_REPLY: Shape =
    Shape(&[(1, Message(&SANDBOX_STATUS)), (2, Message(&MAP)), (3, Message(&CONTAINER_STATUS)), (4, Number)]);
static SANDBOX_FILTER: Shape = Shape(&[(1, Id), (2, Message(&VALUE)), (3, Message(&MAP))]);
pub(super) static LIST_SANDBOX: Shape = Shape(&[(1, Message(&SANDBOX_FILTER))]);
static SANDBOX_ITEM: Shape = Shape(&[
    (1, Id),
    (2, Message(&POD_METADATA)),
    (3, Number),
    (4, Number),
    (5, Message(&MAP)),
    (6, Message(&MAP)),
    (7, Plain),
]);
pub(super) static LIST_SANDBOX_REPLY: Shape = Shape(&[(1, Message(&SANDBOX_ITEM))]);

pub(super) static CREATE_CONTAINER: Shape =
    Shape(&[(1, Id), (2, Message(&CONTAINER_CONFIG)), (3, Message(&SANDBOX_CONFIG))]);
static CONTAINER_FILTER: Shape = Shape(&[(1, Id), (2, Message(&VALUE)), (3, Id), (4, Message(&MAP))]);
pub(super) static LIST_CONTAINERS: Shape = Shape(&[(1, Message(&CONTAINER_FILTER))]);
static CONTAINER_ITEM: Shape = Shape(&[
    (1, Id),
    (2, Id),
    (3, Message(&CONTAINER_METADATA)),
    (4, Message(&IMAGE_SPEC)),
    (5, Plain),
    (6, Number),
    (7, Number),
    (8, Message(&MAP)),
    (9, Message(&MAP)),
    (10, Plain),
]);
pub(super) static LIST_CONTAINERS_REPLY: Shape = Shape(&[(1, Message(&CONTAINER_ITEM))]);
static CONTAINER_STATUS: Shape = Shape(&[
    (1, Id),
    (2, Message(&CONTAINER_METADATA)),
    (3, Number),
    (4, Number),
    (5, Number),
    (6, Number),
    (7, Number),
    (8, Message(&IMAGE_SPEC)),
    (9, Plain),
    (10, Secret),
    (11, Secret),
    (12, Message(&MAP)),
    (13, Message(&MAP)),
    (14, Message(&ANY)),
    (15, Secret),
    (16, Message(&ANY)),
    (17, Plain),
    (18, Message(&ANY)),
    (19, Number),
]);
pub(super) static CONTAINER_STATUS_REPLY: Shape = Shape(&[(1, Message(&CONTAINER_STATUS)), (2, Message(&MAP))]);
pub(super) static UPDATE_CONTAINER: Shape =
    Shape(&[(1, Id), (2, Message(&RESOURCES)), (3, Message(&ANY)), (4, Message(&MAP))]);
pub(super) static UPDATE_SANDBOX: Shape =
    Shape(&[(1, Id), (2, Message(&RESOURCES)), (3, Message(&RESOURCES)), (4, Message(&MAP))]);

pub(super) static EXEC_SYNC: Shape = Shape(&[(1, Id), (2, Secret), (3, Number)]);
pub(super) static EXEC_SYNC_REPLY: Shape = Shape(&[(1, Secret), (2, Secret), (3, Number)]);
pub(super) static EXEC: Shape = Shape(&[(1, Id), (2, Secret), (3, Number), (4, Number), (5, Number), (6, Number)]);
pub(super) static ATTACH: Shape = Shape(&[(1, Id), (2, Number), (3, Number), (4, Number), (5, Number)]);
/// A URL holds a token.
pub(super) static URL: Shape = Shape(&[(1, Text)]);
pub(super) static CHECKPOINT: Shape = Shape(&[(1, Id), (2, Secret), (3, Number)]);
/// Not released yet: the numbers that its proposals agree on.
pub(super) static CHECKPOINT_POD: Shape = Shape(&[(1, Id), (2, Secret), (3, Number), (4, Message(&MAP)), (5, Number)]);
pub(super) static RESTORE_POD: Shape = Shape(&[
    (1, Plain),
    (2, Message(&SANDBOX_CONFIG)),
    (3, Number),
    (4, Message(&MAP)),
    (5, Message(&CONTAINER_CONFIG)),
]);

static CPU: Shape = Shape(&[(1, Number), (2, Message(&VALUE)), (3, Message(&VALUE)), (4, Message(&ANY))]);
static MEMORY: Shape = Shape(&[
    (1, Number),
    (2, Message(&VALUE)),
    (3, Message(&VALUE)),
    (4, Message(&VALUE)),
    (5, Message(&VALUE)),
    (6, Message(&VALUE)),
    (7, Message(&VALUE)),
    (8, Message(&ANY)),
]);
static FS_ID: Shape = Shape(&[(1, Plain)]);
static FILESYSTEM: Shape = Shape(&[(1, Number), (2, Message(&FS_ID)), (3, Message(&VALUE)), (4, Message(&VALUE))]);
static CONTAINER_ATTRIBUTES: Shape =
    Shape(&[(1, Id), (2, Message(&CONTAINER_METADATA)), (3, Message(&MAP)), (4, Message(&MAP))]);
static CONTAINER_STATS: Shape = Shape(&[
    (1, Message(&CONTAINER_ATTRIBUTES)),
    (2, Message(&CPU)),
    (3, Message(&MEMORY)),
    (4, Message(&FILESYSTEM)),
    (5, Message(&ANY)),
    (6, Message(&ANY)),
]);
static CONTAINER_STATS_FILTER: Shape = Shape(&[(1, Id), (2, Id), (3, Message(&MAP))]);
pub(super) static LIST_CONTAINER_STATS: Shape = Shape(&[(1, Message(&CONTAINER_STATS_FILTER))]);
pub(super) static CONTAINER_STATS_REPLY: Shape = Shape(&[(1, Message(&CONTAINER_STATS))]);
static POD_ATTRIBUTES: Shape = Shape(&[(1, Id), (2, Message(&POD_METADATA)), (3, Message(&MAP)), (4, Message(&MAP))]);
static POD_STATS_LINUX: Shape = Shape(&[
    (1, Message(&CPU)),
    (2, Message(&MEMORY)),
    (3, Message(&ANY)),
    (4, Message(&ANY)),
    (5, Message(&CONTAINER_STATS)),
    (6, Message(&ANY)),
]);
static POD_STATS: Shape = Shape(&[(1, Message(&POD_ATTRIBUTES)), (2, Message(&POD_STATS_LINUX)), (3, Message(&ANY))]);
static POD_STATS_FILTER: Shape = Shape(&[(1, Id), (2, Message(&MAP))]);
pub(super) static LIST_POD_STATS: Shape = Shape(&[(1, Message(&POD_STATS_FILTER))]);
pub(super) static POD_STATS_REPLY: Shape = Shape(&[(1, Message(&POD_STATS))]);

static METRIC: Shape = Shape(&[(1, Plain), (2, Number), (3, Number), (4, Plain), (5, Message(&VALUE))]);
static CONTAINER_METRICS: Shape = Shape(&[(1, Id), (2, Message(&METRIC))]);
static POD_METRICS: Shape = Shape(&[(1, Id), (2, Message(&METRIC)), (3, Message(&CONTAINER_METRICS))]);
pub(super) static POD_METRICS_REPLY: Shape = Shape(&[(1, Message(&POD_METRICS))]);
static DESCRIPTOR: Shape = Shape(&[(1, Plain), (2, Plain), (3, Plain)]);
pub(super) static DESCRIPTORS_REPLY: Shape = Shape(&[(1, Message(&DESCRIPTOR))]);

pub(super) static EVENT: Shape =
    Shape(&[(1, Id), (2, Number), (3, Number), (4, Message(&SANDBOX_STATUS)), (5, Message(&CONTAINER_STATUS))]);

static CIDR: Shape = Shape(&[(1, Plain)]);
static NETWORK: Shape = Shape(&[(1, Message(&CIDR))]);
pub(super) static UPDATE_CONFIG: Shape = Shape(&[(1, Message(&NETWORK))]);
static CONDITION: Shape = Shape(&[(1, Plain), (2, Number), (3, Secret), (4, Secret)]);
static CONDITIONS: Shape = Shape(&[(1, Message(&CONDITION))]);
pub(super) static STATUS_REPLY: Shape =
    Shape(&[(1, Message(&CONDITIONS)), (2, Message(&MAP)), (3, Message(&ANY)), (4, Message(&ANY))]);
pub(super) static CONFIG_REPLY: Shape = Shape(&[(1, Message(&VALUE))]);

static IMAGE_FILTER: Shape = Shape(&[(1, Message(&IMAGE_SPEC))]);
pub(super) static LIST_IMAGES: Shape = Shape(&[(1, Message(&IMAGE_FILTER))]);
static IMAGE: Shape = Shape(&[
    (1, Id),
    (2, Plain),
    (3, Plain),
    (4, Number),
    (5, Message(&VALUE)),
    (6, Secret),
    (7, Message(&IMAGE_SPEC)),
    (8, Number),
]);
pub(super) static LIST_IMAGES_REPLY: Shape = Shape(&[(1, Message(&IMAGE))]);
pub(super) static IN_IMAGE: Shape = Shape(&[(1, Message(&IMAGE_SPEC))]);
pub(super) static IMAGE_STATUS: Shape = Shape(&[(1, Message(&IMAGE_SPEC)), (2, Number)]);
pub(super) static IMAGE_STATUS_REPLY: Shape = Shape(&[(1, Message(&IMAGE)), (2, Message(&MAP))]);
static AUTH: Shape = Shape(&[(1, Secret), (2, Secret), (3, Secret), (4, Secret), (5, Secret), (6, Secret)]);
pub(super) static PULL_IMAGE: Shape =
    Shape(&[(1, Message(&IMAGE_SPEC)), (2, Message(&AUTH)), (3, Message(&SANDBOX_CONFIG))]);
pub(super) static PULL_IMAGE_REPLY: Shape = Shape(&[(1, Id)]);
pub(super) static FS_INFO_REPLY: Shape = Shape(&[(1, Message(&FILESYSTEM)), (2, Message(&FILESYSTEM))]);

/// `repeated int32`, packed.
pub(super) static PORT_FORWARD: Shape = Shape(&[(1, Id), (2, Packed)]);
