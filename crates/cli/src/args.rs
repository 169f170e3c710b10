//! The flags of each command as `clap` types, one file per group of commands, and the requests that
//! they stand for ([`request`]).

pub(crate) mod archives;
pub(crate) mod cluster;
pub(crate) mod containers;
pub(crate) mod global;
pub(crate) mod images;
pub(crate) mod networks;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod system;
