//! Who each CNI plugin and each OCI runtime process worked for, from the processes themselves.
//!
//! A node's containerd is told to run small scripts in the place of the plugins and of runc. A script writes down its
//! pid, with what it was called for, and becomes the real program by exec: same process, same pid, no podlapse.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::Node;
use crate::tools::{Containerd, Tools};

/// The scripts and what they wrote.
#[derive(Debug)]
pub struct Witness {
    folder: TempDir,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// As the node's own processes see it.
    pub pid: u32,
    /// A plugin's name, or `runc`.
    pub program: String,
    /// `ADD`, `DEL`, … or `create`, `start`, ….
    pub action: String,
    /// The sandbox's or container's id.
    pub id: String,
}

impl Witness {
    /// Puts the scripts in place, and containerd under them by a restart. The node is one with `containerd`.
    pub fn on(node: &mut Node, containerd: Containerd) -> Result<Self> {
        let tools = Tools::find(containerd)?;
        let witness = Self { folder: tempfile::tempdir()? };
        for plugin in fs::read_dir(tools.cni())? {
            witness.script(&plugin?.path(), "$CNI_COMMAND $CNI_CONTAINERID")?;
        }
        let [(_, real), ..] = tools.runtime_handlers();
        let runc = witness.script(&real, "$*")?;

        run_instead(node, &[(&tools.cni(), witness.folder.path()), (&real, &runc)])?;
        Ok(witness)
    }

    fn script(&self, program: &Path, what: &str) -> Result<PathBuf> {
        let own = self.folder.path().join(program.file_name().context("a program has a name")?);
        let (program, log) = (program.display(), self.log());
        let text = format!("#!/bin/sh\necho $$ ${{0##*/}} {what} >> {}\nexec {program} \"$@\"\n", log.display());
        fs::write(&own, text)?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
        Ok(own)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("seen.log")
    }

    /// Everything so far; what a runtime was called for without a container is left out.
    pub fn seen(&self) -> Result<Vec<Seen>> {
        let log = fs::read_to_string(self.log()).context("no plugin and no runtime was run")?;
        log.lines().filter_map(|line| seen(line).transpose()).collect()
    }
}

/// Containerd is to use other paths than those in its configuration, from a restart on.
pub(crate) fn run_instead(node: &mut Node, paths: &[(&Path, &Path)]) -> Result<()> {
    let config = node.dir().join("containerd.toml");
    let quoted = |path: &Path| format!("\"{}\"", path.display());
    let mut text = fs::read_to_string(&config)?;
    for (real, own) in paths {
        text = text.replace(&quoted(real), &quoted(own));
    }
    fs::write(&config, text)?;
    node.restart_containerd()?;
    Ok(())
}

fn seen(line: &str) -> Result<Option<Seen>> {
    let words: Vec<&str> = line.split(' ').collect();
    let (pid, program, rest) = match words.as_slice() {
        [pid, program, rest @ ..] => (pid, *program, rest),
        _ => anyhow::bail!("the witness wrote {line:?}"),
    };
    let action = match program {
        "runc" => rest.iter().find(|word| ["create", "start"].contains(word)),
        _ => rest.first(),
    };
    let (Some(action), Some(id)) = (action, rest.last()) else { return Ok(None) };
    let pid = pid.parse().with_context(|| format!("the witness wrote {line:?}"))?;
    Ok(Some(Seen { pid, program: program.to_owned(), action: (*action).to_owned(), id: (*id).to_owned() }))
}
