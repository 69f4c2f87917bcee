//! What a histogram is about, also as the tag of a log's line.

use std::fmt::Write;

use crate::trace::Trace;

/// What a table is broken down by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// CNI plugin; only their stages.
    Plugin,
    /// Runtime handler.
    Handler,
    /// The pod's namespace.
    Namespace,
    /// The container's image; only the stages of containers.
    Image,
}

impl By {
    /// All of them.
    pub const ALL: [By; 4] = [By::Plugin, By::Handler, By::Namespace, By::Image];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            By::Plugin => "plugin",
            By::Handler => "handler",
            By::Namespace => "namespace",
            By::Image => "image",
        }
    }

    /// Whether it has to be part of the keys; the others are in each key.
    pub fn is_kept(self) -> bool {
        matches!(self, By::Namespace | By::Image)
    }
}

/// What one histogram is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// A stage of the registry, or [`super::START`].
    pub stage: String,
    /// How the starts ended.
    pub outcome: String,
    /// Runtime handler; absent is the default one, or one that was not seen.
    pub handler: Option<String>,
    /// Namespace or image, where that was asked for and is known.
    pub group: Option<String>,
}

impl Key {
    pub(super) fn of(trace: &Trace, stage: &str, group: &Option<String>) -> Key {
        Key {
            stage: stage.to_owned(),
            outcome: trace.outcome.name().to_owned(),
            handler: trace.pod.runtime_handler.clone(),
            group: group.clone(),
        }
    }

    /// `stage=…;outcome=…`, with all that a tag may not hold as `%XX`.
    pub(super) fn tag(&self, by: Option<By>) -> String {
        let mut tag = format!("stage={};outcome={}", escape(&self.stage), escape(&self.outcome));
        let more = [("handler", &self.handler), (by.map_or("", By::name), &self.group)];
        for (name, value) in more.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            let _ = write!(tag, ";{name}={}", escape(value));
        }
        tag
    }

    /// The key that a tag stands for; fields that a later version adds are ignored.
    pub(super) fn parse(tag: &str, by: Option<By>) -> Option<Key> {
        let field = |name: &str| {
            let field = tag.split(';').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            field.map(unescape)
        };
        let optional = |name: &str| field(name).map_or(Some(None), |value| value.map(Some));
        Some(Key {
            stage: field("stage")??,
            outcome: field("outcome")??,
            handler: optional("handler")?,
            group: by.map_or(Some(None), |by| optional(by.name()))?,
        })
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'/' | b':' | b'@' => out.push(byte.into()),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}
