//! Columns as Docker prints them: left-aligned, at least ten wide, three spaces apart, nothing
//! after the last.
//!
//! The layout is that of Go's `tabwriter.NewWriter(out, 10, 1, 3, ' ', 0)`, which scripts that cut
//! columns by position have come to expect. Widths are those of the terminal, not bytes. Table
//! crates (`comfy-table`, `tabled`) know no least width per column together with nothing after the
//! last one, so the twenty lines are ours.

use unicode_width::UnicodeWidthStr;

const LEAST: usize = 10;
const GAP: usize = 3;

/// Renders lines whose cells are parted by tabs.
pub(crate) fn columns(lines: &[String]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        let mut cells = line.split('\t').enumerate().peekable();
        while let Some((index, cell)) = cells.next() {
            if cells.peek().is_none() {
                break;
            }
            let wide = (width(cell) + GAP).max(LEAST);
            match widths.get_mut(index) {
                Some(width) => *width = wide.max(*width),
                None => widths.push(wide),
            }
        }
    }
    let mut out = String::with_capacity(lines.len() * 100);
    for line in lines {
        let mut cells = line.split('\t').enumerate().peekable();
        while let Some((index, cell)) = cells.next() {
            out.push_str(cell);
            if cells.peek().is_some() {
                let missing =
                    widths.get(index).map_or(GAP, |wide| wide.saturating_sub(width(cell)));
                out.extend(std::iter::repeat_n(' ', missing));
            }
        }
        out.push('\n');
    }
    out
}

/// Columns of the terminal that a text takes. Nearly all of it is plain, and then its length.
fn width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) { text.len() } else { text.width() }
}

/// One cell: tabs and line ends would break the table.
pub(crate) fn cell(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

/// Shortens to `limit` characters, the last one an ellipsis, as Docker does.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(limit - 1).collect();
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_dockers() {
        let lines = ["REPOSITORY\tTAG\tSIZE", "debian\tstable-slim-and-long\t77.8MB", "é\tx\t1B"];
        let text = columns(&lines.map(str::to_owned));
        assert_eq!(
            text,
            "REPOSITORY   TAG                    SIZE\n\
             debian       stable-slim-and-long   77.8MB\n\
             é            x                      1B\n"
        );
    }

    #[test]
    fn shortening() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdefg", 6), "abcde…");
    }
}
