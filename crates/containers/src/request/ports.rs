//! Reads `-p [[IP:]HOST[-HOST]:]CONTAINER[-CONTAINER][/PROTOCOL]`, and chooses free ports.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

use engine::spec::Publish;
use net::table::Published;

use crate::error::{Error, Result};

/// Reads one `-p`.
pub fn parse(text: &str) -> Result<Publish> {
    parsed(text).map_err(|why| {
        Error::invalid(format!("--publish '{text}': {why}"))
            .with_hint("write -p [[IP:]HOST:]CONTAINER[/tcp|/udp], as -p 8080:80")
    })
}

fn parsed(text: &str) -> Result<Publish, String> {
    let (ports, protocol) = text.rsplit_once('/').unwrap_or((text, "tcp"));
    let udp = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => false,
        "udp" => true,
        _ => return Err(format!("there is no protocol '{protocol}' (tcp, udp)")),
    };
    let (rest, inside) = match ports.rsplit_once(':') {
        Some((rest, inside)) => (Some(rest), inside),
        None => (None, ports),
    };
    let (inside, count) = range(inside)?;
    let (address, host) = match rest {
        None => (None, ""),
        Some(rest) => match rest.rsplit_once(':') {
            // An address in brackets, or four numbers.
            Some((address, host)) => (Some(address), host),
            None if rest.parse::<Ipv4Addr>().is_ok() => (Some(rest), ""),
            None => (None, rest),
        },
    };
    let address = match address {
        None | Some("") => None,
        Some(address) => {
            let bare = address.trim_start_matches('[').trim_end_matches(']');
            Some(bare.parse::<IpAddr>().map_err(|_| format!("'{address}' is not an address"))?)
        }
    };
    let (host, host_count) = if host.is_empty() { (0, count) } else { range_or_zero(host)? };
    // One port inside and several outside: any of them that is free.
    let among = if count == 1 && host_count > 1 { host_count } else { 0 };
    if host_count != count && among == 0 {
        return Err("the two ranges differ in length".into());
    }
    Ok(Publish { address, host, among, inside, count, udp })
}

/// A number without a sign.
pub(super) fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn range_or_zero(text: &str) -> Result<(u16, u16), String> {
    if text == "0" { Ok((0, 1)) } else { range(text) }
}

fn range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| match number(text) {
        Some(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port (1 to 65535)")),
    };
    let (first, last) = (port(first)?, port(last)?);
    if last < first {
        return Err(format!("'{text}' runs backwards"));
    }
    Ok((first, last - first + 1))
}

/// The ports for the table of networks.
///
/// # Errors
/// For an IPv6 address of the host: there is none in the table.
pub fn as_published(publish: &[Publish]) -> Result<Vec<Published>> {
    let one = |one: &Publish| {
        let address = match one.address {
            None => Ipv4Addr::UNSPECIFIED,
            Some(IpAddr::V4(address)) => address,
            Some(IpAddr::V6(address)) => {
                return Err(Error::unsupported(format!(
                    "a port of a container in this network cannot be published at {address}"
                ))
                .with_hint("publish it at an IPv4 address, or at all: -p 8080:80"));
            }
        };
        let (host, inside, count, udp) = (one.host, one.inside, one.count, one.udp);
        Ok(Published { address, host, inside, count, udp })
    };
    publish.iter().map(one).collect()
}

/// Publishes exposed ports, written as `80/tcp` or `8000-8010/udp`, at free ports of the host, as
/// `-P` does: those that are not published already. Returns the ones whose protocol cannot be.
pub fn publish_all(exposed: &[String], publish: &mut Vec<Publish>) -> Vec<String> {
    let mut others = Vec::new();
    for text in exposed {
        let Ok(range) = parsed(text) else {
            others.push(text.clone());
            continue;
        };
        for inside in (range.inside..).take(range.count.into()) {
            let has = |one: &Publish| {
                let first = one.inside;
                let is_in = (first..).take(one.count.into()).any(|port| port == inside);
                one.udp == range.udp && is_in
            };
            if !publish.iter().any(has) {
                publish.push(Publish { inside, count: 1, ..range.clone() });
            }
        }
    }
    others
}

