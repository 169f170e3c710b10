//! Values of the file with their places, so that an error can show where it is.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use containers::config::nearest::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::units;
use crate::error::{Error, Result};

/// The longest name of a cluster or service: a host name has 63 letters, and a replica's number
/// follows.
const LONGEST: usize = 40;

/// The file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'t> {
    pub(super) path: &'t Path,
    pub(super) text: &'t str,
}

impl<'t> Reader<'t> {
    /// Reads the file as TOML.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'t>>> {
        DeTable::parse(self.text).map_err(|error| {
            let place = error.span().unwrap_or(0..0);
            let doubled = error.message().contains("duplicate key");
            let hint = if doubled {
                "each name stands once: rename one, or put both into one table"
            } else {
                "a cluster file is TOML (toml.io); texts are in quotes"
            };
            self.wrong(&place, error.message(), hint)
        })
    }

    /// An error about a part of the file.
    pub(super) fn wrong(&self, place: &Range<usize>, fact: &str, hint: &str) -> Error {
        let path = self.path.display().to_string();
        let end = place.end.max(place.start).min(self.text.len());
        // Of a value of several lines the first is enough.
        let first = self.text[place.start.min(end)..end].lines().next().map_or(0, str::len);
        let span = place.start.min(end)..place.start.min(end) + first;
        let source = Snippet::source(self.text).path(&*path).fold(true);
        let source = source.annotation(AnnotationKind::Primary.span(span));
        let group = Group::with_level(Level::ERROR).element(source);
        let excerpt = Renderer::plain().render(&[group]);
        Error::new(fact).with_excerpt(excerpt.trim_end().to_owned()).with_hint(hint)
    }
}

/// A table of the file.
#[derive(Debug, Clone)]
pub(super) struct Table<'r> {
    reader: &'r Reader<'r>,
    /// How it is called in errors: `service.db`, empty for the whole file.
    pub(super) name: String,
    place: Range<usize>,
    entries: &'r DeTable<'r>,
}

impl<'r> Table<'r> {
    /// A table with these keys and no others.
    pub(super) fn of(
        reader: &'r Reader<'r>,
        name: &str,
        table: &'r Spanned<DeTable<'r>>,
        known: &[&str],
    ) -> Result<Self> {
        Self::with(reader, name, table.span(), table.get_ref(), known)
    }

    fn with(
        reader: &'r Reader<'r>,
        name: &str,
        place: Range<usize>,
        table: &'r DeTable<'r>,
        known: &[&str],
    ) -> Result<Self> {
        let own = Self { reader, name: name.to_owned(), place, entries: table };
        let unknown = |(key, _): &(&Spanned<Cow<'_, str>>, _)| !known.contains(&&**key.get_ref());
        match own.entries.iter().find(unknown) {
            Some((key, _)) => Err(own.unknown(key, known)),
            None => Ok(own),
        }
    }

    fn unknown(&self, key: &Spanned<Cow<'_, str>>, known: &[&str]) -> Error {
        let hint = match nearest(key.get_ref(), known.iter().copied(), 3) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        let within =
            if self.name.is_empty() { String::new() } else { format!(" in {}", self.name) };
        let fact = format!("unknown key {:?}{within}", key.get_ref());
        self.reader.wrong(&key.span(), &fact, &hint)
    }

    fn named(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Value<'r>> {
        let (_, value) = self.entries.iter().find(|(name, _)| &**name.get_ref() == key)?;
        let (place, value) = (value.span(), value.get_ref());
        Some(Value { reader: self.reader, name: self.named(key), place, it: value })
    }

    /// The value of a key without which the table means nothing.
    pub(super) fn need(&self, key: &str, hint: &str) -> Result<Value<'r>> {
        self.get(key).ok_or_else(|| {
            let of = if self.name.is_empty() { "the file" } else { &self.name };
            self.wrong(&format!("{of} has no key {key:?}"), hint)
        })
    }

    /// The table at a key.
    pub(super) fn table(&self, key: &str, known: &[&str]) -> Result<Option<Self>> {
        self.get(key).map(|value| value.table(known)).transpose()
    }

