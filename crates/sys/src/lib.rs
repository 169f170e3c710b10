//! Safe Linux for the std side.

pub mod event;
pub mod fs;
pub mod ofd;
pub mod probe;
pub mod terminal;
