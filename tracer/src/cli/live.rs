//! `podlapse trace` and `podlapse record`: attach, run COMMAND, drop privileges, watch.

use std::io;

use tracer_ebpf::mark;

use super::args::Attach;
use super::command::Command;
use super::output::Output;
use super::plan::Plan;
use super::run::{Ending, Limits, Run, Summary};
use super::say::Say;
use super::source::Source;
use super::{Done, Failure, stop};
use crate::probe::{self, Options, Session, Status};
use crate::recording::{Node, Selection, Writer};

/// A source that is the running kernel.
pub(super) trait Kernel: Source {
    /// Gives up what is not needed to go on.
    fn drop_privileges(&mut self) -> io::Result<()>;

    /// What it watches, for a message.
    fn describe(&self) -> String;

    /// What it is, for a recording's header.
    fn node(&self) -> Option<Node>;
}

/// Attaches and watches.
pub(super) async fn live(plan: &Plan<'_>) -> Result<Done, Failure> {
    Command::check(plan.command)?;
    if let Some(path) = plan.recording {
        // Before anything is attached; the file is made when that went well.
        Writer::check(path, plan.force)?;
    }
    watch(plan, attach(&plan.live.attach).await?).await
}

/// Attaches. On a busy node that takes seconds, in which a start would not be seen.
pub(super) async fn attach(args: &Attach) -> Result<Session, Failure> {
    Ok(Session::attach(options(args), || Say::plain().line("attaching; starts count from the next line on")).await?)
}

/// What a command line says of what to watch.
pub(super) fn options(args: &Attach) -> Options {
    let Attach { socket, bootstrap, backend } = args;
    let (socket, bootstrap, backend) = (socket.0.clone(), (*bootstrap).into(), (*backend).into());
    Options { socket, bootstrap, backend, ..Options::default() }
}

impl Kernel for Session {
    fn drop_privileges(&mut self) -> io::Result<()> {
        probe::drop_privileges()
    }

    fn describe(&self) -> String {
        let refused = self.hooks().iter().filter(|hook| hook.status != Status::Attached).count();
        let socket = self.socket().display();
        match refused {
            0 => socket.to_string(),
            _ => format!("{socket}, without {refused} hooks of {} (`podlapse doctor`)", self.hooks().len()),
        }
    }

    fn node(&self) -> Option<Node> {
        Some(Session::node_now(self))
    }
}

