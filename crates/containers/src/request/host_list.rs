//! Reads the list of a network's hosts: TOML with `[[member]]` tables, as `network invite` prints
//! them, and an optional `epoch`.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use net::definition::Auxiliary;
use net::peers::{Host, List, PublicKey, Wrong};
use toml::de::{DeTable, DeValue};

use crate::config::nearest::nearest;
use crate::error::{Error, Result};

const TOP: &[&str] = &["epoch", "member"];
const KEYS: &[&str] =
    &["name", "address", "port", "key", "subnet", "ipv6", "internal", "auxiliary", "revoked"];

type Name<'t> = toml::Spanned<Cow<'t, str>>;
type Value<'t> = toml::Spanned<DeValue<'t>>;

/// The largest integer of TOML.
const LAST_EPOCH: u64 = i64::MAX as u64;

/// A list, and where it stands.
#[derive(Debug)]
pub struct Read {
    /// The list; [`List::check`] has accepted it.
    pub list: List,
    path: PathBuf,
    /// The line of each entry, counted from 1.
    lines: Vec<usize>,
}

impl Read {
    /// An error about an entry, with the place in front.
    pub fn at(&self, entry: usize, error: &Error) -> Error {
        let line = self.lines.get(entry).copied().unwrap_or(1);
        let text = format!("{}:{line}: {error}", self.path.display());
        match error.hint() {
            Some(hint) => Error::invalid(text).with_hint(hint),
            None => Error::invalid(text),
        }
    }

    /// What is wrong with the list.
    pub fn wrong(&self, wrong: &Wrong) -> Error {
        let path = self.path.display();
        let text = match wrong.at.and_then(|at| self.lines.get(at)) {
            Some(line) => format!("{path}:{line}: {}", wrong.why),
            None => format!("{path}: {}", wrong.why),
        };
        Error::invalid(text).with_hint(wrong.hint.clone())
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

/// Reads a list.
///
/// # Errors
/// With the line, where it is no TOML, a key is unknown or missing, a value is none, or the list is
/// not usable.
pub fn parse(path: &Path, text: &str) -> Result<Read> {
    let reader = Reader { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, error.message()).with_hint("'coracle network invite' prints entries")
    })?;
    let (mut epoch, mut hosts, mut lines) = (1, Vec::new(), Vec::new());
    for (name, value) in table.get_ref() {
        match (&**name.get_ref(), value.get_ref()) {
            ("epoch", value) => {
                let is_one = |epoch: &u64| (1..=LAST_EPOCH).contains(epoch);
                epoch = integer(value).filter(is_one).ok_or_else(|| {
                    let why = format!("epoch is not a number from 1 to {LAST_EPOCH}");
                    reader.error(name.span().start, &why).with_hint("count the lists: epoch = 2")
                })?;
            }
            ("member", DeValue::Array(entries)) => {
                for entry in entries {
                    let at = entry.span().start;
                    let DeValue::Table(table) = entry.get_ref() else {
                        return Err(reader.no_entry(at));
                    };
                    hosts.push(reader.host(table, at)?);
                    lines.push(reader.line(at));
                }
            }
            ("member", _) => return Err(reader.no_entry(name.span().start)),
            (other, _) => return Err(reader.unknown(name.span().start, other, TOP)),
        }
    }
    let read = Read { list: List { epoch, hosts }, path: path.to_owned(), lines };
    read.list.check().map_err(|wrong| read.wrong(&wrong))?;
    Ok(read)
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(number) = value else { return None };
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    fn error(&self, at: usize, why: &str) -> Error {
        Error::invalid(format!("{}:{}: {why}", self.path.display(), self.line(at)))
    }

    fn no_entry(&self, at: usize) -> Error {
        self.error(at, "member is not a table").with_hint("write [[member]] before each entry")
    }

    fn unknown(&self, at: usize, key: &str, known: &[&str]) -> Error {
        let hint = match nearest(key, known.iter().copied(), 3) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.error(at, &format!("there is no key '{key}'")).with_hint(hint)
    }

