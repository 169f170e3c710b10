//! Networks with names: definitions, addresses, members, and the names that containers look up.
//!
//! A network is an object of the store, as a volume is. It has a range of IPv4 addresses, and a
//! container that starts in it gets one of them; its IPv6 address, if the network has some, follows
//! from that. This crate decides who gets which address and
//! writes that down. An engine carries the addresses out: one without network namespaces translates
//! them, and no packet is moved; one with them makes devices, between which the agent's [`switch`]
//! forwards frames.
//!
//! ```text
//! networks/<name>/network.json          the Definition
//! networks/<name>/members-<host>.json   who is in it on that host, and with which address
//! networks/<name>/place-<host>.json     this host's address and port, in a network of several
//! networks/<name>/key-<host>            its private key there, for its user only
//! networks/<name>/hosts.json            the list of hosts that was joined
//! networks/<name>/remote-<host>.json    what is known of the others: a hint
//! networks/slots-<host>.json            the number of each container in that host's address table
//! networks/table-<host>                 that table: addresses, ports and sockets (`abi::network`)
//! networks/agent-<host>.sock            where that host's agent takes devices
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | [`definition`] | what a network is, and which names it may have |
//! | [`subnet`], [`ipam`] | ranges of addresses, and choosing from them: pure functions |
//! | [`prefix`] | ranges of IPv6 addresses, and the members' addresses in them |
//! | [`route`] | the kernel's table of routes |
//! | [`networks`], [`removal`] | making, listing, finding and removing networks |
//! | [`members`] | joining and leaving |
//! | [`cluster`], [`joining`], [`slices`] | several hosts: places, lists, parts of the subnet |
//! | `ports`, [`settling`] | the port at which other hosts reach this one |
//! | [`peers`] | links to other hosts |
//! | [`remote`] | what is known of other hosts |
//! | [`agent`] | the process that answers for names, and about other hosts |
//! | [`table`] | what engines read of the members of a host |
//! | `rows` | its file, and rows of networks that are gone |
//! | [`hosts`] | the lines of `/etc/hosts`, and writing them to a file that is mounted |
//! | [`dns`] | answers to questions for names: pure functions |
//! | [`switch`] | forwards frames between members that have network namespaces |
//! | [`agent`] | the process that answers questions and has the switch |
//!
//! # Scope
//! In a network of scope `host` the members on one host meet. Hosts that share a store share the
//! definition, and each has its own members. So addresses are unique on a host, not in a store.
//!
//! In one of scope `cluster` the members of all hosts of a list meet. Each host gives addresses of
//! its own slice, so nothing has to be agreed on but the list.
//!
//! # What a dead container leaves
//! Its entry. An entry counts only as long as its container lives, which the caller knows (the
//! functions take `is_alive`), so nothing has to be cleaned up to be right. The next container that
//! joins drops the entries of dead ones.

pub mod agent;
pub mod cluster;
pub mod definition;
pub mod dns;
mod error;
pub mod hosts;
pub mod ipam;
pub mod joining;
mod kind;
mod locks;
pub mod members;
pub mod names;
pub mod networks;
pub mod peers;
mod ports;
pub mod prefix;
pub mod remote;
pub mod removal;
pub mod route;
mod rows;
pub mod settling;
pub mod slices;
mod stamp;
pub mod subnet;
pub mod switch;
pub mod table;
mod text;

pub use definition::{Definition, Scope};
pub use error::{Error, Result};
pub use kind::Kind;
pub use members::{Endpoint, Entry, Member};
pub use networks::{IsAlive, Network, Networks, Request};
pub use ports::Ports;
pub use prefix::Prefix;
pub use subnet::Subnet;
