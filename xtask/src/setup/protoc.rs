//! protoc, with which `k8s-cri` compiles the CRI's protocol files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use super::{Tools, apt::Apt};
use crate::workspace::library_path;

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let tree = tools.path("protoc");
    let wrapper = tools.path("bin/protoc");
    let keys = [tree.join("usr/bin/protoc"), wrapper.clone()];
    tools.piece("protoc", "protobuf-compiler", &keys, || {
        Apt::native(tools)?.unpack_closure(&["protobuf-compiler"], &tree)?;
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n",
            library_path(&tree).to_string_lossy(),
            tree.join("usr/bin/protoc").display()
        );
        fs::write(&wrapper, script)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        Ok(())
    })
}
