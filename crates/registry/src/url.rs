//! A minimal URL parser: `http` and `https`, host, port, path with query.
//!
//! Written here because two properties must hold exactly: the comparison of origins (credentials
//! stay with theirs), and that `Display` never shows the query or user information, where blob
//! stores and proxies put secrets.

use std::fmt;

/// `http` or `https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// An absolute URL. `path` begins with `/` and includes the query.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// Lower case; IPv6 addresses without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

impl Url {
    /// Makes a URL on `authority` (`host[:port]`, `[v6]:port`).
    pub(crate) fn new(scheme: Scheme, authority: &str, path: &str) -> Option<Self> {
        let (host, port) = split_authority(authority)?;
        let port = port.unwrap_or(scheme.default_port());
        Some(Url { scheme, host, port, path: normal_path(path) })
    }

    /// Parses `http://...` and `https://...`; user information is refused.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        Self::new(scheme, &rest[..end], &rest[end..])
    }

    /// Resolves a `Location` or `Link` against this URL (the parts of RFC 3986, section 5, that
    /// servers use).
    pub(crate) fn join(&self, location: &str) -> Option<Self> {
        let location = location.trim();
        if location.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return None;
        }
        if location.contains("://") && !location.starts_with(['/', '?']) {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme.as_str()));
        }
        let here = self.path.split('?').next().unwrap_or("/");
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') {
            format!("{here}{location}")
        } else {
            let directory = &here[..=here.rfind('/')?];
            format!("{directory}{location}")
        };
        Some(Url { path: normal_path(&path), ..self.clone() })
    }

    /// Returns true if credentials for one URL may be sent to the other.
    pub(crate) fn same_origin(&self, other: &Url) -> bool {
        self.scheme == other.scheme && self.host == other.host && self.port == other.port
    }

    /// `host` or `host:port`, as in messages and settings.
    pub(crate) fn authority(&self) -> String {
        let host = self.bracketed();
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }

    /// The whole URL with its query, for the request itself.
    pub(crate) fn full(&self) -> String {
        format!("{}://{}{}", self.scheme.as_str(), self.authority(), self.path)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{}://{}{path}", self.scheme.as_str(), self.authority())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn normal_path(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Splits `host[:port]`, `[v6]` and `[v6]:port`; brackets are removed.
pub(crate) fn split_authority(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, after.strip_prefix(':').or_else(|| after.is_empty().then_some(""))?)
    } else {
        authority.split_once(':').unwrap_or((authority, ""))
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if host.is_empty() || !host.chars().all(good) {
        return None;
    }
    let port = if port.is_empty() { None } else { Some(port.parse::<u16>().ok()?) };
    Some((host.to_ascii_lowercase(), port))
}

/// Percent-encodes a query value.
pub(crate) fn encode(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b':') {
            out.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_hides_queries() {
        let url = Url::parse("HTTPS://Host.Example:5000/a/b?X-Signature=secret#f").unwrap();
        assert_eq!(url.to_string(), "https://host.example:5000/a/b");
        assert_eq!(format!("{url:?}"), "https://host.example:5000/a/b");
        assert_eq!(url.full(), "https://host.example:5000/a/b?X-Signature=secret");
        let url = Url::parse("http://[::1]:80").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.full().as_str()),
            ("::1", 80, "http://[::1]/")
        );
        for bad in [
            "",
            "ftp://a",
            "http://",
            "http://user:pw@host/",
            "http://a b/",
            "http://h:99999",
            "http://[::1",
            "http://[x]/",
            "/a",
            "http://h:x/",
        ] {
            assert!(Url::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn joins() {
        let base = Url::parse("https://h/v2/a/tags/list?n=1").unwrap();
        let joined = |location| base.join(location).map(|u| u.full());
        assert_eq!(joined("/v2/x?last=y").unwrap(), "https://h/v2/x?last=y");
        assert_eq!(joined("?last=z").unwrap(), "https://h/v2/a/tags/list?last=z");
        assert_eq!(joined("other").unwrap(), "https://h/v2/a/tags/other");
        assert_eq!(joined("//cdn/x").unwrap(), "https://cdn/x");
        assert_eq!(joined("http://c:1/x?u=http://y").unwrap(), "http://c:1/x?u=http://y");
        assert_eq!(joined("/r?to=http://y").unwrap(), "https://h/r?to=http://y");
        assert_eq!(joined("/a b"), None);
        assert_eq!(joined("/a\r\nX: y"), None);
    }

    #[test]
    fn origins() {
        let url = |text| Url::parse(text).unwrap();
        assert!(url("https://h/a").same_origin(&url("https://H:443/b")));
        assert!(!url("https://h/a").same_origin(&url("http://h/a")));
        assert!(!url("https://h/a").same_origin(&url("https://h:444/a")));
        assert!(!url("https://h/a").same_origin(&url("https://h.evil/a")));
    }

    #[test]
    fn codes() {
        assert_eq!(encode("repository:a/b:pull,push x"), "repository:a/b:pull%2Cpush%20x");
    }
}
