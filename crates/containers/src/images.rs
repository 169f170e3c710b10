//! Images: finding, pulling, listing, importing, loading, saving, naming and removing them, and
//! what registries say about them.

pub mod change;
pub mod docker_config;
pub mod find;
pub mod hello;
pub mod history;
pub mod import;
pub mod inspect;
pub mod layers;
pub mod list;
pub mod load;
pub mod login;
pub mod manifest;
pub mod parts;
pub mod pull;
pub mod remote;
pub mod remove;
pub mod save;
pub mod search;
pub mod source;
pub mod tag;
