//! The agent: the process of a host that serves containers in networks with names.

mod forward;
mod process;
mod server;
#[cfg(test)]
mod tests;

pub use process::{Hooks, is_running, run};
pub use server::{Directory, Server};
