//! runc, crun: creating a container.

use super::{CALL, Rule, Sign, Takes};
use crate::diagnose::case::Case;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: "cgroup_limit",
        of: CALL,
        within: "",
        sign: refused_write,
        texts: &[
            &["mkdir /sys/fs/cgroup", "no space left on device"],
            &["mkdir /sys/fs/cgroup", "cannot allocate memory"],
        ],
        takes: Takes::Either,
    },
    Rule {
        reason: "apparmor_profile_missing",
        of: CALL,
        within: "",
        sign: label_refused,
        texts: &[&["unable to apply apparmor profile"], &["apparmor failed to apply profile"]],
        takes: Takes::Either,
    },
    says(
        "working_dir_missing",
        &[
            &["chdir to cwd", "no such file or directory"],
            &["chdir to cwd", "not a directory"],
            // runc makes one that is missing, where it can.
            &["during container init: mkdir /", ": not a directory"],
            // crun's.
            &["chdir `", "`: no such file or directory"],
            &["chdir `", "`: not a directory"],
            &["chdir to `", "`: no such file or directory"],
            &["chdir to `", "`: not a directory"],
        ],
    ),
    looks_up(
        "entrypoint_not_found",
        &[
            &["executable file", "not found in $path"],
            &["exec: \"", ": no such file or directory"],
            &["open executable: no such file or directory"],
            &["executable file `", "` not found"],
        ],
    ),
    looks_up(
        "entrypoint_not_executable",
        &[
            &["exec: \"", ": permission denied"],
            &["exec: \"", ": is a directory"],
            &["open executable: permission denied"],
            &["the path `", "` exists but it is not executable"],
        ],
    ),
    Rule {
        reason: "entrypoint_unusable",
        of: CALL,
        within: "container.",
        sign: lookup_ended,
        texts: &[],
        takes: Takes::Sign,
    },
];

const fn says(reason: &'static str, texts: &'static [&'static [&'static str]]) -> Rule {
    Rule { reason, of: CALL, within: "", sign: create_failed, texts, takes: Takes::Text }
}

const fn looks_up(reason: &'static str, texts: &'static [&'static [&'static str]]) -> Rule {
    Rule { sign: lookup_failed, ..says(reason, texts) }
}

/// Runtime create failed, and the entrypoint was never run.
fn create_failed(case: &Case<'_>) -> Option<Sign> {
    let failed = case.failed("oci.create")?;
    let sign = Sign::ended(failed);
    case.container()?.exec.is_none().then_some(Sign { stage: None, ..sign })
}

/// Runtime create failed, and the last write to the container's cgroup had been refused.
fn refused_write(case: &Case<'_>) -> Option<Sign> {
    let sign = create_failed(case)?;
    let write = case.container()?.writes.last()?;
    let errno = write.errno?;
    let mut evidence = vec![format!("the write of {} to {} gave errno {errno}", write.value.trim(), write.file)];
    evidence.extend(sign.evidence);
    // Runtimes go on after some.
    Some(Sign { evidence, weak: true, ..sign })
}

/// The label of init was refused with ENOENT: AppArmor's word for a profile that is not loaded.
fn label_refused(case: &Case<'_>) -> Option<Sign> {
    let sign = create_failed(case)?;
    let errno = |text: &String| matches!(text.as_str(), "2" | "-2");
    let label = case.part("oci.create.lsm").find(|span| span.attributes.get("errno").is_some_and(errno))?;
    let mut evidence = vec!["the write of init's label gave ENOENT".to_owned()];
    evidence.extend(sign.evidence);
    Some(Sign { evidence, stage: Some(label.stage.clone()), ..sign })
}

/// Runtime create failed, and the entrypoint was never run: the text says that it was looked up.
fn lookup_failed(case: &Case<'_>) -> Option<Sign> {
    Some(create_failed(case)?.at(&format!("{}.oci.create.lookpath", case.stage())))
}

/// Init ended by itself when it had given up its privileges, which is its last step before it looks its entrypoint up.
fn lookup_ended(case: &Case<'_>) -> Option<Sign> {
    let sign = create_failed(case)?;
    let looked = case.part("oci.create.lookpath").last()?;
    let mut evidence = vec!["init gave up its privileges, and ended without an execve".to_owned()];
    evidence.extend(sign.evidence);
    Some(Sign { evidence, weak: true, ..sign }.at(&looked.stage))
}
