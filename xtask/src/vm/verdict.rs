//! What a guest's console says of each backend: the object that `podlapse doctor --hooks -o json` printed between two
//! marker lines, and a line of `podlapse-guest payload`.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Those that every kernel has to take.
const BACKENDS: [&str; 2] = ["tracepoint", "trampoline"];

/// What one kernel did with the hooks of one backend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    release: String,
    backend: String,
    code: i32,
    hooks: usize,
    refused: Vec<Refusal>,
    /// Checks of the kernel that came out badly.
    bad: Vec<String>,
    /// Whether the bytes are those that were sent, and what was said of it.
    payload: (bool, String),
}

#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    name: String,
    required: bool,
    why: String,
}

/// Both backends have every hook that podlapse cannot do without, and tell the right bytes.
pub(super) fn passed(verdicts: &[Verdict]) -> bool {
    verdicts.iter().map(|it| it.backend.as_str()).eq(BACKENDS) && verdicts.iter().all(Verdict::passed)
}

impl Verdict {
    fn passed(&self) -> bool {
        let required = self.refused.iter().any(|refusal| refusal.required);
        self.code == 0 && self.hooks > 0 && !required && self.payload.0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { release, backend, code, hooks, refused, bad, payload: (agrees, payload) } = self;
        write!(f, "kernel {release}, {backend}: hooks attached {}/{hooks}", hooks - refused.len())?;
        for Refusal { name, required, why } in refused {
            let kind = if *required { "refused" } else { "refused (optional)" };
            write!(f, "; {kind} {name}: {why}")?;
        }
        for check in bad {
            write!(f, "; {check}")?;
        }
        if *code != 0 {
            write!(f, "; doctor ended with {code}")?;
        }
        write!(f, "; payload{}: {payload}", if *agrees { "" } else { " is WRONG" })
    }
}

/// Reads a whole console.
pub(super) fn read(console: &str) -> Result<Vec<Verdict>> {
    let verdicts: Result<Vec<Verdict>> = console.split("podlapse-vm-begin ").skip(1).map(one).collect();
    let verdicts = verdicts?;
    if verdicts.is_empty() {
        bail!("the guest never came to a verdict");
    }
    Ok(verdicts)
}

fn one(text: &str) -> Result<Verdict> {
    let (of, rest) = text.split_once('\n').context("the console ends in the verdict")?;
    let (release, backend) = of.trim().split_once(' ').context("a verdict of no backend")?;
    let (object, end) = rest.split_once("podlapse-vm-end ").context("the console ends in the verdict")?;
    let code = end.lines().next().unwrap_or_default().trim();
    let code: i32 = code.parse().with_context(|| format!("exit code {code:?}"))?;
    let object: Value = serde_json::from_str(object.trim())
        .with_context(|| format!("podlapse doctor ended with {code} and printed no JSON object"))?;
    let Some(hooks) = object.get("hooks").and_then(Value::as_array) else {
        bail!("podlapse doctor's object has no list \"hooks\"");
    };
    let refused = hooks.iter().filter(|hook| !attached(hook)).map(refusal).collect();
    let checks = object.get("checks").and_then(Value::as_array);
    let bad = checks.into_iter().flatten().filter_map(bad_check).collect();
    let (_, payload) =
        end.split_once("podlapse-vm-payload ").context("the console ends before the payload's verdict")?;
    let payload = payload.lines().next().unwrap_or_default().trim();
    let (agrees, payload) = payload.split_once(' ').unwrap_or((payload, "nothing was said"));
    let (release, backend) = (release.to_owned(), backend.to_owned());
    let payload = (agrees == "0", payload.to_owned());
    Ok(Verdict { release, backend, code, hooks: hooks.len(), refused, bad, payload })
}

fn bad_check(check: &Value) -> Option<String> {
    let text = |key| check.get(key).and_then(Value::as_str);
    (text("level") == Some("bad"))
        .then(|| format!("{}: {}", text("name").unwrap_or("check"), text("found").unwrap_or("bad")))
}

fn attached(hook: &Value) -> bool {
    hook.get("attached").and_then(Value::as_bool).unwrap_or(false)
}

fn refusal(hook: &Value) -> Refusal {
    let text = |key| hook.get(key).and_then(Value::as_str);
    Refusal {
        name: text("name").unwrap_or("(no name)").to_owned(),
        required: hook.get("required").and_then(Value::as_bool).unwrap_or(true),
        why: text("why").unwrap_or("no reason given").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(backend: &str, hooks: &str, end: &str) -> String {
        format!("podlapse-vm-begin 6.1.0 {backend}\r\n{{\"hooks\":[{hooks}]}}\r\n\r\npodlapse-vm-end {end}\r\n")
    }

    const GOOD: &str = r#"{"name":"a","attached":true,"required":true}"#;
    const END: &str = "0\r\npodlapse-vm-payload 0 7 bytes agree";

    #[test]
    fn console_with_verdicts() {
        let hooks = format!(r#"{GOOD},{{"name":"b","attached":false,"required":false,"why":"no such hook"}}"#);
        let console = format!("Booting\r\n\r\n{}{}", block("tracepoint", &hooks, END), block("trampoline", GOOD, END));
        let verdicts = read(&console).unwrap();
        assert!(passed(&verdicts));
        assert_eq!(
            verdicts[0].to_string(),
            "kernel 6.1.0, tracepoint: hooks attached 1/2; refused (optional) b: no such hook; payload: 7 bytes agree"
        );
        assert_eq!(verdicts[1].to_string(), "kernel 6.1.0, trampoline: hooks attached 1/1; payload: 7 bytes agree");
        assert!(!passed(&verdicts[..1]), "one backend is missing");
    }

    #[test]
    fn what_does_not_pass() {
        let good = block("tracepoint", GOOD, END);
        let refused = r#"{"name":"a","attached":false}"#;
        let wrong = "0\r\npodlapse-vm-payload 1 they differ";
        let failed = "1\r\npodlapse-vm-payload 0 7 bytes agree";
        for (hooks, end) in [(refused, END), (GOOD, wrong), (GOOD, failed), ("", END)] {
            let verdicts = read(&(good.clone() + &block("trampoline", hooks, end))).unwrap();
            assert!(!passed(&verdicts), "{verdicts:?}");
        }
        let verdicts = read(&block("trampoline", refused, wrong)).unwrap();
        assert_eq!(
            verdicts[0].to_string(),
            "kernel 6.1.0, trampoline: hooks attached 0/1; refused a: no reason given; payload is WRONG: they differ"
        );
    }

    #[test]
    fn console_without_verdict() {
        let cut = block("trampoline", GOOD, "0\r\n");
        for console in [
            "",
            "panic",
            "podlapse-vm-begin 5.10 a\n{\"hooks\":[",
            "podlapse-vm-begin 5 a\nx\npodlapse-vm-end 127\n",
            &cut,
        ] {
            assert!(read(console).is_err(), "{console:?}");
        }
    }
}
