//! Parts of the subnet of a network of several hosts: each host gives its containers addresses of
//! its own *slice*, so no two hosts have to agree on one. No I/O.
//!
//! All slices of a subnet have the same size. The host at a place of the list of members owns the
//! slice with that number, and an address tells its host.
//!
//! | subnet | slices | addresses of each |
//! |---|---|---|
//! | `/20` and larger | 256 | 16 and more |
//! | `/21` to `/23` | 64 | 32 to 8 |
//! | `/24` | 16 | 16 |
//! | `/25` to `/28` | 16 to 2 | 8 |
//!
//! No container gets the first address of the subnet, its last one, or that of the gateway, which
//! lies in slice 0.

use std::net::Ipv4Addr;

use crate::subnet::Subnet;

/// The smallest subnet of several hosts.
pub const SMALLEST: u8 = 28;
/// The most hosts of a network; as many as a host's table knows.
pub const MOST: usize = abi::network::NODES;

/// How many more bits than a subnet of this prefix a slice has.
pub(crate) const fn bits(prefix: u8) -> u8 {
    match prefix {
        0..=20 => 8,
        21..=23 => 6,
        24 => 4,
        25..=29 => 29 - prefix,
        _ => 0,
    }
}

/// How many hosts may be in a network with this subnet.
pub const fn count(subnet: Subnet) -> usize {
    1 << bits(subnet.prefix())
}

/// The slice with a number; `None` if there are fewer.
pub fn slice(subnet: Subnet, number: usize) -> Option<Subnet> {
    let prefix = subnet.prefix() + bits(subnet.prefix());
    let number = u32::try_from(number).ok().filter(|_| number < count(subnet))?;
    let size = 1_u32.checked_shl(32 - u32::from(prefix))?;
    Subnet::around(Ipv4Addr::from_bits(subnet.base().to_bits() + number * size), prefix)
}

/// The number of the slice in which an address lies; `None` if it is not in the subnet.
pub fn owner(subnet: Subnet, address: Ipv4Addr) -> Option<usize> {
    let prefix = u32::from(subnet.prefix() + bits(subnet.prefix()));
    let far = address.to_bits() - subnet.base().to_bits().min(address.to_bits());
    subnet.contains(address).then(|| far.checked_shr(32 - prefix).unwrap_or(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        let size = |text: &str| {
            let subnet: Subnet = text.parse().unwrap();
            (count(subnet), 1_u64 << (32 - slice(subnet, 0).unwrap().prefix()))
        };
        for (text, slices, addresses) in [
            ("10.0.0.0/8", 256, 65536),
            ("10.0.0.0/16", 256, 256),
            ("10.0.0.0/20", 256, 16),
            ("10.0.0.0/21", 64, 32),
            ("10.0.0.0/23", 64, 8),
            ("10.0.0.0/24", 16, 16),
            ("10.0.0.0/25", 16, 8),
            ("10.0.0.0/26", 8, 8),
            ("10.0.0.0/28", 2, 8),
        ] {
            assert_eq!(size(text), (slices, addresses), "{text}");
        }
        let subnet = "10.0.0.0/24".parse().unwrap();
        assert_eq!(slice(subnet, 1).unwrap().to_string(), "10.0.0.16/28");
        assert_eq!(slice(subnet, 16), None);
        assert_eq!(owner(subnet, Ipv4Addr::new(10, 0, 0, 255)), Some(15));
        assert_eq!(owner(subnet, Ipv4Addr::new(10, 0, 1, 0)), None);
        assert_eq!(owner(subnet, Ipv4Addr::new(9, 0, 0, 0)), None);
    }

    proptest! {
        #[test]
        fn every_address_is_in_the_slice_of_its_owner(
            base in any::<u32>(), prefix in 8_u8..=SMALLEST, far in any::<u32>(),
        ) {
            let subnet = Subnet::around(Ipv4Addr::from_bits(base), prefix).unwrap();
            let far = far & (u32::MAX >> prefix);
            let address = Ipv4Addr::from_bits(subnet.base().to_bits() | far);
            let owner = owner(subnet, address).unwrap();
            prop_assert!(owner < count(subnet) && count(subnet) <= MOST);
            let slice = slice(subnet, owner).unwrap();
            prop_assert!(slice.contains(address) && subnet.covers(slice));
            prop_assert!(slice.prefix() <= 29);
        }
    }
}
