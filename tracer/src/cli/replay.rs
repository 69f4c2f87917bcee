//! `podlapse replay`: the recorded run again, through the same loop.

use super::args::Replay;
use super::output::{List, Output};
use super::run::{Ending, Limits, Run, Sink};
use super::say::Say;
use super::source::NO_END;
use super::{Done, Failure, stop};
use crate::engine::Config;
use crate::export::duration;
use crate::recording::{Reader, Selection};

pub(super) async fn replay(args: &Replay) -> Result<Done, Failure> {
    let mut reader = Reader::open(&args.file)?;
    let header = reader.header();
    let selection = match () {
        () if args.starts.selects() => Selection { next: args.starts.next, ..args.starts.selection(false) },
        () if args.all || args.list || args.from.is_some() => {
            Selection { restarts: true, lifecycle: args.starts.lifecycle, ..Selection::default() }
        }
        () => header.selection.clone(),
    };
    let selection = Selection { lifecycle: selection.lifecycle || args.starts.lifecycle, ..selection };
    let config = Config {
        settle_ns: args.starts.settle.map_or(header.settle_ns, |settle| settle.ns()),
        containers: args.starts.containers.or(header.containers),
        stuck_after_ns: args.starts.stuck_after.map_or(header.stuck_after_ns, |stuck| stuck.ns()),
    };
    let say = Say::plain();
    let mut traces = Output::new(&args.show, selection.next != Some(1));
    let mut list = List::default();
    let sink: &mut dyn Sink = if args.list { &mut list } else { &mut traces };
    let mut run = Run::new(config, selection, sink, say);
    if let Some(from) = args.from {
        run.only_from(from);
    }
    let limits = Limits { stop: stop::on_signal().map_err(Failure::Signals)?, timeout: None, command: None };
    let (ending, summary) = run.drive(&mut reader, limits).await?;
    match ending {
        Ending::EndOfRecording if !reader.is_ended() => say.line(NO_END),
        Ending::Done | Ending::EndOfRecording | Ending::Interrupted | Ending::TimedOut => {}
        // A run that was killed is worth reading.
        Ending::Failed(error) if error.keeps_what_was_read() && summary.taken > 0 => {
            say.line(&error.to_string());
        }
        Ending::Failed(error) => return Err(error.into()),
    }
    if args.list {
        say.line(&format!("the recording spans {}", duration(summary.span_ns)));
    }
    if summary.taken == 0 {
        let everything = args.from.is_none() && !args.starts.selects() && (args.all || args.list);
        return Err(if everything { Failure::NothingRecorded } else { Failure::NothingMatches });
    }
    Ok(Done)
}
