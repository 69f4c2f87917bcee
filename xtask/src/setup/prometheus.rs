//! Prometheus and promtool, which read the agent's metrics in the tests.

use anyhow::Result;

use super::{Tools, apt::Apt};

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let tree = tools.path("prometheus");
    let keys = ["prometheus", "promtool"].map(|name| tree.join("usr/bin").join(name));
    tools.piece("prometheus", "prometheus", &keys, || Apt::native(tools)?.unpack(&["prometheus"], &tree))
}
