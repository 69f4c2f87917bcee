//! Text for a terminal: names come from pods, so nothing in them may move the cursor or hide what follows.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Which characters an output may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Bytes 0x20 to 0x7e.
    Ascii,
    /// Whatever is printable.
    Unicode,
}

impl Charset {
    /// `text` with everything escaped that is not a printable character of this set.
    pub(crate) fn clean(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\n' | '\t' | '\r' => clean.extend(c.escape_default()),
                ' '..='~' => clean.push(c),
                _ if self == Charset::Ascii || c.is_control() || invisible(c) => clean.extend(c.escape_unicode()),
                _ => clean.push(c),
            }
        }
        clean
    }

    /// Clean `text` shortened in its middle to `width` columns.
    pub(super) fn shorten(self, text: &str, width: usize) -> String {
        if text.width() <= width {
            return text.to_owned();
        }
        let mark = if self == Charset::Ascii { "~" } else { "…" };
        let room = width.saturating_sub(1);
        let tail_room = room / 3;
        let head = head(text, room - tail_room);
        let tail = tail(text, room - head.width());
        if width == 0 { String::new() } else { format!("{head}{mark}{tail}") }
    }

    /// Clean `text` in exactly `width` columns, to the left.
    pub(super) fn fit(self, text: &str, width: usize) -> String {
        let mut text = self.shorten(text, width);
        text.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
        text
    }
}

/// Characters that show nothing, or that change the order of what follows (bidirectional controls, tags, joiners).
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{115f}'..='\u{1160}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..)
}

/// The longest beginning of at most `width` columns.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > width
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// The longest end of at most `width` columns.
fn tail(text: &str, width: usize) -> &str {
    let mut used = 0;
    let begin = text.char_indices().rev().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > width
    });
    &text[begin.map_or(0, |(at, c)| at + c.len_utf8())..]
}

/// `parts` joined by two spaces into lines of at most `width` columns; a longer part has a line of its own.
pub(super) fn flow(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.width() + 2 + part.width() <= width => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Clean `text` in at most `limit` lines of at most `width` columns, broken at spaces where there are some.
pub(super) fn wrap(text: &str, width: usize, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if lines.len() == limit {
            if let Some(last) = lines.last_mut() {
                *last = format!("{}...", head(last, width.saturating_sub(3)));
            }
            break;
        }
        let mut line = head(rest, width.max(2));
        if line.len() < rest.len()
            && let Some(space) = line.rfind(' ')
            && space > line.len() / 2
        {
            line = &line[..space];
        }
        lines.push(line.trim_end().to_owned());
        rest = rest[line.len()..].trim_start();
    }
    lines
}

/// Share with one decimal, rounded; of nothing it is everything.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let mille =
        (u128::from(part) * 1000 + u128::from(whole / 2)).checked_div(u128::from(whole)).unwrap_or(1000).min(1000);
    format!("{}.{}%", mille / 10, mille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        let evil = "a\x1b[2Jb\u{9b}31mc\x07\u{202e}d\u{200b}e\r\nf\u{7f}";
        let clean = Charset::Unicode.clean(evil);
        assert_eq!(clean, r"a\u{1b}[2Jb\u{9b}31mc\u{7}\u{202e}d\u{200b}e\r\nf\u{7f}");
        assert_eq!(Charset::Unicode.clean("größe 网"), "größe 网");
        assert_eq!(Charset::Ascii.clean("größe 网"), r"gr\u{f6}\u{df}e \u{7f51}");
        for c in '\0'..=char::MAX {
            let clean = Charset::Ascii.clean(&c.to_string());
            assert!(clean.bytes().all(|b| (0x20..0x7f).contains(&b)), "{clean:?}");
            assert!(!Charset::Unicode.clean(&c.to_string()).chars().any(char::is_control));
        }
    }

    #[test]
    fn shortened_to_columns() {
        for (text, width, short) in [
            ("abc", 3, "abc"),
            ("abcdefghij", 7, "abcd~ij"),
            ("abc", 1, "~"),
            ("abc", 0, ""),
            ("网络网络网络", 5, "网~络"),
        ] {
            assert_eq!(Charset::Ascii.shorten(text, width), short);
        }
        assert_eq!(Charset::Unicode.fit("网络网络网络", 6), "网络… ");
    }

    #[test]
    fn wrapped() {
        assert_eq!(wrap("one two three four", 9, 9), ["one two", "three", "four"]);
        assert_eq!(wrap("aaaaaaaaaaaa", 5, 9), ["aaaaa", "aaaaa", "aa"]);
        assert_eq!(wrap("one two three four", 9, 2), ["one two", "three..."]);
        assert_eq!(wrap("", 9, 2), [""; 0]);
    }
}
