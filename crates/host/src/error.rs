//! What can go wrong while looking at the host. Probes do not fail, they report; these are for lookups that must answer.

use std::path::PathBuf;

/// A lookup that could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Stored facts are not what this version writes.
    #[error("stored host facts cannot be read: {source}")]
    Parse {
        /// What the parser said.
        source: serde_json::Error,
    },
    /// No such user in the files, nor by `getent`.
    #[error("no user {name:?} on this host (looked in /etc/passwd{})", if *.getent { ", then ran getent passwd" } else { "" })]
    NoUser {
        /// Name or number that was asked for.
        name: String,
        /// Whether `getent` could be asked too.
        getent: bool,
    },
    /// No such group in the files, nor by `getent`.
    #[error("no group {name:?} on this host (looked in /etc/group{})", if *.getent { ", then ran getent group" } else { "" })]
    NoGroup {
        /// Name or number that was asked for.
        name: String,
        /// Whether `getent` could be asked too.
        getent: bool,
    },
    /// A CDI file is not what the specification says.
    #[error("cannot use the CDI file {}: {why}", path.display())]
    Specification {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No CDI file describes such a device.
    #[error("no CDI file describes the device {name}")]
    NoDevice {
        /// Its qualified name.
        name: String,
        /// Those that are described.
        known: Vec<String>,
    },
    /// A helper program did not answer in time or could not be started.
    #[error("{program} {what}")]
    Helper {
        /// The program.
        program: String,
        /// What happened to it.
        what: String,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoUser { getent: false, .. } | Error::NoGroup { getent: false, .. } => Some(
                "getent was not found in PATH, so users of a directory service (LDAP, SSSD) cannot be seen; give numbers instead"
                    .into(),
            ),
            Error::NoUser { .. } | Error::NoGroup { .. } => {
                Some("numbers always work, for example --user 1000:1000".into())
            }
            Error::Parse { .. } => Some("run `coracle doctor` once to write them anew".into()),
            Error::NoDevice { known, .. } if known.is_empty() => Some(
                "there is none in /etc/cdi and /var/run/cdi; an administrator makes them: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
                    .into(),
            ),
            Error::NoDevice { known, .. } => Some(format!("there are {}", known.join(", "))),
            Error::Specification { .. } | Error::Read { .. } | Error::Helper { .. } => None,
        }
    }
}
