//! Errors of this crate, one variant per step.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use oci::Digest;

/// The reason why an image, a list or a login failed. URLs are shown without their query, where
/// blob stores put signatures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document is not valid.
    #[error("{what}: {source}")]
    Document {
        /// The reference or file it came from.
        what: String,
        /// The error.
        source: oci::Error,
    },
    /// A host name has no address.
    #[error("cannot find the address of {host}: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// The attempts and their results.
        reason: String,
    },
    /// The connection failed.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port.
        host: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("the TLS connection to {host} failed: {reason}")]
    Tls {
        /// Host and port.
        host: String,
        /// The problem with the certificate or the handshake.
        reason: String,
        /// True if the certificate is not trusted; false for other failures of the handshake.
        untrusted: bool,
    },
    /// The server answered HTTPS with plain HTTP.
    #[error("{host} speaks plain HTTP, not HTTPS")]
    PlainHttp {
        /// Host and port.
        host: String,
    },
    /// A proxy refused, or could not be used.
    #[error("the proxy {proxy} failed: {reason}")]
    Proxy {
        /// The proxy without its password.
        proxy: String,
        /// The reason.
        reason: String,
    },
    /// A timeout.
    #[error("{host} did not answer in time ({step})")]
    Timeout {
        /// Host and port.
        host: String,
        /// The step that timed out.
        step: String,
    },
    /// The connection broke or carried invalid data.
    #[error("the connection to {host} broke: {reason}")]
    Broken {
        /// Host and port.
        host: String,
        /// The observation.
        reason: String,
    },
    /// The registry requires credentials, or does not accept these (401).
    #[error("{registry} refuses access to {what}: {}", unauthorized(*.with_credentials, .message))]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The repository or the registry itself.
        what: String,
        /// True if credentials were sent.
        with_credentials: bool,
        /// The registry's message.
        message: String,
    },
    /// The credentials are accepted and lack the right (403).
    #[error("{registry} denies access to {what}{}", words(.message))]
    Denied {
        /// The registry.
        registry: String,
        /// The repository or the registry itself.
        what: String,
        /// The registry's message.
        message: String,
    },
    /// There is no such image.
    #[error("{reference} is not in {registry}{}", words(.message))]
    NotFound {
        /// The reference.
        reference: String,
        /// The registry.
        registry: String,
        /// The registry's message.
        message: String,
    },
    /// A blob that a manifest refers to is missing.
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
    #[error("{registry} limits the number of requests{}{}", wait(*.retry_after), words(.message))]
    RateLimited {
        /// The registry.
        registry: String,
        /// The wait that the registry asks for.
        retry_after: Option<Duration>,
        /// The registry's message.
        message: String,
    },
    /// Any other unsuccessful status.
    #[error("{url} answered {status}{}", words(.message))]
    Status {
        /// The requested URL, without query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The registry's message.
        message: String,
    },
    /// The token server could not be asked.
    #[error("cannot get a token from {realm}: {source}")]
    TokenServer {
        /// Its URL, without query.
        realm: String,
        /// The failure.
        source: Box<Error>,
    },
    /// A document or a layer that comes too slowly.
    #[error("{what} comes too slowly: {bytes} bytes in {seconds} s")]
    TooSlow {
        /// The document or the layer's digest.
        what: String,
        /// The bytes that came in this time.
        bytes: u64,
        /// The time in which they came.
        seconds: u64,
    },
    /// The token server gave no token.
    #[error("cannot get a token from {realm}: {reason}")]
    Token {
        /// The token server, without query.
        realm: String,
        /// The reason.
        reason: String,
    },
    /// A redirect that cannot be followed or must not be.
    #[error("{url} redirects {reason}")]
    Redirect {
        /// The requested URL, without query.
        url: String,
        /// The target, or the number of redirects.
        reason: String,
    },
    /// `registries.conf` blocks the registry.
    #[error("the registry of {name} is blocked by {path}")]
    Blocked {
        /// The image's name.
        name: String,
        /// The file that blocks it.
        path: String,
    },
    /// Content with another digest than expected.
    #[error("{what} is damaged: its digest is {found} instead of {expected}")]
    WrongDigest {
        /// The manifest, configuration or layer.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        found: Digest,
    },
    /// Content that is longer or shorter than its descriptor says.
    #[error("{what} is damaged: it has {found} bytes instead of {expected}")]
    WrongSize {
        /// The manifest, configuration or layer.
        what: String,
        /// The size in the descriptor.
        expected: u64,
        /// The received size; reading stops at the first excess byte.
        found: u64,
    },
    /// An answer or a file larger than its limit.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// The response or file.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A layer that is not in the registry.
    #[error("{digest} has to be fetched from {url}, which is not supported")]
    ForeignLayer {
        /// The layer.
        digest: Digest,
        /// Its URL.
        url: String,
    },
    /// A response that violates the protocol.
    #[error("unexpected response from {url}: {reason}")]
    Protocol {
        /// The requested URL, without query.
        url: String,
        /// The violation.
        reason: String,
    },
    /// The registry cannot list or search.
    #[error("{registry} does not support {what}")]
    Unsupported {
        /// The registry.
        registry: String,
        /// `search`, `list of repositories`.
        what: &'static str,
    },
    /// An invalid setting.
    #[error("invalid setting {name}: {reason}")]
    Setting {
        /// The setting.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A configuration file that cannot be parsed.
    #[error("{}: {reason}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file that could not be read, written, made or removed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`, ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A credential helper failed.
    #[error("docker-credential-{name} failed: {reason}")]
    Helper {
        /// The helper's name without prefix.
        name: String,
        /// The helper's message.
        reason: String,
    },
    /// An invalid archive or layout.
    #[error("the archive is not valid: {reason}")]
    Archive {
        /// The reason.
        reason: String,
    },
    /// An archive in a compression that is not supported.
    #[error("the archive is compressed by {method}, which is not supported")]
    Compression {
        /// The method.
        method: String,
    },
    /// An archive could not be read or written.
    #[error("cannot {action} the archive: {source}")]
    ArchiveIo {
        /// `read`, `write`.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The caller's [`crate::BlobSink`] or [`crate::BlobSource`] failed.
    #[error("cannot {action} {what}: {source}")]
    Blob {
        /// `store`, `read`.
        action: &'static str,
        /// The blob.
        what: String,
        /// The error of the sink or source.
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
        "it requires credentials"
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

    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Document { source, .. } => return source.hint(),
            Error::TokenServer { source, .. } => return source.hint(),
            Error::Resolve { .. } => {
                "check the registry's name and this host's network; behind a proxy set HTTPS_PROXY"
                    .to_owned()
            }
            Error::Connect { host, source }
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                format!("nothing listens on {host}; check the port, and that the registry runs")
            }
            Error::Connect { .. }
            | Error::Timeout { .. }
            | Error::Broken { .. }
            | Error::TooSlow { .. } => {
                "check this host's network; behind a proxy set HTTPS_PROXY".to_owned()
            }
            Error::Tls { host, untrusted: true, .. } => format!(
                "put the registry's CA into /etc/containers/certs.d/{host}/ca.crt or the ca_files \
                 setting, or use --tls-verify=false"
            ),
            Error::Tls { .. } => "check that this is the registry's HTTPS port".to_owned(),
            Error::PlainHttp { host } => {
                format!("use --tls-verify=false, or mark {host} as insecure in registries.conf")
            }
            Error::Proxy { .. } => {
                "check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY".to_owned()
            }
            Error::Unauthorized { registry, with_credentials, .. } => {
                if *with_credentials {
                    format!("log in again with 'coracle login {registry}'")
                } else {
                    format!(
                        "the image may be private or not exist; log in with 'coracle login \
                         {registry}'"
                    )
                }
            }
            Error::Denied { registry, .. } => format!(
                "the image may be private or not exist, or this account lacks the right to it; use \
                 another account with 'coracle login {registry}'"
            ),
            Error::NotFound { reference, .. } => {
                let name = reference.split('@').next().unwrap_or(reference);
                let name = match name.rsplit_once(':') {
                    Some((name, tag)) if !tag.contains('/') => name,
                    _ => name,
                };
                format!(
                    "check the name and the tag; 'coracle search --list-tags {name}' lists the tags"
                )
            }
            Error::RateLimited { registry, .. } => format!(
                "wait, log in for a higher limit with 'coracle login {registry}', or use a mirror"
            ),
            Error::Status { status: 500.., .. } => {
                "the registry has an internal problem; try again later".to_owned()
            }
            Error::Blocked { .. } => {
                "if you administer that file, remove 'blocked = true' from it".to_owned()
            }
            Error::BlobMissing { .. } => {
                "the image in the registry is incomplete; tell its owner, or pull another tag"
                    .to_owned()
            }
            Error::WrongDigest { .. } | Error::WrongSize { .. } => {
                "the registry, a proxy or the archive changed the content; try again, or tell the \
                 owner of the image"
                    .to_owned()
            }
            Error::Helper { name, .. } => {
                format!(
                    "check that docker-credential-{name} is installed and its key chain is unlocked"
                )
            }
            Error::ForeignLayer { .. } => {
                "such layers belong to Windows images; choose another --platform".to_owned()
            }
            Error::Compression { method } => {
                format!("decompress it first: {method} -dc FILE | coracle load")
            }
            Error::Archive { .. } => {
                "use the output of 'coracle save', 'docker save' or 'podman save', or an OCI \
                 layout; for a root file system use 'coracle import'"
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
        assert!(error.hint().unwrap().contains("--list-tags h:5000/a/b'"));
    }
}
