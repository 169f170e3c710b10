//! Images: finding them in the store, pulling them, and taking them over from elsewhere.

pub mod find;
pub mod hello;
pub mod layers;
pub mod pull;
pub mod remote;
