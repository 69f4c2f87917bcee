//! A panic is a bug, and its report may hold no payload.

use std::io::Write;

/// Says where a panic came from; what it said only when that is a text of the source, not one made from data.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let text = info.payload().downcast_ref::<&'static str>().copied().unwrap_or("(message withheld)");
        let _ = writeln!(std::io::stderr(), "podlapse: bug: panicked at {place}: {text}; please report it");
    }));
}
