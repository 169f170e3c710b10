//! Integration tests on real file systems, as root and as an unprivileged user.

mod changes;
mod common;
mod differential;
mod formats;
mod hostile;
mod index;
mod index_kept;
mod kernel;
mod layered;
mod layers;
mod linked;
mod mutations;
mod race;
mod unprivileged;
mod verify;
