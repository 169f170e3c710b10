//! Safe Linux for the std side.

pub mod event;
pub mod terminal;
