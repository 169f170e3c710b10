//! The way of frames between members that have network namespaces and live on different hosts: from
//! the [switch](crate::switch) to the links of their network, and back.
//!
//! The slice of an address says which host has it, and what that host has told of its members,
//! whether anybody is there. A host speaks for its own slice only, and for the auxiliary addresses
//! that it was the last to announce: a frame with another's source address is dropped.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::served::{Joined, Served};
use crate::kind::Kind;
use crate::locks::lock;
use crate::peers::message::Claim;
use crate::peers::{Message, PublicKey, Remote};
use crate::slices;
use crate::switch::frame::{self, Ranges};
use crate::switch::{Switch, Uplink};

/// Others are not told more often of an address: messages wait in the links' queues, which a member
/// that announces without end must not fill. An announcement is usually made several times.
const OFTEN: Duration = Duration::from_millis(20);

/// The switch's side.
pub(super) struct ToOthers(pub(super) Arc<Served>);

impl Uplink for ToOthers {
    fn has(&self, network: &str, address: Ipv4Addr) -> bool {
        let Some(joined) = self.0.joined_by_id(network) else { return false };
        if is_auxiliary(&joined, address) {
            return lock(&joined.holders).elsewhere.contains_key(&address);
        }
        let view = joined.view();
        let Some(host) = view.list.owner(address) else { return false };
        let peers = joined.peers();
        let is_coming = || peers.as_ref().is_some_and(|peers| peers.is_hopeful(&host.key));
        match lock(&joined.others).get(&host.key) {
            Some(its) if its.told => {
                let is_it = |member: &Remote| member.address == address;
                its.members.iter().any(|member| is_it(member) && member.kind == Kind::Packets)
            }
            // A link that is just being made will tell: the first frames are sent again.
            _ => is_coming(),
        }
    }

    fn carry(&self, network: &str, to: Option<Ipv4Addr>, frame: &[u8]) {
        let Some(joined) = self.0.joined_by_id(network) else { return };
        if let Some(address) = to.filter(|to| is_auxiliary(&joined, *to)) {
            let holder = lock(&joined.holders).elsewhere.get(&address).copied();
            if let (Some(key), Some(peers)) = (holder, &*joined.peers()) {
                peers.send_frame_to(&key, address, frame);
            }
            return;
        }
        let all = match to {
            Some(to) => vec![to],
            // One member of each host: its switch hands the frame to the others.
            None => one_of_each(&joined),
        };
        let peers = joined.peers();
        for to in all {
            if let Some(peers) = &*peers {
                peers.send_frame(to, frame);
            }
        }
    }

    fn announced(&self, network: &str, address: Ipv4Addr, take: &dyn Fn()) {
        let Some(joined) = self.0.joined_by_id(network) else { return take() };
        let mut holders = lock(&joined.holders);
        let was_elsewhere = holders.elsewhere.remove(&address).is_some();
        take();
        let is_early = holders.told.get(&address).is_some_and(|told| told.elapsed() < OFTEN);
        if is_early && !was_elsewhere {
            return;
        }
        holders.told.insert(address, Instant::now());
        drop(holders);
        tell(&joined, address, Claim::New);
    }

    fn gone(&self, network: &str, address: Ipv4Addr) {
        if let Some(joined) = self.0.joined_by_id(network) {
            tell(&joined, address, Claim::Gone);
        }
    }
}

/// Tells all other hosts about an auxiliary address.
fn tell(joined: &Joined, address: Ipv4Addr, claim: Claim) {
    if let Some(peers) = &*joined.peers() {
        peers.send_to_all(&Message::Auxiliary { address, claim });
    }
}

fn is_auxiliary(joined: &Joined, address: Ipv4Addr) -> bool {
    joined.network.definition().is_auxiliary(address)
}

/// Another host tells the holder of an auxiliary address. Other addresses belong to slices.
pub(super) fn claimed(
    switch: &Switch,
    joined: &Joined,
    key: &PublicKey,
    (address, claim): (Ipv4Addr, Claim),
) {
    let is_listed = joined.view().list.position(key).is_some();
    if !is_listed || !is_auxiliary(joined, address) {
        return;
    }
    let id = joined.network.id();
    let mut holders = lock(&joined.holders);
    match claim {
        Claim::New => {
            holders.elsewhere.insert(address, *key);
            switch.lost(id, address);
        }
        Claim::Old if !switch.held(id).contains(&address) => {
            holders.elsewhere.entry(address).or_insert(*key);
        }
        Claim::Gone if holders.elsewhere.get(&address) == Some(key) => {
            holders.elsewhere.remove(&address);
        }
        Claim::Old | Claim::Gone => {}
    }
}

fn one_of_each(joined: &Joined) -> Vec<Ipv4Addr> {
    let others = lock(&joined.others);
    let first = others.values().filter_map(|its| {
        let mut members = its.members.iter().filter(|member| member.kind == Kind::Packets);
        members.next().map(|member| member.address)
    });
    first.collect()
}

/// Hands a frame of another host, which has this key, to this host's members.
pub(super) fn deliver(switch: &Switch, joined: &Joined, key: &PublicKey, bytes: &[u8]) {
    let definition = joined.network.definition();
    let ranges = Ranges { subnet: definition.subnet, prefix: definition.ipv6 };
    let its = joined.view().list.position(key);
    let is_its = |sender| {
        its.is_some()
            && if is_auxiliary(joined, sender) {
                lock(&joined.holders).elsewhere.get(&sender) == Some(key)
            } else {
                slices::owner(ranges.subnet, sender) == its
            }
    };
    if frame::sender(bytes, ranges.prefix).is_some_and(is_its) {
        switch.deliver(joined.network.id(), &ranges, bytes);
    }
}
