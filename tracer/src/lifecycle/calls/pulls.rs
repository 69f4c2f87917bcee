//! Image pulls: which start a pull is part of.
//!
//! kubelet names the pod in the pull's sandbox_config. A pull that names none (crictl's) is joined by image and time,
//! to one start alone; where another one could be meant as well, that is noted.

use super::super::start::{Method, Start};
use super::super::{Lifecycle, MAX_SMALL, StartKey};
use super::{About, Pull, new_call, text};
use crate::cri::{CallStart, Field, Fields};
use crate::ids::{MonotonicNs, PodUid};
use crate::trace::StartKind;

impl Lifecycle {
    pub(super) fn pull_image(&mut self, call: CallStart, fields: &Fields) -> About {
        let (image, uid) = (text(fields, Field::Image), text(fields, Field::PodUid).map(PodUid));
        // A container's start has its pull behind it.
        let open = |start: &Start| {
            let began = start.begin <= call.at && start.takes(call.at);
            start.kind == StartKind::Pod && start.pod.uid == uid && began
        };
        let key = self.starts.iter().rev().find(|(_, start)| uid.is_some() && open(start)).map(|(key, _)| *key);
        if let Some(key) = key {
            let about = self.join(key, Method::PullImage, call, None, image);
            self.queue_of(key);
            return about;
        }
        if self.pulls.len() >= MAX_SMALL {
            self.pulls.remove(0);
            self.losses.evicted += 1;
        }
        self.pulls.push(Pull { call: new_call(Method::PullImage, call, None, image), uid });
        About::Pull
    }

    /// What the pulls of a start waited for.
    fn queue_of(&mut self, key: StartKey) {
        if let Some(start) = self.starts.get_mut(&key) {
            let pulls = start.calls.iter().filter(|call| call.method == Method::PullImage);
            start.queued = pulls.flat_map(|call| self.queue.before(start, call.key.conn, call.start.at)).collect();
        }
    }

    /// Pulls of a new container's image that are over, of its pod or of no named one, become part of the start.
    pub(super) fn adopt_pulls(&mut self, key: StartKey, image: Option<&str>) {
        let (Some(image), Some(start)) = (image, self.starts.get_mut(&key)) else { return };
        let (begin, kind, settle) = (start.begin, start.kind, self.config.settle_ns);
        let fits = |pull: &mut Pull| {
            let same_image = pull.call.image.as_deref() == Some(image) || pull.call.image_ref.as_deref() == Some(image);
            let named = pull.uid.is_some() && pull.uid == start.pod.uid;
            let Some(end) = pull.call.end.as_ref().map(|(at, _)| *at) else { return false };
            same_image
                && match kind {
                    StartKind::Pod => (named || pull.uid.is_none()) && pull.call.start.at >= begin,
                    // It came just before the CreateContainer with which a container's start begins.
                    StartKind::Container => named && begin.since(end) <= settle,
                }
        };
        let pulls = self.pulls.extract_if(.., fits).collect::<Vec<_>>();
        if kind == StartKind::Container {
            start.begin = pulls.iter().map(|pull| pull.call.start.at).min().unwrap_or(begin);
        }
        let unnamed = pulls.iter().filter(|pull| pull.uid.is_none());
        let shared =
            unnamed.filter(|pull| self.starts.values().filter(|start| was_open(start, pull.call.start.at)).count() > 1);
        let shared = shared.count() > 0;
        let Some(start) = self.starts.get_mut(&key) else { return };
        start.calls.extend(pulls.into_iter().map(|pull| pull.call));
        if shared {
            start.notes.insert(format!("pull_names_no_pod: {image} may have been pulled for another"));
        }
    }
}

fn was_open(start: &Start, at: MonotonicNs) -> bool {
    start.kind == StartKind::Pod && start.begin <= at && start.end.is_none_or(|end| end >= at)
}
