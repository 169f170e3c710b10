//! The way of frames between members that have network namespaces and live on different hosts: from
//! the [switch](crate::switch) to the links of their network, and back.
//!
//! The slice of an address says which host has it, and what that host has told of its members,
//! whether anybody is there. A host speaks for its own slice only: a frame with another's source
//! address is dropped.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::served::{Joined, Served};
use crate::kind::Kind;
use crate::locks::lock;
use crate::peers::{PublicKey, Remote};
use crate::slices;
use crate::switch::frame::{self, Ranges};
use crate::switch::{Switch, Uplink};

/// The switch's side.
pub(super) struct ToOthers(pub(super) Arc<Served>);

impl Uplink for ToOthers {
    fn has(&self, network: &str, address: Ipv4Addr) -> bool {
        let Some(joined) = self.0.joined_by_id(network) else { return false };
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
    let is_its = |sender| its.is_some() && slices::owner(ranges.subnet, sender) == its;
    if frame::sender(bytes, ranges.prefix).is_some_and(is_its) {
        switch.deliver(joined.network.id(), &ranges, bytes);
    }
}
