//! Text from the wire: bounded, made UTF-8, and rid of what URLs carry besides their place.
//!
//! Never lets a user name, password, token or signature of a URL through to a value.

/// Longest identity text (names, ids, paths, images), in bytes.
pub(crate) const MAX_TEXT: usize = 512;

/// Longest status message, in bytes; a runtime's error may quote a program's log.
pub(crate) const MAX_MESSAGE: usize = 4096;

/// At most `max` bytes as text; what is not UTF-8 is replaced, and a character cut by the bound is dropped.
pub(crate) fn bounded(bytes: &[u8], max: usize) -> String {
    let mut head = bytes.get(..max).unwrap_or(bytes);
    if head.len() < bytes.len()
        && let Err(error) = std::str::from_utf8(head)
        && error.error_len().is_none()
    {
        head = &head[..error.valid_up_to()];
    }
    String::from_utf8_lossy(head).into_owned()
}

/// A status message as a value: bounded and scrubbed.
pub(crate) fn message(bytes: &[u8]) -> String {
    scrub(&bounded(bytes, MAX_MESSAGE))
}

/// Undoes the percent-encoding of `grpc-message` (gRPC over HTTP/2, "Status-Message"); a malformed escape stays.
pub(crate) fn percent_decode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(h, l)| h << 4 | l),
            _ => None,
        };
        out.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Removes user info, query and fragment of every URL in `text`.
pub(crate) fn scrub(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        out.push_str(before);
        let (url, after) = url.split_at(url.find(ends_url).unwrap_or(url.len()));
        let place = url.split(['?', '#']).next().unwrap_or_default();
        out.push_str(without_user_info(url, place));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

/// `place` is `url` up to its query.
fn without_user_info<'a>(url: &'a str, place: &'a str) -> &'a str {
    let authority = place.split('/').next().unwrap_or_default();
    if let Some((_, host)) = authority.rsplit_once('@') {
        return &place[authority.len() - host.len()..];
    }
    // A password that holds `/`, `?` or `#` unescaped: what follows the colon is no port.
    let port = authority.split_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.bytes().all(|b| b.is_ascii_digit()))
        && let Some((_, host)) = url.rsplit_once('@')
    {
        return host.split(['?', '#']).next().unwrap_or_default();
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_user_info_and_query() {
        for (from, to) in [
            ("pull https://u:p@reg.io/v2/x: denied", "pull https://reg.io/v2/x: denied"),
            ("Get \"https://h/v2/?sig=abc&x=1\": EOF", "Get \"https://h/v2/\": EOF"),
            ("https://u:p/q@host/x", "https://host/x"),
            ("https://u:p?q@host/x?y", "https://host/x"),
            ("http://h:5000/a@sha256:00 and http://t@h#frag", "http://h:5000/a@sha256:00 and http://h"),
            ("https://u:p@[::1]:5000/v2?sig=1 x", "https://[::1]:5000/v2 x"),
            ("no url: a@b", "no url: a@b"),
            ("://", "://"),
        ] {
            assert_eq!(scrub(from), to);
        }
    }

    #[test]
    fn percent_escapes() {
        assert_eq!(percent_decode(b"a%20%C3%A9%"), "a é%".as_bytes());
        assert_eq!(percent_decode(b"%zz%4"), b"%zz%4");
    }

    #[test]
    fn bounds_fall_on_characters() {
        assert_eq!(bounded("aé".as_bytes(), 2), "a");
        assert_eq!(bounded(b"a\xff", 8), "a\u{fffd}");
        assert_eq!(bounded(b"a\xc3", 8), "a\u{fffd}", "cut by the sender, not by the bound");
    }
}
