//! How the agent itself does: what is open, what it missed, what it costs.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use rustix::time::{ClockId, clock_gettime};

use super::seconds;
use crate::lifecycle::Standing;

/// How a run goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// What is open, and what was missed.
    pub standing: Standing,
    /// Starts that are over, and of which more may become known.
    pub held: usize,
    /// Records since the attach.
    pub records: u64,
    /// Bytes off the runtime's sockets since the attach.
    pub payload: u64,
    /// What the programs in the kernel took, where it is counted.
    pub programs_ns: Option<u64>,
}

type Seconds = Counter<f64, AtomicU64>;
type Value = Gauge<f64, AtomicU64>;

#[derive(Debug, Default)]
pub(super) struct Own {
    open: Gauge,
    held: Gauge,
    oldest: Value,
    records: Counter,
    payload: Counter,
    lost: Counter,
    undecoded: Counter,
    evicted: Counter,
    programs: Seconds,
    cpu: Seconds,
    resident: Gauge,
}

impl Own {
    pub(super) fn registered(to: &mut Registry) -> Own {
        let own = Own::default();
        to.register("open_starts", "Starts that are not over", own.open.clone());
        let help = "Starts that are over, and not counted yet, for more may become known of them";
        to.register("held_starts", help, own.held.clone());
        let help = "Age of the oldest start that is not over; 0: there is none";
        to.register_with_unit("oldest_open_start", help, Unit::Seconds, own.oldest.clone());
        to.register("records", "Records from the kernel", own.records.clone());
        to.register_with_unit("payload", "Read off the runtime's sockets", Unit::Bytes, own.payload.clone());
        to.register("lost_records", "Records for which the rings had no room", own.lost.clone());
        let help = "Read off the runtime's sockets, and not understood";
        to.register_with_unit("undecoded", help, Unit::Bytes, own.undecoded.clone());
        to.register("evicted", "Entries of tables that had to make room", own.evicted.clone());
        let help = "Time of the programs in the kernel; 0 where it is not counted (--bpf-stats)";
        to.register_with_unit("bpf_run", help, Unit::Seconds, own.programs.clone());
        to.register_with_unit("process_cpu", "CPU time of the agent", Unit::Seconds, own.cpu.clone());
        let help = "Memory of the agent that is resident";
        to.register_with_unit("process_resident_memory", help, Unit::Bytes, own.resident.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        to.register("build", "The podlapse that runs", build);
        own
    }

    pub(super) fn progress(&self, progress: &Progress) {
        let Progress { standing, held, records, payload, programs_ns } = *progress;
        self.open.set(signed(standing.open_starts as u64));
        self.held.set(signed(held as u64));
        self.oldest.set(seconds(standing.oldest_ns.unwrap_or(0)));
        for (counter, now) in [
            (&self.records, records),
            (&self.payload, payload),
            (&self.lost, standing.lost_records),
            (&self.undecoded, standing.undecoded_bytes),
            (&self.evicted, standing.evicted),
        ] {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
        raise(&self.programs, seconds(programs_ns.unwrap_or(0)));
    }

    /// What is known of this process alone.
    pub(super) fn look(&self) {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        raise(&self.cpu, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let resident = pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok());
        self.resident.set(signed(resident.unwrap_or(0) * rustix::param::page_size() as u64));
    }
}

fn raise(counter: &Seconds, to: f64) {
    counter.inc_by((to - counter.get()).max(0.0));
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
