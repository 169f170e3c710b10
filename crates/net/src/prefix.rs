//! A range of IPv6 addresses, as `fd12:3456:789a::/64` (RFC 4291), in which the members of a
//! network have addresses.
//!
//! A member's IPv6 address follows from its IPv4 address: the prefix, zeros, and the IPv4 address
//! as the low 32 bits. So everything that is known about members is kept by IPv4 addresses alone.
//!
//! A device also has a link-local address (RFC 4291, 2.5.6), from its ethernet address, which
//! follows from the IPv4 address too ([`crate::switch::frame::ethernet`]).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{self, by_text};

/// How many bits a network's prefix has: a longer one has no room for IPv4 addresses.
pub const BITS: std::ops::RangeInclusive<u8> = 64..=96;

/// What is written where one is expected.
pub const EXAMPLE: &str = "fd00:80::/64";

/// Ranges that no network can have (RFC 6890, RFC 4291): their first address, and how many bits
/// are the same.
const UNUSABLE: [(Ipv6Addr, u8, &str); 5] = [
    (Ipv6Addr::UNSPECIFIED, 80, "loopback and IPv4 addresses in other forms"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 32, "the translation to IPv4"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "tunnels through IPv4"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 9, "link-local and site-local addresses"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// An IPv6 range. The bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    base: u128,
    bits: u8,
}

impl Prefix {
    /// A new one for local use: `fd00::/8` and 40 bits that nobody else is likely to have
    /// (RFC 4193), 64 in all.
    pub fn local(random: [u8; 5]) -> Self {
        let mut octets = [0; 16];
        octets[0] = 0xfd;
        octets[1..6].copy_from_slice(&random);
        Self { base: u128::from_be_bytes(octets), bits: 64 }
    }

    /// Its first address, which stands for the network itself.
    pub const fn base(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.base)
    }

    /// How many bits are the same in all addresses.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// Whether an address is in it.
    pub const fn contains(self, address: Ipv6Addr) -> bool {
        address.to_bits() & mask(self.bits) == self.base
    }

    /// Whether there is an address in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.contains(other.base()) || other.contains(self.base())
    }

    /// The address of the member with an IPv4 address.
    pub const fn of(self, member: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.base | member.to_bits() as u128)
    }

    /// The IPv4 address of the member with an address; `None` for one of another form.
    pub const fn member(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = address.to_bits();
        if bits & !(u32::MAX as u128) != self.base {
            return None;
        }
        Some(Ipv4Addr::from_bits(bits as u32))
    }

    /// Why it cannot be a network's, if that is so.
    pub fn unusable(self) -> Option<String> {
        if !BITS.contains(&self.bits) {
            let (least, most) = (BITS.start(), BITS.end());
            return Some(format!("it has fewer than {least} or more than {most} bits"));
        }
        let is_in = |(base, bits, _): &&(Ipv6Addr, u8, &str)| {
            Self { base: base.to_bits(), bits: *bits }.overlaps(self)
        };
        UNUSABLE.iter().find(is_in).map(|(.., of)| format!("it is for {of}"))
    }
}

/// The link-local address of the device of the member with an IPv4 address: the "modified EUI-64"
/// of its ethernet address 02:42:A:B:C:D (RFC 4291, appendix A).
pub const fn link_local(member: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = member.octets();
    let octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x42, a, 0xff, 0xfe, b, c, d];
    Ipv6Addr::from_octets(octets)
}

/// The IPv4 address of the member whose device has a link-local address; `None` for another one.
pub const fn of_link_local(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let member = Ipv4Addr::new(octets[10], octets[13], octets[14], octets[15]);
    if link_local(member).to_bits() == address.to_bits() { Some(member) } else { None }
}

/// The bits that are the same in all addresses of a range.
const fn mask(bits: u8) -> u128 {
    match bits {
        0 => 0,
        _ => u128::MAX << (128 - bits),
    }
}

/// The destinations of a host's routes in the text of `/proc/net/ipv6_route` ([proc_pid_net(5)]):
/// those of 16 to 127 bits. Shorter ones lead everywhere, and longer ones are single addresses. A
/// line that is none is passed over.
///
/// [proc_pid_net(5)]: https://man7.org/linux/man-pages/man5/proc_pid_net.5.html
pub fn routes(text: &str) -> Vec<Prefix> {
    text.lines().filter_map(route).collect()
}

/// One line: destination and its bits, in hexadecimal digits, and more.
fn route(line: &str) -> Option<Prefix> {
    let mut words = line.split_whitespace();
    let base = u128::from_str_radix(words.next()?, 16).ok()?;
    let bits =
        u8::from_str_radix(words.next()?, 16).ok().filter(|bits| (16..128).contains(bits))?;
    Some(Prefix { base: base & mask(bits), bits })
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base(), self.bits)
    }
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It is not `ADDRESS/BITS`.
    #[error("it is not ADDRESS/BITS of IPv6")]
    Form,
    /// Bits behind the prefix are set; the range in which the address lies.
    #[error("it should be {0}")]
    Inside(Prefix),
}

