//! Resolves host names to addresses, without the C library.
//!
//! `getaddrinfo` in a static glibc program loads the host's NSS modules, and with them a second
//! libc, which may crash. Therefore this module tries literal addresses, `/etc/hosts`, `localhost`
//! (RFC 6761), then DNS as `/etc/resolv.conf` says ([`stub`]). If all of that fails (mDNS, LDAP,
//! NIS, `sssd`), it runs the host's own `getent ahosts NAME`, whose NSS runs in a process of its
//! own. Results are cached for a minute.
//!
//! Lock order: one lock, held only to read the cache or to add to it.

mod hosts_file;
mod packet;
mod stub;

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{ResolverSettings, limits};

/// How long a result is cached.
const KEEP: Duration = Duration::from_mins(1);
/// Addresses kept per name.
const ADDRESSES: usize = 16;

/// Resolves names according to the settings.
#[derive(Debug)]
pub(crate) struct Resolver {
    settings: ResolverSettings,
    cache: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Resolver {
    pub(crate) fn new(settings: ResolverSettings) -> Self {
        Resolver { settings, cache: Mutex::new(HashMap::new()) }
    }

    /// The addresses of `host`, best first and never empty; else the failed attempts, in words.
    pub(crate) fn resolve(&self, host: &str, timeout: Duration) -> Result<Vec<IpAddr>, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![address]);
        }
        if let Some(known) = self.cached(host) {
            return Ok(known);
        }
        let found = self.look_up(host, Instant::now() + timeout)?;
        let found = order(found);
        if let Ok(mut cache) = self.cache.lock() {
            cache.insert(host.to_owned(), (Instant::now(), found.clone()));
        }
        Ok(found)
    }

    fn cached(&self, host: &str) -> Option<Vec<IpAddr>> {
        let cache = self.cache.lock().ok()?;
        let (at, found) = cache.get(host)?;
        (at.elapsed() < KEEP).then(|| found.clone())
    }

    fn look_up(&self, host: &str, deadline: Instant) -> Result<Vec<IpAddr>, String> {
        let from_file = hosts_file::look_up(&self.settings.hosts, host);
        if !from_file.is_empty() {
            return Ok(from_file);
        }
        let lower = host.trim_end_matches('.').to_ascii_lowercase();
        if lower == "localhost" || lower.ends_with(".localhost") {
            return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        }
        let config = stub::Config::read(&self.settings.resolv_conf);
        let reason = match stub::look_up(&config, host, deadline) {
            Ok(found) => return Ok(found),
            Err(reason) => reason,
        };
        tracing::debug!(host, reason, "DNS has no answer, asking getent");
        match getent(&self.settings.getent, host, deadline) {
            Some(found) => Ok(found),
            None => Err(format!(
                "not in {}, {reason}, and getent finds no address",
                self.settings.hosts.display()
            )),
        }
    }
}

/// Puts the addresses that this host has a route to first, and among them IPv6 before IPv4 (a
/// simplified RFC 6724). Connecting a UDP socket sends nothing: it only looks up the route.
fn order(mut found: Vec<IpAddr>) -> Vec<IpAddr> {
    found.dedup();
    found.truncate(ADDRESSES);
    if found.len() < 2 {
        return found;
    }
    found.sort_by_key(|address| (!has_route(*address), address.is_ipv4()));
    found
}

fn has_route(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind(SocketAddr::new(any, 0))
        .and_then(|socket| socket.connect(SocketAddr::new(address, 443)))
        .is_ok()
}

/// Runs `getent`, which uses the host's NSS in another process.
fn getent(programs: &[std::path::PathBuf], host: &str, deadline: Instant) -> Option<Vec<IpAddr>> {
    // A name that begins with a dash would be read as an option.
    if host.starts_with('-') {
        return None;
    }
    let program = programs.iter().find(|p| p.exists())?;
    let found = run_getent(program, host, deadline)?;
    (!found.is_empty()).then_some(found)
}

fn run_getent(program: &Path, host: &str, deadline: Instant) -> Option<Vec<IpAddr>> {
    let mut child = Command::new(program)
        .args(["ahosts", host])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    // The reader ends when the child does, which the deadline below enforces.
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.take(limits::HELPER_OUTPUT).read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    let text = receiver.recv_timeout(left);
    if text.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    Some(parse_ahosts(&text.ok()?))
}

fn parse_ahosts(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let address = line.split_whitespace().next().and_then(|word| word.parse().ok());
        if let Some(address) = address
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offline() -> Resolver {
        Resolver::new(ResolverSettings {
            hosts: "/nonexistent/hosts".into(),
            resolv_conf: "/nonexistent/resolv.conf".into(),
            getent: Vec::new(),
        })
    }

    #[test]
    fn literals_and_localhost_need_no_server() {
        let resolver = offline();
        let second = Duration::from_secs(1);
        assert_eq!(resolver.resolve("127.0.0.9", second).unwrap()[0].to_string(), "127.0.0.9");
        assert_eq!(resolver.resolve("[::1]", second).unwrap()[0].to_string(), "::1");
        assert!(resolver.resolve("localhost", second).unwrap().iter().all(IpAddr::is_loopback));
        assert!(resolver.resolve("a.localhost.", second).unwrap()[0].is_loopback());
    }

    #[test]
    fn ahosts_output() {
        let text = "127.0.1.1       STREAM a.b\n127.0.1.1       DGRAM\n::1 STREAM\nnonsense\n";
        let found = parse_ahosts(text);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn getent_is_a_process() {
        let programs = ResolverSettings::default().getent;
        if !programs.iter().any(|p| p.exists()) {
            eprintln!("SKIP getent_is_a_process: no getent on this host");
            return;
        }
        let found = getent(&programs, "localhost", Instant::now() + Duration::from_secs(10));
        assert!(found.unwrap().iter().all(IpAddr::is_loopback));
        let deadline = Instant::now() + Duration::from_secs(10);
        assert!(getent(&programs, "--help", deadline).is_none());
    }
}
