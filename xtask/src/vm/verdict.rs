//! What a guest's console says about each hook: the object that `podlapse doctor --hooks -o json`
//! printed between two marker lines.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What one kernel did with the hooks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    release: String,
    code: i32,
    hooks: usize,
    refused: Vec<Refusal>,
    /// Checks of the kernel that came out badly.
    bad: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    name: String,
    required: bool,
    why: String,
}

impl Verdict {
    /// Every hook that podlapse cannot do without is attached.
    pub(super) fn passed(&self) -> bool {
        self.code == 0 && self.hooks > 0 && !self.refused.iter().any(|refusal| refusal.required)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { release, code, hooks, refused, bad } = self;
        write!(f, "kernel {release}, hooks attached {}/{hooks}", hooks - refused.len())?;
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
        Ok(())
    }
}

/// Reads a whole console.
pub(super) fn read(console: &str) -> Result<Verdict> {
    let (_, rest) = console.split_once("podlapse-vm-begin ").context("the guest never came to its verdict")?;
    let (release, rest) = rest.split_once('\n').context("the console ends in the verdict")?;
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
    Ok(Verdict { release: release.trim().to_owned(), code, hooks: hooks.len(), refused, bad })
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

    #[test]
    fn console_with_verdict() {
        let console = "Booting\r\n\r\npodlapse-vm-begin 6.1.0-9-cloud-amd64\r\n\
            {\"hooks\":[{\"name\":\"a\",\"attached\":true,\"required\":true},\r\n\
            {\"name\":\"b\",\"attached\":false,\"required\":false,\"why\":\"no such hook\"}]}\r\n\
            \r\npodlapse-vm-end 0\r\n";
        let verdict = read(console).unwrap();
        assert!(verdict.passed());
        assert_eq!(
            verdict.to_string(),
            "kernel 6.1.0-9-cloud-amd64, hooks attached 1/2; refused (optional) b: no such hook"
        );
    }

    #[test]
    fn required_hook_refused() {
        let console = "podlapse-vm-begin 5.10\n{\"hooks\":[{\"name\":\"a\",\"attached\":false}],\
            \"checks\":[{\"name\":\"btf\",\"level\":\"bad\",\"found\":\"missing\"}]}\n\
            podlapse-vm-end 1\n";
        let verdict = read(console).unwrap();
        assert!(!verdict.passed());
        assert_eq!(
            verdict.to_string(),
            "kernel 5.10, hooks attached 0/1; refused a: no reason given; btf: missing; \
             doctor ended with 1"
        );
    }

    #[test]
    fn console_without_verdict() {
        for console in
            ["", "panic", "podlapse-vm-begin 5.10\n{\"hooks\":[", "podlapse-vm-begin 5\nx\npodlapse-vm-end 127\n"]
        {
            assert!(read(console).is_err(), "{console:?}");
        }
    }
}
