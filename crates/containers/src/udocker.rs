//! Reads udocker's settings, and uses or takes over the contents of udocker's directory.
//!
//! What differs under udocker's name is decided in [`crate::dialect`]; how answers look there is
//! the front end's.

pub mod legacy;
pub mod listing;
pub mod migrate;
pub mod settings;

/// The place of Coracle's store in udocker's directory, where that was named.
pub const STORE: &str = "coracle";

/// A variable that keeps udocker's name where the program executes itself again by another.
pub const CALLED: &str = "CORACLE_CALLED_UDOCKER";