    /// The texts at a key: none, one, or an array.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>> {
        self.get(key).map_or(Ok(Vec::new()), |value| value.texts())
    }

    /// All entries, in the order of the file.
    pub(super) fn entries(&self) -> Vec<(String, Value<'r>)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&'r Spanned<Cow<'_, str>>, &'r Spanned<DeValue<'r>>)| {
            let name = self.named(key.get_ref());
            let value =
                Value { reader: self.reader, name, place: value.span(), it: value.get_ref() };
            (key.get_ref().clone().into_owned(), value)
        };
        all.into_iter().map(entry).collect()
    }

    /// An error about the table.
    pub(super) fn wrong(&self, fact: &str, hint: &str) -> Error {
        self.reader.wrong(&self.place, fact, hint)
    }
}

/// A value of the file.
#[derive(Debug, Clone)]
pub(super) struct Value<'r> {
    reader: &'r Reader<'r>,
    /// How it is called in errors: `service.db.replicas`.
    pub(super) name: String,
    place: Range<usize>,
    it: &'r DeValue<'r>,
}

impl<'r> Value<'r> {
    /// An error about the value. The fact is said of it: "is empty".
    pub(super) fn wrong(&self, fact: &str, hint: &str) -> Error {
        self.reader.wrong(&self.place, &format!("{}: {fact}", self.name), hint)
    }

    fn is(&self, what: &str, hint: &str) -> Error {
        self.wrong(&format!("this is not {what}"), hint)
    }

