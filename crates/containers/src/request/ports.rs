//! Reads `-p [[IP:]HOST[-HOST]:]CONTAINER[-CONTAINER][/PROTOCOL]`, and chooses free ports.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

use engine::spec::Publish;

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
    let udp = match protocol {
        "tcp" => false,
        "udp" => true,
        other => return Err(format!("there is no protocol '{other}' (tcp, udp)")),
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
    if host_count != count {
        return Err("the two ranges differ in length".into());
    }
    Ok(Publish { address, host, inside, count, udp })
}

fn range_or_zero(text: &str) -> Result<(u16, u16), String> {
    if text == "0" { Ok((0, 1)) } else { range(text) }
}

fn range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port (1 to 65535)")),
    };
    let (first, last) = (port(first)?, port(last)?);
    if last < first {
        return Err(format!("'{text}' runs backwards"));
    }
    Ok((first, last - first + 1))
}

/// Chooses host ports where the user left them open.
pub fn choose(publish: &mut [Publish]) -> Result<()> {
    for one in publish.iter_mut().filter(|one| one.host == 0) {
        let address = one.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let free = if one.udp {
            UdpSocket::bind((address, 0)).and_then(|socket| socket.local_addr())
        } else {
            TcpListener::bind((address, 0)).and_then(|socket| socket.local_addr())
        };
        one.host = free
            .map_err(|error| Error::failed(format!("no free port at {address}")).cause(error))?
            .port();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let publish = |address: Option<&str>, host, inside, count, udp| Publish {
            address: address.map(|text| text.parse().unwrap()),
            host,
            inside,
            count,
            udp,
        };
        for (text, wanted) in [
            ("8080:80", publish(None, 8080, 80, 1, false)),
            ("80", publish(None, 0, 80, 1, false)),
            ("53:53/udp", publish(None, 53, 53, 1, true)),
            ("127.0.0.1:8080:80", publish(Some("127.0.0.1"), 8080, 80, 1, false)),
            ("127.0.0.1::80", publish(Some("127.0.0.1"), 0, 80, 1, false)),
            ("[::1]:8080:80", publish(Some("::1"), 8080, 80, 1, false)),
            ("8000-8009:9000-9009", publish(None, 8000, 9000, 10, false)),
        ] {
            assert_eq!(parsed(text).unwrap(), wanted, "{text}");
        }
        for text in ["", "x", "0", "80:", "70000:80", "1-2:3", "80/sctp", "9-8", "a:1:2"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn open_ports_are_chosen() {
        let mut publish = [parsed("127.0.0.1::80").unwrap()];
        choose(&mut publish).unwrap();
        assert_ne!(publish[0].host, 0);
    }
}
