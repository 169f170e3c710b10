//! Reads `--network`, `--network-alias`, `--ip` and `--ip6`: one mode, or networks with names.
//!
//! Docker's forms: `--network NAME`, any number of times, and
//! `--network name=NAME[,alias=NAME]...[,ip=ADDRESS][,ip6=ADDRESS]`.

use std::net::{Ipv4Addr, Ipv6Addr};

use engine::spec::{Membership, NetworkMode};

use super::options;
use crate::error::{Error, Result};

/// What the options about networks say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    /// The mode; `None` if nothing was said. [`NetworkMode::Named`] is the first of `named`.
    pub mode: Option<NetworkMode>,
    /// The networks with names.
    pub named: Vec<Membership>,
}

/// Reads them. `aliases` and the addresses, of both versions of IP, are those of the first network.
/// Whether a network exists is not looked up here.
///
/// # Errors
/// If a text is no network or names one twice, if a mode such as `host` is combined with another
/// network, or if names or addresses are given for one.
pub fn parse(
    texts: &[String],
    aliases: &[String],
    (address, ipv6): (Option<&str>, Option<&str>),
) -> Result<Networks> {
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        all.push(one(text)?);
    }
    let flag = match (aliases, address) {
        ([], Some(_)) => "--ip",
        ([], None) => "--ip6",
        _ => "--network-alias",
    };
    let wishes = !aliases.is_empty() || address.is_some() || ipv6.is_some();
    match all.first_mut() {
        Some((_, first)) => {
            for name in aliases {
                first.aliases.push(alias("--network-alias", name)?);
            }
            if let Some(text) = address {
                first.address = Some(self::address("--ip", text)?);
            }
            if let Some(text) = ipv6 {
                first.ipv6 = Some(self::ipv6("--ip6", text)?);
            }
        }
        None if wishes => return Err(needs_name(flag)),
        None => return Ok(Networks::default()),
    }
    let is_named = |mode: &NetworkMode| matches!(mode, NetworkMode::Named(_));
    if let Some((mode, other)) = all.iter().find(|(mode, _)| !is_named(mode)) {
        let mode = mode.clone();
        if all.len() > 1 {
            let text = String::from(mode);
            return Err(Error::invalid(format!(
                "--network {text} cannot be combined with another network"
            ))
            .with_hint("give either it or networks with names"));
        }
        let has = other.address.is_some() || other.ipv6.is_some();
        if wishes || !other.aliases.is_empty() || has {
            return Err(needs_name(if wishes { flag } else { "alias= and ip=" }));
        }
        return Ok(Networks { mode: Some(mode), named: Vec::new() });
    }
    let named: Vec<Membership> = all.into_iter().map(|(_, membership)| membership).collect();
    check_once(&named)?;
    let mode = named.first().map(|first| NetworkMode::Named(first.name.clone()));
    Ok(Networks { mode, named })
}

/// Refuses a network that is named twice.
pub fn check_once(named: &[Membership]) -> Result<()> {
    let twice = named
        .iter()
        .enumerate()
        .find(|(at, one)| named[..*at].iter().any(|before| before.name == one.name));
    match twice {
        Some((_, one)) => Err(Error::invalid(format!("--network {} is given twice", one.name))
            .with_hint("give it once: --network name=NAME,alias=NAME,alias=NAME")),
        None => Ok(()),
    }
}

fn needs_name(flag: &str) -> Error {
    Error::invalid(format!("{flag} is possible only in a network with a name"))
        .with_hint("make one (coracle network create NAME) and give --network NAME")
}

/// One `--network`, in the short or the long form.
fn one(text: &str) -> Result<(NetworkMode, Membership)> {
    let wrong = |why: String| {
        Error::invalid(format!("--network '{text}': {why}"))
            .with_hint("write --network name=NAME[,alias=NAME][,ip=ADDRESS][,ip6=ADDRESS]")
    };
    if !text.contains('=') {
        return Ok((options::mode("--network", text)?, membership(text)));
    }
    let (mut name, mut wish) = (None, Membership::default());
    for part in text.split(',') {
        let Some((key, value)) = part.split_once('=') else {
            return Err(wrong(format!("'{part}' has no value")));
        };
        match key {
            "name" if name.is_none() => name = Some(value),
            "name" => return Err(wrong("there are two names".into())),
            "alias" => wish.aliases.push(alias("--network alias=", value)?),
            "ip" => wish.address = Some(address("--network ip=", value)?),
            "ip6" => wish.ipv6 = Some(ipv6("--network ip6=", value)?),
            "mac-address" | "link-local-ip" | "driver-opt" | "gw-priority" => {
                return Err(Error::unsupported(format!("--network {key}= is not supported"))
                    .with_hint("a network here gives a container names and one address"));
            }
            _ => return Err(wrong(format!("there is no key '{key}'"))),
        }
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Err(wrong("it names no network".into()));
    };
    Ok((options::mode("--network", name)?, Membership { name: name.to_owned(), ..wish }))
}

