//! Where records come from. Live and replay differ here and nowhere else.

use crate::ids::{ConnId, Tgid};
use crate::probe::{ProbeError, Session};
use crate::record::Record;
use crate::recording::{ReadError, Reader};

/// Of a recording that is read to where it stops, which is not its end.
pub(super) const NO_END: &str =
    "recording has no end: it is still being written, or was cut off; what it holds was read";

/// A source of records, in the order of their times.
pub(super) trait Source {
    /// What ends it early.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The next records; `None` at the end, which only a recording has. A live source comes back each 100 ms or so.
    async fn next(&mut self) -> Result<Option<Vec<Record>>, Self::Error>;

    /// Adds a mark ([`tracer_ebpf::mark`]) with the time of this call to the records.
    fn mark(&mut self, what: u32);

    /// Nobody needs that connection's bytes. A recording has what its run had.
    fn mute(&mut self, _conn: ConnId) {}

    /// What these processes wait for shall come as records. A recording has what its run had.
    fn look(&mut self, _pids: &[Tgid]) {}

    /// What the programs in the kernel took, as of late, where it is counted.
    fn programs_ns(&mut self) -> Option<u64> {
        None
    }

    /// What a person should hear besides the traces.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Ends it; gives the records that were on their way.
    async fn finish(&mut self) -> Vec<Record>;
}

impl Source for Reader {
    type Error = ReadError;

    async fn next(&mut self) -> Result<Option<Vec<Record>>, ReadError> {
        self.read_frame()
    }

    /// A recording has the marks of its run.
    fn mark(&mut self, _what: u32) {}

    async fn finish(&mut self) -> Vec<Record> {
        Vec::new()
    }
}

impl Source for Session {
    type Error = ProbeError;

    async fn next(&mut self) -> Result<Option<Vec<Record>>, ProbeError> {
        Session::next(self).await.map(Some)
    }

    fn mark(&mut self, what: u32) {
        Session::mark(self, what);
    }

    fn mute(&mut self, conn: ConnId) {
        Session::mute(self, conn);
    }

    fn look(&mut self, pids: &[Tgid]) {
        Session::look(self, pids);
    }

    fn programs_ns(&mut self) -> Option<u64> {
        Session::programs_ns(self)
    }

    fn news(&mut self) -> Vec<String> {
        Session::news(self)
    }

    async fn finish(&mut self) -> Vec<Record> {
        Session::finish(self).await
    }
}
