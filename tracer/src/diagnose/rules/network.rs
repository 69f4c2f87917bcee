//! The pod's networks: CNI plugins and what they ask.

use super::{CALL, Rule, Sign, Takes};
use crate::diagnose::case::{Case, named};

const fn says(reason: &'static str, texts: &'static [&'static [&'static str]]) -> Rule {
    Rule { reason, of: CALL, within: "sandbox", sign: failed, texts, takes: Takes::Text }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: "no_cni_config",
        of: CALL,
        within: "sandbox",
        sign: nothing_ran,
        texts: &[
            &["cni plugin not initialized"],
            &["cni config not initialized"],
            &["cni config uninitialized"],
            &["no cni configuration file in"],
        ],
        takes: Takes::Text,
    },
    Rule {
        reason: "plugin_missing",
        of: CALL,
        within: "sandbox",
        sign: never_ran,
        texts: &[&["failed to find plugin \"", "in path"]],
        takes: Takes::Either,
    },
    Rule { reason: "cni_killed", of: CALL, within: "sandbox", sign: killed, texts: &[], takes: Takes::Sign },
    says(
        "ipam_exhausted",
        &[
            &["no ip addresses available in range set"],
            &["no ip addresses available in network"],
            &["failed to assign an ip address to container"],
        ],
    ),
    says(
        "cni_daemon_not_ready",
        &[
            &["loadflannelsubnetenv failed"],
            &["open /run/flannel/subnet.env: no such file"],
            &["stat /var/lib/calico/nodename: no such file"],
        ],
    ),
    says("cni_auth_failed", &[&["connection is unauthorized"], &["plugin type=", ": unauthorized"]]),
    says(
        "cni_agent_down",
        &[
            &["unable to connect to cilium agent"],
            &["plugin type=", "dial unix", "connect: no such file or directory"],
            &["plugin type=", "dial unix", "connect: connection refused"],
            &["plugin type=", "dial tcp 127.0.0.1:", "connect: connection refused"],
        ],
    ),
    // libcni's, where what a plugin printed is no JSON.
    Rule {
        reason: "cni_bad_output",
        of: CALL,
        within: "sandbox",
        sign: |case| failed(case).or_else(|| blamed(case)),
        texts: &[
            &["netplugin failed: \""],
            &["invalid character '", "plugin type="],
            &["unexpected end of json input", "plugin type="],
        ],
        takes: Takes::Text,
    },
    Rule { reason: "cni_failed", of: CALL, within: "sandbox", sign: failed, texts: &[], takes: Takes::Sign },
];

/// The innermost plugin that failed: the one that it ran, where that failed too.
fn failed(case: &Case<'_>) -> Option<Sign> {
    let plugins = case.plugins();
    let failed = |process: &crate::trace::ProcessInfo| process.signal.is_none() && process.ended_badly();
    plugins.into_iter().rev().find(|(_, process)| failed(process)).map(Sign::ended)
}

/// The plugin that the text names, which ended well by itself.
fn blamed(case: &Case<'_>) -> Option<Sign> {
    let (_, rest) = case.symptom.message.split_once("plugin type=\"")?;
    let name = rest.split_once('"')?.0;
    case.plugins().into_iter().find(|(span, _)| span.name == name).map(Sign::ended)
}

fn killed(case: &Case<'_>) -> Option<Sign> {
    // A runtime whose time is up ends its plugins itself.
    let gave_up = case.call().is_some_and(|call| matches!(call.code, Some(1 | 4)));
    let plugins = case.plugins();
    plugins.into_iter().rev().find(|(_, process)| process.signal.is_some() && !gave_up).map(Sign::ended)
}

/// A network namespace was made, and no plugin run.
fn nothing_ran(case: &Case<'_>) -> Option<Sign> {
    let made = case.part("netns").next().is_some() && case.part("cni").next().is_none();
    made.then(|| Sign::says("the pod's network namespace was made, and no CNI plugin was run").at(&case.symptom.stage))
}

/// The plugin that the text names was not run. Without a text: loopback was, alone, and nothing after it.
fn never_ran(case: &Case<'_>) -> Option<Sign> {
    let plugins = case.plugins();
    if let Some(name) = missing(&case.symptom.message) {
        let parent = plugins.iter().rev().find(|(_, process)| process.ended_badly());
        let ran = plugins.iter().any(|(span, _)| span.name == name);
        let stage = Some(parent.map_or_else(|| "sandbox.cni".to_owned(), |(span, _)| span.stage.clone()));
        let asked = parent.map(|(span, process)| format!("{} failed, and ran no such plugin", named(span, process)));
        let mut evidence = vec![format!("no process of {name} was seen")];
        evidence.extend(asked);
        return (!ran).then(|| Sign { stage, culprit: Some(name.to_owned()), evidence, weak: false });
    }
    let alone = case.text.is_empty()
        && !plugins.is_empty()
        && plugins.iter().all(|(span, process)| span.name == "loopback" && process.exit_code == Some(0))
        && case.part("shim").next().is_none();
    // A plugin that runs would have left a process, whatever it then did.
    alone.then(|| Sign::says("loopback succeeded, no other CNI plugin was run, and no shim").at("sandbox.cni").weak())
}

/// The name in `failed to find plugin "NAME"`.
fn missing(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("failed to find plugin \"")?;
    rest.split_once('"').map(|(name, _)| name).filter(|name| !name.is_empty())
}
