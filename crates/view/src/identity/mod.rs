//! Emulates users, groups and file permissions, although every process and file of the container
//! belongs to one id of the host.
//!
//! On the host's disk every file of a container belongs to the user who called Coracle, and every
//! process runs under that id. The guest sees several users nevertheless. Each thread has
//! [`Credentials`] that change as credentials(7) says. Each file has a [`Truth`] (type, mode,
//! owner, device: the file as the guest sees it) that may differ from what is on disk. The rules of
//! `path_resolution(7)`, chmod(2), chown(2), inode(7) are applied to these. The kernel itself
//! refuses nothing that matters, because the mode on disk always lets the owner do everything.
//!
//! # Where the truth is stored
//!
//! It is stored in the *record* of an inode: the attribute [`OWNER`], text
//! `uid:gid:mode:type:major:minor` (mode in octal, type a letter of `fdlpcbs`), with `:a`, `:d` or
//! `:ad` behind it if the inode has an access list, a default list or both. An inode with a record
//! has the *mark*: `S_ISVTX` in its mode on disk. So the `stat` of a file without the mark,
//! as nearly every file is, already shows its truth. Such a file has no attributes that only root
//! may set either (which are stored under other names). Symbolic links, pipes and sockets, and
//! files on a file system without attributes, have their record in a log instead
//! ([`crate::Host::note`]), with the same text. [`mod@record`] defines the forms, [`mod@files`]
//! reads and writes them.
//!
//! The host's own files ([`crate::world::Kind::Host`]: what is bound into the container, volumes)
//! are in use outside, too. There everything is really done that the caller could do without a
//! container: mode, set-gid bits of directories, and a group of the caller's are those on disk, and
//! a record has only the rest. The mark of a directory is `S_ISUID` there, which means nothing to
//! the kernel; the sticky bit would keep others from the names in it.
//!
//! # Modules
//!
//! - [`credentials`], [`capabilities`]: the calls that change ids; they do not touch files.
//! - [`access_list`], [`lists`]: access lists, acl(5): what they grant, and where they are.
//! - [`rules`]: `may_*`, pure functions of credentials and truths. Every error is the one that the
//!   kernel gives.
//! - [`mod@files`]: [`truth_of`], [`set_truth`], [`created`]; these make calls through
//!   [`crate::Host`].
//! - [`noted`]: attributes of inodes that cannot have any.
//! - [`execution`]: the effect of `execve` on credentials.
//!
//! Without [`crate::World::identity`] none of this is used: ids are the host's.

pub mod access_list;
pub mod capabilities;
pub mod credentials;
pub mod execution;
pub mod files;
pub mod lists;
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
    Found, NO_FACTS, bits_of_new, created, is_plain_in, is_plain_new, look, search, set_truth,
    truth_of, unrecorded, written,
};
pub use names::{inherit_lists, limited_by_parent, look_parent, open_parent, open_to_owner};
pub use record::{Lists, OWNER, Truth, note_key};
pub use rules::{
    Want, may, may_change, may_chown, may_create, may_delete, may_open, may_search, may_set_times,
    new_file,
};
