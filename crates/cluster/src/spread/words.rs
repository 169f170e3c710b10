//! What driver and process say to each other: lines of words. An image's manifest is written in
//! hexadecimal digits.

use std::fmt;
use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddrV4};

use containers::images::parts::Parts;
use net::peers::PublicKey;
use oci::Digest;

use crate::error::{Error, Result};

/// A manifest has at most four MiB, which are twice as many digits.
const LONGEST: usize = 10 << 20;

/// What a process says.
#[derive(Debug, Clone)]
pub enum Said {
    /// It listens.
    At {
        /// With this key,
        key: PublicKey,
        /// at this port
        port: u16,
        /// of these addresses, of which not all lead here from everywhere.
        addresses: Vec<Ipv4Addr>,
    },
    /// The image that the source has, or soon has.
    Image(Box<Parts>),
    /// All blobs are there and have their digests.
    Whole,
    /// The image has its name; its id.
    Done(Digest),
    /// It reaches none of the hosts that it was told to ask, and ends.
    Alone(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { key, port, addresses } => {
                write!(f, "at {key} {port}")?;
                addresses.iter().try_for_each(|address| write!(f, " {address}"))
            }
            Self::Image(parts) => write_image(f, parts),
            Self::Whole => f.write_str("whole"),
            Self::Done(id) => write!(f, "done {id}"),
            Self::Alone(why) => write!(f, "alone {}", why.replace('\n', " ")),
        }
    }
}

fn write_image(f: &mut fmt::Formatter<'_>, parts: &Parts) -> fmt::Result {
    let digest = parts.manifest.descriptor().digest;
    write!(f, "image {} {} {digest} ", parts.reference, parts.known_as)?;
    parts.manifest.raw().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Another host, as it has said where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its key.
    pub key: PublicKey,
    /// Where it may be reached, the likeliest first.
    pub at: Vec<SocketAddrV4>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.at.iter().try_for_each(|at| write!(f, " {at}"))
    }
}

fn unknown(line: &str) -> Error {
    let line: String = line.chars().take(100).collect();
    Error::new(format!("{line:?} is not a word between driver and host"))
}

impl Said {
    /// Reads a line.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn read(line: &str) -> Result<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let said = match word {
            "at" => {
                let mut words = rest.split(' ');
                let key = words.next().and_then(|text| text.parse().ok());
                let port = words.next().and_then(|text| text.parse().ok());
                let addresses = words.map(|text| text.parse().ok()).collect::<Option<_>>();
                key.zip(port).zip(addresses).map(|((key, port), addresses)| Self::At {
                    key,
                    port,
                    addresses,
                })
            }
            "image" => return image(rest).map(Box::new).map(Self::Image),
            "whole" => Some(Self::Whole),
            "done" => rest.parse().ok().map(Self::Done),
            "alone" => Some(Self::Alone(rest.to_owned())),
            _ => None,
        };
        said.ok_or_else(|| unknown(line))
    }
}

fn image(rest: &str) -> Result<Parts> {
    let words: Vec<&str> = rest.split(' ').collect();
    let &[name, known_as, digest, text] = &words[..] else { return Err(unknown(rest)) };
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes = (0..text.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>();
    Ok(Parts::told(name, known_as, digest, bytes.ok_or_else(|| unknown(rest))?)?)
}

/// What a process is told by the driver.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The image; `None` for the process that has told of it.
    pub image: Option<Parts>,
    /// Whom it asks, in this order.
    pub hosts: Vec<Place>,
    /// Whom it answers.
    pub guests: Vec<PublicKey>,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parts) = &self.image {
            write_image(f, parts)?;
            f.write_str("\n")?;
        }
        self.hosts.iter().try_for_each(|host| writeln!(f, "host {host}"))?;
        self.guests.iter().try_for_each(|key| writeln!(f, "guest {key}"))?;
        f.write_str("go\n")
    }
}

