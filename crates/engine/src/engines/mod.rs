//! One module per engine.

pub mod native;
