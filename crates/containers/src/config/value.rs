//! The types that a setting can have: how each is read from TOML and from text, and how it is
//! shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value as Json;
use toml::Value as Toml;

/// What a value looks like, for the manual page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number between two bounds.
    Number(u64, u64),
    /// Bytes.
    Size,
    /// Seconds, or with a unit.
    Duration,
    /// A path.
    Path,
    /// Any text.
    Text,
    /// One of several words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of paths.
    Paths,
    /// A table of lists.
    Map,
}

impl Kind {
    /// The kind in words.
    pub fn describe(self) -> String {
        match self {
            Kind::Switch => "true or false".into(),
            Kind::Number(least, u64::MAX) => format!("a number, at least {least}"),
            Kind::Number(least, most) => format!("a number from {least} to {most}"),
            Kind::Size => "a size, such as 512k, 10m, 4g, or unlimited".into(),
            Kind::Duration => "a duration, such as 500ms, 30s, 5m".into(),
            Kind::Path => "an absolute path".into(),
            Kind::Text => "a text".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Texts => "a list of texts".into(),
            Kind::Paths => "a list of absolute paths".into(),
            Kind::Map => "a table of lists".into(),
        }
    }
}

/// A type that settings can have. Errors say what was wanted.
pub trait SettingValue: Sized {
    /// What it looks like.
    const KIND: Kind;
    /// What separates elements where a list of these is written as one text.
    const SEPARATOR: char = ',';
    /// Reads what a person typed, or a variable holds.
    fn from_text(text: &str) -> Result<Self, String>;
    /// Reads what a file holds. Most types accept their text form too.
    fn from_toml(value: &Toml) -> Result<Self, String> {
        match value {
            Toml::String(text) => Self::from_text(text),
            _ => Err(format!("wanted {}", Self::KIND.describe())),
        }
    }
    /// For machines.
    fn json(&self) -> Json;
    /// For a person.
    fn text(&self) -> String;
}

impl SettingValue for bool {
    const KIND: Kind = Kind::Switch;

