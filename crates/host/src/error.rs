//! Errors of lookups. Probes do not fail: they report.

use std::path::PathBuf;

/// A lookup that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Stored facts have another format than this version writes.
    #[error("stored host facts cannot be read: {source}")]
    Parse {
        /// The parser's error.
        source: serde_json::Error,
    },
    /// Neither the files nor `getent` have this user.
    #[error(
        "no user {name:?} on this host (looked in /etc/passwd{})",
        if *.getent { ", then ran getent passwd" } else { "" }
    )]
    NoUser {
        /// The name or number.
        name: String,
        /// True if `getent` was run too.
        getent: bool,
    },
    /// Neither the files nor `getent` have this group.
    #[error(
        "no group {name:?} on this host (looked in /etc/group{})",
        if *.getent { ", then ran getent group" } else { "" }
    )]
    NoGroup {
        /// The name or number.
        name: String,
        /// True if `getent` was run too.
        getent: bool,
    },
    /// A CDI file violates the specification.
    #[error("cannot use the CDI file {}: {why}", path.display())]
    Specification {
        /// The file.
        path: PathBuf,
        /// The violation.
        why: String,
    },
    /// No CDI file describes this device.
    #[error("no CDI file describes the device {name}")]
    NoDevice {
        /// Its qualified name.
        name: String,
        /// The described devices.
        known: Vec<String>,
    },
    /// A helper program did not answer in time or could not be started.
    #[error("{program} {what}")]
    Helper {
        /// The program.
        program: String,
        /// The failure.
        what: String,
    },
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoUser { getent: false, .. } | Error::NoGroup { getent: false, .. } => Some(
                "getent was not found in PATH, so users of a directory service (LDAP, SSSD) cannot \
                 be looked up; use numbers instead"
                    .into(),
            ),
            Error::NoUser { .. } | Error::NoGroup { .. } => {
                Some("numbers always work, for example --user 1000:1000".into())
            }
            Error::Parse { .. } => Some("'coracle doctor' writes them again".into()),
            Error::NoDevice { known, .. } if known.is_empty() => Some(
                "/etc/cdi and /var/run/cdi have no CDI files; an administrator can make one: \
                 nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
                    .into(),
            ),
            Error::NoDevice { known, .. } => {
                Some(format!("described devices: {}", known.join(", ")))
            }
            Error::Specification { .. } | Error::Read { .. } | Error::Helper { .. } => None,
        }
    }
}
