//! Identities in the paths of cgroups and bundles.

use crate::ids::{ContainerId, PodUid};

/// What a path says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathIds {
    /// From a `pod<uid>` directory or a `…-pod<uid>.slice` (dashes written as underscores).
    pub(super) uid: Option<PodUid>,
    /// From a directory or scope named after a container.
    pub(super) container: Option<ContainerId>,
    /// The container's directory is the last one: the path is the container's own cgroup.
    pub(super) own: bool,
}

/// Reads a cgroup path of kubelet and the runtimes: `kubepods/burstable/pod<uid>/<id>` with cgroupfs,
/// `kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope` with systemd.
pub(super) fn cgroup_ids(path: &str) -> PathIds {
    let mut ids = PathIds::default();
    for component in path.split('/').filter(|c| !c.is_empty()) {
        ids.own = false;
        if let Some(uid) = pod_uid(component) {
            // A container above a pod is a node in a container.
            (ids.uid, ids.container) = (Some(uid), None);
        } else if let Some(id) = container_id(component) {
            ids.container = Some(id);
            ids.own = true;
        }
    }
    ids
}

/// The id in one directory name of a cgroup: 64 hex digits, alone or after a prefix such as `cri-containerd-`.
pub(crate) fn container_id(component: &str) -> Option<ContainerId> {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    let id = name.rsplit(['-', ':']).next().unwrap_or(name);
    // conmon has a scope of its own beside its container's.
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) && !name.contains("conmon");
    is_id.then(|| ContainerId(id.to_owned()))
}

/// The container id in a bundle path: a directory named after it.
pub(super) fn path_container(path: &str) -> Option<ContainerId> {
    path.split('/').rev().find(|c| c.len() == 64).and_then(container_id)
}

/// `guaranteed`, `burstable` or `besteffort`, from a pod's cgroup parent.
pub(crate) fn qos(parent: &str) -> Option<&'static str> {
    ["burstable", "besteffort"].into_iter().find(|class| parent.contains(class)).or_else(|| {
        // Guaranteed pods are directly below kubepods.
        parent.contains("kubepods").then_some("guaranteed")
    })
}

/// The UID in one directory name of a cgroup.
pub(crate) fn pod_uid(component: &str) -> Option<PodUid> {
    let uid = match component.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| uid.replace('_', "-")),
        None => component.strip_prefix("pod").map(str::to_owned),
    }?;
    // A UUID, or 32 hex digits without dashes for mirror pods; not `podman` or `podlapse-node`.
    let plausible = uid.len() >= 8 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    plausible.then_some(PodUid(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_drivers() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11";
        let expect = |own| PathIds { uid: Some(PodUid(uid.into())), container: Some(ContainerId(id.clone())), own };
        assert_eq!(cgroup_ids(&format!("/kubepods/burstable/pod{uid}/{id}")), expect(true));
        assert_eq!(cgroup_ids(&format!("/kubepods/burstable/pod{uid}/{id}/init.scope")), expect(false));
        let under = uid.replace('-', "_");
        let slice = format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{under}.slice");
        assert_eq!(cgroup_ids(&format!("{slice}/cri-containerd-{id}.scope")), expect(true));
        assert_eq!(cgroup_ids(&slice).container, None);
        assert_eq!(cgroup_ids(&format!("/docker/{id}/kubelet/kubepods/pod{uid}")).container, None);
        assert_eq!(cgroup_ids("/podlapse-node-1/kubepods").uid, None);
        assert_eq!(cgroup_ids("/system.slice/podman.service"), PathIds::default());
        assert_eq!(cgroup_ids(&format!("/crio-conmon-{id}.scope")).container, None);
    }

    #[test]
    fn bundles() {
        let id = "0123456789abcdef".repeat(4);
        let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/rootfs");
        assert_eq!(path_container(&path), Some(ContainerId(id)));
        assert_eq!(path_container("/run/containerd/rootfs"), None);
    }

    #[test]
    fn classes() {
        assert_eq!(qos("/kubepods/burstable/podx"), Some("burstable"));
        assert_eq!(qos("/kubepods.slice/kubepods-pod1.slice"), Some("guaranteed"));
        assert_eq!(qos("/own"), None);
    }
}
