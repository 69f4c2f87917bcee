//! Tables of text.

use unicode_width::UnicodeWidthStr;

use super::Charset;

/// Narrowest first column.
const MIN_FIRST: usize = 12;

/// Lines of clean cells in columns, the first `left` columns to the left and the others to the right. Where they are
/// wider than `width`, the first column is shortened.
pub(super) fn lines(rows: &[Vec<String>], left: usize, width: Option<usize>, charset: Charset) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.width())).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    if let (Some(width), [first, rest @ ..]) = (width, &mut widths[..]) {
        let others: usize = rest.iter().map(|column| column + 2).sum();
        *first = (*first).min(width.saturating_sub(others).max(MIN_FIRST));
    }
    let cell = |(column, text): (usize, &String)| {
        let (text, gap) = (charset.shorten(text, widths[column]), if column > 0 { "  " } else { "" });
        let fill = " ".repeat(widths[column] - text.width());
        if column < left { format!("{gap}{text}{fill}") } else { format!("{gap}{fill}{text}") }
    };
    let line = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned();
    rows.iter().map(line).collect()
}
