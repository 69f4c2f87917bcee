//! Volumes that kubelet mounts for a pod before its RunPodSandbox.

use super::Lifecycle;
use crate::ids::{MonotonicNs, PodUid};
use crate::record::Syscall;

/// Pods whose volumes are remembered, and volumes of each.
const MAX_PODS: usize = 256;
const MAX_VOLUMES: usize = 64;

/// One mount.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    /// `kubernetes.io~secret`, `kubernetes.io~csi`, …
    pub(super) plugin: String,
    pub(super) name: String,
    pub(super) enter: MonotonicNs,
    pub(super) exit: MonotonicNs,
    pub(super) errno: Option<i32>,
}

impl Lifecycle {
    /// A mount onto a volume of a pod that has not begun; false when it is none.
    pub(super) fn volume_mounted(&mut self, exit: MonotonicNs, syscall: &Syscall) -> bool {
        let Some((uid, plugin, name)) = volume(&syscall.strings[1]) else { return false };
        if self.start_of_pod(&uid).is_some() {
            return true;
        }
        if self.volumes.len() >= MAX_PODS && !self.volumes.contains_key(&uid) {
            self.volumes.pop_first();
            self.losses.evicted += 1;
        }
        let volumes = self.volumes.entry(uid).or_default();
        if volumes.len() >= MAX_VOLUMES {
            self.losses.evicted += 1;
            return true;
        }
        let (plugin, name) = (plugin.to_owned(), name.to_owned());
        volumes.push(Volume { plugin, name, enter: syscall.enter, exit, errno: syscall.errno() });
        true
    }
}

/// Pod, plugin and name in `…/pods/<uid>/volumes/<plugin>/<name>`, or in a path below it (kubelet
/// `pkg/kubelet/kubelet_getters.go`, `getPodVolumeDir`).
fn volume(path: &str) -> Option<(PodUid, &str, &str)> {
    let mut words = path.split('/');
    words.by_ref().find(|word| *word == "pods")?;
    let uid = words.next().filter(|uid| !uid.is_empty())?;
    words.next().filter(|word| *word == "volumes")?;
    let (plugin, name) = (words.next()?, words.next()?);
    let whole = plugin.contains('~') && !name.is_empty();
    whole.then(|| (PodUid(uid.to_owned()), plugin, name))
}

#[cfg(test)]
mod tests {
    use super::volume;

    #[test]
    fn paths_of_volumes() {
        let root = "/var/lib/kubelet/pods/9b0b4c27";
        let found = |path: String| volume(&path).map(|(uid, plugin, name)| format!("{uid} {plugin} {name}"));
        let secret = Some("9b0b4c27 kubernetes.io~secret token".to_owned());
        assert_eq!(found(format!("{root}/volumes/kubernetes.io~secret/token")), secret);
        let csi = Some("9b0b4c27 kubernetes.io~csi pv-1".to_owned());
        assert_eq!(found(format!("{root}/volumes/kubernetes.io~csi/pv-1/mount")), csi);
        assert_eq!(found(format!("{root}/volume-subpaths/v/app/0")), None);
        assert_eq!(found(format!("{root}/volumes/kubernetes.io~secret/")), None);
        assert_eq!(found("/data/pods/x/volumes/plain/name".to_owned()), None);
        assert_eq!(found("/run/containerd".to_owned()), None);
    }
}
