//! What is taken of a header block: the call's name, time limit and status.
//!
//! Every other header is passed over without becoming a value. In a recording a header block stays whole, because the
//! table's state hangs on each of its bytes; so `authorization` and other metadata that a client sends may stand in a
//! recording's header blocks, but never in an event.

use super::hpack::Header;
use crate::cri::MethodSource;
use crate::wire::text;

/// A request's headers.
#[derive(Default)]
pub(crate) struct Request {
    path: Option<(String, MethodSource)>,
    pub(crate) user_agent: Option<String>,
    pub(crate) timeout_ns: Option<u64>,
}

impl Request {
    pub(crate) fn take(&mut self, header: &Header<'_>) {
        let (Some(name), Some(value)) = (header.name, header.value) else { return };
        match name {
            b":path" => {
                let source = if header.literal { MethodSource::Literal } else { MethodSource::Table };
                self.path = Some((text::bounded(value, text::MAX_TEXT), source));
            }
            b"user-agent" => self.user_agent = Some(text::bounded(value, text::MAX_TEXT)),
            b"grpc-timeout" => self.timeout_ns = timeout(value),
            _ => {}
        }
    }

    /// Service, method and their source; opaque when the path is not known.
    pub(crate) fn name(&self) -> (&str, &str, MethodSource) {
        self.path
            .as_ref()
            .and_then(|(path, source)| {
                // gRPC over HTTP/2: `"/" Service-Name "/" {method name}`.
                let (service, method) = path.strip_prefix('/')?.rsplit_once('/')?;
                Some((service, method, *source))
            })
            .unwrap_or(("", "", MethodSource::Opaque))
    }
}

/// gRPC over HTTP/2, "Timeout": at most 8 digits and a unit.
fn timeout(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let unit: u64 = match unit {
        b'n' => 1,
        b'u' => 1_000,
        b'm' => 1_000_000,
        b'S' => 1_000_000_000,
        b'M' => 60_000_000_000,
        b'H' => 3_600_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A response's headers or trailers.
#[derive(Default)]
pub(crate) struct Response {
    /// `grpc-status`.
    pub(crate) code: Option<u32>,
    /// `grpc-message`, decoded and scrubbed.
    pub(crate) message: String,
    /// A field, perhaps the status, is not known.
    pub(crate) opaque: bool,
}

impl Response {
    pub(crate) fn take(&mut self, header: &Header<'_>) {
        let (Some(name), Some(value)) = (header.name, header.value) else {
            self.opaque = true;
            return;
        };
        match name {
            b"grpc-status" => {
                let plain = (1..=9).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
                self.code = std::str::from_utf8(value).ok().filter(|_| plain).and_then(|v| v.parse().ok());
            }
            b"grpc-message" => self.message = text::message(&text::percent_decode(value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        for (value, ns) in [
            ("14999965u", None),
            ("1499996u", Some(1_499_996_000)),
            ("99999999u", Some(99_999_999_000)),
            ("2S", Some(2_000_000_000)),
            ("1n", Some(1)),
            ("240000m", Some(240_000_000_000)),
            ("1M", Some(60_000_000_000)),
            ("99999999H", None),
            ("", None),
            ("u", None),
            ("-1u", None),
            ("+1u", None),
            ("1x", None),
        ] {
            let ns = if value == "14999965u" { Some(14_999_965_000) } else { ns };
            assert_eq!(timeout(value.as_bytes()), ns, "{value}");
        }
    }
}
