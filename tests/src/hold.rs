//! A CNI plugin, or an action of the OCI runtime, that does not go on until it is let.
//!
//! A node's containerd is told to run small scripts in the place of the plugins and of runc. One that is held writes down
//! its pid and waits; then, as all others at once, it becomes the real program by exec.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::Node;
use crate::tools::{Containerd, Tools};
use crate::witness::run_instead;

/// The scripts.
#[derive(Debug)]
pub struct Hold {
    folder: TempDir,
}

impl Hold {
    /// Puts the scripts in place, and containerd under them by a restart. The node is one with `containerd`.
    pub fn on(node: &mut Node, containerd: Containerd) -> Result<Self> {
        let tools = Tools::find(containerd)?;
        let hold = Self { folder: tempfile::tempdir()? };
        for plugin in fs::read_dir(tools.cni())? {
            hold.script(&plugin?.path())?;
        }
        let [(_, real), ..] = tools.runtime_handlers();
        let runc = hold.script(&real)?;
        run_instead(node, &[(&tools.cni(), hold.folder.path()), (&real, &runc)])?;
        Ok(hold)
    }

    /// A program that is called for `what` (a plugin's command, the runtime's action) is named `PROGRAM.WHAT`.
    fn script(&self, program: &Path) -> Result<PathBuf> {
        let own = self.folder.path().join(program.file_name().context("a program has a name")?);
        let (program, folder) = (program.display(), self.folder.path().display());
        let text = format!(
            "#!/bin/sh\nfor what in $CNI_COMMAND \"$@\"; do\n  held={folder}/${{0##*/}}.$what\n  \
             [ ! -e \"$held.edit\" ] || sed -i -f \"$held.edit\" config.json\n  [ -e \"$held\" ] || continue\n  echo $$ > \"$held.pid\"\n  \
             while [ -e \"$held\" ]; do sleep 0.05; done\ndone\nexec {program} \"$@\"\n"
        );
        fs::write(&own, text)?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
        Ok(own)
    }

    /// From now on `program` waits when it is called for `what`.
    pub fn hold(&self, program: &str, what: &str) -> Result<()> {
        Ok(fs::write(self.file(program, what), "")?)
    }

    /// From now on a container that runc makes has an OCI hook: a program that does nothing, and is called for its kind.
    pub fn hook(&self, kind: &str) -> Result<&'static str> {
        let program = self.script(Path::new("/bin/true"))?;
        let hook = format!(r#"{{"path":"{}","args":["true","{kind}"]}}"#, program.display());
        // The spec's first character opens its object.
        fs::write(self.file("runc", "create.edit"), format!(r#"1s|^{{|{{"hooks":{{"{kind}":[{hook}]}},|"#))?;
        Ok("true")
    }

    /// Waits until one waits; its pid, as the node's own processes see it.
    pub fn held(&self, program: &str, what: &str) -> Result<u32> {
        let (file, deadline) = (self.file(program, &format!("{what}.pid")), Instant::now() + Duration::from_secs(30));
        loop {
            if let Ok(pid) = fs::read_to_string(&file).unwrap_or_default().trim().parse() {
                return Ok(pid);
            }
            ensure!(Instant::now() < deadline, "nobody calls {program} for {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets it go on.
    pub fn release(&self, program: &str, what: &str) -> Result<()> {
        Ok(fs::remove_file(self.file(program, what))?)
    }

    fn file(&self, program: &str, what: &str) -> PathBuf {
        self.folder.path().join(format!("{program}.{what}"))
    }
}
