//! Images: the sandbox's, which the runtime pulls by itself, and the containers'.

use super::{CALL, Rule, Sign, Takes, none};
use crate::diagnose::case::Case;

const PAUSE: &str = "failed to get sandbox image";

const fn pause(reason: &'static str, texts: &'static [&'static [&'static str]]) -> Rule {
    Rule { reason, of: CALL, within: "sandbox", sign: none, texts, takes: Takes::Text }
}

const fn pull(
    reason: &'static str,
    sign: fn(&Case<'_>) -> Option<Sign>,
    texts: &'static [&'static [&'static str]],
) -> Rule {
    Rule { reason, of: CALL, within: "image.pull", sign, texts, takes: Takes::Either }
}

pub(super) const RULES: &[Rule] = &[
    pause(
        "pause_image_auth",
        &[
            &[PAUSE, "401 unauthorized"],
            &[PAUSE, "403 forbidden"],
            &[PAUSE, "no basic auth credentials"],
            &[PAUSE, "pull access denied"],
        ],
    ),
    pause(
        "pause_image_unreachable",
        &[
            &[PAUSE, "dial tcp"],
            &[PAUSE, "i/o timeout"],
            &[PAUSE, "tls handshake timeout"],
            &[PAUSE, "context deadline exceeded"],
            &[PAUSE, "failed to do request: ", ": eof"],
            &[PAUSE, "server gave http response to https client"],
        ],
    ),
    pause("pause_image_missing", &[&[PAUSE, ": not found"], &[PAUSE, "manifest unknown"]]),
    pull(
        "no_progress_timeout",
        |case| code(case, &[1], "the runtime cancelled the pull itself: its client did not"),
        &[&["because of no progress in"]],
    ),
    pull(
        "image_auth",
        |case| code(case, &[7, 16], "the code says that it was not allowed"),
        &[
            &["401 unauthorized"],
            &["403 forbidden"],
            &["no basic auth credentials"],
            &["pull access denied"],
            &["authentication required"],
        ],
    ),
    pull(
        "registry_unreachable",
        none,
        &[
            &["dial tcp"],
            &["i/o timeout"],
            &["tls handshake timeout"],
            &["client.timeout exceeded while awaiting headers"],
            &["failed to do request: ", ": eof"],
            &["server gave http response to https client"],
        ],
    ),
    pull(
        "image_not_found",
        |case| code(case, &[5], "the code says that it does not exist"),
        &[&["failed to resolve reference", ": not found"], &["manifest unknown"]],
    ),
];

/// The reply's code; a runtime may use it for something else.
fn code(case: &Case<'_>, codes: &[u32], means: &str) -> Option<Sign> {
    case.call()?.code.filter(|code| codes.contains(code))?;
    Some(Sign::says(means).weak())
}