fn membership(name: &str) -> Membership {
    Membership { name: name.to_owned(), ..Membership::default() }
}

/// A name of a container in a network: one that can stand in a hosts file.
pub fn alias(flag: &str, name: &str) -> Result<String> {
    if net::hosts::is_name(name) {
        return Ok(name.to_owned());
    }
    Err(Error::invalid(format!("{flag} '{name}' is not a name that can be looked up"))
        .with_hint("use letters, digits, '-', '_' and '.'"))
}

/// An address that a container wishes.
pub fn address(flag: &str, text: &str) -> Result<Ipv4Addr> {
    text.parse().map_err(|_| {
        Error::invalid(format!("{flag} '{text}' is not an IPv4 address"))
            .with_hint("write four numbers, as 100.80.0.7")
    })
}

/// An IPv6 address that a container wishes.
pub fn ipv6(flag: &str, text: &str) -> Result<Ipv6Addr> {
    text.parse().map_err(|_| {
        Error::invalid(format!("{flag} '{text}' is not an IPv6 address"))
            .with_hint("write the IPv4 address behind the network's range, as fd00:80::100.80.0.7")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str], aliases: &[&str], address: Option<&str>) -> Result<Networks> {
        let owned = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        parse(&owned(texts), &owned(aliases), (address, None))
    }

    #[test]
    fn modes_and_names() {
        assert_eq!(read(&[], &[], None).unwrap(), Networks::default());
        let host = read(&["host"], &[], None).unwrap();
        assert_eq!((host.mode, host.named.len()), (Some(NetworkMode::Host), 0));
        let bridge = read(&["name=bridge"], &[], None).unwrap();
        assert_eq!(bridge.mode, Some(NetworkMode::Private));
        let read = read(
            &["lab", "name=web,alias=a,alias=b.c,ip=100.80.1.9"],
            &["db", "sql"],
            Some("100.80.0.7"),
        )
        .unwrap();
        assert_eq!(read.mode, Some(NetworkMode::Named("lab".into())));
        let shown: Vec<String> = read
            .named
            .iter()
            .map(|one| format!("{} {} {:?}", one.name, one.aliases.join(","), one.address))
            .collect();
        assert_eq!(shown, ["lab db,sql Some(100.80.0.7)", "web a,b.c Some(100.80.1.9)"]);
    }

    #[test]
    fn mistakes() {
        for (texts, aliases, address, part) in [
            (&["host", "lab"][..], &[][..], None, "--network host cannot be combined"),
            (&["lab", "container:x"], &[], None, "--network container:x cannot be combined"),
            (&["lab", "none"], &[], None, "--network none cannot be combined"),
            (&["host", "host"], &[], None, "cannot be combined"),
            (&["lab", "name=lab"], &[], None, "--network lab is given twice"),
            (&[], &["a"], None, "--network-alias is possible only"),
            (&[], &[], Some("10.0.0.1"), "--ip is possible only"),
            (&["host"], &[], Some("10.0.0.1"), "--ip is possible only"),
            (&["name=host,alias=x"], &[], None, "alias= and ip= is possible only"),
            (&["lab"], &["a b"], None, "'a b' is not a name"),
            (&["lab"], &["a\n1.1.1.1 x"], None, "is not a name"),
            (&["lab"], &[], Some("::1"), "'::1' is not an IPv4 address"),
            (&["name=lab,ip=x"], &[], None, "'x' is not an IPv4 address"),
            (&["name=lab,ip6=x"], &[], None, "'x' is not an IPv6 address"),
            (&["name=host,ip6=::1"], &[], None, "alias= and ip= is possible only"),
            (&["name=lab,mac-address=x"], &[], None, "mac-address= is not supported"),
            (&["name=lab,colour=red"], &[], None, "no key 'colour'"),
            (&["name=lab,alias"], &[], None, "'alias' has no value"),
            (&["name=a,name=b"], &[], None, "two names"),
            (&["alias=x"], &[], None, "names no network"),
            (&["name="], &[], None, "names no network"),
            (&["a/b"], &[], None, "not the name of a network"),
        ] {
            let error = read(texts, aliases, address).unwrap_err();
            assert!(error.to_string().contains(part), "{texts:?}: {error}");
            assert!(error.hint().is_some() || part.contains("not the name"), "{texts:?}");
        }
    }
}