    fn host(&self, table: &DeTable<'_>, at: usize) -> Result<Host> {
        let place = |name: &Name<'_>| name.span().start;
        for (name, _) in table {
            if !KEYS.contains(&&**name.get_ref()) {
                return Err(self.unknown(place(name), name.get_ref(), KEYS));
            }
        }
        let found = |key: &str| table.iter().find(|(name, _)| &**name.get_ref() == key);
        let needed = |key: &str| {
            found(key).map(|(name, value)| (place(name), value.get_ref())).ok_or_else(|| {
                self.error(at, &format!("this member has no '{key}'"))
                    .with_hint("'coracle network invite' prints whole entries")
            })
        };
        let port = || {
            let (at, value) = needed("port")?;
            integer(value).and_then(|port| u16::try_from(port).ok()).ok_or_else(|| {
                self.error(at, "port is not a number from 1 to 65535")
                    .with_hint("write port = 7370")
            })
        };
        let is = |key: &str| match found(key).map(|(name, value)| (name, value.get_ref())) {
            None => Ok(false),
            Some((_, DeValue::Boolean(is))) => Ok(*is),
            Some((name, _)) => Err(self
                .error(place(name), &format!("{key} is neither true nor false"))
                .with_hint(format!("write {key} = true"))),
        };
        let (internal, revoked) = (is("internal")?, is("revoked")?);
        let ipv6 = found("ipv6").map(|(name, value)| {
            let hint = "write ADDRESS/BITS of IPv6, as \"fd00:80::/64\"";
            self.text::<net::Prefix>((place(name), value.get_ref()), "ipv6", hint)
        });
        let ipv6 = ipv6.transpose()?;
        Ok(Host {
            name: self.text(needed("name")?, "name", "write the host's name in quotes")?,
            address: self.text::<Ipv4Addr>(
                needed("address")?,
                "address",
                "write an IPv4 address, as \"10.0.0.7\"",
            )?,
            port: port()?,
            key: self.text::<PublicKey>(
                needed("key")?,
                "key",
                "copy it from what 'coracle network invite' prints on that host",
            )?,
            subnet: self.text::<net::Subnet>(
                needed("subnet")?,
                "subnet",
                "write ADDRESS/BITS, as \"100.80.0.0/16\"",
            )?,
            ipv6,
            auxiliary: self.auxiliary(found("auxiliary"))?,
            internal,
            revoked,
        })
    }

    /// Names and addresses, as `{ web = "100.80.0.254" }`.
    fn auxiliary(&self, found: Option<(&Name<'_>, &Value<'_>)>) -> Result<Auxiliary> {
        let Some((name, value)) = found else { return Ok(Vec::new()) };
        let hint = "write names and addresses, as auxiliary = { web = \"100.80.0.254\" }";
        let DeValue::Table(table) = value.get_ref() else {
            let at = name.span().start;
            return Err(self.error(at, "auxiliary is not a table").with_hint(hint));
        };
        let one = |(name, value): (&Name<'_>, &Value<'_>)| {
            let place = (name.span().start, value.get_ref());
            let address = self.text::<Ipv4Addr>(place, "auxiliary", hint)?;
            Ok((name.get_ref().to_string(), address))
        };
        let mut all = table.iter().map(one).collect::<Result<Auxiliary>>()?;
        all.sort_unstable();
        Ok(all)
    }

