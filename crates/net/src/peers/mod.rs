//! Links between the agents of the hosts of a network: TCP, TLS 1.3 with raw public keys (RFC
//! 7250), and messages.
//!
//! | module | what is there |
//! |---|---|
//! | [`list`] | who the hosts are |
//! | [`key`] | their keys |
//! | [`local`] | addresses of this host |
//! | [`message`] | what is said, as bytes |
//! | `tls` | who is let in |
//! | [`secure`] | streams of the caller's bytes |
//! | `link` | one connection: greeting, messages, silence |
//! | `mesh` | all of them: listening, dialling, one link for each pair |
//!
//! Both sides prove that they have the key that stands in the list, before a byte of any message is
//! sent. A connection that does not is closed after three seconds at the latest, and there are
//! few of those at a time, so strangers cost nothing but these.

pub mod key;
mod link;
pub mod list;
pub mod local;
mod mesh;
pub mod message;
pub mod secure;
#[cfg(test)]
mod tests;
mod tls;

pub use key::{Key, PublicKey};
pub use list::{Host, List, Wrong};
pub(crate) use mesh::listen;
pub use mesh::{Handler, Peers, State};
pub use message::{Asked, Message, Remote};
