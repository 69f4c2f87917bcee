//! Tables of text.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

use super::Charset;

/// Narrowest first column.
const MIN_FIRST: usize = 12;

/// Lines of clean cells in columns, the first `left` columns to the left and the others to the right. Where they are
/// wider than `width`, the columns of `spare` (counted from the first one to the right) are left out, one range after the
/// other; where that is not enough, the first column is shortened.
pub(super) fn lines(
    rows: &[Vec<String>],
    left: usize,
    width: Option<usize>,
    spare: &[Range<usize>],
    charset: Charset,
) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.width())).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut shown: Vec<usize> = (0..columns).collect();
    if let Some(width) = width {
        for range in spare {
            if shown.iter().map(|column| widths[*column] + 2).sum::<usize>() <= width + 2 {
                break;
            }
            shown.retain(|column| *column < left || !range.contains(&(column - left)));
        }
        let others: usize = shown.iter().skip(1).map(|column| widths[*column] + 2).sum();
        if let Some(first) = widths.first_mut() {
            *first = (*first).min(width.saturating_sub(others).max(MIN_FIRST));
        }
    }
    let cell = |(column, text): (usize, &String)| {
        let (text, gap) = (charset.shorten(text, widths[column]), if column > 0 { "  " } else { "" });
        let fill = " ".repeat(widths[column] - text.width());
        if column < left { format!("{gap}{text}{fill}") } else { format!("{gap}{fill}{text}") }
    };
    let line = |row: &Vec<String>| {
        let cells = shown.iter().filter_map(|column| Some((*column, row.get(*column)?)));
        cells.map(cell).collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is spared goes first, in its order, and the name is whole as long as that is enough.
    #[test]
    fn narrow() {
        let rows = [["stage", "count", "p50", "max", "share"], ["container.create", "12", "1.00 s", "9.00 s", "7.0%"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let table = |width| lines(&rows, 1, width, &[2..3, 1..2], Charset::Ascii);
        assert_eq!(table(None), table(Some(46)));
        assert_eq!(table(Some(46))[1], "container.create     12  1.00 s  9.00 s   7.0%");
        assert_eq!(table(Some(45))[1], "container.create     12  1.00 s   7.0%");
        assert_eq!(table(Some(30))[1], "container.create     12   7.0%");
        assert_eq!(table(Some(29)), ["stage            count  share", "container.~eate     12   7.0%"]);
    }
}
