//! Network interfaces with IPv4 addresses, by netdevice(7).

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: Ipv4Addr,
    /// How many leading bits it has in common with its subnet.
    pub prefix: u8,
    /// The interface is up and can send; a bridge without ports cannot.
    pub is_running: bool,
}

impl Interface {
    /// The subnet's first address.
    pub fn subnet(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.mask())
    }

    /// Whether an address is in the subnet.
    pub fn reaches(&self, address: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ address.to_bits()) & self.mask() == 0
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32_u32.saturating_sub(self.prefix.into())).unwrap_or(0)
    }
}

/// All of them but those of loopback; none where the kernel does not tell.
pub fn interfaces() -> Vec<Interface> {
    let all = sys::link::addresses().unwrap_or_default().into_iter();
    let fit = all.filter(|(_, address)| !address.is_loopback() && !address.is_unspecified());
    let of = |(label, address): (String, Ipv4Addr)| Interface {
        prefix: sys::link::prefix(&label, address).unwrap_or(32),
        is_running: sys::link::is_running(&label).unwrap_or(false),
        // `eth0:1` is a further address of eth0.
        name: label.split(':').next().unwrap_or_default().to_owned(),
        address,
    };
    fit.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets() {
        let [address, near, far] = ["10.1.2.3", "10.1.3.4", "10.1.4.1"].map(|a| a.parse().unwrap());
        let of = |prefix| Interface { name: "eth0".into(), address, prefix, is_running: true };
        assert_eq!(of(23).subnet(), Ipv4Addr::new(10, 1, 2, 0));
        assert_eq!([of(23).reaches(near), of(23).reaches(far)], [true, false]);
        assert_eq!([of(32).reaches(near), of(0).reaches(far)], [false, true]);
        assert!(interfaces().iter().all(|one| one.name != "lo" && one.reaches(one.address)));
    }
}