    /// udocker took every text but the empty one for true, so that `False` switched TLS
    /// verification off; here a word that is neither is refused.
    fn from_text(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("wanted true or false".into()),
        }
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "wanted true or false, without quotes".into())
    }

    fn json(&self) -> Json {
        Json::Bool(*self)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A whole number with bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Bounded<LEAST, MOST> {
    /// A number that is known to be within the bounds.
    pub const fn new(number: u64) -> Self {
        assert!(LEAST <= number && number <= MOST, "a default lies within its own bounds");
        Bounded(number)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    fn checked(number: u64) -> Result<Self, String> {
        if (LEAST..=MOST).contains(&number) {
            Ok(Bounded(number))
        } else {
            Err(format!("wanted {}", Self::KIND.describe()))
        }
    }
}

impl<const LEAST: u64, const MOST: u64> SettingValue for Bounded<LEAST, MOST> {
    const KIND: Kind = Kind::Number(LEAST, MOST);

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.trim().replace('_', "").parse();
        Self::checked(number.map_err(|_| format!("wanted {}", Self::KIND.describe()))?)
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        Self::checked(number.ok_or_else(|| format!("wanted {}", Self::KIND.describe()))?)
    }

    fn json(&self) -> Json {
        Json::from(self.0)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Bytes; `None` is without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub Option<u64>);

const UNITS: [(&str, u64); 4] = [("t", 1 << 40), ("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)];

impl SettingValue for Size {
    const KIND: Kind = Kind::Size;

    /// Units are powers of 1024, as Docker's are; `b`, `kb`, `KiB` and the like are accepted.
    fn from_text(text: &str) -> Result<Self, String> {
        let wanted = || format!("wanted {}", Self::KIND.describe());
        let lower = text.trim().to_ascii_lowercase();
        if lower == "unlimited" {
            return Ok(Size(None));
        }
        let digits =
            lower.find(|character: char| !character.is_ascii_digit()).unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let unit = unit.trim();
        let factor =
            match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit) {
                "" => 1,
                unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wanted)?.1,
            };
        let number: u64 = number.parse().map_err(|_| wanted())?;
        Ok(Size(Some(number.checked_mul(factor).ok_or_else(wanted)?)))
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        match value {
            Toml::Integer(number) if *number >= 0 => Ok(Size(Some(number.unsigned_abs()))),
            Toml::String(text) => Self::from_text(text),
            _ => Err(format!("wanted {}", Self::KIND.describe())),
        }
    }

    fn json(&self) -> Json {
        self.0.map_or(Json::Null, Json::from)
    }

    fn text(&self) -> String {
        let Some(bytes) = self.0 else { return "unlimited".into() };
        UNITS
            .iter()
            .find(|(_, factor)| bytes > 0 && bytes % factor == 0)
            .map_or_else(|| bytes.to_string(), |(unit, factor)| format!("{}{unit}", bytes / factor))
    }
}

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration(pub std::time::Duration);

impl SettingValue for Duration {
    const KIND: Kind = Kind::Duration;

    fn from_text(text: &str) -> Result<Self, String> {
        let wanted = || format!("wanted {}", Self::KIND.describe());
        let text = text.trim();
        let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wanted())?;
        let factor = match unit.trim() {
            "ms" => 1,
            "" | "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wanted()),
        };
        let milliseconds = number.checked_mul(factor).ok_or_else(wanted)?;
        Ok(Duration(std::time::Duration::from_millis(milliseconds)))
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        match value {
            Toml::Integer(seconds) => Self::from_text(&seconds.to_string()),
            Toml::String(text) => Self::from_text(text),
            _ => Err(format!("wanted {}", Self::KIND.describe())),
        }
    }

    fn json(&self) -> Json {
        Json::from(self.text())
    }

    fn text(&self) -> String {
        match self.0.as_millis() {
            milliseconds if milliseconds % 1000 == 0 => format!("{}s", milliseconds / 1000),
            milliseconds => format!("{milliseconds}ms"),
        }
    }
}

impl SettingValue for String {
    const KIND: Kind = Kind::Text;

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn json(&self) -> Json {
        Json::from(self.as_str())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl SettingValue for PathBuf {
    const KIND: Kind = Kind::Path;
    const SEPARATOR: char = ':';

    /// A configuration is read from many working directories, so a relative path in it would mean
    /// many places.
    fn from_text(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if path.is_absolute() { Ok(path) } else { Err("wanted an absolute path".into()) }
    }

    fn json(&self) -> Json {
        Json::from(self.to_string_lossy())
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    const KIND: Kind = T::KIND;

    fn from_text(text: &str) -> Result<Self, String> {
        T::from_text(text).map(Some)
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        T::from_toml(value).map(Some)
    }

    fn json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::json)
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(String::new, T::text)
    }
}

impl<T: SettingValue> SettingValue for Vec<T> {
    const KIND: Kind = match T::KIND {
        Kind::Path => Kind::Paths,
        _ => Kind::Texts,
    };

    fn from_text(text: &str) -> Result<Self, String> {
        text.split(T::SEPARATOR)
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(T::from_text)
            .collect()
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        match value {
            Toml::Array(values) => values.iter().map(T::from_toml).collect(),
            Toml::String(_) => Ok(vec![T::from_toml(value)?]),
            _ => Err(format!("wanted {}", Self::KIND.describe())),
        }
    }

    fn json(&self) -> Json {
        Json::Array(self.iter().map(T::json).collect())
    }

    fn text(&self) -> String {
        let parts: Vec<String> = self.iter().map(T::text).collect();
        parts.join(&T::SEPARATOR.to_string())
    }
}

impl SettingValue for BTreeMap<String, Vec<String>> {
    const KIND: Kind = Kind::Map;

    /// `docker.io=mirror.example.org,other.example.org;quay.io=mirror.example.org`
    fn from_text(text: &str) -> Result<Self, String> {
        text.split(';')
            .filter(|part| !part.trim().is_empty())
            .map(|part| {
                let (key, values) =
                    part.split_once('=').ok_or("wanted NAME=VALUE[,VALUE...][;NAME=...]")?;
                Ok((key.trim().to_owned(), Vec::from_text(values)?))
            })
            .collect()
    }

    fn from_toml(value: &Toml) -> Result<Self, String> {
        let Toml::Table(table) = value else {
            return Err(format!("wanted {}", Self::KIND.describe()));
        };
        table.iter().map(|(key, value)| Ok((key.clone(), Vec::from_toml(value)?))).collect()
    }

    fn json(&self) -> Json {
        Json::Object(self.iter().map(|(key, values)| (key.clone(), values.json())).collect())
    }

    fn text(&self) -> String {
        let parts: Vec<String> =
            self.iter().map(|(key, values)| format!("{key}={}", values.text())).collect();
        parts.join(";")
    }
}
