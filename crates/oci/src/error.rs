//! Errors of this crate: invalid strings and documents.

/// The reason why a reference, digest, platform or document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is not an image reference.
    #[error("invalid image reference {input:?}: {reason}")]
    Reference {
        /// The input.
        input: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// A string that is not a digest.
    #[error("invalid digest {input:?}: {reason}")]
    Digest {
        /// The input.
        input: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A string that is not a platform.
    #[error("invalid platform {input:?}: {reason}")]
    Platform {
        /// The input.
        input: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A document that is not valid JSON of its kind.
    #[error("the {what} is not valid: {reason}")]
    Malformed {
        /// `manifest`, `index`, `image configuration`.
        what: &'static str,
        /// The parser's error.
        reason: String,
    },
    /// Docker's manifest schema 1, which has no content addresses for its configuration.
    #[error("the image is in Docker's manifest schema 1, which is not supported")]
    Schema1,
    /// A media type that is neither manifest nor index.
    #[error("{media_type:?} is not the media type of an image")]
    MediaType {
        /// The media type from the registry or the descriptor.
        media_type: String,
    },
    /// A manifest that describes something other than a container image.
    #[error("this is an artifact of type {kind:?}, not a container image")]
    Artifact {
        /// The artifact's type or its configuration's media type.
        kind: String,
    },
    /// An index without an entry for the platform.
    #[error("the image has no variant for {wanted}; it has {}", available.join(", "))]
    NoPlatform {
        /// The requested platform.
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
    /// Advice for the user, in one sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Reference { input, .. } => Some(reference_hint(input)),
            Error::Digest { .. } => {
                Some("a digest has the form sha256:<64 hexadecimal digits>".into())
            }
            Error::Platform { .. } => Some(
                "a platform has the form os/architecture[/variant], for example linux/arm64".into(),
            ),
            Error::Schema1 => Some(
                "ask its owner to push it again with a current tool, or convert it with \
                 'skopeo copy --format v2s2'"
                    .into(),
            ),
            Error::Artifact { .. } => {
                Some("Helm charts, SBOMs and signatures cannot be run as containers".into())
            }
            Error::NoPlatform { available, .. } if !available.is_empty() => Some(format!(
                "choose one of them with --platform, for example --platform {}",
                available[0]
            )),
            Error::Malformed { .. }
            | Error::MediaType { .. }
            | Error::NoPlatform { .. }
            | Error::TooLarge { .. } => None,
        }
    }
}

fn reference_hint(input: &str) -> String {
    if let Some((scheme, rest)) = input.split_once("://") {
        return format!("leave out {scheme}://: {rest}");
    }
    let lower = input.to_ascii_lowercase();
    if lower != input && crate::Reference::parse(&lower).is_ok() {
        return format!("repository names are lower case: {lower}");
    }
    if input.len() == 64 && input.bytes().all(|b| b.is_ascii_hexdigit()) {
        return "this looks like an image id; use an image name such as debian:stable".into();
    }
    "an image name has the form [registry/]name[:tag][@digest], for example debian:stable".into()
}