/// Checks that the host's ports are free.
///
/// # Errors
/// In Docker's words, with the reason.
pub fn check_free(publish: &[Publish]) -> Result<()> {
    for one in publish {
        let address = one.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        for port in (one.host..).take(one.count.into()) {
            let bound = bind(address, port, one.udp);
            if bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                // Which ports a user may have, the plan says.
                continue;
            }
            bound.map_err(|error| {
                let why = if error.kind() == ErrorKind::AddrInUse {
                    "port is already allocated"
                } else {
                    "it cannot be bound"
                };
                Error::conflict(format!("bind for {address}:{port} failed: {why}"))
                    .cause(error)
                    .with_hint("publish it at another port of the host")
            })?;
        }
    }
    Ok(())
}

/// How often the kernel is asked for another free port.
const AGAIN: usize = 64;

/// Chooses host ports where the user left them open, wholly or to a range.
pub fn choose(publish: &mut [Publish]) -> Result<()> {
    for at in 0..publish.len() {
        let (others, one) = (&publish[..at], &publish[at]);
        if one.host != 0 && one.among == 0 {
            continue;
        }
        let address = one.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let last = one.host.saturating_add(one.among.saturating_sub(1));
        let given = |port: u16| {
            others.iter().any(|other| other.udp == one.udp && other.host == port && port != 0)
        };
        let mut failure = None;
        let free = (one.host..=last).filter(|port| !given(*port)).find_map(|port| {
            let found = bind(address, port, one.udp).map_err(|error| failure = Some(error)).ok()?;
            if !given(found) {
                return Some(found);
            }
            // The kernel's choice, which it has made before: nothing is bound yet.
            let mut again = (0..AGAIN).filter_map(|_| bind(address, port, one.udp).ok());
            again.find(|found| !given(*found))
        });
        let host = free.ok_or_else(|| {
            let range =
                if one.host == 0 { String::new() } else { format!(" of {}-{last}", one.host) };
            let error = Error::failed(format!("no free port{range} at {address}"));
            match failure {
                Some(cause) => error.cause(cause),
                None => error.because("other --publish have them"),
            }
        })?;
        publish[at].host = host;
        publish[at].among = 0;
    }
    check_once(publish)
}

/// Checks that no port of the host is given twice.
fn check_once(publish: &[Publish]) -> Result<()> {
    let address = |one: &Publish| one.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let end = |one: &Publish| u32::from(one.host) + u32::from(one.count);
    for (at, one) in publish.iter().enumerate() {
        let meets = |other: &&Publish| {
            let (mine, its) = (address(one), address(other));
            let any =
                mine.is_ipv4() == its.is_ipv4() && (mine.is_unspecified() || its.is_unspecified());
            let first = u32::from(one.host.max(other.host));
            one.udp == other.udp && (any || mine == its) && first < end(one).min(end(other))
        };
        if let Some(other) = publish[..at].iter().find(meets) {
            let port = one.host.max(other.host);
            return Err(Error::invalid(format!(
                "--publish: port {port} of the host is given twice"
            ))
            .with_hint("give each port of the container another one"));
        }
    }
    Ok(())
}