/// Watches with `kernel`, which is attached, until the plan is done.
pub(super) async fn watch<K: Kernel>(plan: &Plan<'_>, mut kernel: K) -> Result<Done, Failure>
where
    Failure: From<K::Error>,
{
    let say = Say::live();
    let mut output = Output::new(plan.show, plan.selection().next != Some(1));
    let mut run = Run::new(plan.config(), plan.selection(), &mut output, say);
    if let Some(path) = plan.recording {
        run.record_to(Writer::create(path, plan.force, &plan.header(kernel.node()))?);
    }
    let next = match plan.selection() {
        _ if !plan.command.is_empty() => "running COMMAND",
        Selection { lifecycle: true, pod, uid, .. } if pod.is_some() || uid.is_some() => "following the pod",
        _ => "waiting for a pod start",
    };
    say.line(&format!("attached to {}; {next} (Ctrl-C prints what is known)", kernel.describe()));
    if !plan.command.is_empty() {
        kernel.mark(mark::COMMAND_STARTED);
    }
    // COMMAND gets the caller's privileges, so it is started before they go.
    let command = Command::start(plan.command)?;
    kernel.drop_privileges().map_err(Failure::Privileges)?;
    let stop = stop::on_signal().map_err(Failure::Signals)?;
    let limits = Limits { stop, timeout: plan.timeout().map(|timeout| timeout.0), command };
    let (ending, summary) = run.drive(&mut kernel, limits).await?;
    conclude(plan, ending, summary)
}

fn conclude<E>(plan: &Plan<'_>, ending: Ending<E>, summary: Summary) -> Result<Done, Failure>
where
    Failure: From<E>,
{
    if let Ending::Failed(error) = ending {
        return Err(error.into());
    }
    if summary.taken == 0 {
        let within = match (&ending, plan.timeout()) {
            (Ending::TimedOut, Some(timeout)) => format!(" within {timeout}"),
            _ if plan.command.is_empty() => String::new(),
            _ => " while COMMAND ran".to_owned(),
        };
        let why = match &summary {
            Summary { nameless: true, .. } => {
                "the calls above have no name; restart their client, and it is read".to_owned()
            }
            Summary { news: true, .. } => "see what was said of the runtime above, and `podlapse doctor`".to_owned(),
            _ => summary.unseen.why(&plan.selection()),
        };
        return Err(Failure::NothingSeen { what: plan.what(), within, why });
    }
    let (chosen, over) = summary.chosen;
    let wanted = plan.selection().next.map_or(chosen, |next| next as usize);
    if matches!(ending, Ending::TimedOut)
        && let Some(timeout) = plan.timeout()
    {
        return Err(match plan.starts.lifecycle {
            true => Failure::TimedOutFollowing { gone: over, wanted, timeout },
            false => Failure::TimedOut { over, wanted, timeout },
        });
    }
    match (summary.recording_failed, plan.recording) {
        (Some(error), Some(path)) => Err(Failure::RecordingIncomplete(path.to_owned(), error)),
        _ => Ok(Done),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use clap::Parser;

    use super::super::args::{Cli, Command as Arguments};
    use super::*;
    use crate::ids::{MonotonicNs, Tgid, Tid};
    use crate::record::{Event, Record};

    impl From<Infallible> for Failure {
        fn from(never: Infallible) -> Failure {
            match never {}
        }
    }

    /// A kernel where only time goes by, ten times as fast.
    #[derive(Default)]
    struct Idle {
        now: u64,
        marks: Vec<u32>,
        news: Vec<String>,
    }

    impl Source for Idle {
        type Error = Infallible;

        async fn next(&mut self) -> Result<Option<Vec<Record>>, Infallible> {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.now += 100_000_000;
            let events = self.marks.drain(..).map(Event::Mark).chain([Event::Tick]);
            let head = |event| Record { at: MonotonicNs(self.now), tgid: Tgid(0), tid: Tid(0), event };
            Ok(Some(events.map(head).collect()))
        }

        fn mark(&mut self, what: u32) {
            self.marks.push(what);
        }

        fn news(&mut self) -> Vec<String> {
            std::mem::take(&mut self.news)
        }

        async fn finish(&mut self) -> Vec<Record> {
            Vec::new()
        }
    }

    impl Kernel for Idle {
        fn drop_privileges(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn describe(&self) -> String {
            "nothing".to_owned()
        }

        fn node(&self) -> Option<Node> {
            None
        }
    }

    fn outcome(line: &str) -> String {
        outcome_of(line, Idle::default())
    }

    fn outcome_of(line: &str, kernel: Idle) -> String {
        let Arguments::Trace(args) = Cli::parse_from(line.split(' ')).command else { panic!("not a trace") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let watched = runtime.block_on(watch(&Plan::from(&args), kernel));
        watched.err().map_or_else(|| "done".to_owned(), |failure| failure.to_string())
    }

    #[test]
    fn nothing_seen() {
        let check = "check that the pod is to run on this node, and `podlapse doctor`";
        let what = |line, what| assert_eq!(outcome(line), format!("no {what}: {check}"), "{line}");
        what("podlapse trace --timeout 50ms", "pod start was seen within 50ms");
        what("podlapse trace --timeout 50ms --pod shop/web", "start of pod shop/web was seen within 50ms");
        what("podlapse trace --timeout 50ms --pod shop/web --lifecycle", "sign of pod shop/web was seen within 50ms");
        what("podlapse trace -- true", "pod start was seen while COMMAND ran");
        let silent = Idle { news: vec!["the runtime does not answer".to_owned()], ..Idle::default() };
        assert_eq!(
            outcome_of("podlapse trace --timeout 50ms", silent),
            "no pod start was seen within 50ms: see what was said of the runtime above, and `podlapse doctor`"
        );
        assert_eq!(
            outcome("podlapse trace -- /no/such"),
            "cannot run /no/such: No such file or directory (os error 2)"
        );
    }

    #[tokio::test]
    async fn attaching_is_not_said_where_nobody_listens() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { socket: Some(dir.path().join("absent.sock")), ..Options::default() };
        let mut said = false;
        assert!(Session::attach(options, || said = true).await.is_err());
        assert!(!said);
    }

    #[test]
    fn recorded_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rec");
        outcome(&format!("podlapse trace --record {} -- true", file.display()));
        let mut reader = crate::recording::Reader::open(&file).unwrap();
        assert_eq!(reader.header().selection, Selection { command: true, ..Selection::default() });
        let mut marks = Vec::new();
        while let Some(record) = reader.read().unwrap() {
            if let Event::Mark(what) = record.event {
                marks.push(what);
            }
        }
        assert_eq!(marks, [mark::COMMAND_STARTED, mark::COMMAND_ENDED]);
        let taken = outcome(&format!("podlapse trace --record {} -- true", file.display()));
        assert!(taken.ends_with("exists: choose another name, or --force to replace it"), "{taken}");
    }
}
