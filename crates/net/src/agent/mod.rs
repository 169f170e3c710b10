//! The agent: the process of a host that serves containers in networks with names.

mod forward;
mod server;
#[cfg(test)]
mod tests;

pub use server::{Directory, Server};
