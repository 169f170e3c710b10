//! Chooses the proxy for a URL, if any.
//!
//! Follows Go's `httpproxy`, as Docker and podman do: `HTTPS_PROXY` for https, `HTTP_PROXY` for
//! http, `ALL_PROXY` for both, and never for loopback. `NO_PROXY` is a list of names (with their
//! subdomains), `.suffix` (subdomains only), addresses, networks, each with an optional port.

use std::net::IpAddr;

use crate::url::{Scheme, Url, split_authority};
use crate::{Error, ProxySettings, Secret};

/// The proxy settings.
#[derive(Debug)]
pub(crate) struct Proxies {
    http: Option<Secret>,
    https: Option<Secret>,
    except: Vec<Except>,
}

#[derive(Debug, PartialEq, Eq)]
enum Except {
    All,
    Network(IpAddr, u32, Option<u16>),
    Name { suffix: String, itself: bool, port: Option<u16> },
}

impl Proxies {
    pub(crate) fn new(settings: &ProxySettings) -> Result<Self, Error> {
        let pick = |own: &Option<Secret>, name: &str| -> Result<Option<Secret>, Error> {
            let chosen = own.as_ref().or(settings.all.as_ref()).filter(|s| !s.is_empty());
            chosen.map(|text| normalise(text, name)).transpose()
        };
        Ok(Proxies {
            http: pick(&settings.http, "HTTP_PROXY")?,
            https: pick(&settings.https, "HTTPS_PROXY")?,
            except: settings.no_proxy.split([',', ' ']).filter_map(parse_except).collect(),
        })
    }

    /// The URL of the proxy for a request.
    pub(crate) fn choose(&self, url: &Url) -> Option<&Secret> {
        let proxy = match url.scheme {
            Scheme::Http => self.http.as_ref(),
            Scheme::Https => self.https.as_ref(),
        }?;
        let address = url.host.parse::<IpAddr>().ok();
        let local = url.host == "localhost" || address.is_some_and(|a| a.is_loopback());
        let excepted = self.except.iter().any(|except| except.holds(url, address));
        (!local && !excepted).then_some(proxy)
    }
}

impl Except {
    fn holds(&self, url: &Url, address: Option<IpAddr>) -> bool {
        let port_fits = |port: &Option<u16>| port.is_none_or(|port| port == url.port);
        match self {
            Except::All => true,
            Except::Network(network, bits, port) => {
                port_fits(port) && address.is_some_and(|a| in_network(a, *network, *bits))
            }
            Except::Name { suffix, itself, port } => {
                let host = url.host.trim_end_matches('.');
                let below =
                    host.strip_suffix(suffix.as_str()).is_some_and(|front| front.ends_with('.'));
                port_fits(port) && (below || (*itself && host == suffix))
            }
        }
    }
}

fn parse_except(entry: &str) -> Option<Except> {
    let entry = entry.trim().to_ascii_lowercase();
    if entry.is_empty() {
        return None;
    }
    if entry == "*" {
        return Some(Except::All);
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let network: IpAddr = network.parse().ok()?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= most)?;
        return Some(Except::Network(network, bits, None));
    }
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some(Except::Network(address, if address.is_ipv4() { 32 } else { 128 }, None));
    }
    let (host, port) = split_authority(entry.strip_prefix('*').unwrap_or(&entry))?;
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Except::Network(address, if address.is_ipv4() { 32 } else { 128 }, port));
    }
    let itself = !host.starts_with('.');
    let suffix = host.trim_start_matches('.').to_owned();
    (!suffix.is_empty()).then_some(Except::Name { suffix, itself, port })
}

fn in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32 - bits;
            u64::from(a.to_bits()) >> shift == u64::from(n.to_bits()) >> shift
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            bits == 0 || a.to_bits() >> (128 - bits) == n.to_bits() >> (128 - bits)
        }
        _ => false,
    }
}

/// Checks the scheme and adds a missing one.
fn normalise(text: &Secret, name: &str) -> Result<Secret, Error> {
    const SCHEMES: [&str; 7] = ["http", "https", "socks", "socks4", "socks4a", "socks5", "socks5h"];
    let refuse = |reason: String| Error::Setting { name: name.to_owned(), reason };
    let whole = text.expose().trim();
    let (scheme, rest) = whole.split_once("://").unwrap_or(("http", whole));
    let scheme = scheme.to_ascii_lowercase();
    if !SCHEMES.contains(&scheme.as_str()) {
        return Err(refuse(format!("{scheme} is not one of {}", SCHEMES.join(", "))));
    }
    let scheme = if scheme == "socks" { "socks5" } else { &scheme };
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = rest.rsplit_once('@').map_or(rest, |(_, authority)| authority);
    if split_authority(authority).is_none() {
        return Err(refuse("it should read [scheme://][user:password@]host[:port]".to_owned()));
    }
    Ok(Secret::new(format!("{scheme}://{rest}")))
}

/// A proxy's URL without user and password, for messages.
pub(crate) fn shown(proxy: &Secret) -> String {
    let text = proxy.expose();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(no_proxy: &str, url: &str) -> bool {
        let settings = ProxySettings {
            all: Some("proxy:3128".into()),
            no_proxy: no_proxy.into(),
            ..ProxySettings::default()
        };
        Proxies::new(&settings).unwrap().choose(&Url::parse(url).unwrap()).is_some()
    }

    #[test]
    fn exceptions() {
        assert!(chosen("", "https://h.example/"));
        assert!(!chosen("*", "https://h.example/"));
        assert!(
            !chosen("example", "https://h.example/") && !chosen("h.example", "https://H.example/")
        );
        assert!(!chosen("*.example", "https://h.example/"));
        assert!(chosen(".h.example", "https://h.example/"));
        assert!(chosen("xample", "https://h.example/"));
        assert!(!chosen("a, h.example:5000", "https://h.example:5000/"));
        assert!(chosen("h.example:5000", "https://h.example:5001/"));
        assert!(
            !chosen("10.0.0.0/8", "http://10.9.9.9/") && chosen("10.0.0.0/8", "http://11.0.0.1/")
        );
        assert!(
            !chosen("fd00::/8", "http://[fd12::1]/") && !chosen("0.0.0.0/0", "http://1.2.3.4/")
        );
        assert!(!chosen("1.2.3.4", "http://1.2.3.4/") && !chosen("::1", "http://[::1]/"));
        assert!(!chosen("", "https://localhost:5000/") && !chosen("", "https://127.0.0.2/"));
    }

    #[test]
    fn schemes_and_secrets() {
        let settings =
            |text: &str| ProxySettings { https: Some(text.into()), ..Default::default() };
        let proxies = Proxies::new(&settings("socks5h://user:p%40ss@h:1080/")).unwrap();
        assert!(!format!("{proxies:?}").contains("ss"), "{proxies:?}");
        let url = Url::parse("https://x/").unwrap();
        let proxy = proxies.choose(&url).unwrap();
        assert_eq!(proxy.expose(), "socks5h://user:p%40ss@h:1080");
        assert_eq!(shown(proxy), "socks5h://h:1080");
        assert!(proxies.choose(&Url::parse("http://x/").unwrap()).is_none());
        assert!(Proxies::new(&settings("ftp://h")).is_err());
        let error = Proxies::new(&settings("http://user:secret@")).unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
