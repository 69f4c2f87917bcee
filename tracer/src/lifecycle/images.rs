//! CreateContainerConfigError: kubelet finds the image of a container and then makes no container of it, again and again.
//!
//! A missing ConfigMap or Secret, a key that is not in it, runAsNonRoot with an image that runs as root: kubelet finds out
//! after ImageStatus and before CreateContainer (`startContainer` in pkg/kubelet/kuberuntime/kuberuntime_container.go: the
//! image, `generateContainerConfig`, the call), and begins with the image again at each try. No call says so, and
//! ImageStatus names no pod: it is a start's only where no other one could have asked.

use std::collections::{BTreeMap, VecDeque};

use super::Lifecycle;
use super::calls::Pull;
use super::start::{Call, Method, Start, Turnout};
use crate::cri::{CallEvent, CallKey, CallStart, Field, Fields, Protocol, schema};
use crate::ids::MonotonicNs;
use crate::trace::{StartKind, seconds};

/// Questions that are remembered.
const MAX_ASKED: usize = 256;
/// kubelet asks once or twice, and makes the container within milliseconds.
const MADE_NS: u64 = 5_000_000_000;
/// Two tries are further apart: a worker of a pod waits 10 s after an error, or is told of a change.
const APART_NS: u64 = 1_000_000_000;

/// An ImageStatus.
#[derive(Debug)]
struct Asked {
    key: CallKey,
    at: MonotonicNs,
    image: String,
    /// The image's id, where it is there.
    id: Option<String>,
    /// A container was made of it.
    made: bool,
}

/// The last questions for images, oldest first.
#[derive(Debug, Default)]
pub(super) struct Images(VecDeque<Asked>);

impl Images {
    /// A call begins, says what it is about, or is answered.
    pub(super) fn call(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Start(start) => self.start(start),
            CallEvent::Request { key, fields, .. } => self.request(*key, fields),
            CallEvent::Response { key, fields, .. } => self.response(*key, fields),
            CallEvent::Named(named) => {
                self.start(&named.start);
                named.request.iter().for_each(|(_, fields)| self.request(named.start.key, fields));
                named.response.iter().for_each(|(_, fields)| self.response(named.start.key, fields));
            }
            CallEvent::End { .. } | CallEvent::Unasked { .. } | CallEvent::Unnamed(_) | CallEvent::Undecoded { .. } => {
            }
        }
    }

    fn start(&mut self, start: &CallStart) {
        if start.protocol != Protocol::Grpc || start.method != "ImageStatus" || !schema::is_image(&start.service) {
            return;
        }
        if self.0.len() >= MAX_ASKED {
            self.0.pop_front();
        }
        // A name that came late takes its place among the others.
        let place = self.0.partition_point(|asked| asked.at <= start.at);
        self.0.insert(place, Asked { key: start.key, at: start.at, image: String::new(), id: None, made: false });
    }

    fn request(&mut self, key: CallKey, fields: &Fields) {
        if let Some(asked) = self.find(key) {
            asked.image = fields.text(Field::Image).unwrap_or_default().to_owned();
        }
    }

    fn response(&mut self, key: CallKey, fields: &Fields) {
        if let Some(asked) = self.find(key) {
            asked.id = fields.text(Field::ImageRef).filter(|id| !id.is_empty()).map(str::to_owned);
        }
    }

    fn find(&mut self, key: CallKey) -> Option<&mut Asked> {
        self.0.iter_mut().rev().find(|asked| asked.key == key)
    }

    /// A container is made of an image, which has one of several names: that is what was asked for just before.
    pub(super) fn made(&mut self, at: MonotonicNs, image: Option<&str>) {
        let before = |asked: &Asked| asked.at <= at && at.since(asked.at) <= MADE_NS && !asked.made;
        let same = |asked: &Asked| Some(asked.image.as_str()) == image || asked.id.as_deref() == image;
        let known = self.0.iter().any(|asked| before(asked) && same(asked));
        for asked in self.0.iter_mut().filter(|asked| before(asked)) {
            asked.made = !known || same(asked);
        }
    }

    /// Images that are there, that were asked for at two tries or more since then, and of which no container was made:
    /// how often, and when last.
    fn in_vain(&self, since: MonotonicNs) -> BTreeMap<&str, (u64, MonotonicNs)> {
        let mut images: BTreeMap<&str, (u64, MonotonicNs, MonotonicNs)> = BTreeMap::new();
        let there = |asked: &&Asked| asked.at >= since && !asked.made && asked.id.is_some();
        for asked in self.0.iter().filter(there) {
            let known = images.entry(&asked.image).or_insert((0, asked.at, asked.at));
            (known.0, known.2) = (known.0 + 1, asked.at);
        }
        let again = images.into_iter().filter(|(_, (_, first, last))| last.since(*first) >= APART_NS);
        again.map(|(image, (count, _, last))| (image, (count, last))).collect()
    }
}

impl Lifecycle {
    /// How long a start that takes long waits for a CreateContainer, and on what that rests, where it can be known.
    pub(super) fn no_container_made(&self, start: &Start) -> Option<(u64, Vec<String>)> {
        let ready = ready_for_a_container(start)?;
        // Who else waits may be the one that asked, and what is pulled may be what it waits for.
        let others = self.starts.values().filter(|other| ready_for_a_container(other).is_some()).count();
        let failed = |call: &Call| matches!(call.turnout(), Some(Turnout::Bad { .. }));
        let own = |pull: &&Pull| pull.uid.is_none() || pull.uid == start.pod.uid;
        let pulls = self.pulls.iter().filter(own).map(|pull| &pull.call);
        let pull_failed = pulls.filter(|call| call.start.at >= ready).any(failed);
        // A call without a name may be the one that is missed.
        let nameless = self.losses.nameless > start.losses.nameless || !self.unread.is_empty();
        let unnamed = start.calls.iter().chain(&start.asides).any(|call| !call.candidates.is_empty());
        if others > 1 || self.queue.is_any_open() || pull_failed || nameless || unnamed {
            return None;
        }
        let asked = self.images.in_vain(ready);
        if asked.is_empty() {
            return None;
        }
        let waits = self.now.since(ready);
        let mut evidence = vec![format!("the sandbox is ready for {}", seconds(waits))];
        evidence.extend(asked.iter().map(|(image, (count, last))| {
            let ago = seconds(self.now.since(*last));
            format!("ImageStatus of {image} was asked {count} times since, last {ago} ago, and found it; no container was made of it")
        }));
        evidence.push("no PullImage is open or failed".to_owned());
        Some((waits, evidence))
    }
}

/// Since when a start has a sandbox and no container, and waits for no call.
fn ready_for_a_container(start: &Start) -> Option<MonotonicNs> {
    let idle = start.calls.iter().all(|call| call.turnout() == Some(Turnout::Good));
    let waits = start.kind == StartKind::Pod && start.containers.is_empty() && start.stopped.is_none();
    if start.state.is_over() || !waits || !idle {
        return None;
    }
    let made = start.calls.iter().find(|call| call.method == Method::RunPodSandbox)?;
    made.end.as_ref().map(|(at, _)| *at)
}
