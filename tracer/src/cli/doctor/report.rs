//! What doctor found, for people and for programs.

use std::fmt::Write;
use std::io;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::export::Charset;
use crate::probe;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// podlapse works, with less.
    Warn,
    /// podlapse does not work.
    Bad,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// What was found.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, level: Level::Ok, found: found.into(), advice: None }
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, level: Level::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn bad(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, level: Level::Bad, found: found.into(), advice: Some(advice.into()) }
    }
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) group: &'static str,
    pub(super) backend: String,
    pub(super) attached: bool,
    pub(super) required: bool,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

impl From<probe::Hook> for Hook {
    fn from(hook: probe::Hook) -> Hook {
        let why = match hook.status {
            probe::Status::Attached => None,
            probe::Status::Refused(why) => Some(why),
        };
        Hook {
            name: hook.name,
            group: hook.group.name(),
            backend: hook.backend.to_string(),
            attached: why.is_none(),
            required: hook.required,
            why,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
    pub(super) hooks: Vec<Hook>,
}

impl Report {
    /// Whether podlapse works here.
    pub(super) fn healthy(&self) -> bool {
        let hooks = self.hooks.iter().all(|hook| hook.attached || !hook.required);
        hooks && self.checks.iter().all(|check| check.level != Level::Bad)
    }

    /// One object on one line.
    pub(super) fn json(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// A line a check, then a line a hook, what to do beneath what is not well.
    pub(super) fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        for check in &self.checks {
            line(&mut text, colour, check.level, check.name, &check.found, check.advice.as_deref());
        }
        for hook in &self.hooks {
            let level = match (hook.attached, hook.required) {
                (true, _) => Level::Ok,
                (false, false) => Level::Warn,
                (false, true) => Level::Bad,
            };
            let refused = hook.why.as_ref().map(|why| format!("refused: {why}"));
            let found = refused.unwrap_or_else(|| format!("attached ({})", hook.backend));
            line(&mut text, colour, level, &hook.name, &found, None);
        }
        text
    }
}

fn line(text: &mut String, colour: bool, level: Level, name: &str, found: &str, advice: Option<&str>) {
    let (word, style) = match level {
        Level::Ok => ("ok  ", AnsiColor::Green.on_default()),
        Level::Warn => ("warn", AnsiColor::Yellow.on_default()),
        Level::Bad => ("BAD ", AnsiColor::Red.on_default().bold()),
    };
    let style = if colour { style } else { Style::new() };
    let clean = |text: &str| Charset::Unicode.clean(text);
    // Writing to a String does not fail.
    let _ = writeln!(text, "{style}{word}{style:#} {:<34} {}", clean(name), clean(found));
    if let Some(advice) = advice {
        let _ = writeln!(text, "     → {}", clean(advice));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn report() -> Report {
        let hook = |name: &str, required, why: Option<&str>| Hook {
            name: name.into(),
            group: "exec",
            backend: "tracepoint".into(),
            attached: why.is_none(),
            required,
            why: why.map(Into::into),
        };
        Report {
            checks: vec![Check::ok("kernel", "6.1.0"), Check::warn("tracefs", "not mounted", "nothing")],
            hooks: vec![
                hook("sched:sched_process_exec", true, None),
                hook("oom:mark_victim", false, Some("no such\x1b[2J tracepoint")),
            ],
        }
    }

    #[test]
    fn for_people() {
        expect![[r#"
            ok   kernel                             6.1.0
            warn tracefs                            not mounted
                 → nothing
            ok   sched:sched_process_exec           attached (tracepoint)
            warn oom:mark_victim                    refused: no such\u{1b}[2J tracepoint
        "#]]
        .assert_eq(&report().text(false));
    }

    #[test]
    fn for_programs() {
        let json = String::from_utf8(report().json().unwrap()).unwrap();
        expect![[r#"
            {"checks":[{"name":"kernel","level":"ok","found":"6.1.0"},{"name":"tracefs","level":"warn","found":"not mounted","advice":"nothing"}],"hooks":[{"name":"sched:sched_process_exec","group":"exec","backend":"tracepoint","attached":true,"required":true},{"name":"oom:mark_victim","group":"exec","backend":"tracepoint","attached":false,"required":false,"why":"no such\u001b[2J tracepoint"}]}
        "#]]
        .assert_eq(&json);
    }

    #[test]
    fn health() {
        assert!(report().healthy());
        let mut required = report();
        required.hooks[1].required = true;
        assert!(!required.healthy());
        let mut bad = report();
        bad.checks.push(Check::bad("btf", "missing", "another kernel"));
        assert!(!bad.healthy());
    }
}