    /// A text.
    pub(super) fn text(&self) -> Result<&'r str> {
        match self.it {
            DeValue::String(text) => Ok(text),
            _ => Err(self.is("a text", "write it in quotes")),
        }
    }

    /// A text that is not empty and has no control characters, line breaks among them: it comes
    /// into scripts, command lines and messages.
    pub(super) fn filled(&self) -> Result<String> {
        let text = self.text()?;
        if text.is_empty() || text.contains('\n') {
            return Err(self.wrong("this is empty, or has several lines", "write one line"));
        }
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            let fact = format!("this has the control character {}", control.escape_default());
            return Err(self.wrong(&fact, "leave it out"));
        }
        Ok(text.to_owned())
    }

    /// One word, such as the name of a queue: a directive of a batch script has it as it is.
    pub(super) fn word(&self) -> Result<String> {
        let text = self.filled()?;
        if text.contains(char::is_whitespace) {
            return Err(self.wrong("this has blanks", "write one word"));
        }
        Ok(text)
    }

    /// An absolute path.
    pub(super) fn absolute(&self) -> Result<String> {
        let text = self.filled()?;
        if text.starts_with('/') {
            Ok(text)
        } else {
            Err(self.is("an absolute path", "it is a path in the container: begin with /"))
        }
    }

    /// The name of a cluster or service: it is a host name, too.
    pub(super) fn name(&self) -> Result<String> {
        let text = self.text()?;
        check_name(text).map_err(|why| self.wrong(&why, NAME_HINT))?;
        Ok(text.to_owned())
    }

    /// A whole number in a range.
    pub(super) fn number(&self, range: RangeInclusive<u64>) -> Result<u64> {
        let number = match self.it {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.is(&format!("a whole number from {least} to {most}"), "write it without quotes")
        })
    }

    /// A truth value.
    pub(super) fn flag(&self) -> Result<bool> {
        match self.it {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.is("true or false", "write true or false, without quotes")),
        }
    }

    /// A time with its unit.
    pub(super) fn time(&self) -> Result<Duration> {
        let hint = "write a text with a unit: \"10s\", \"1h30m\", or \"00:30:00\"";
        let DeValue::String(text) = self.it else { return Err(self.is("a time", hint)) };
        units::time(text).ok_or_else(|| self.is("a time", hint))
    }

    /// A size in bytes with its unit.
    pub(super) fn size(&self) -> Result<u64> {
        let hint = "write a text with a unit: \"512M\", \"2G\"";
        let DeValue::String(text) = self.it else { return Err(self.is("a size", hint)) };
        units::size(text).ok_or_else(|| self.is("a size", hint))
    }

    /// One of some words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T> {
        let text = self.text()?;
        if let Some((_, found)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*found);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(text, known.iter().copied(), 3) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are {}", known.join(", ")),
        };
        Err(self.wrong(&format!("there is no {text:?}"), &hint))
    }

    /// One text or several.
    pub(super) fn texts(&self) -> Result<Vec<String>> {
        match self.it {
            DeValue::String(_) => Ok(vec![self.filled()?]),
            DeValue::Array(_) => self.array()?.iter().map(Value::filled).collect(),
            _ => Err(self.is("a list of texts", "write [\"ONE\", \"TWO\"]")),
        }
    }

    /// Words of a command. One text is for a shell, as in Docker's files.
    pub(super) fn words(&self) -> Result<Vec<String>> {
        match self.it {
            DeValue::String(text) if text.is_empty() => Ok(Vec::new()),
            DeValue::String(text) => {
                Ok(vec!["/bin/sh".to_owned(), "-c".to_owned(), text.clone().into_owned()])
            }
            DeValue::Array(_) => {
                self.array()?.iter().map(|word| word.text().map(str::to_owned)).collect()
            }
            _ => Err(self.is("a command", "write [\"PROGRAM\", \"WORD\"]")),
        }
    }

    /// The values of an array.
    pub(super) fn array(&self) -> Result<Vec<Value<'r>>> {
        let DeValue::Array(all) = self.it else {
            return Err(self.is("a list", "write [ONE, TWO]"));
        };
        let entry = |(number, value): (usize, &'r Spanned<DeValue<'r>>)| Value {
            reader: self.reader,
            name: format!("{}[{number}]", self.name),
            place: value.span(),
            it: value.get_ref(),
        };
        Ok(all.iter().enumerate().map(entry).collect())
    }

    /// Whether it is a table.
    pub(super) const fn is_table(&self) -> bool {
        matches!(self.it, DeValue::Table(_))
    }

    /// Whether it is a text.
    pub(super) const fn is_text(&self) -> bool {
        matches!(self.it, DeValue::String(_))
    }

    /// The table, which has these keys and no others.
    pub(super) fn table(&self, known: &[&str]) -> Result<Table<'r>> {
        let DeValue::Table(table) = self.it else {
            return Err(self.is("a table", "write { KEY = VALUE }, or [NAME] above its keys"));
        };
        Table::with(self.reader, &self.name, self.place.clone(), table, known)
    }

    /// The table, whose keys are names of services.
    pub(super) fn named_tables(&self) -> Result<Vec<(String, Value<'r>)>> {
        let DeValue::Table(table) = self.it else {
            return Err(self.is("a table", "write [service.NAME] above the keys of a service"));
        };
        for (key, _) in table {
            check_name(key.get_ref()).map_err(|why| {
                self.reader.wrong(&key.span(), &format!("{}: {why}", self.name), NAME_HINT)
            })?;
        }
        let (reader, name, place) = (self.reader, self.name.clone(), self.place.clone());
        Ok(Table { reader, name, place, entries: table }.entries())
    }

    /// Variables: texts, whole numbers, truth values.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>> {
        let DeValue::Table(table) = self.it else {
            return Err(self.is("a table of variables", "write { NAME = \"VALUE\" }"));
        };
        let (reader, name, place) = (self.reader, self.name.clone(), self.place.clone());
        let table = Table { reader, name, place, entries: table };
        let pair = |(key, value): (String, Value<'r>)| {
            if key.is_empty() || key.contains(['=', '\0']) {
                let fact = "this is no name of a variable";
                return Err(value.wrong(fact, "a name is not empty and has no ="));
            }
            let text = match value.it {
                DeValue::String(text) if !text.contains('\0') => text.clone().into_owned(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
                DeValue::Boolean(flag) => flag.to_string(),
                _ => return Err(value.is("a text", "write the value in quotes")),
            };
            Ok((key, text))
        };
        table.entries().into_iter().map(pair).collect()
    }

    /// `ADDRESS/BITS` of IPv4.
    pub(super) fn subnet(&self) -> Result<String> {
        let text = self.filled()?;
        let parts = text
            .split_once('/')
            .map(|(address, bits)| (address.parse::<std::net::Ipv4Addr>(), bits.parse::<u8>()));
        match parts {
            Some((Ok(_), Ok(8..=30))) => Ok(text),
            _ => Err(self.is("a range of addresses", "write ADDRESS/BITS: \"100.80.0.0/20\"")),
        }
    }
}

pub(super) const NAME_HINT: &str = "use letters a-z, digits and hyphens, beginning with a letter";

pub(super) fn check_name(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if text.len() > LONGEST {
        return Err(format!("{text:?} is longer than {LONGEST} letters"));
    }
    if !begins || !text.chars().all(fits) || text.ends_with('-') {
        return Err(format!("{text:?} is no host name"));
    }
    Ok(())
}
