//! Many pods for people: a line a sandbox and a line a container, in as many columns as fit.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::{namespaces, shared};
use crate::export::{Tree, grid};
use crate::pods::{Container, Init, Pod, Sandbox};

/// Columns, and which go first where there is no room: the highest number, 0 never.
const COLUMNS: [(&str, u8); 12] = [
    ("POD", 0),
    ("UID", 6),
    ("CONTAINER", 0),
    ("ID", 0),
    ("STATE", 1),
    ("PID", 0),
    ("SHIM", 2),
    ("OWN NAMESPACES", 5),
    ("CPU", 4),
    ("MEMORY", 3),
    ("IMAGE", 7),
    ("RUNTIME", 1),
];

/// Columns that may be shortened, to no less than this.
const FLEXIBLE: [(usize, usize); 4] = [(10, 24), (11, 20), (0, 20), (2, 10)];

/// Characters of an id, as crictl shows them.
const ID: usize = 13;

type Row = [String; COLUMNS.len()];

/// Writes a table of pods, at most `tree.width` wide where that is possible. Empty columns are left out, and the
/// runtime where there is but one.
///
/// # Errors
/// What `out` gives.
pub fn write_table(out: &mut dyn Write, pods: &[Pod], tree: &Tree) -> io::Result<()> {
    let mut rows: Vec<Row> = vec![COLUMNS.map(|(title, _)| title.to_owned())];
    for (pod, sandbox) in pods.iter().flat_map(|pod| pod.sandboxes.iter().map(move |sandbox| (pod, sandbox))) {
        rows.push(of_sandbox(pod, sandbox));
        rows.extend(sandbox.containers.iter().map(|container| of_container(pod, sandbox, container)));
    }
    let mut runtimes = pods.iter().map(|pod| &pod.runtime);
    let first = runtimes.next();
    if runtimes.all(|runtime| Some(runtime) == first) {
        rows.iter_mut().skip(1).for_each(|row| row[11].clear());
    }
    for cell in rows.iter_mut().flatten() {
        *cell = tree.charset.clean(cell);
    }
    let shown = fit(&rows, tree.width);
    let cells = |row: &Row| shown.iter().map(|(column, width)| tree.charset.shorten(&row[*column], *width)).collect();
    let lines = grid::lines(&rows.iter().map(cells).collect::<Vec<_>>(), COLUMNS.len(), None, &[], tree.charset);
    for (number, (line, row)) in lines.iter().zip(&rows).enumerate() {
        let style = match (tree.colour, number) {
            (false, _) => Style::new(),
            (true, 0) => Style::new().bold(),
            (true, _) => style(&row[4]),
        };
        writeln!(out, "{style}{line}{style:#}")?;
    }
    Ok(())
}

/// The columns that are shown, and their widths.
fn fit(rows: &[Row], room: usize) -> Vec<(usize, usize)> {
    let natural = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let empty = |column: usize| rows.iter().skip(1).all(|row| row[column].is_empty());
    let mut shown: Vec<(usize, usize)> = (0..COLUMNS.len())
        .filter(|column| COLUMNS[*column].1 == 0 || !empty(*column))
        .map(|column| (column, natural(column)))
        .collect();
    let total = |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2);
    loop {
        let over = total(&shown).saturating_sub(room);
        let slack = |(column, width): &(usize, usize)| {
            let least = FLEXIBLE.iter().find(|(own, _)| own == column).map_or(*width, |(_, least)| *least);
            width.saturating_sub(least)
        };
        if over <= shown.iter().map(slack).sum() {
            break;
        }
        let rank = |(column, _): &(usize, usize)| COLUMNS[*column].1;
        let Some(last) = shown.iter().copied().max_by_key(rank).filter(|last| rank(last) > 0) else { break };
        shown.retain(|other| *other != last);
    }
    for (column, least) in FLEXIBLE {
        let over = total(&shown).saturating_sub(room);
        if let Some((_, width)) = shown.iter_mut().find(|(own, _)| *own == column) {
            *width -= over.min(width.saturating_sub(least));
        }
    }
    shown
}

fn style(state: &str) -> Style {
    match state {
        "exited" | "notready" => Style::new().dimmed(),
        "unknown" => AnsiColor::Red.on_default(),
        "created" => AnsiColor::Yellow.on_default(),
        _ => Style::new(),
    }
}

fn of_sandbox(pod: &Pod, sandbox: &Sandbox) -> Row {
    let init = sandbox.init.as_ref();
    let own = init.and_then(|init| Some(apart(init, init.node.as_ref()?))).unwrap_or_default();
    row(
        pod,
        "(sandbox)".to_owned(),
        sandbox.id.as_ref().map_or("", |id| id.as_str()),
        sandbox.state.map_or("", |state| state.name()),
        init,
        own,
        sandbox.image.as_deref(),
    )
}

fn of_container(pod: &Pod, sandbox: &Sandbox, container: &Container) -> Row {
    let init = container.init.as_ref();
    let own = init.and_then(|init| Some(apart(init, &sandbox.init.as_ref()?.namespaces))).unwrap_or_default();
    row(
        pod,
        container.name.clone().unwrap_or_default(),
        container.id.as_str(),
        container.state.map_or("", |state| state.name()),
        init,
        own,
        container.image.as_deref(),
    )
}

