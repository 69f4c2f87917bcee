//! Ctrl-C: once to print what is known, twice to end at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// Two signals this close are one wish: timeout(1) sends its signal to the process and to its group.
const SAME: Duration = Duration::from_millis(500);

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process with code 1. A SIGHUP that the
/// caller ignores, as `nohup` does, stays ignored.
///
/// A thread of its own watches for them, so that also a run that waits for a full pipe can be ended.
///
/// # Errors
/// When the handlers cannot be installed.
pub(super) fn on_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let first = Arc::new(OnceLock::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    for kind in kinds.into_iter().filter(|kind| *kind != SignalKind::hangup() || !ignored(*kind)) {
        let _inside = runtime.enter();
        let (mut signals, flag, first) = (signal(kind)?, Arc::clone(&stop), Arc::clone(&first));
        runtime.spawn(async move {
            while signals.recv().await.is_some() {
                flag.store(true, Ordering::Relaxed);
                if first.get_or_init(Instant::now).elapsed() > SAME {
                    std::process::exit(1);
                }
            }
        });
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(stop)
}

/// From now on a file that may grow no more (`ulimit -f`) is an error of the write; SIGXFSZ would end the process.
///
/// # Errors
/// When the handler cannot be installed.
pub(super) fn outlive_file_limit() -> io::Result<()> {
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Whether the caller had this process ignore a signal.
fn ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}
