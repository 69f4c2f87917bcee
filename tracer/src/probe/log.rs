//! Lines that the programs of a debug build write, on stderr when `PODLAPSE_BPF_LOG` is set. A release build's programs
//! write none.

use std::fmt;

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// Whether to show the lines.
const VARIABLE: &str = "PODLAPSE_BPF_LOG";

/// Where the lines go.
pub(crate) struct Lines(Option<EbpfLogger<Stderr>>);

struct Stderr;

impl Lines {
    /// The programs' lines, if they write any and somebody wants them.
    pub(crate) fn of(ebpf: &mut Ebpf) -> Lines {
        let wanted = std::env::var_os(VARIABLE).is_some();
        Lines(if wanted { EbpfLogger::init_with_logger(ebpf, Stderr).ok() } else { None })
    }

    /// Shows what has come.
    pub(crate) fn flush(&mut self) {
        if let Some(logger) = &mut self.0 {
            logger.flush();
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        eprintln!("bpf: {}: {}", record.target(), record.args());
    }

    fn flush(&self) {}
}