    fn text<T: FromStr>(
        &self,
        (at, value): (usize, &DeValue<'_>),
        key: &str,
        hint: &str,
    ) -> Result<T>
    where
        T::Err: std::fmt::Display,
    {
        let DeValue::String(text) = value else {
            return Err(self.error(at, &format!("{key} is no text")).with_hint(hint));
        };
        text.parse().map_err(|why: T::Err| {
            // A key is not shown, not even a damaged one.
            let shown = if key == "key" { "..." } else { text };
            self.error(at, &format!("{key} '{}': {why}", shown.escape_debug())).with_hint(hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

    fn entry(name: &str, last: u8) -> String {
        let key = PublicKey::of([last; 32]);
        format!(
            "[[member]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\nport = 7370\n\
             key = \"{key}\"\nsubnet = \"100.80.0.0/24\"\n"
        )
    }

    fn read(text: &str) -> Result<Read> {
        parse(Path::new("hosts.toml"), text)
    }

    #[test]
    fn what_invite_prints_is_read() {
        let text = entry("a", 1) + &entry("b", 2);
        let both = read(&text).unwrap();
        assert_eq!((both.list.epoch, both.list.hosts.len()), (1, 2));
        assert_eq!(both.lines, [1, 7]);
        assert_eq!(both.list.hosts.iter().map(Host::entry).collect::<String>(), text);
        let newer = read(&format!("epoch = 3\n{}revoked = true\n", entry("a", 1))).unwrap();
        assert_eq!((newer.list.epoch, newer.list.hosts[0].revoked), (3, true));
        let internal = entry("a", 1) + "internal = true\n";
        let read = read(&internal).unwrap().list;
        assert_eq!((read.hosts[0].internal, read.hosts[0].entry()), (true, internal));
        let six = entry("a", 1) + "ipv6 = \"fd00:80::/64\"\n";
        assert_eq!(self::read(&six).unwrap().list.hosts[0].entry(), six);
        let auxiliary = entry("a", 1) + "auxiliary = { \"web\" = \"100.80.0.254\" }\n";
        assert_eq!(self::read(&auxiliary).unwrap().list.hosts[0].entry(), auxiliary);
    }

    #[test]
    fn mistakes() {
        let good = entry("a", 7);
        for (text, part, hint) in [
            (String::new(), "hosts.toml: it names no host", "network invite"),
            ("member = 3\n".into(), "hosts.toml:1: member is not a table", "[[member]]"),
            ("member = [3]\n".into(), "hosts.toml:1: member is not a table", "[[member]]"),
            ("x =\n".into(), "hosts.toml:1: ", "network invite"),
            (format!("{good}adress = 1\n"), "hosts.toml:7: there is no key 'adress'", "'address'"),
            (format!("epoc = 1\n{good}"), "hosts.toml:1: there is no key 'epoc'", "'epoch'"),
            (format!("epoch = 0\n{good}"), "hosts.toml:1: epoch is not a number", "count"),
            (
                format!("epoch = {}\n{good}", u64::MAX),
                "hosts.toml:1: epoch is not a number from 1 to 92",
                "count",
            ),
            (format!("epoch = {}\n{good}", 1u64 << 63), "hosts.toml:1: epoch is not", "count"),
            (good.replace(KEY, "ed25519:AAAA"), "hosts.toml:5: key '...': it is not", "in"),
            (good.replace("port = 7370\n", ""), "hosts.toml:1: this member has no 'port'", "inv"),
            (good.replace("7370", "70000"), "hosts.toml:4: port is not a number", "7370"),
            (good.replace("10.0.0.7", "fd00::1"), "hosts.toml:3: address 'fd00::1': inv", "IPv4"),
            (good.replace("80.0.0/24", "80.0.1/16"), "hosts.toml:6: subnet '100.80.0.1/16'", "AD"),
            (good.replace("\"a\"", "3"), "hosts.toml:2: name is no text", "quotes"),
            (
                good.replace("\"a\"", "\"a b\""),
                "hosts.toml:1: name \"a b\" is not a host name",
                "letters",
            ),
            (format!("{good}\n{good}"), "hosts.toml:8: a and a have the same key", "once"),
            (
                format!("{good}ipv6 = \"fd00::1/64\"\n"),
                "hosts.toml:7: ipv6 'fd00::1/64': it sho",
                "AD",
            ),
            (
                format!("{good}ipv6 = \"fe80::/64\"\n"),
                "hosts.toml:1: ipv6 fe80::/64 is not us",
                "inv",
            ),
            (
                format!("{good}auxiliary = \"web\"\n"),
                "hosts.toml:7: auxiliary is not a table",
                "= {",
            ),
            (
                format!("{good}auxiliary = {{ web = \"x\" }}\n"),
                "hosts.toml:7: auxiliary 'x': invalid",
                "= {",
            ),
            (format!("{good}revoked = 1\n"), "hosts.toml:7: revoked is neither", "true"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.to_string().starts_with(part), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{error}: {:?}", error.hint());
        }
    }
}
