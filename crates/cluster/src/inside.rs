//! What this program does in containers of a cluster: it waits as the program of a node, and it
//! looks whether a service is ready.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The pause before the second try, and the longest: each is half as long again as the one before,
/// since what is looked for is mostly there at once, or soon.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);
/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);
/// The program of a node tries again after that to take connections.
const AGAIN: Duration = Duration::from_secs(2);

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A connection is taken at `HOST:PORT`.
    Tcp(String),
    /// A request for a path is answered with a status below 400: `HOST:PORT`, and the path.
    Http(String, String),
}

impl Probe {
    /// Reads the words of `cluster probe`: `tcp HOST:PORT` or `http HOST:PORT/PATH`.
    pub fn parse(kind: &str, at: &str) -> Option<Self> {
        let (place, path) = match at.find('/') {
            Some(slash) => at.split_at(slash),
            None => (at, "/"),
        };
        match kind {
            "tcp" if path == "/" => Some(Self::Tcp(place.to_owned())),
            "http" => Some(Self::Http(place.to_owned(), path.to_owned())),
            _ => None,
        }
    }

    /// Tries until it succeeds, for so long at most.
    ///
    /// # Errors
    /// Why the last try has failed.
    pub fn until(&self, within: Duration) -> Result<()> {
        tries(Instant::now() + within, || self.once())
    }

    fn once(&self) -> Result<(), String> {
        match self {
            Self::Tcp(place) => connect(place).map(drop),
            Self::Http(place, path) => answered(place, path),
        }
    }
}

/// Tries until it succeeds or the time is over; then tells why the last try has failed.
fn tries(end: Instant, mut once: impl FnMut() -> Result<(), String>) -> Result<()> {
    let mut pause = FIRST;
    loop {
        let Err(why) = once() else { return Ok(()) };
        if Instant::now() + pause >= end {
            return Err(Error::new(why));
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(LONGEST);
    }
}

fn connect(place: &str) -> Result<TcpStream, String> {
    let address = address(place).ok_or_else(|| format!("{place} has no address"))?;
    TcpStream::connect_timeout(&address, TRY).map_err(|error| format!("{place}: {error}"))
}

/// Members of a network are in the hosts file, which is kept true. No library of the container is
/// asked, because this program has none of its own for that.
fn address(place: &str) -> Option<SocketAddr> {
    let (host, port) = place.rsplit_once(':')?;
    let port = port.parse().ok()?;
    if host == "localhost" {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some((address, port).into());
    }
    addresses_of(host).first().map(|address| (*address, port).into())
}

/// The addresses that a name has in the hosts file (hosts(5)).
pub(crate) fn addresses_of(name: &str) -> Vec<IpAddr> {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let of = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|other| other == name).then_some(address)
    };
    hosts.lines().filter_map(of).collect()
}

fn answered(place: &str, path: &str) -> Result<(), String> {
    let mut stream = connect(place)?;
    let mut ask = || -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(TRY))?;
        stream.set_write_timeout(Some(TRY))?;
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        (&stream).take(64).read_to_end(&mut head)?;
        Ok(head)
    };
    let head = ask().map_err(|error| format!("{place}: {error}"))?;
    let head = String::from_utf8_lossy(&head);
    // RFC 9112, section 4: "HTTP/1.1 200 OK".
    let code = head.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1));
    match code.and_then(|code| code.parse::<u16>().ok()) {
        Some(code) if code < 400 => Ok(()),
        Some(code) => Err(format!("{place}{path} is answered with {code}")),
        None => Err(format!("{place} does not speak HTTP")),
    }
}

/// The port at which the program of a node takes connections, for those who look whether the node
/// is reached. It is that of tcpmux, which nobody serves.
pub const PORT: u16 = 1;

/// Waits for ever, and takes connections meanwhile: a signal ends it. Where the port is taken, as
/// on a host's own network, it only waits and tries again.
pub fn idle() -> ! {
    loop {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)) {
            while listener.accept().is_ok() {}
        }
        std::thread::sleep(AGAIN);
    }
}

/// Waits until these names are known, for so long at most.
///
/// # Errors
/// The first that is not.
pub fn know(names: &[String], within: Duration) -> Result<()> {
    let end = Instant::now() + within;
    for name in names {
        tries(end, || {
            let found = address(&format!("{name}:{PORT}"));
            found.map(drop).ok_or_else(|| format!("{name} has no address"))
        })?;
    }
    Ok(())
}

/// Waits until these nodes are known by name and take connections, for so long at most.
///
/// # Errors
/// Why the first of those that are not reached was not.
pub fn meet(names: &[String], within: Duration) -> Result<()> {
    let end = Instant::now() + within;
    for name in names {
        let left = end.saturating_duration_since(Instant::now());
        Probe::Tcp(format!("{name}:{PORT}")).until(left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let probe = |kind: &str, at: &str| Probe::parse(kind, at).unwrap();
        probe("tcp", &place).until(Duration::ZERO).unwrap();
        listener.accept().unwrap();
        let server = std::thread::spawn(move || {
            for status in ["204 No Content", "500 Oh", "garbage"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /health HTTP/1.0\r\n"));
                let begin = if status == "garbage" { "" } else { "HTTP/1.1 " };
                write!(stream, "{begin}{status}\r\n\r\n").unwrap();
            }
        });
        let http = probe("http", &format!("{place}/health"));
        http.until(Duration::ZERO).unwrap();
        let why = http.until(Duration::ZERO).unwrap_err().to_string();
        assert!(why.ends_with("/health is answered with 500"), "{why}");
        let why = http.until(Duration::ZERO).unwrap_err().to_string();
        assert!(why.ends_with("does not speak HTTP"), "{why}");
        server.join().unwrap();
        let began = Instant::now();
        let why = probe("tcp", &place).until(Duration::from_millis(300)).unwrap_err();
        assert!(why.to_string().contains("refused"), "{why}");
        assert!(began.elapsed() >= Duration::from_millis(200), "it did not try again");
        assert_eq!(Probe::parse("tcp", "a:1/x"), None);
        assert_eq!(Probe::parse("udp", "a:1"), None);
    }
}
