//! What can be wrong with the configuration.

use std::path::PathBuf;

use super::{Origin, Setting};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is there but cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// A value is of the wrong type or out of range.
    #[error("{origin}: {key} cannot be {value}: {wanted}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// Which setting.
        key: &'static str,
        /// What stands there.
        value: String,
        /// What should stand there.
        wanted: String,
        /// What the setting is for.
        doc: &'static str,
    },
    /// A variable is not Unicode, and its setting must be.
    #[error("{origin}: is not UTF-8")]
    NotUnicode {
        /// Which variable.
        origin: Origin,
    },
    /// Somebody asked for a setting that does not exist.
    #[error("there is no setting {key:?}")]
    UnknownKey {
        /// What was asked for.
        key: String,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
}

impl Error {
    pub(crate) fn value(
        setting: &Setting,
        value: &toml::Value,
        wanted: String,
        origin: &Origin,
    ) -> Error {
        Error::Value {
            origin: origin.clone(),
            key: setting.key,
            value: value.to_string(),
            wanted,
            doc: setting.summary(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Value { key, doc, .. } => Some(format!("{key}: {doc}")),
            Error::UnknownKey { nearest: Some(nearest), .. } => {
                Some(format!("did you mean {nearest:?}? `coracle config` lists all settings"))
            }
            Error::UnknownKey { nearest: None, .. } => {
                Some("`coracle config` lists all settings".into())
            }
            Error::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some(
                "CORACLE_CONFIG names a file that must exist; unset it to use the usual ones"
                    .into(),
            ),
            Error::Read { .. } | Error::Syntax { .. } | Error::NotUnicode { .. } => None,
        }
    }
}
