//! A load balancer before the containers of a service: HAProxy, in a container of its own.
//!
//! Its configuration is one file, which is written whole at each change, so a balancer that is
//! started again knows all servers. A balancer that runs is told by its admin socket (HAProxy's
//! Management Guide 2.6, section 9.3), so no connection is lost. The socket is in the balancer's
//! container: [`serve`] runs there, and passes on what the driver asks.

mod admin;
mod front;
mod server;

pub use admin::{Active, Counted, Found, Requests, active, counted, found, requests};
pub use front::{Check, Front};
pub use server::{Answers, serve};

use std::net::Ipv4Addr;

/// The configuration file, in a balancer's container.
pub const FILE: &str = "/run/coracle/balance/haproxy.cfg";
/// The admin socket, in a balancer's container.
pub const SOCKET: &str = "/tmp/haproxy-admin.sock";

/// A container that takes requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// Its name in the cluster's network: `web-2`.
    pub name: String,
    /// Its address there.
    pub address: Ipv4Addr,
}
