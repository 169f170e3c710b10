//! Ids: who a thread is, whom a file belongs to, and what the one may do with the other.
//!
//! Every file of a container belongs, on the host's disk, to whoever called Coracle, and every process runs under that one id. The guest
//! sees users nevertheless: each thread has [`Credentials`] that change as credentials(7) says, each file has a [`Truth`] (type, mode,
//! owner, device) that may differ from what is on disk, and the rules of `path_resolution(7)`, chmod(2), chown(2), inode(7) are applied to
//! those. The kernel beneath refuses nothing that matters, because the mode on disk always lets the owner do everything.
//!
//! # Where the truth is kept
//!
//! In the *record* of an inode: the attribute [`OWNER`], text `uid:gid:mode:type:major:minor` (mode in octal, type a letter of
//! `fdlpcbs`). An inode with a record has the *mark*: `S_ISVTX` in its mode on disk. So a file without the mark, which is nearly every
//! one, is told by its `stat` alone; it has no attributes either that only root may set (and that are kept under other names). Symbolic links, pipes and sockets, and files where the file system has no attributes, have a
//! *note* instead ([`crate::Host::note`]) with the same text. [`mod@record`] has the forms, [`mod@files`] finds and writes them.
//!
//! # Who asks what
//!
//! - [`credentials`], [`capabilities`]: the calls that change ids; nothing here touches a file.
//! - [`rules`]: `may_*`, pure functions of credentials and truths. Every error is the one that the kernel gives.
//! - [`mod@files`]: [`truth_of`], [`set_truth`], [`created`]; these talk to [`crate::Host`].
//! - [`noted`]: attributes of what cannot have any.
//! - [`execution`]: what `execve` does to credentials.
//!
//! Without [`crate::World::identity`] none of this is asked: ids are the host's.

pub mod capabilities;
pub mod credentials;
pub mod execution;
pub mod files;
pub mod names;
pub mod noted;
pub mod record;
pub mod rules;
#[cfg(test)]
mod tests;

pub use capabilities::{Capabilities, Capability};
pub use credentials::{Credentials, Groups, Ids};
pub use execution::{Executed, execute};
pub use files::{
    Found, NO_FACTS, created, is_plain_new, look, search, set_truth, truth_of, unrecorded, written,
};
pub use names::look_parent;
pub use record::{OWNER, Truth, note_key};
pub use rules::{
    Want, may, may_change, may_chown, may_create, may_delete, may_open, may_search, may_set_times,
    new_file,
};
