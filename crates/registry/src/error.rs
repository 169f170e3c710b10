//! What can go wrong on the road of an image, one variant per step.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use oci::Digest;

/// Why an image, a list or a login could not be had. URLs are shown without their query, where blob
/// stores put signatures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document was refused.
    #[error("{what}: {source}")]
    Document {
        /// The reference or file it came from.
        what: String,
        /// Why.
        source: oci::Error,
    },
    /// A host name has no address.
    #[error("cannot find the address of {host}: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// What was tried and what came of it.
        reason: String,
    },
    /// No connection.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port.
        host: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to {host}: {reason}")]
    Tls {
        /// Host and port.
        host: String,
        /// What is wrong with the certificate or the handshake.
        reason: String,
        /// Whether the certificate was not trusted, rather than the protocol broken.
        untrusted: bool,
    },
    /// The server answered HTTPS with plain HTTP.
    #[error("{host} speaks plain HTTP, not HTTPS")]
    PlainHttp {
        /// Host and port.
        host: String,
    },
    /// A proxy refused or could not be used.
    #[error("the proxy {proxy} failed: {reason}")]
    Proxy {
        /// The proxy without its password.
        proxy: String,
        /// Why.
        reason: String,
    },
    /// Nothing came in time.
    #[error("{host} did not answer in time ({step})")]
    Timeout {
        /// Host and port.
        host: String,
        /// What was waited for.
        step: String,
    },
    /// The connection broke or carried nonsense.
    #[error("the connection to {host} broke: {reason}")]
    Broken {
        /// Host and port.
        host: String,
        /// What was seen.
        reason: String,
    },
    /// The registry wants to know who asks, or does not take what it was told (401).
    #[error("{registry} refuses access to {what}: {}", unauthorized(*.with_credentials, .message))]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The repository or the registry itself.
        what: String,
        /// Whether credentials were sent.
        with_credentials: bool,
        /// The registry's own words.
        message: String,
    },
    /// The registry knows who asks and says no (403).
    #[error("{registry} denies access to {what}{}", words(.message))]
    Denied {
        /// The registry.
        registry: String,
        /// The repository or the registry itself.
        what: String,
        /// The registry's own words.
        message: String,
    },
    /// There is no such image.
    #[error("{reference} is not in {registry}{}", words(.message))]
    NotFound {
        /// What was asked for.
        reference: String,
        /// Where.
        registry: String,
        /// The registry's own words.
        message: String,
    },
    /// A blob that a manifest names is missing.
    #[error("{registry} does not have {digest} of {repository}")]
    BlobMissing {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// The blob.
        digest: Digest,
    },
    /// Too many requests (429), and waiting did not help or would take too long.
    #[error("{registry} allows no more requests now{}{}", wait(*.retry_after), words(.message))]
    RateLimited {
        /// The registry.
        registry: String,
        /// How long it wants us to wait.
        retry_after: Option<Duration>,
        /// The registry's own words.
        message: String,
    },
    /// Any other answer that is not a success.
    #[error("{url} answered {status}{}", words(.message))]
    Status {
        /// What was asked, without query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The registry's own words.
        message: String,
    },
    /// The token server gave no token.
    #[error("no token from {realm}: {reason}")]
    Token {
        /// The token server, without query.
        realm: String,
        /// Why.
        reason: String,
    },
    /// A redirect that must not or cannot be followed.
    #[error("{url} redirects {reason}")]
    Redirect {
        /// What was asked, without query.
        url: String,
        /// Where to or how often.
        reason: String,
    },
    /// `registries.conf` forbids it.
    #[error("the registry of {name} is blocked by {path}")]
    Blocked {
        /// The image's name.
        name: String,
        /// The file that says so.
        path: String,
    },
    /// Content that is not what its digest says.
    #[error("{what} is damaged: it should be {expected} and is {found}")]
    WrongDigest {
        /// The manifest, configuration or layer.
        what: String,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// Content that is longer or shorter than its descriptor says.
    #[error("{what} is damaged: it should have {expected} bytes and has {found}")]
    WrongSize {
        /// The manifest, configuration or layer.
        what: String,
        /// What the descriptor says.
        expected: u64,
        /// What came; the first byte too many ends the reading.
        found: u64,
    },
    /// An answer or a file larger than its limit.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// What was read.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A layer that has to come from elsewhere than the registry.
    #[error("{digest} has to be fetched from {url}, which is not supported")]
    ForeignLayer {
        /// The layer.
        digest: Digest,
        /// Where it is.
        url: String,
    },
    /// An answer that is not what the protocol says.
    #[error("{url} answered with something unexpected: {reason}")]
    Protocol {
        /// What was asked, without query.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The registry cannot list or search.
    #[error("{registry} offers no {what}")]
    Unsupported {
        /// The registry.
        registry: String,
        /// `search`, `list of repositories`.
        what: &'static str,
    },
    /// A setting that makes no sense.
    #[error("bad setting {name}: {reason}")]
    Setting {
        /// The setting.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration file that cannot be understood.
    #[error("{}: {reason}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that could not be read, written, made or removed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`, ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A credential helper failed.
    #[error("docker-credential-{name} failed: {reason}")]
    Helper {
        /// The helper's name without prefix.
        name: String,
        /// What it said.
        reason: String,
    },
    /// An archive or layout that is not what it should be.
    #[error("the archive is not valid: {reason}")]
    Archive {
        /// What is wrong.
        reason: String,
    },
    /// An archive could not be read or written.
    #[error("cannot {action} the archive: {source}")]
    ArchiveIo {
        /// `read`, `write`.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The caller's [`crate::BlobSink`] or [`crate::BlobSource`] failed.
    #[error("cannot {action} {what}: {source}")]
    Blob {
        /// `store`, `read`.
        action: &'static str,
        /// The blob.
        what: String,
        /// Its reason.
        source: io::Error,
    },
}

fn words(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

fn wait(after: Option<Duration>) -> String {
    match after {
        Some(after) => format!(" (it asks to wait {} s)", after.as_secs()),
        None => String::new(),
    }
}

fn unauthorized(with_credentials: bool, message: &str) -> String {
    let what = if with_credentials {
        "it does not accept the credentials"
    } else {
        "it wants credentials"
    };
    format!("{what}{}", words(message))
}

impl Error {
    /// Takes an error back out of the [`io::Error`] that a [`crate::BlobReader`] returned.
    pub fn from_io(error: io::Error) -> Result<Self, io::Error> {
        error.downcast::<Error>()
    }

    /// Wraps the error for an [`io::Read`].
    pub fn into_io(self) -> io::Error {
        io::Error::other(self)
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Document { source, .. } => return source.hint(),
            Error::Resolve { .. } => {
                "check the registry's name and this host's network; behind a proxy set HTTPS_PROXY"
                    .to_owned()
            }
            Error::Connect { host, source }
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                format!("nothing listens on {host}; is the port right and the registry running?")
            }
            Error::Connect { .. } | Error::Timeout { .. } | Error::Broken { .. } => {
                "check this host's network; behind a proxy set HTTPS_PROXY".to_owned()
            }
            Error::Tls { host, untrusted: true, .. } => format!(
                "put the registry's CA into /etc/containers/certs.d/{host}/ca.crt or the ca_files \
                 setting, or use --tls-verify=false"
            ),
            Error::Tls { .. } => "is this really the registry's port?".to_owned(),
            Error::PlainHttp { host } => {
                format!("use --tls-verify=false, or mark {host} as insecure in registries.conf")
            }
            Error::Proxy { .. } => {
                "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY".to_owned()
            }
            Error::Unauthorized { registry, with_credentials, .. } => {
                if *with_credentials {
                    format!("log in again: coracle login {registry}")
                } else {
                    format!(
                        "the image may be private or not exist; log in: coracle login {registry}"
                    )
                }
            }
            Error::Denied { registry, .. } => format!(
                "the image may be private or may not exist, or this account lacks the right to it; \
                 log in with another: coracle login {registry}"
            ),
            Error::NotFound { reference, .. } => {
                let name = reference.split('@').next().unwrap_or(reference);
                let name = match name.rsplit_once(':') {
                    Some((name, tag)) if !tag.contains('/') => name,
                    _ => name,
                };
                format!("check the name and the tag: coracle search --list-tags {name}")
            }
            Error::RateLimited { registry, .. } => format!(
                "wait, or log in for a higher limit: coracle login {registry}; or use a mirror"
            ),
            Error::Status { status: 500.., .. } => {
                "the registry has a problem; try later".to_owned()
            }
            Error::Blocked { .. } => "remove `blocked = true` there, if that is yours".to_owned(),
            Error::BlobMissing { .. } => {
                "the registry has the image's manifest without all of its parts; tell its owner, or \
                 pull another tag"
                    .to_owned()
            }
            Error::WrongDigest { .. } | Error::WrongSize { .. } => {
                "the registry, a proxy or the archive changed the content; try again or tell its \
                 owner"
                    .to_owned()
            }
            Error::Helper { name, .. } => {
                format!("is docker-credential-{name} installed and its key chain unlocked?")
            }
            Error::ForeignLayer { .. } => {
                "such layers belong to Windows images; choose another --platform".to_owned()
            }
            Error::Archive { .. } => {
                "it should be the output of `coracle save`, `docker save`, `podman save` or an OCI \
                 layout; for a root file system use `coracle import`"
                    .to_owned()
            }
            _ => return None,
        };
        Some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_through_io() {
        let error = Error::PlainHttp { host: "h:1".into() };
        let back = Error::from_io(error.into_io()).unwrap();
        assert!(matches!(back, Error::PlainHttp { .. }));
        assert!(Error::from_io(io::Error::other("x")).is_err());
    }

    #[test]
    fn names_are_cut_for_the_hint() {
        let error = Error::NotFound {
            reference: "h:5000/a/b:1".into(),
            registry: "h:5000".into(),
            message: String::new(),
        };
        assert!(error.hint().unwrap().ends_with("h:5000/a/b"));
    }
}
