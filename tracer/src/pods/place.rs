//! Where a cgroup path is: below which pod, in which containers.

use crate::ids::{ContainerId, PodUid};
use crate::lifecycle::cgroup::{container_id, pod_uid};

/// What the directories of a cgroup path name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The innermost pod.
    pub(super) pod: Option<Named<PodUid>>,
    /// The containers that the path is in, the innermost last: a node in a container has pods of its own.
    pub(super) containers: Vec<Named<ContainerId>>,
}

/// An id, and the path as far as the directory that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named<T> {
    /// The id.
    pub(super) id: T,
    /// The path of the cgroup that is named after it.
    pub(super) path: String,
}

/// Reads a cgroup path of kubelet and the runtimes, with either cgroup driver.
pub(super) fn place(path: &str) -> Place {
    let mut place = Place::default();
    let mut end = 0;
    for component in path.split('/') {
        end += component.len();
        let path = || path[..end].to_owned();
        if let Some(id) = pod_uid(component) {
            place.pod = Some(Named { id, path: path() });
        } else if let Some(id) = container_id(component) {
            place.containers.push(Named { id, path: path() });
        }
        // The slash behind it.
        end += 1;
    }
    place
}

impl Place {
    /// The path of the cgroup that is named after a container.
    pub(super) fn of(&self, id: &ContainerId) -> Option<&str> {
        self.containers.iter().find(|named| named.id == *id).map(|named| named.path.as_str())
    }

    /// The pod's own container that the path is in: the outermost below the pod.
    pub(super) fn container(&self) -> Option<&Named<ContainerId>> {
        let pod = self.pod.as_ref()?;
        self.containers.iter().find(|named| named.path.len() > pod.path.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, pod: Option<&str>, container: Option<&str>, all: usize) {
        let place = place(path);
        assert_eq!(place.pod.as_ref().map(|named| named.path.as_str()), pod, "{path}");
        assert_eq!(place.container().map(|named| named.path.as_str()), container, "{path}");
        assert_eq!(place.containers.len(), all, "{path}");
    }

    #[test]
    fn paths_of_both_drivers_and_of_nodes_in_containers() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let uid = "9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11";
        let pod = format!("/kubepods/burstable/pod{uid}");
        let own = format!("{pod}/{a}");
        check(&pod, Some(&pod), None, 0);
        check(&own, Some(&pod), Some(&own), 1);
        check(&format!("{own}/init.scope"), Some(&pod), Some(&own), 1);
        // Containers that the pod's container runs.
        check(&format!("{own}/docker/{b}"), Some(&pod), Some(&own), 2);
        // A node in a container.
        let inner = format!("/docker/{b}{own}");
        check(&inner, Some(&format!("/docker/{b}{pod}")), Some(&inner), 2);
        // A node in a pod.
        check(&format!("{own}{own}/x"), Some(&format!("{own}{pod}")), Some(&format!("{own}{own}")), 2);
        let slice = format!("/kubepods.slice/kubepods-pod{}.slice", uid.replace('-', "_"));
        let scope = format!("{slice}/cri-containerd-{a}.scope");
        check(&scope, Some(&slice), Some(&scope), 1);
        assert_eq!(place(&scope).pod.unwrap().id.as_str(), uid);
        // Seen from a cgroup namespace beside it.
        check(&format!("/../..{own}"), Some(&format!("/../..{pod}")), Some(&format!("/../..{own}")), 1);
        check("/k8s.io", None, None, 0);
        check(&format!("/k8s.io/{a}"), None, None, 1);
        check("", None, None, 0);
    }
}
