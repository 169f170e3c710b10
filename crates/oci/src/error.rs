//! What can be wrong with a word or a document.

/// Why a reference, digest, platform or document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is not an image reference.
    #[error("invalid image reference {input:?}: {reason}")]
    Reference {
        /// What was given.
        input: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// A string that is not a digest.
    #[error("invalid digest {input:?}: {reason}")]
    Digest {
        /// What was given.
        input: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A string that is not a platform.
    #[error("invalid platform {input:?}: {reason}")]
    Platform {
        /// What was given.
        input: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A document that is not valid JSON of its kind.
    #[error("the {what} is not valid: {reason}")]
    Malformed {
        /// `manifest`, `index`, `image configuration`.
        what: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// Docker's manifest schema 1, which has no content addresses for its configuration.
    #[error("the image is in Docker's manifest schema 1, which is not supported")]
    Schema1,
    /// A media type that is neither manifest nor index.
    #[error("{media_type:?} is not the media type of an image")]
    MediaType {
        /// What the registry or the descriptor said.
        media_type: String,
    },
    /// A manifest that describes something other than a container image.
    #[error("this is an artifact of type {kind:?}, not a container image")]
    Artifact {
        /// The artifact's type or its configuration's media type.
        kind: String,
    },
    /// An index without an entry that runs on the platform.
    #[error("the image has no variant for {wanted}; it has {}", available.join(", "))]
    NoPlatform {
        /// The platform asked for.
        wanted: String,
        /// The platforms in the index.
        available: Vec<String>,
    },
    /// A document larger than its limit.
    #[error("the {what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// `manifest`, `index`, `image configuration`.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl Error {
    /// What the user can do about it, in one sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Reference { input, .. } => Some(reference_hint(input)),
            Error::Digest { .. } => Some("a digest reads sha256: and 64 hexadecimal digits".into()),
            Error::Platform { .. } => {
                Some("a platform reads os/architecture[/variant], as linux/arm64".into())
            }
            Error::Schema1 => Some(
                "ask its owner to push it again with a current tool, or convert it with \
                 `skopeo copy --format v2s2`"
                    .into(),
            ),
            Error::Artifact { .. } => {
                Some("Helm charts, SBOMs and signatures cannot be run as containers".into())
            }
            Error::NoPlatform { available, .. } if !available.is_empty() => {
                Some(format!("choose one of them with --platform, as --platform {}", available[0]))
            }
            Error::Malformed { .. }
            | Error::MediaType { .. }
            | Error::NoPlatform { .. }
            | Error::TooLarge { .. } => None,
        }
    }
}

fn reference_hint(input: &str) -> String {
    if let Some((scheme, rest)) = input.split_once("://") {
        return format!("leave out {scheme}://, as in {rest}");
    }
    let lower = input.to_ascii_lowercase();
    if lower != input && crate::Reference::parse(&lower).is_ok() {
        return format!("repository names are lower case: {lower}");
    }
    if input.len() == 64 && input.bytes().all(|b| b.is_ascii_hexdigit()) {
        return "this looks like an image id; name an image as debian:stable".into();
    }
    "an image reads [registry/]name[:tag][@digest], as debian:stable".into()
}
