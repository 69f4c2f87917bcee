//! `podlapse pods`: what runs now, and whose a process, container or cgroup is.

use std::path::Path;

use super::args::{self, Pods, Which};
use super::output::{self, OutputError, write};
use super::say::Say;
use super::{Done, Failure};
use crate::export::{write_detail, write_pods_json, write_table};
use crate::ids::Tgid;
use crate::pods::{self, Bootstrap, Hierarchies, Query};

pub(super) async fn pods(args: &Pods) -> Result<Done, Failure> {
    let say = Say::plain();
    let (listing, mut failed) = pods::gather(&bootstrap(args)).await;
    if listing.runtimes.is_empty()
        && let Some(error) = failed.pop()
    {
        return Err(error.into());
    }
    for error in &failed {
        say.line(&error.to_string());
    }
    let query = query(&args.which, &listing.hierarchies);
    let found = query.map(|query| pods::find(&listing.pods, &listing.processes, &query)).transpose()?;
    let mut text = Vec::new();
    match args.output {
        args::Listing::Json => write_pods_json(&mut text, &listing, found.as_ref()),
        args::Listing::Table => {
            let tree = output::tree(args.ascii);
            for note in listing.notes.iter().chain(listing.pods.iter().flat_map(|pod| &pod.notes)) {
                say.line(note);
            }
            match &found {
                Some((pods, of)) => write_detail(&mut text, pods, of, &tree),
                None if listing.pods.is_empty() => {
                    say.line(&nothing(args));
                    Ok(())
                }
                None => write_table(&mut text, &listing.pods, &tree),
            }
        }
    }
    .map_err(OutputError::new)?;
    write(&text)?;
    // What the others said is good, but it is not all that was asked for.
    if failed.is_empty() { Ok(Done) } else { Err(Failure::SomeSilent) }
}

/// What to say instead of an empty table.
fn nothing(args: &Pods) -> String {
    match args.bootstrap {
        args::Bootstrap::Cri => "no pod exists here: the runtime lists none".to_owned(),
        args::Bootstrap::Proc => "no pod runs here: no process below /proc is in a pod's cgroup".to_owned(),
    }
}

fn bootstrap(args: &Pods) -> Bootstrap {
    let sockets = args.socket.iter().map(|socket| socket.0.clone());
    match args.bootstrap {
        args::Bootstrap::Cri => Bootstrap::Cri(sockets.collect()),
        args::Bootstrap::Proc => Bootstrap::Proc(sockets.flatten().collect()),
    }
}

fn query(which: &Which, hierarchies: &Hierarchies) -> Option<Query> {
    match which {
        Which { pod: Some(text), .. } => Some(match text.split_once('/') {
            Some((namespace, name)) => Query::Name(namespace.to_owned(), name.to_owned()),
            None => Query::NameOrUid(text.clone()),
        }),
        Which { pid: Some(pid), .. } => Some(Query::Pid(Tgid(*pid))),
        Which { container: Some(id), .. } => Some(Query::Id(id.clone())),
        // A folder below a cgroup mount, or a path from the hierarchy's root.
        Which { cgroup: Some(path), .. } => {
            let path = without_detours(path);
            Some(Query::Cgroup(hierarchies.cgroup(Path::new(&path)).unwrap_or(path)))
        }
        _ => None,
    }
}

/// `/a/b/..` is `/a`; in front `..` stays: from a cgroup namespace it leads to what is beside it.
fn without_detours(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        match names.last() {
            Some(last) if name == ".." && *last != ".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::without_detours;

    #[test]
    fn detours() {
        for (path, plain) in [
            ("/kubepods/podx/c", "/kubepods/podx/c"),
            ("/kubepods/podx/c/..", "/kubepods/podx"),
            ("/kubepods//podx/./c/d/../..//", "/kubepods/podx"),
            ("/../../kubepods/c/..", "/../../kubepods"),
            ("kubepods/podx", "/kubepods/podx"),
            ("/", "/"),
        ] {
            assert_eq!(without_detours(path), plain, "{path}");
        }
    }
}
