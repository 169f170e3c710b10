//! The agent: the process of a host that serves containers in networks with names.

mod answers;
mod asks;
mod clusters;
mod containers;
mod forward;
mod links;
mod owner;
mod process;
mod served;
mod server;
mod start;
#[cfg(test)]
mod tests;
mod uplink;

pub use abi::network::NAME_SERVER;
pub use containers::Containers;
pub use links::{greeting, socket, way_out};
pub use process::{is_running, run};
pub use server::{Answers, Client, Directory, Server};
pub use start::{WORD, ensure, ensure_served};