impl FromStr for Prefix {
    type Err = Wrong;

    fn from_str(range: &str) -> Result<Self, Wrong> {
        let (address, bits) = range.split_once('/').ok_or(Wrong::Form)?;
        let address: Ipv6Addr = address.parse().map_err(|_| Wrong::Form)?;
        let bits = text::bits(bits).filter(|bits| *bits <= 128).ok_or(Wrong::Form)?;
        let prefix = Self { base: address.to_bits() & mask(bits), bits };
        if prefix.base() == address { Ok(prefix) } else { Err(Wrong::Inside(prefix)) }
    }
}

by_text!(Prefix, Wrong);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        for text in ["::/0", "fd00::/8", "fd12:3456:789a::/64", "fd00::64:0:0/96", "::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        for text in ["", "fd00::", "fd00::/", "fd00::/129", "fd00::/+8", "10.0.0.0/8", "x/64"] {
            assert_eq!(text.parse::<Prefix>(), Err(Wrong::Form), "{text}");
        }
        assert_eq!("fd00::1/64".parse::<Prefix>(), Err(Wrong::Inside(prefix("fd00::/64"))));
        assert!(serde_json::from_str::<Prefix>("\"fd00::1/64\"").is_err());
        assert_eq!(serde_json::to_string(&prefix("fd00::/64")).unwrap(), "\"fd00::/64\"");
    }

    #[test]
    fn members_have_addresses_that_follow() {
        let member = Ipv4Addr::new(100, 80, 0, 2);
        for (text, address) in [
            ("fd12:3456:789a::/64", "fd12:3456:789a::6450:2"),
            ("fd00::7:0:0/96", "fd00::7:6450:2"),
        ] {
            assert_eq!(prefix(text).of(member).to_string(), address);
            assert_eq!(prefix(text).member(address.parse().unwrap()), Some(member));
        }
        // In the prefix, and of nobody.
        let other = "fd12:3456:789a::1:6450:2".parse().unwrap();
        assert!(prefix("fd12:3456:789a::/64").contains(other));
        assert_eq!(prefix("fd12:3456:789a::/64").member(other), None);
        assert_eq!(link_local(member).to_string(), "fe80::42:64ff:fe50:2");
        assert_eq!(
            of_link_local("fe80::42:64ff:fe50:3".parse().unwrap()),
            Some([100, 80, 0, 3].into())
        );
        for other in ["fe80::1", "fe80::43:64ff:fe50:2", "fe80:0:0:1:42:64ff:fe50:2"] {
            assert_eq!(of_link_local(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn what_a_network_may_have() {
        for good in ["fd00::/64", "fd00::5:0:0/96", "2001:db8:1::/64", "2a01:4f8:1:2::/80"] {
            assert_eq!(prefix(good).unusable(), None, "{good}");
        }
        for (bad, part) in [
            ("fd00::/63", "fewer than 64"),
            ("fd00::/97", "more than 96"),
            ("::/96", "loopback"),
            ("::/64", "loopback"),
            ("::ffff:0:0/96", "IPv4 addresses in other forms"),
            ("64:ff9b::/96", "translation"),
            ("2002:a00:1::/64", "tunnels"),
            ("fe80::/64", "link-local"),
            ("fec0::/64", "link-local"),
            ("ff05::/64", "multicast"),
        ] {
            let why = prefix(bad).unusable().unwrap_or_default();
            assert!(why.contains(part), "{bad}: {why}");
        }
    }

    #[test]
    fn routes_of_the_kernel() {
        let text = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 0 00000400 1 0 00000003 eth0
fd000080000000000000000000000000 40 00000000000000000000000000000000 00 0 00000100 1 0 00000001 eth0
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 0 00000100 1 0 00000001 eth0
fd000080000000000000000000000007 80 00000000000000000000000000000000 00 0 00000000 1 0 80200001 lo
odd
";
        assert_eq!(routes(text), [prefix("fd00:80::/64"), prefix("fe80::/64")]);
        assert!(routes("").is_empty());
    }

    proptest! {
        #[test]
        fn an_address_leads_back_to_its_member(
            random in any::<[u8; 5]>(), member in any::<u32>(), any in any::<u128>(),
        ) {
            let (own, member) = (Prefix::local(random), Ipv4Addr::from_bits(member));
            prop_assert_eq!(own.unusable(), None);
            prop_assert_eq!(own.to_string().parse::<Prefix>(), Ok(own));
            prop_assert!(own.contains(own.of(member)));
            prop_assert_eq!(own.member(own.of(member)), Some(member));
            prop_assert_eq!(of_link_local(link_local(member)), Some(member));
            let any = Ipv6Addr::from_bits(any);
            prop_assert!(own.member(any).is_none_or(|member| own.of(member) == any));
            prop_assert!(of_link_local(any).is_none_or(|member| link_local(member) == any));
        }
    }
}
