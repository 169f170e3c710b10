//! A stub resolver: follows resolv.conf(5), by UDP, and by TCP if answers do not fit.
//!
//! Each candidate name (search domains before or after, as `ndots` says) is looked up as A and
//! AAAA. Each question goes to the servers in turn, `attempts` times, each `timeout` seconds, all
//! within the caller's deadline. No EDNS beyond the size, no DNSSEC, no cache (the caller has one).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use super::packet::{self, A, AAAA, Answer};
use crate::limits;

const SERVERS: usize = 3;
const DOMAINS: usize = 32;
const PORT: u16 = 53;

/// The settings in resolv.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    ndots: usize,
    timeout: Duration,
    attempts: u32,
    use_tcp: bool,
}

impl Config {
    /// Reads the file; if it is missing, the server is this host, as in the C library.
    pub(super) fn read(path: &Path) -> Self {
        let mut text = String::new();
        if let Ok(file) = std::fs::File::open(path) {
            let mut bytes = Vec::new();
            let _ = file.take(limits::HOSTS_FILE).read_to_end(&mut bytes);
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut config = Config {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            use_tcp: false,
        };
        for line in text.lines() {
            if line.starts_with(['#', ';']) {
                continue;
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().and_then(parse_server);
                    config.servers.extend(server.filter(|_| config.servers.len() < SERVERS));
                }
                Some("search" | "domain") => {
                    config.search = words.take(DOMAINS).map(str::to_owned).collect();
                }
                Some("options") => words.for_each(|option| config.option(option)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        }
        config
    }

    fn option(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        let number = value.parse::<u32>();
        match (name, number) {
            ("ndots", Ok(n)) => self.ndots = n.min(15) as usize,
            ("timeout", Ok(n)) => self.timeout = Duration::from_secs(n.clamp(1, 30).into()),
            ("attempts", Ok(n)) => self.attempts = n.clamp(1, 5),
            ("use-vc", _) => self.use_tcp = true,
            _ => {}
        }
    }

    /// The full names to try for a name as the user wrote it.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self.search.iter().map(|domain| {
            let domain = domain.trim_matches('.');
            if domain.is_empty() { name.to_owned() } else { format!("{name}.{domain}") }
        });
        let dots = name.matches('.').count();
        let mut names: Vec<String> = searched.collect();
        let at = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(at, name.to_owned());
        names.dedup();
        names
    }
}

fn parse_server(word: &str) -> Option<SocketAddr> {
    let Some((address, scope)) = word.split_once('%') else {
        return word.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let index = scope.parse().ok().or_else(|| {
        let path = format!("/sys/class/net/{scope}/ifindex");
        let plain = !scope.contains('/') && scope != "..";
        plain.then(|| std::fs::read_to_string(path).ok()?.trim().parse().ok()).flatten()
    })?;
    Some(SocketAddrV6::new(address, PORT, 0, index).into())
}

/// The reason for a missing answer.
enum NoAnswer {
    /// The name does not exist or has no addresses: the next candidate is tried.
    Empty,
    /// All servers failed.
    Failed(String),
}

/// The addresses of `name`, IPv6 and IPv4.
pub(super) fn look_up(
    config: &Config,
    name: &str,
    deadline: Instant,
) -> Result<Vec<IpAddr>, String> {
    let mut failure = None;
    for candidate in config.candidates(name) {
        if !packet::is_name(&candidate) {
            continue;
        }
        match both_families(config, &candidate, deadline) {
            Ok(found) => return Ok(found),
            Err(NoAnswer::Empty) => {}
            Err(NoAnswer::Failed(reason)) => failure = Some(reason),
        }
    }
    Err(failure.unwrap_or_else(|| "the name does not exist in DNS".to_owned()))
}

fn both_families(config: &Config, name: &str, deadline: Instant) -> Result<Vec<IpAddr>, NoAnswer> {
    // Both at once: a name server that drops AAAA questions must not cost its timeout twice.
    let (six, four) = std::thread::scope(|scope| {
        let six = scope.spawn(|| ask(config, name, AAAA, deadline));
        let four = ask(config, name, A, deadline);
        (six.join().unwrap_or(Err(NoAnswer::Empty)), four)
    });
    match (six, four) {
        (Ok(mut six), Ok(four)) => {
            six.extend(four);
            if six.is_empty() { Err(NoAnswer::Empty) } else { Ok(six) }
        }
        (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.is_empty() => Ok(found),
        (Err(NoAnswer::Failed(reason)), _) | (_, Err(NoAnswer::Failed(reason))) => {
            Err(NoAnswer::Failed(reason))
        }
        _ => Err(NoAnswer::Empty),
    }
}

fn ask(config: &Config, name: &str, kind: u16, deadline: Instant) -> Result<Vec<IpAddr>, NoAnswer> {
    let mut reason = "no name server answers".to_owned();
    for _ in 0..config.attempts {
        for server in &config.servers {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer::Failed(reason));
            }
            match exchange(config, *server, name, kind, left.min(config.timeout)) {
                Ok(Answer::Addresses(found)) => return Ok(found),
                Ok(Answer::NoName) => return Err(NoAnswer::Empty),
                Ok(Answer::Failed(code)) => {
                    reason = format!("the name server {} answers with code {code}", server.ip());
                }
                Ok(Answer::Truncated) => {
                    reason = format!("the name server {} cuts its answers", server.ip());
                }
                Err(error) => {
                    reason = format!("the name server {} does not answer ({error})", server.ip());
                }
            }
        }
    }
    Err(NoAnswer::Failed(reason))
}

fn exchange(
    config: &Config,
    server: SocketAddr,
    name: &str,
    kind: u16,
    timeout: Duration,
) -> std::io::Result<Answer> {
    let id = random_id();
    let question = packet::question(id, name, kind);
    if !config.use_tcp {
        let answer =
            by_udp(server, &question, timeout, |reply| packet::answer(reply, id, name, kind))?;
        if answer != Answer::Truncated {
            return Ok(answer);
        }
    }
    let reply = by_tcp(server, &question, timeout)?;
    packet::answer(&reply, id, name, kind)
        .ok_or_else(|| std::io::Error::other("its answer is not valid"))
}

fn by_udp(
    server: SocketAddr,
    question: &[u8],
    timeout: Duration,
    accept: impl Fn(&[u8]) -> Option<Answer>,
) -> std::io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    // A connected socket receives answers from this server only.
    socket.connect(server)?;
    socket.send(question)?;
    let end = Instant::now() + timeout;
    let mut reply = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut reply)?;
        if let Some(answer) = accept(&reply[..length]) {
            return Ok(answer);
        }
    }
}

fn by_tcp(server: SocketAddr, question: &[u8], timeout: Duration) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut message = (question.len() as u16).to_be_bytes().to_vec();
    message.extend(question);
    stream.write_all(&message)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

/// An id that others cannot guess. If the system gives no random bytes, the clock's are used.
fn random_id() -> u16 {
    let mut bytes = [0; 2];
    let random = rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return clock.map_or(0, |t| t.subsec_nanos() as u16);
    }
    u16::from_ne_bytes(bytes)
}

#[cfg(test)]
#[path = "stub_tests.rs"]
mod tests;
