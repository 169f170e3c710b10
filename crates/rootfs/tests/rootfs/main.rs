//! Integration tests on real file systems, as root and as an unprivileged user.

mod changes;
mod common;
mod differential;
mod formats;
mod hostile;
mod kernel;
mod layers;
mod linked;
mod mutations;
mod race;
mod unprivileged;
mod verify;
