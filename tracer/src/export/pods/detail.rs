//! One pod for people: the whole chain, a block for the pod, for its sandbox and for each container.

use std::io::{self, Write};

use anstyle::Style;

use super::table::pod_name;
use super::{namespaces, shared};
use crate::export::text::flow;
use crate::export::{Tree, rfc3339};
use crate::pods::{Cgroup, Container, Init, Kind, Match, Pod, Sandbox};
use crate::record::Namespaces;

/// Columns of the names in front.
const LABEL: usize = 14;

/// Writes all that is known of the pods that a query found.
///
/// # Errors
/// What `out` gives.
pub fn write_detail(out: &mut dyn Write, pods: &[Pod], found: &Match, tree: &Tree) -> io::Result<()> {
    let mut page = Page { out, tree };
    if let Some(pid) = found.pid {
        page.head(&[format!("process {pid}"), what(found.kind).to_owned()])?;
    }
    for pod in pods {
        page.pod(pod)?;
    }
    Ok(())
}

fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod | Kind::Sandbox => "the sandbox's process",
        Kind::Init | Kind::Container => "a container's first process",
        Kind::Process => "in a container",
        Kind::Shim => "a shim",
        Kind::Helper => "a child of a shim, in no container",
    }
}

struct Page<'a> {
    out: &'a mut dyn Write,
    tree: &'a Tree,
}

impl Page<'_> {
    fn pod(&mut self, pod: &Pod) -> io::Result<()> {
        // Without a name it is in the name's place.
        let uid = pod.uid.as_ref().filter(|_| pod.name.is_some()).map(|uid| format!("uid {uid}"));
        let qos = pod.qos.map(str::to_owned);
        self.head(&[Some(format!("pod {}", pod_name(pod))), uid, qos].into_iter().flatten().collect::<Vec<_>>())?;
        let runtime = [&pod.runtime.name, &pod.runtime.version, &pod.runtime.socket];
        self.line("runtime", &runtime.into_iter().flatten().cloned().collect::<Vec<_>>())?;
        self.cgroup(pod.cgroup.as_ref())?;
        for note in &pod.notes {
            self.line("note", std::slice::from_ref(note))?;
        }
        for sandbox in &pod.sandboxes {
            self.sandbox(sandbox)?;
        }
        Ok(())
    }

    fn sandbox(&mut self, sandbox: &Sandbox) -> io::Result<()> {
        let id = sandbox.id.as_ref().map_or_else(|| "sandbox".to_owned(), |id| format!("sandbox {id}"));
        let state = sandbox.state.map(|state| state.name().to_owned());
        let attempt = sandbox.attempt.filter(|attempt| *attempt > 0).map(|attempt| format!("attempt {attempt}"));
        self.head(&[Some(id), state, attempt].into_iter().flatten().collect::<Vec<_>>())?;
        self.line("created", &sandbox.created.map(rfc3339).into_iter().collect::<Vec<_>>())?;
        self.line("handler", &sandbox.handler.iter().cloned().collect::<Vec<_>>())?;
        self.line("addresses", &sandbox.ips)?;
        self.line("image", &sandbox.image.iter().cloned().collect::<Vec<_>>())?;
        self.init(sandbox.init.as_ref(), None)?;
        for container in &sandbox.containers {
            self.container(container, sandbox.init.as_ref())?;
        }
        Ok(())
    }

    fn container(&mut self, container: &Container, sandbox: Option<&Init>) -> io::Result<()> {
        let name = container.name.as_deref().unwrap_or("?");
        let state = container.state.map(|state| state.name().to_owned());
        let attempt = container.attempt.filter(|attempt| *attempt > 0).map(|attempt| format!("attempt {attempt}"));
        let exit = container.exit_code.map(|code| format!("exit code {code}"));
        let head = [Some(format!("container {name} {}", container.id)), state, attempt, exit];
        self.head(&head.into_iter().flatten().collect::<Vec<_>>())?;
        for (label, time) in
            [("created", container.created), ("started", container.started), ("finished", container.finished)]
        {
            self.line(label, &time.map(rfc3339).into_iter().collect::<Vec<_>>())?;
        }
        for (label, text) in
            [("image", &container.image), ("image id", &container.image_id), ("image digest", &container.image_digest)]
        {
            self.line(label, &text.iter().cloned().collect::<Vec<_>>())?;
        }
        self.init(container.init.as_ref(), sandbox)
    }

    fn init(&mut self, init: Option<&Init>, sandbox: Option<&Init>) -> io::Result<()> {
        let Some(init) = init else { return Ok(()) };
        let shim = init.shim.map(|pid| format!("shim {pid}"));
        let oom = init.oom_score_adj.map(|score| format!("oom_score_adj {score}"));
        let pid = Some(init.pid.to_string());
        self.line("pid", &[pid, shim, oom].into_iter().flatten().collect::<Vec<_>>())?;
        let inodes: Vec<String> = namespaces(&init.namespaces).map(|(name, inode)| format!("{name} {inode}")).collect();
        self.line("namespaces", &inodes)?;
        let mut with = |label: &str, other: Option<&Namespaces>| {
            let names = other.map(|other| shared(&init.namespaces, other)).unwrap_or_default();
            self.line(label, &names.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        with("  as sandbox", sandbox.map(|own| &own.namespaces))?;
        with("  as node", init.node.as_ref())?;
        self.cgroup(init.cgroup.as_ref())
    }

    fn cgroup(&mut self, cgroup: Option<&Cgroup>) -> io::Result<()> {
        let Some(cgroup) = cgroup else { return Ok(()) };
        self.line("cgroup", std::slice::from_ref(&cgroup.path))?;
        let limit = |(file, value): (&String, &String)| format!("{file}={}", value.replace('\n', "; "));
        // cpuset files are empty where the parent's apply.
        let limits = cgroup.limits.iter().filter(|(_, value)| !value.is_empty()).map(limit);
        self.line("limits", &limits.collect::<Vec<_>>())
    }

    fn head(&mut self, parts: &[String]) -> io::Result<()> {
        let style = if self.tree.colour { Style::new().bold() } else { Style::new() };
        for line in flow(&self.clean(parts), self.tree.width) {
            writeln!(self.out, "{style}{line}{style:#}")?;
        }
        Ok(())
    }

    /// Nothing where there is nothing to say.
    fn line(&mut self, label: &str, parts: &[String]) -> io::Result<()> {
        let room = self.tree.width.saturating_sub(LABEL + 4).max(1);
        for (number, line) in flow(&self.clean(parts), room).iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            writeln!(self.out, "  {label:LABEL$}  {line}")?;
        }
        Ok(())
    }

    fn clean(&self, parts: &[String]) -> Vec<String> {
        parts.iter().map(|part| self.tree.charset.clean(part)).collect()
    }
}
