//! A table of text whose columns are as wide as their longest cell.

use std::fmt::Write as _;

/// Rows under a headline.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new(names: &[&str]) -> Self {
        Self { rows: vec![names.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// One more row.
    pub fn row(&mut self, cells: &[&str]) {
        self.rows.push(cells.iter().map(|cell| (*cell).to_owned()).collect());
    }

    /// As text, two spaces between columns.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let wide = |n: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(n));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(wide).collect();
        let mut text = String::new();
        for row in &self.rows {
            let line: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (n, row) in self.rows.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if n == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        text
    }
}