fn row(pod: &Pod, name: String, id: &str, state: &str, init: Option<&Init>, own: String, image: Option<&str>) -> Row {
    let nothing = BTreeMap::new();
    let limits = init.and_then(|init| init.cgroup.as_ref()).map_or(&nothing, |cgroup| &cgroup.limits);
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    [
        pod_name(pod),
        pod.uid.as_ref().map_or_else(String::new, ToString::to_string),
        name,
        id.chars().take(ID).collect(),
        state.to_owned(),
        number(init.map(|init| init.pid.0)),
        number(init.and_then(|init| init.shim).map(|pid| pid.0)),
        own,
        cpu(limits).unwrap_or_default(),
        memory(limits).unwrap_or_default(),
        image.unwrap_or_default().to_owned(),
        pod.runtime.socket.clone().unwrap_or_default(),
    ]
}

/// `NAMESPACE/NAME`, or what is known in place of it.
pub(super) fn pod_name(pod: &Pod) -> String {
    match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => pod.uid.as_ref().map_or_else(|| "?".to_owned(), |uid| format!("uid {uid}")),
    }
}

/// The namespaces that a process does not share with others.
fn apart(init: &Init, others: &crate::record::Namespaces) -> String {
    let shared = shared(&init.namespaces, others);
    let own = namespaces(&init.namespaces).map(|(name, _)| name).filter(|name| !shared.contains(name));
    own.collect::<Vec<_>>().join(" ")
}

/// CPUs that the container may use at once; `-` for no limit.
fn cpu(limits: &BTreeMap<String, String>) -> Option<String> {
    let get = |file: &str| limits.get(file).map(String::as_str);
    let (quota, period) = match get("cpu.max") {
        Some(max) => max.split_once(' ')?,
        None => (get("cpu.cfs_quota_us")?, get("cpu.cfs_period_us")?),
    };
    let (Ok(quota), Ok(period)) = (quota.parse::<u64>(), period.parse::<u64>()) else { return Some("-".to_owned()) };
    let milli = quota.checked_mul(1000)?.checked_div(period)?;
    Some(if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") })
}

/// Bytes of memory with a binary unit; `-` for no limit.
fn memory(limits: &BTreeMap<String, String>) -> Option<String> {
    /// cgroup v1 has no word for none: the largest number of pages.
    const NONE: u64 = 0x7fff_ffff_ffff_0000;
    let text = limits.get("memory.max").or_else(|| limits.get("memory.limit_in_bytes"))?;
    Some(match text.parse::<u64>() {
        Ok(bytes) if bytes < NONE => bytes_text(bytes),
        _ => "-".to_owned(),
    })
}

fn bytes_text(bytes: u64) -> String {
    let units = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Charset;

    #[test]
    fn limits_as_kubernetes_writes_them() {
        let limits = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        for (pairs, cpus) in [
            (&[("cpu.max", "50000 100000")][..], Some("500m")),
            (&[("cpu.max", "max 100000")], Some("-")),
            (&[("cpu.cfs_quota_us", "200000"), ("cpu.cfs_period_us", "100000")], Some("2")),
            (&[("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "100000")], Some("-")),
            (&[("cpu.cfs_quota_us", "7"), ("cpu.cfs_period_us", "0")], None),
            (&[("cpu.cfs_quota_us", "7")], None),
            (&[], None),
        ] {
            assert_eq!(cpu(&limits(pairs)).as_deref(), cpus, "{pairs:?}");
        }
        for (pairs, bytes) in [
            (&[("memory.max", "134217728")][..], Some("128Mi")),
            (&[("memory.max", "max")], Some("-")),
            (&[("memory.limit_in_bytes", "9223372036854771712")], Some("-")),
            (&[("memory.limit_in_bytes", "1000001")], Some("1000001")),
            (&[], None),
        ] {
            assert_eq!(memory(&limits(pairs)).as_deref(), bytes, "{pairs:?}");
        }
    }

    #[test]
    fn what_no_room_is_for_goes() {
        let rows = [COLUMNS.map(|(title, _)| title.to_owned()), COLUMNS.map(|(title, _)| title.repeat(2))];
        for room in [10, 40, 80, 120, 200] {
            let shown = fit(&rows, room);
            let total: usize = shown.iter().map(|(_, width)| width + 2).sum();
            assert!(total - 2 <= room || shown.len() == 4, "{room}: {shown:?}");
            assert!(room < 200 || shown.len() == COLUMNS.len());
        }
    }

    #[test]
    fn charset_is_kept() {
        let pod = Pod {
            name: Some("evil\x1b[2J".into()),
            namespace: Some("ä".into()),
            sandboxes: vec![Sandbox::default()],
            ..Pod::default()
        };
        let mut out = Vec::new();
        write_table(&mut out, &[pod], &Tree { width: 80, charset: Charset::Ascii, colour: false, min_ns: 0 }).unwrap();
        assert!(out.iter().all(|byte| *byte == b'\n' || (0x20..0x7f).contains(byte)));
    }
}
