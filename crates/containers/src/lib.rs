//! What the commands of Coracle do, as operations on data: the core that every front end calls.
//!
//! A front end (the command line; later a server, a build, a cluster) makes a [`Session`] from its
//! surroundings, its settings and its [`Dialect`], fills a request from its own words, and calls an
//! operation. It gets data or an [`Error`] back, and is told of progress by [`Events`]. Nothing
//! here prints, reads the environment, asks for a terminal or decides an exit code, and there is no
//! global state: any number of operations may run in one process, each with its own listener and
//! its own [`Cancel`] token ([`Session::with`]).
//!
//! | module | what is there |
//! |---|---|
//! | [`session`], [`events`], [`error`], [`dialect`] | what operations share |
//! | [`config`] | the settings, and reading them from files and variables that come in |
//! | [`journal`] | what happened, in the form of Docker's events |
//! | [`doctor`] | what this host allows, and which mode a run takes by itself |
//! | [`info`] | program, store and host in Docker's form |
//! | [`request`] | requests as plain data, and readers of Docker's text forms |
//! | [`container`] | the life of containers |
//! | [`images`] | finding, pulling, listing, importing, loading, saving, naming, removing images |
//! | [`networks`] | making, listing, removing networks with names, and containers' places in them |
//! | [`volumes`] | making, listing, removing volumes |
//! | [`storage`] | what the store takes, what nothing uses, what is damaged |
//! | [`protect`] | keeping containers and images from being removed |
//! | [`filter`], [`time`], [`size`] | readers of Docker's text forms for these |
//! | [`udocker`] | udocker's settings, its directory, and taking that over |
//!
//! # Which operations fork or execute
//!
//! | operation | what it does | with several threads |
//! |---|---|---|
//! | [`container::launch`], [`container::run`], [`container::exec`], `start`, `restart` | forks a supervisor, or *becomes* the program by `execve` | refused |
//! | files of subordinate users: [`container::ids`], which `cp`, `export`, `diff`, `clone`, removal, [`storage::prune`], [`volumes::Removal`], filling a volume and making true owners use | forks a child into a user namespace; it runs this crate's code and ends | refused |
//! | [`Session::host`], [`Session::try_inside`], [`info::describe`] | forks children that try namespaces and mounts, and executes programs | see below |
//! | `clone`, accounts, `top` of the host | executes `cp`, `getent`, `ps` by `std::process::Command` | safe: the child calls nothing but `execve` |
//! | pulling, importing, loading, saving, listing, inspecting, [`storage::verify`], waiting, stopping | no process | safe |
//!
//! A forked child has the calling thread alone. A lock that another thread held at that moment
//! stays locked in it, the allocator's among them, so a child that goes on in Rust code may wait
//! for ever; and it inherits every descriptor without `O_CLOEXEC`. A caller with one thread has
//! neither problem: that is what the command line is ([`Threads::One`]). Threads that an operation
//! starts itself, for layers, have ended when it returns.
//!
//! A caller with threads says [`Threads::Counted`]. Then each operation that forks looks at
//! `/proc/self/task` first and gives [`Error::Unsupported`] where there is more than one thread.
//! Such a caller starts a helper process with one thread before its first thread, sends it
//! requests, and lets it call these operations; or executes its own program again for each.
//! [`Session::host`] tries the host once: a caller with threads calls it before its first thread,
//! and the facts are shared by all sessions that [`Session::with`] makes.

pub mod config;
pub mod container;
pub mod dialect;
pub mod doctor;
pub mod error;
pub mod events;
pub mod filter;
pub mod images;
pub mod info;
pub mod journal;
pub mod networks;
pub mod path;
pub mod protect;
pub mod protection;
pub mod request;
pub mod session;
pub mod size;
pub mod storage;
pub mod time;
pub mod udocker;
pub mod volumes;

pub use dialect::Dialect;
pub use error::{Error, Kind, Result};
pub use events::{Event, Events};
pub use session::{Cancel, Foreign, Session, Surroundings, Threads};
