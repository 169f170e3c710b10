//! Integration tests: with a real registry, with one that injects faults, and with archives of
//! other tools. One binary, because linking takes most of the time.

mod archives;
mod credentials;
mod faults;
mod help;
mod lists;
mod proxies;
mod real;
