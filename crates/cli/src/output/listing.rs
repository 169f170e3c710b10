//! One way for all listings: a table, ids alone (`-q`), JSON lines, or a template of the user's.

use serde_json::{Map, Value};

use super::table;
use super::template::Template;
use crate::report::Report;

/// A column: the field of a row and its heading.
pub(crate) type Column = (&'static str, &'static str);

/// A row, as much of it as will be shown.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A line whose cells are parted by tabs.
    Line(String),
    /// All fields.
    Row(Value),
}

/// How a listing is to be shown.
pub(crate) struct Listing<'a> {
    /// The user's `--format`.
    pub format: Option<&'a str>,
    /// Columns of the table when no format was given.
    pub shown: &'a [Column],
    /// Headings of fields that only formats show.
    pub more: &'a [Column],
    /// `-q`: only this field, one per line.
    pub quiet: Option<&'a str>,
}

impl Listing<'_> {
    /// Whether a field can show: a format may ask for any, the table and `-q` are known beforehand.
    pub(crate) fn uses(&self, field: &str) -> bool {
        match (self.format, self.quiet) {
            (None, Some(quiet)) => field == quiet,
            (None | Some("table" | ""), _) => self.shown.iter().any(|(shown, _)| *shown == field),
            (Some(_), _) => true,
        }
    }

    /// Renders all rows (objects with the fields named in the columns).
    pub(crate) fn render(&self, rows: &[Value]) -> Result<String, Report> {
        match self.format {
            None if self.quiet.is_some() => {
                let field = self.quiet.unwrap_or_default();
                Ok(rows.iter().map(|row| text(row, field) + "\n").collect())
            }
            None | Some("table" | "") => Ok(self.table(rows)),
            Some("json") => lines(rows, "{{json .}}"),
            Some(format) => match format.strip_prefix("table") {
                Some(format) if format.starts_with([' ', '\t', '{', '\\']) => {
                    let parsed = Template::parse(format.trim_start())?;
                    let mut lines = vec![parsed.headings(&self.headings(rows))?];
                    for row in rows {
                        lines.push(parsed.render(row)?);
                    }
                    Ok(table::columns(&lines))
                }
                _ => lines(rows, format),
            },
        }
    }

    /// A row as it is kept until all are there: of a table or of ids the line alone, because ten
    /// thousand rows are tens of megabytes.
    pub(crate) fn entry(&self, row: Value) -> Entry {
        match self.format {
            None | Some("table" | "") => Entry::Line(self.line(&row)),
            Some(_) => Entry::Row(row),
        }
    }

    /// Renders what [`Listing::entry`] made.
    pub(crate) fn finish(&self, entries: Vec<Entry>) -> Result<String, Report> {
        let mut lines = vec![self.heading()];
        let mut rows = Vec::new();
        for entry in entries {
            match entry {
                Entry::Line(line) => lines.push(line),
                Entry::Row(row) => rows.push(row),
            }
        }
        match self.format {
            None if self.is_quiet() => {
                Ok(lines[1..].iter().flat_map(|line| [line.as_str(), "\n"]).collect())
            }
            None | Some("table" | "") => Ok(table::columns(&lines)),
            Some(_) => self.render(&rows),
        }
    }

    fn is_quiet(&self) -> bool {
        self.format.is_none() && self.quiet.is_some()
    }

    fn heading(&self) -> String {
        let headings: Vec<&str> = self.shown.iter().map(|(_, heading)| *heading).collect();
        headings.join("\t")
    }

    /// A row of the table, cells parted by tabs, or the one field of `-q`.
    fn line(&self, row: &Value) -> String {
        if self.is_quiet() {
            return text(row, self.quiet.unwrap_or_default());
        }
        let mut line = String::with_capacity(120);
        for (index, (field, _)) in self.shown.iter().enumerate() {
            if index > 0 {
                line.push('\t');
            }
            line.push_str(&table::cell(&text(row, field)));
        }
        line
    }

    fn table(&self, rows: &[Value]) -> String {
        let mut lines = Vec::with_capacity(rows.len() + 1);
        lines.push(self.heading());
        lines.extend(rows.iter().map(|row| self.line(row)));
        table::columns(&lines)
    }

    /// Each known field with its heading; fields of the rows without one get their name in
    /// capitals.
    fn headings(&self, rows: &[Value]) -> Value {
        let mut names = Map::new();
        if let Some(Value::Object(row)) = rows.first() {
            for field in row.keys() {
                names.insert(field.clone(), field.to_uppercase().into());
            }
        }
        for (field, heading) in self.shown.iter().chain(self.more) {
            names.insert((*field).to_owned(), (*heading).into());
        }
        names.into()
    }
}

fn lines(rows: &[Value], format: &str) -> Result<String, Report> {
    let parsed = Template::parse(format)?;
    let mut out = String::new();
    for row in rows {
        out.push_str(&parsed.render(row)?);
        out.push('\n');
    }
    Ok(out)
}

fn text(row: &Value, field: &str) -> String {
    match row.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way() {
        let rows = [json!({"ID": "abc", "Names": "x"}), json!({"ID": "def", "Names": "why"})];
        let listing = |format, quiet| Listing {
            format,
            shown: &[("ID", "CONTAINER ID"), ("Names", "NAMES")],
            more: &[],
            quiet,
        };
        let show = |format, quiet| listing(format, quiet).render(&rows).unwrap();
        assert_eq!(
            show(None, None),
            "CONTAINER ID   NAMES\nabc            x\ndef            why\n"
        );
        assert_eq!(show(None, Some("ID")), "abc\ndef\n");
        assert_eq!(show(Some("{{.Names}}"), Some("ID")), "x\nwhy\n");
        assert_eq!(
            show(Some("json"), None),
            "{\"ID\":\"abc\",\"Names\":\"x\"}\n{\"ID\":\"def\",\"Names\":\"why\"}\n"
        );
        assert_eq!(
            show(Some("table {{.Names}}\\t{{.ID}}"), None),
            "NAMES     CONTAINER ID\nx         abc\nwhy       def\n"
        );
    }
}
