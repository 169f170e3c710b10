//! A range of IPv4 addresses with a common beginning, as `100.80.0.0/24` (RFC 4632).

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{self, by_text};

/// An IPv4 range. The bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    base: u32,
    prefix: u8,
}

impl Subnet {
    /// The range of `2^(32 - prefix)` addresses in which `address` lies; `None` for a prefix of
    /// more than 32 bits.
    pub const fn around(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        match prefix {
            0..=32 => Some(Self { base: address.to_bits() & mask(prefix), prefix }),
            _ => None,
        }
    }

    /// Its first address, which stands for the network itself.
    pub const fn base(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base)
    }

    /// Its last address, to which broadcasts go.
    pub const fn last(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base | !mask(self.prefix))
    }

    /// How many bits are the same in all addresses: 0 to 32.
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The first and the last address that a host of such a network may have. A range of one or two
    /// addresses has only hosts (RFC 3021).
    pub const fn hosts(self) -> (Ipv4Addr, Ipv4Addr) {
        if self.prefix > 30 {
            return (self.base(), self.last());
        }
        (Ipv4Addr::from_bits(self.base + 1), Ipv4Addr::from_bits(self.last().to_bits() - 1))
    }

    /// Whether an address is in it.
    pub const fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.base
    }

    /// Whether all addresses of another range are in it.
    pub const fn covers(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.base())
    }

    /// Whether there is an address in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Its lower half; one address is its own.
    #[must_use]
    pub const fn lower_half(self) -> Self {
        Self { base: self.base, prefix: if self.prefix < 32 { self.prefix + 1 } else { 32 } }
    }
}

/// The bits that are the same in all addresses of a range.
const fn mask(prefix: u8) -> u32 {
    match prefix {
        0 => 0,
        _ => u32::MAX << (32 - prefix),
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base(), self.prefix)
    }
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It is not `ADDRESS/BITS`.
    #[error("it is not ADDRESS/BITS")]
    Form,
    /// It is one of IPv6.
    #[error("only IPv4 is supported")]
    Six,
    /// Bits behind the prefix are set; the range in which the address lies.
    #[error("it should be {0}")]
    Inside(Subnet),
}

impl FromStr for Subnet {
    type Err = Wrong;

    fn from_str(range: &str) -> Result<Self, Wrong> {
        let (address, prefix) = range.split_once('/').unwrap_or((range, ""));
        if address.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(Wrong::Six);
        }
        let address: Ipv4Addr = address.parse().map_err(|_| Wrong::Form)?;
        let prefix = text::bits(prefix).ok_or(Wrong::Form)?;
        let subnet = Self::around(address, prefix).ok_or(Wrong::Form)?;
        if subnet.base() == address { Ok(subnet) } else { Err(Wrong::Inside(subnet)) }
    }
}

by_text!(Subnet, Wrong);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "100.80.0.0/24", "1.2.3.4/32"] {
            assert_eq!(subnet(text).to_string(), text);
        }
        for text in ["", "x", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/+8"] {
            assert_eq!(text.parse::<Subnet>(), Err(Wrong::Form), "{text}");
        }
        assert_eq!("10.0.0.0/8/8".parse::<Subnet>(), Err(Wrong::Form));
        assert_eq!("fd00::/64".parse::<Subnet>(), Err(Wrong::Six));
        assert_eq!("10.1.2.3/24".parse::<Subnet>(), Err(Wrong::Inside(subnet("10.1.2.0/24"))));
        assert!(serde_json::from_str::<Subnet>("\"10.1.2.3/24\"").is_err());
        assert_eq!(serde_json::to_string(&subnet("10.1.2.0/24")).unwrap(), "\"10.1.2.0/24\"");
    }

    #[test]
    fn ends() {
        let ends = |text: &str| {
            let (first, last) = subnet(text).hosts();
            format!("{first} {last} {}", subnet(text).last())
        };
        assert_eq!(ends("10.0.0.0/24"), "10.0.0.1 10.0.0.254 10.0.0.255");
        assert_eq!(ends("10.0.0.4/30"), "10.0.0.5 10.0.0.6 10.0.0.7");
        assert_eq!(ends("10.0.0.4/31"), "10.0.0.4 10.0.0.5 10.0.0.5");
        assert_eq!(ends("10.0.0.4/32"), "10.0.0.4 10.0.0.4 10.0.0.4");
        assert_eq!(ends("0.0.0.0/0"), "0.0.0.1 255.255.255.254 255.255.255.255");
        assert_eq!(subnet("10.0.0.0/24").lower_half(), subnet("10.0.0.0/25"));
        assert_eq!(subnet("1.1.1.1/32").lower_half(), subnet("1.1.1.1/32"));
        assert_eq!(Subnet::around(Ipv4Addr::LOCALHOST, 33), None);
    }

    proptest! {
        #[test]
        fn overlapping_is_having_an_address_in_common(
            a in any::<u32>(), b in any::<u32>(), near in 0_u32..=32, x in 0_u8..=32, y in 0_u8..=32,
        ) {
            // Ranges that are near each other, so that both answers occur.
            let b = a ^ b.checked_shr(near).unwrap_or(0);
            let (one, other) = (
                Subnet::around(Ipv4Addr::from_bits(a), x).unwrap(),
                Subnet::around(Ipv4Addr::from_bits(b), y).unwrap(),
            );
            let common = one.base() <= other.last() && other.base() <= one.last();
            prop_assert_eq!(one.overlaps(other), common);
            prop_assert_eq!(other.overlaps(one), common);
            prop_assert!(one.contains(one.base()) && one.contains(one.last()));
            let inside = one.base() <= other.base() && other.last() <= one.last();
            prop_assert_eq!(one.covers(other), inside);
            prop_assert_eq!(one.to_string().parse::<Subnet>(), Ok(one));
        }
    }
}