impl Order {
    /// Reads one.
    ///
    /// # Errors
    /// If the driver is gone, or says something else.
    pub fn read(from: &mut impl BufRead) -> Result<Self> {
        let mut order = Self::default();
        loop {
            let mut line = String::new();
            let limit = LONGEST as u64;
            let count = std::io::Read::take(&mut *from, limit).read_line(&mut line);
            if !count.is_ok_and(|count| count > 0) {
                return Err(super::gone());
            }
            let line = line.trim_end_matches('\n');
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "image" => order.image = Some(image(rest)?),
                "guest" => order.guests.push(rest.parse().map_err(|_| unknown(line))?),
                "host" => {
                    let (key, places) = rest.split_once(' ').ok_or_else(|| unknown(line))?;
                    let at = places.split(' ').map(|text| text.parse().ok()).collect::<Option<_>>();
                    let (key, at) = key.parse().ok().zip(at).ok_or_else(|| unknown(line))?;
                    order.hosts.push(Place { key, at });
                }
                "go" => return Ok(order),
                _ => return Err(unknown(line)),
            }
        }
    }
}

/// Lines from pieces of a stream.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Takes a piece. Returns the lines that are complete.
    ///
    /// # Errors
    /// If a line is longer than any should be.
    pub fn take(&mut self, piece: &[u8]) -> Result<Vec<String>> {
        // What is left of earlier pieces has no end of a line.
        let old = self.0.len();
        self.0.extend_from_slice(piece);
        let Some(end) = piece.iter().rposition(|&byte| byte == b'\n').map(|end| old + end) else {
            return if self.0.len() > LONGEST {
                Err(unknown("a long line"))
            } else {
                Ok(Vec::new())
            };
        };
        let rest = self.0.split_off(end + 1);
        let text = std::mem::replace(&mut self.0, rest);
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":9},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","size":70}]}"#;

    fn parts() -> Parts {
        let digest = Digest::of(MANIFEST.as_bytes()).to_string();
        Parts::told("docker.io/lab/a:1", &digest, &digest, MANIFEST.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let key = PublicKey::of([7; 32]);
        for said in [
            Said::At { key, port: 7, addresses: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()] },
            Said::At { key, port: 7, addresses: Vec::new() },
            Said::Image(Box::new(parts())),
            Said::Whole,
            Said::Done(Digest::of(b"")),
            Said::Alone("nobody\nlistens".to_owned()),
        ] {
            let line = said.to_string();
            assert_eq!(Said::read(&line).unwrap().to_string(), line);
        }
        for bad in ["", "at", "at key 7", "done", "image a b c", "image a b c 0g", "what"] {
            assert!(Said::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_manifest_than_its_digest_is_refused() {
        let line = Said::Image(Box::new(parts())).to_string();
        let other = line.replace("7d", "7e");
        assert!(Said::read(&line).is_ok() && line != other);
        assert!(Said::read(&other).unwrap_err().to_string().contains("is not sha256:"));
    }

    #[test]
    fn orders() {
        let key = PublicKey::of([7; 32]);
        let at = vec!["10.0.0.1:80".parse().unwrap(), "10.0.0.2:81".parse().unwrap()];
        let order =
            Order { image: Some(parts()), hosts: vec![Place { key, at }], guests: vec![key] };
        let text = order.to_string();
        assert_eq!(Order::read(&mut text.as_bytes()).unwrap().to_string(), text);
        for bad in ["", "go", "host\ngo\n", "guest x\ngo\n", "what\ngo\n", "guest "] {
            let read = Order::read(&mut bad.as_bytes());
            assert_eq!(read.is_err(), bad != "go", "{bad}");
        }
    }

    #[test]
    fn lines_from_pieces() {
        let mut lines = Lines::default();
        assert!(lines.take(b"who").unwrap().is_empty());
        assert_eq!(lines.take(b"le\ndone x\nal").unwrap(), ["whole", "done x"]);
        assert_eq!(lines.take(b"\n").unwrap(), ["al"]);
    }
}
