//! What is taken of a header block: the call's name, time limit and status.
//!
//! Every other header is passed over without becoming a value. In a recording a header block stays whole, because the
//! table's state hangs on each of its bytes; so `authorization` and other metadata that a client sends may stand in a
//! recording's header blocks, but never in an event.

use super::hpack::Header;
use super::order::{Field, Order};
use crate::cri::{HeaderSigns, MethodSource};
use crate::wire::text;

/// A request's headers.
#[derive(Default)]
pub(crate) struct Request {
    path: Option<(String, MethodSource)>,
    pub(crate) user_agent: Option<String>,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) signs: HeaderSigns,
    /// Opaque entries among the pseudo-header fields, with their places.
    opaque: Vec<Field>,
    /// `:authority` stood in the table, or in the block.
    authority: bool,
}

/// RFC 9113, 8.3: `:method`, `:scheme`, `:path`, `:authority`, before all others.
const PSEUDO: u32 = 4;

/// Fields of every gRPC request: those, and `content-type`, `user-agent`, `te`.
const FIXED: u32 = 7;

impl Request {
    pub(crate) fn take(&mut self, header: &Header<'_>) {
        let place = self.signs.fields;
        self.signs.fields += 1;
        let (Some(name), Some(value)) = (header.name, header.value) else {
            match (header.opaque, header.value) {
                (Some(entry), _) if place < PSEUDO => self.opaque.push((place, entry)),
                // Of the fields that follow, only `grpc-timeout` looks so.
                (None, Some(value)) if place >= FIXED => self.timeout_ns = self.timeout_ns.or(timeout(value)),
                _ => {}
            }
            return;
        };
        match name {
            b":path" => {
                let source = if header.literal { MethodSource::Literal } else { MethodSource::Table };
                self.path = Some((text::bounded(value, text::MAX_TEXT), source));
                self.signs.inserted = header.inserted;
            }
            b":authority" => self.authority = true,
            b"user-agent" => self.user_agent = Some(text::bounded(value, text::MAX_TEXT)),
            b"grpc-timeout" => self.timeout_ns = timeout(value),
            b"containerd-namespace" => self.signs.namespace = true,
            _ => {}
        }
    }

    /// Service, method and their source; opaque when the path is not known.
    pub(crate) fn name(&self) -> (&str, &str, MethodSource) {
        self.path
            .as_ref()
            .and_then(|(path, source)| {
                // gRPC over HTTP/2: `"/" Service-Name "/" {method name}`; grpc-go's server does without the first one.
                let (service, method) = path.strip_prefix('/').unwrap_or(path).rsplit_once('/')?;
                Some((service, method, *source))
            })
            .unwrap_or(("", "", MethodSource::Opaque))
    }

    /// The one field that is opaque where the path is known: the authority.
    pub(crate) fn authority_entry(&self) -> Option<Field> {
        match self.opaque[..] {
            [authority] if self.path.is_some() && !self.authority => Some(authority),
            _ => None,
        }
    }

    /// The opaque entry that is the path, as far as the block itself and the connection's order tell.
    pub(crate) fn path_entry(&self, order: &mut Order) -> Option<u32> {
        match self.opaque[..] {
            [(_, path)] if self.authority && self.path.is_none() => Some(path),
            [first, second] => order.path([first, second]),
            _ => None,
        }
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
    /// The message stood in the block, not in the table.
    pub(crate) literal: bool,
    /// A field, perhaps the status, is not known.
    pub(crate) opaque: bool,
}

impl Response {
    pub(crate) fn take(&mut self, header: &Header<'_>) {
        match (header.name, header.value) {
            (Some(b"grpc-status"), Some(value)) => self.code = status(value),
            (Some(b"grpc-message"), Some(value)) => (self.message, self.literal) = (message(value), header.literal),
            (Some(_), Some(_)) => {}
            // A new value below a name of before the attach: the status is the number, and its message comes next.
            (None, Some(value)) if self.code.is_none() && status(value).is_some_and(|code| code <= UNAUTHENTICATED) => {
                self.code = status(value);
            }
            (None, Some(value)) if self.code.is_some() && self.message.is_empty() => self.message = message(value),
            _ => self.opaque = true,
        }
    }
}

/// The highest code of gRPC.
const UNAUTHENTICATED: u32 = 16;

fn status(value: &[u8]) -> Option<u32> {
    let plain = (1..=9).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| plain)?.parse().ok()
}

fn message(value: &[u8]) -> String {
    text::message(&text::percent_decode(value))
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

    /// A header of a block that was decoded with an opaque table: `?` is a half that is not known, `#n` its entry.
    fn header<'a>(name: &'a str, value: &'a str) -> Header<'a> {
        let half = |half: &'a str| Some(half.as_bytes()).filter(|half| *half != b"?");
        let opaque = value.strip_prefix('#').and_then(|entry| entry.parse().ok());
        let value = half(value).filter(|_| opaque.is_none());
        Header { name: half(name), value, literal: opaque.is_none(), inserted: false, opaque }
    }

    fn request(fields: &[(&str, &str)]) -> Request {
        let mut request = Request::default();
        fields.iter().for_each(|(name, value)| request.take(&header(name, value)));
        request
    }

    #[test]
    fn a_request_below_names_of_before_the_attach() {
        let grpc = [(":method", "POST"), (":scheme", "http"), ("?", "#4"), ("?", "#3"), ("?", "#2"), ("?", "#1")];
        let all = |more: &[(&'static str, &'static str)]| request(&[&grpc[..], &[("?", "#0")], more].concat());
        let late = all(&[("?", "14999965u")]);
        let path = |request: &Request| request.path_entry(&mut Order::default());
        assert_eq!(path(&late), Some(4));
        assert_eq!((late.timeout_ns, late.signs.fields), (Some(14_999_965_000), 8));
        assert_eq!(all(&[("?", "#9")]).timeout_ns, None);
        // A number that stands where no time limit can.
        assert_eq!(request(&[&grpc[..], &[("?", "3S")]].concat()).timeout_ns, None);
        assert!(all(&[("containerd-namespace", "k8s.io")]).signs.namespace);
        // With the path known, or with an order that is not grpc-go's, one block tells of no entry.
        assert_eq!(path(&request(&[(":method", "POST"), (":path", "/a/B"), ("?", "#4")])), None);
        assert_eq!(path(&request(&[("?", "#4"), ("?", "#3"), (":method", "POST"), (":scheme", "http")])), None);
        let known = request(&[(":method", "POST"), (":scheme", "http"), ("?", "#4"), (":authority", "localhost")]);
        assert_eq!(path(&known), Some(4));
    }

    #[test]
    fn a_status_below_names_of_before_the_attach() {
        let check = |fields: &[(&str, &str)], code, message: &str, opaque| {
            let mut response = Response::default();
            fields.iter().for_each(|(name, value)| response.take(&header(name, value)));
            assert_eq!(
                (response.code, response.message.as_str(), response.opaque),
                (code, message, opaque),
                "{fields:?}"
            );
        };
        check(&[("?", "5"), ("?", "no%20such 7")], Some(5), "no such 7", false);
        check(&[(":status", "200"), ("?", "#1"), ("?", "2"), ("?", "#0")], Some(2), "", true);
        check(&[("?", "#0"), ("?", "not found")], None, "", true);
        check(&[("grpc-status", "5"), ("?", "7")], Some(5), "7", false);
        check(&[("?", "17")], None, "", true);
    }
}
