//! Errors on the way to a node, each with the node's name, what happened, and advice.

use std::fmt;
use std::path::PathBuf;

use crate::launcher::Cause;
use crate::wire;

/// The result type of channels.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a node was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The node.
    pub node: String,
    /// What happened to the stream.
    pub reason: String,
    /// The last lines that the launcher printed to standard error; may be empty.
    pub last_words: String,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} is lost: {}", self.node, self.reason)?;
        f.write_str(&quoted(&self.last_words))
    }
}

/// Words of another program, behind a message.
fn quoted(words: &str) -> String {
    let one: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if one.is_empty() { String::new() } else { format!(" ({})", one.join(" | ")) }
}

/// Errors of channels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine gives no more threads or descriptors.
    #[error("cannot open a channel to node {node}")]
    Thread {
        /// The node.
        node: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The launcher has ended without an agent.
    #[error("node {node} {}{}", cause.text(), quoted(said))]
    Launch {
        /// The node.
        node: String,
        /// What is known of the reason.
        cause: Cause,
        /// The launcher's last words.
        said: String,
    },
    /// No agent has answered in time, or something else has.
    #[error("node {node} {why}{}", quoted(said))]
    NoAgent {
        /// The node.
        node: String,
        /// What happened instead.
        why: String,
        /// What came instead, and the launcher's last words.
        said: String,
    },
    /// No place on the node for the binary.
    #[error("node {node} cannot start the agent: {why}")]
    Place {
        /// The node.
        node: String,
        /// The places, each with the reason.
        why: String,
    },
    /// An agent of another executable answers.
    #[error("node {node} has executed another program than was meant: {} has the digest {found}", path.display())]
    Digest {
        /// The node.
        node: String,
        /// The executable there.
        path: PathBuf,
        /// Its digest.
        found: String,
    },
    /// The executable that is to travel cannot be read.
    #[error("cannot read the executable {}", path.display())]
    Executable {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The stream is damaged, or of another version.
    #[error("node {node} does not speak as it should: {source}")]
    Stream {
        /// The node.
        node: String,
        /// What is wrong.
        #[source]
        source: wire::Error,
    },
    /// The agent does not do what it was asked for.
    #[error("node {node}: {why}")]
    Refused {
        /// The node.
        node: String,
        /// The reason, with the step that failed.
        why: String,
    },
    /// The request cannot be sent.
    #[error("{what} cannot be sent to node {node}: {why}")]
    Request {
        /// The node.
        node: String,
        /// A program or a path.
        what: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The program has ended and takes no input.
    #[error("{what} has ended on node {node}")]
    Over {
        /// The node.
        node: String,
        /// The program.
        what: String,
    },
    /// More output than the caller wants.
    #[error("{what} printed more than {limit} bytes on node {node}")]
    TooMuch {
        /// The node.
        node: String,
        /// The program.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// The bytes for a file of a node.
    #[error("cannot read what is to be {what} on a node")]
    Read {
        /// The file on the node.
        what: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The bytes of a node.
    #[error("cannot write what {what} gave")]
    Write {
        /// The file or program on the node.
        what: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The node is lost.
    #[error("{0}")]
    Lost(Why),
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Thread { .. } => "see the limits of this machine: ulimit -a".into(),
            Self::Launch { node, cause, .. } => return cause.hint(node),
            Self::NoAgent { .. } => {
                "a login shell that prints much or waits for somebody may be in \
                                     the way: run a command there by hand; a slow node needs a \
                                     longer limit"
                    .into()
            }
            Self::Place { .. } => {
                "make room, or set XDG_RUNTIME_DIR or TMPDIR on the node to a directory of your \
                 own where programs may be executed"
                    .into()
            }
            Self::Digest { path, .. } => format!("remove {} on the node", path.display()),
            Self::Executable { .. }
            | Self::Refused { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Over { .. } => return None,
            Self::Stream { source, .. } => return source.hint(),
            Self::Request { .. } => "use names and arguments of UTF-8, shorter than 1 MiB".into(),
            Self::TooMuch { .. } => "let it write to a file".into(),
            Self::Lost(_) => {
                "see whether the host is up; a new driver can take over from here".into()
            }
        })
    }
}
