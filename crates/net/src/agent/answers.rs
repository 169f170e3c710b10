//! What this host answers to another one about its containers: where a port of a member is, and
//! whose socket has come to the other host.
//!
//! The table of networks says both, as a hint; the kernel says whether it is still true (the
//! socket's cookie). What belongs to a program of the host, to another network or to a container
//! that is not in this one is not told.

use std::net::{Ipv4Addr, SocketAddrV4};

use abi::network::ask::Answer;
use abi::network::{Place, Port, Protocol, Sender, Slot, Table, Use};

use super::served::{Joined, Served};
use crate::peers::{Asked, PublicKey};
use crate::{members, table};

/// The answer to the host with a key.
pub(super) fn answer(served: &Served, joined: &Joined, key: &PublicKey, asked: Asked) -> Answer {
    let Some(table) = served.table() else { return Answer::Absent };
    match asked {
        Asked::Reach { protocol, address, port, from } => {
            let Some(slot) = member(served, joined, &table, address) else {
                return Answer::Absent;
            };
            let view = joined.view();
            let node = view.own.place.address;
            let sends = from != 0 && protocol == Protocol::Udp;
            let host = view.list.find(key).filter(|_| sends);
            let from = host.map(|host| SocketAddrV4::new(host.address, from));
            let place = reach(&table, (slot, protocol), (address, port), (node, from));
            place.map_or(Answer::Refused(node), Answer::Found)
        }
        Asked::Who { protocol, port, to } => {
            // A host asks about its own sockets.
            let view = joined.view();
            let is_its = view.list.find(key).is_some_and(|host| host.address == *to.ip());
            let from = SocketAddrV4::new(view.own.place.address, port);
            let place =
                if is_its { who(&table, joined.number, protocol, (from, to)) } else { None };
            place.map_or(Answer::Absent, Answer::Found)
        }
    }
}

/// The living member of this host with an address.
fn member(served: &Served, joined: &Joined, table: &Table<'_>, address: Ipv4Addr) -> Option<Slot> {
    let slot = table.members().find(joined.number, address)?;
    let container = table.members().container(slot)?;
    let entries = members::list(&joined.network).ok()?;
    let is_it =
        |entry: &&members::Entry| entry.address == address && table::key(&entry.id) == container;
    let entry = entries.iter().find(is_it)?;
    served.alive.is_alive(&entry.id).then_some(slot)
}

/// The real place of a port, if its socket lives. `from`: that of who sends datagrams.
fn reach(
    table: &Table<'_>,
    (slot, protocol): (Slot, Protocol),
    at: (Ipv4Addr, u16),
    (node, from): (Ipv4Addr, Option<SocketAddrV4>),
) -> Option<SocketAddrV4> {
    let uid = rustix::process::getuid().as_raw();
    let mut serving = table.ports().serving(slot, protocol, at);
    serving.find_map(|port| {
        // At another address of this host others do not reach it.
        let place = SocketAddrV4::new(node, port.real_port);
        let found = sys::diag::find(protocol, place, from).ok()??;
        // Of sockets that share a port the kernel shows any; another user's cannot be among them.
        let is_it = if port.group { found.uid == uid } else { found.cookie == port.cookie };
        is_it.then_some(place)
    })
}

/// The virtual place of the socket here that is connected to, or has sent to, another host's place.
fn who(
    table: &Table<'_>,
    network: u16,
    protocol: Protocol,
    (from, to): (SocketAddrV4, SocketAddrV4),
) -> Option<SocketAddrV4> {
    let sender = table.sender(protocol, from.port(), to)?;
    let mut memberships = table.members().memberships(sender.slot);
    let own = memberships.find(|one| one.network == network)?.address;
    if !sender.address.is_unspecified() && sender.address != own {
        return None;
    }
    is_its(table, &sender, protocol, (from, to)).then(|| SocketAddrV4::new(own, sender.port))
}

/// Whether the socket that was noted is the one of the connection, or the one that this comes from:
/// a socket for datagrams, or one that listens and has accepted it.
fn is_its(
    table: &Table<'_>,
    sender: &Sender,
    protocol: Protocol,
    (from, to): (SocketAddrV4, SocketAddrV4),
) -> bool {
    let uid = rustix::process::getuid().as_raw();
    let find = |other| sys::diag::find(protocol, from, other).ok().flatten();
    let found = find(Some(to));
    if sender.is(protocol, found) {
        return true;
    }
    let Some(found) = found else { return false };
    let shares = |at, real| {
        let place = Place { at, port: from.port() };
        let noted = table.ports().at(sender.slot, protocol, (place, real), None);
        noted.as_ref().is_some_and(|port: &Port| port.group)
    };
    let group = shares(Some(Use::Network), *from.ip()) || shares(None, Ipv4Addr::LOCALHOST);
    let bound = find(None).is_some_and(|bound| bound.cookie == sender.cookie || group);
    found.uid == uid && bound
}