/// The port, or one that is free where it is 0, if it can be listened on.
fn bind(address: IpAddr, port: u16, udp: bool) -> std::io::Result<u16> {
    let bound = if udp {
        UdpSocket::bind((address, port)).and_then(|socket| socket.local_addr())
    } else {
        TcpListener::bind((address, port)).and_then(|socket| socket.local_addr())
    };
    bound.map(|address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let publish = |address: Option<&str>, host, inside, count, udp| Publish {
            address: address.map(|text| text.parse().unwrap()),
            host,
            among: 0,
            inside,
            count,
            udp,
        };
        for (text, wanted) in [
            ("8080:80", publish(None, 8080, 80, 1, false)),
            ("80", publish(None, 0, 80, 1, false)),
            ("53:53/udp", publish(None, 53, 53, 1, true)),
            ("8094:80/TCP", publish(None, 8094, 80, 1, false)),
            ("53:53/Udp", publish(None, 53, 53, 1, true)),
            ("127.0.0.1:8080:80", publish(Some("127.0.0.1"), 8080, 80, 1, false)),
            ("127.0.0.1::80", publish(Some("127.0.0.1"), 0, 80, 1, false)),
            ("[::1]:8080:80", publish(Some("::1"), 8080, 80, 1, false)),
            ("8000-8009:9000-9009", publish(None, 8000, 9000, 10, false)),
        ] {
            assert_eq!(parsed(text).unwrap(), wanted, "{text}");
        }
        for text in [
            "",
            "x",
            "0",
            "80:",
            "70000:80",
            "1-2:3-5",
            "80/sctp",
            "9-8",
            "a:1:2",
            "+8109:80",
            "80:+80",
            "8000-+8001:80",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_have_no_ports_at_ipv6() {
        let error = as_published(&[parsed("[::1]:8080:80").unwrap()]).unwrap_err();
        let text = error.to_string();
        assert_eq!(text, "a port of a container in this network cannot be published at ::1");
        assert!(error.hint().is_some());
    }

    #[test]
    fn exposed_ports_are_published_once() {
        let mut publish = vec![parsed("8080:80").unwrap()];
        let exposed = ["80/tcp", "80/udp", "81-82/tcp", "81/tcp", "90", "7/sctp"];
        let others = publish_all(&exposed.map(str::to_owned), &mut publish);
        assert_eq!(others, ["7/sctp"]);
        let all: Vec<_> = publish.iter().map(|one| (one.host, one.inside, one.udp)).collect();
        let free = |inside, udp| (0, inside, udp);
        let rest = [free(80, true), free(81, false), free(82, false), free(90, false)];
        assert_eq!(all, [&[(8080, 80, false)], &rest[..]].concat());
    }

    #[test]
    fn open_ports_are_chosen() {
        let mut publish = [parsed("127.0.0.1::80").unwrap()];
        choose(&mut publish).unwrap();
        assert_ne!(publish[0].host, 0);
    }

    #[test]
    fn a_port_of_the_host_is_given_once() {
        let chosen = |texts: &[&str]| {
            let mut publish: Vec<_> = texts.iter().map(|text| parsed(text).unwrap()).collect();
            choose(&mut publish).is_ok()
        };
        for texts in [
            &["8080:80", "8080:81"][..],
            &["8080:80", "8080:80"],
            &["8080:80", "127.0.0.1:8080:81"],
            &["8000-8009:1000-1009", "81:80", "127.0.0.1:8009:80"],
            &["[::1]:8080:80", "[::]:8080:81"],
        ] {
            assert!(!chosen(texts), "{texts:?}");
        }
        for texts in [
            &["8080:80", "8081:80"][..],
            &["8080:80", "8080:80/udp"],
            &["127.0.0.1:8080:80", "127.0.0.2:8080:80"],
            &["8000-8009:1000-1009", "8010:80"],
            &["8080:80", "[::1]:8080:80"],
        ] {
            assert!(chosen(texts), "{texts:?}");
        }
    }

    /// As in Docker: several ports outside for one inside mean any of them that is free.
    #[test]
    fn one_of_a_range_is_chosen() {
        // Two ports beside each other, of which the first is taken.
        let taken = (20_000..30_000).find_map(|port| {
            bind(IpAddr::V4(Ipv4Addr::LOCALHOST), port + 1, false).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        });
        let taken = taken.expect("a port");
        let first = taken.local_addr().unwrap().port();
        let text = format!("127.0.0.1:{first}-{}:80", first + 1);
        let parsed = parsed(&text).unwrap();
        assert_eq!((parsed.host, parsed.among, parsed.count), (first, 2, 1));
        let mut publish = [parsed.clone()];
        choose(&mut publish).unwrap();
        assert_eq!((publish[0].host, publish[0].among), (first + 1, 0));
        let error = choose(&mut [publish[0].clone(), parsed]).unwrap_err();
        assert!(error.to_string().contains(&format!("{first}-{}", first + 1)), "{error}");
    }
}
