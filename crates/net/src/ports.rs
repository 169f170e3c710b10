//! Ports of which one is that of an agent.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ports of which one is the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl Ports {
    /// Those of a network for which none are given.
    pub const USUAL: Self = Self { first: 7370, last: 7999 };

    /// Whether a port is one of them.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// All of them, beginning with the one at a place, which is counted round the end.
    pub(crate) fn from(self, place: u16) -> impl Iterator<Item = u16> {
        let count = u32::from(self.last.saturating_sub(self.first)) + 1;
        let start = u32::from(place) % count;
        (0..count).map(move |step| self.first + ((start + step) % count) as u16)
    }
}

impl FromStr for Ports {
    type Err = String;

    /// `PORT` or `FIRST-LAST`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let port = |text: &str| {
            text.parse::<u16>().map_err(|_| format!("{text:?} is not a number from 1 to 65535"))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(format!("{first} comes after {last}"));
        }
        Ok(Self { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_or_a_range() {
        let parse = str::parse::<Ports>;
        assert_eq!(parse("7").unwrap(), Ports { first: 7, last: 7 });
        let ports = parse("7-9").unwrap();
        assert_eq!(ports.from(4).collect::<Vec<_>>(), [8, 9, 7]);
        assert!(ports.contains(9) && !ports.contains(10));
        assert_eq!(parse("0-65535").unwrap().from(u16::MAX).count(), 1 << 16);
        for bad in ["", "x", "9-7", "1-", "-1", "70000", "1-2-3"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
