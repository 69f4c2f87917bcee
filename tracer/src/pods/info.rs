//! The `info` of a verbose CRI status: JSON of the runtime's own making, with a container's whole spec in it. Only the
//! keys that are named here become values; its environment and arguments do not.

use std::collections::HashMap;

use serde::de::{Deserialize, Deserializer, IgnoredAny};

/// What containerd and CRI-O say in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub(super) struct Info {
    /// Pid of the first process in the runtime's pid namespace; 0 for none.
    #[serde(deserialize_with = "lenient")]
    pub(super) pid: Option<u32>,
    /// Image reference of a sandbox.
    #[serde(deserialize_with = "lenient")]
    pub(super) image: Option<String>,
    #[serde(deserialize_with = "lenient")]
    config: Option<Config>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
struct Config {
    #[serde(default, deserialize_with = "lenient")]
    linux: Option<Linux>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
struct Linux {
    #[serde(default, deserialize_with = "lenient")]
    cgroup_parent: Option<String>,
}

impl Info {
    /// Reads the entry `info`; a runtime that has none, or another one, says nothing.
    pub(super) fn of(info: &HashMap<String, String>) -> Info {
        info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The pid, when there is a process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.filter(|pid| *pid != 0)
    }

    /// The cgroup parent that kubelet gave the sandbox.
    pub(super) fn cgroup_parent(self) -> Option<String> {
        self.config?.linux?.cgroup_parent.filter(|path| !path.is_empty())
    }
}

/// A value of another type than expected is none.
fn lenient<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Maybe<T> {
        Expected(T),
        Other(IgnoredAny),
    }
    Ok(match Maybe::deserialize(from)? {
        Maybe::Expected(value) => Some(value),
        Maybe::Other(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<u32>, Option<String>, Option<String>) {
        let info = Info::of(&HashMap::from([("info".to_owned(), text.to_owned())]));
        (info.pid(), info.image.clone(), info.cgroup_parent())
    }

    #[test]
    fn keys_of_the_list() {
        let text = r#"{"pid":42,"image":"pause:1","config":{"linux":{"cgroup_parent":"/p"},"envs":[{"key":"K","value":"SECRET"}]},
            "runtimeSpec":{"process":{"env":["K=SECRET"]}}}"#;
        assert_eq!(read(text), (Some(42), Some("pause:1".into()), Some("/p".into())));
        let info = Info::of(&HashMap::from([("info".to_owned(), text.to_owned())]));
        assert!(!format!("{info:?}").contains("SECRET"));
    }

    #[test]
    fn what_is_not_as_expected_is_none() {
        assert_eq!(read(r#"{"pid":0,"image":{"a":1},"config":{"linux":null}}"#), (None, None, None));
        assert_eq!(read(r#"{"pid":-1,"config":[]}"#), (None, None, None));
        assert_eq!(read(r#"{"pid":"7","image":"x"}"#), (None, Some("x".into()), None));
        for text in ["", "{", "[]", "7", r#"{"pid":4"#, r#"{"config":{"linux":{"cgroup_parent":""}}}"#] {
            assert_eq!(read(text), (None, None, None), "{text}");
        }
        assert_eq!(Info::of(&HashMap::new()), Info::default());
    }
}
