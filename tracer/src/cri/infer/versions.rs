//! What a runtime's version does not have: a call that succeeded there is no method of a later one.
//!
//! Sources: kubernetes/cri-api, when each method came; the cri-api that a runtime's release is built with, taken
//! generously; containerd `pkg/cri/server/container_checkpoint.go` of 1.7 (not implemented).

use super::conns::Package;
use super::methods::Method;
use super::set::Set;

/// The Kubernetes minor version with which a method came.
fn since(method: Method) -> u32 {
    match method {
        Method::CheckpointContainer | Method::GetContainerEvents => 25,
        Method::ListMetricDescriptors | Method::ListPodSandboxMetrics => 26,
        Method::RuntimeConfig => 28,
        Method::UpdatePodSandboxResources => 33,
        Method::StreamPodSandboxes
        | Method::StreamContainers
        | Method::StreamContainerStats
        | Method::StreamPodSandboxStats
        | Method::StreamPodSandboxMetrics
        | Method::StreamImages => 36,
        Method::CheckpointPod | Method::RestorePod => 38,
        _ => 0,
    }
}

/// Methods that the runtime of this name and version does not have.
pub(super) fn absent(name: &str, version: &str) -> Set {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '~', '+']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return Set::EMPTY };
    let newest = match (name, major, minor) {
        ("containerd", 1, ..=5) => 22,
        ("containerd", 1, 6) => 26,
        ("containerd", 1, 7) => 29,
        ("containerd", 2, 0) => 32,
        ("containerd", 2, 1) => 34,
        ("containerd", 2, 2) => 35,
        // CRI-O follows Kubernetes' numbers; a release may have been built with the next API.
        ("cri-o", 1, minor) => minor + 1,
        _ => return Set::EMPTY,
    };
    let later = Set::of(|method| since(method) > newest);
    match (name, major) {
        ("containerd", 1) => later.or(Method::CheckpointContainer.set()),
        _ => later,
    }
}

/// Methods that a version of the API does not have.
pub(super) fn not_in(package: Package) -> Set {
    match package {
        Package::V1 => Set::EMPTY,
        Package::V1Alpha2 => Set::of(|method| since(method) > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_release_does_not_have() {
        let lacks = |name, version, method: Method| absent(name, version).meets(method.set());
        for (name, version, method, expected) in [
            ("containerd", "1.6.20~ds1", Method::RuntimeConfig, true),
            ("containerd", "1.7.24~ds1", Method::RuntimeConfig, false),
            ("containerd", "v1.7.27", Method::CheckpointContainer, true),
            ("containerd", "2.1.9", Method::CheckpointContainer, false),
            ("containerd", "2.1.9", Method::StreamImages, true),
            ("containerd", "2.3.0", Method::StreamImages, false),
            ("containerd", "main", Method::StreamImages, false),
            ("cri-o", "1.34.1", Method::StreamImages, true),
            ("cri-o", "1.35.0-dev", Method::StreamImages, false),
            ("other", "1.0.0", Method::StreamImages, false),
        ] {
            assert_eq!(lacks(name, version, method), expected, "{name} {version} {method:?}");
        }
    }
}
