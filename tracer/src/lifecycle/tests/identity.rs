//! Nothing is joined by a name that two have: UIDs and ids decide.

use super::containerd::{Pod, container, sandbox};
use super::dsl::{Item, Stream, id};
use super::render;
use crate::cri::{CallEvent, Field, Value};
use crate::engine::Config;

/// What a pod's start looks like when it is alone on the node.
fn alone(pod: &Pod) -> String {
    let mut s = Stream::new();
    start(&mut s, pod);
    s.tick(9_000_000);
    s.feed(Config::default()).iter().map(render::trace).collect()
}

fn start(s: &mut Stream, pod: &Pod) {
    sandbox(s, pod);
    container(s, pod, 80_000, "app", "/bin/app");
}

fn together(pods: &[(&Pod, u64)]) -> Vec<String> {
    let mut s = Stream::new();
    for (pod, offset) in pods {
        s.offset = *offset;
        start(&mut s, pod);
    }
    s.offset = 0;
    s.tick(20_000_000);
    s.feed(Config::default()).iter().map(render::trace).collect()
}

#[test]
fn two_pods_of_one_name() {
    let (one, two) = (Pod::new("web", "4", 4000), Pod::new("web", "5", 5000));
    let mut s = Stream::new();
    start(&mut s, &one);
    s.offset = 70;
    start(&mut s, &two);
    // The second one is in another namespace.
    let mut second = false;
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Request { fields, .. }) = item {
            second = fields.text(Field::PodUid).map_or(second, |uid| uid == two.uid);
            for (field, value) in fields.0.iter_mut().filter(|_| second) {
                if *field == Field::PodNamespace {
                    *value = Value::Text("other".to_owned());
                }
            }
        }
    }
    s.offset = 0;
    s.tick(9_000_000);
    let both: Vec<String> = s.feed(Config::default()).iter().map(render::trace).collect();
    assert_eq!(both, [alone(&one), alone(&two).replace("default/web", "other/web")]);
}

/// Deleted and made again at once: the name is the same, the UID is not.
#[test]
fn a_pod_that_comes_again() {
    let (old, new) = (Pod::new("web-0", "4", 4000), Pod::new("web-0", "5", 5000));
    assert_eq!(together(&[(&old, 0), (&new, 140_000)]), [alone(&old), alone(&new)]);
    // Before the old one is through, even.
    assert_eq!(together(&[(&old, 0), (&new, 100_000)]), [alone(&old), alone(&new)]);
}

#[test]
fn ids_that_begin_alike() {
    let (one, mut two) = (Pod::new("one", "4", 4000), Pod::new("two", "40", 5000));
    // All but the last digit.
    two.sandbox = format!("{}1", &one.sandbox[..63]);
    assert_eq!((&id("4a"), two.sandbox.len()), (&one.sandbox, 64));
    assert_eq!(together(&[(&one, 0), (&two, 50)]), [alone(&one), alone(&two)]);
}
