//! Image pulls: which start a pull is part of.

use super::super::start::Method;
use super::super::{Lifecycle, MAX_SMALL, StartKey};
use super::{About, Pull, new_call, text};
use crate::cri::{CallStart, Field, Fields};
use crate::ids::PodUid;

impl Lifecycle {
    pub(super) fn pull_image(&mut self, call: CallStart, fields: &Fields) -> About {
        let (image, uid) = (text(fields, Field::Image), text(fields, Field::PodUid).map(PodUid));
        if let Some(key) = uid.as_ref().and_then(|uid| self.start_of_pod(uid)) {
            return self.join(key, Method::PullImage, call, None, image);
        }
        if self.pulls.len() >= MAX_SMALL {
            self.pulls.remove(0);
            self.losses.evicted += 1;
        }
        self.pulls.push(Pull { call: new_call(Method::PullImage, call, None, image), uid });
        About::Pull
    }

    /// Pulls of a new container's image that began after its pod's start, and of no other pod, are part of the start.
    pub(super) fn adopt_pulls(&mut self, key: StartKey, image: Option<&str>) {
        let (Some(image), Some(start)) = (image, self.starts.get_mut(&key)) else { return };
        let begin = start.begin;
        let fits = |pull: &mut Pull| {
            let same_image = pull.call.image.as_deref() == Some(image) || pull.call.image_ref.as_deref() == Some(image);
            let same_pod = pull.uid.is_none() || pull.uid == start.pod.uid;
            same_image && same_pod && pull.call.start.at >= begin && pull.call.end.is_some()
        };
        let calls = self.pulls.extract_if(.., fits).map(|pull| pull.call).collect::<Vec<_>>();
        start.calls.extend(calls);
    }
}
