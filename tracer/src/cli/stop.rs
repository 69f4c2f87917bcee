//! Ctrl-C: once to print what is known, twice to end at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process with code 1.
///
/// A thread of its own watches for them, so that also a run that waits for a full pipe can be ended.
///
/// # Errors
/// When the handlers cannot be installed.
pub(super) fn on_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let [Ok(interrupt), Ok(terminate), Ok(hangup)] = &mut signals else { return };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if flag.swap(true, Ordering::Relaxed) {
                    std::process::exit(1);
                }
            }
        });
    })?;
    Ok(stop)
}
