//! The agent: the process of a host that serves containers in networks with names.

mod answers;
mod asks;
mod clusters;
mod forward;
mod links;
mod process;
mod server;
mod start;
#[cfg(test)]
mod tests;

pub use abi::network::NAME_SERVER;
pub use links::{greeting, socket};
pub use process::{Containers, is_running, run};
pub use server::{Answers, Client, Directory, Server};
pub use start::{WORD, ensure, ensure_served};
