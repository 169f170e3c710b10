//! The crate from outside: against a real registry, against one with faults, and with archives that
//! other tools wrote or read. One binary, because linking is what costs time.

mod archives;
mod credentials;
mod faults;
mod help;
mod lists;
mod proxies;
mod real;
