//! TLS configuration: root certificates, per-host CAs and client certificates, and hosts that are
//! not checked.
//!
//! Roots are the system's bundle (the usual paths, or those in the settings), the settings' CA
//! files and `<certs.d>/<host>/*.crt`; `*.cert` with `*.key` there is a client certificate, as in
//! Docker and podman. The crypto provider is `ring`, chosen here and nowhere else. The files for a
//! host are read once, at its first HTTPS connection.

mod pinned;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::{Error, Settings, limits};

/// Paths of the bundle in distributions; the first that exists is used.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cacert.pem",
];
/// Directories of single certificates, if there is no bundle.
const DIRECTORIES: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];
const NO_ROOTS: &str =
    "this host has no root certificates; install ca-certificates or set ca_files";
const FILES_PER_DIRECTORY: usize = 4096;

/// TLS configurations by host.
#[derive(Debug)]
pub(crate) struct Tls {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    extra: Vec<PathBuf>,
    certs_dirs: Vec<PathBuf>,
    host_certs: BTreeMap<String, PathBuf>,
    provider: Arc<CryptoProvider>,
    roots: OnceLock<Arc<RootCertStore>>,
    hosts: Mutex<HashMap<(String, bool), Arc<ClientConfig>>>,
}

impl Tls {
    pub(crate) fn new(settings: &Settings) -> Self {
        Tls {
            files: settings.roots.files.clone(),
            directories: settings.roots.directories.clone(),
            extra: settings.ca_files.clone(),
            certs_dirs: settings.certs_dirs.clone(),
            host_certs: settings.host_certs.clone(),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            roots: OnceLock::new(),
            hosts: Mutex::new(HashMap::new()),
        }
    }

    /// The configuration for `host:port`; `check` is false for insecure hosts.
    pub(crate) fn config(
        &self,
        host: &str,
        port: u16,
        check: bool,
    ) -> Result<Arc<ClientConfig>, Error> {
        let key = (format!("{host}:{port}"), check);
        if let Some(known) = self.hosts.lock().ok().and_then(|hosts| hosts.get(&key).cloned()) {
            return Ok(known);
        }
        let config = Arc::new(self.build(host, port, check)?);
        if let Ok(mut hosts) = self.hosts.lock() {
            hosts.insert(key, config.clone());
        }
        Ok(config)
    }

    fn build(&self, host: &str, port: u16, check: bool) -> Result<ClientConfig, Error> {
        let own = HostFiles::read(self.certificates_of(host, port)?)?;
        let setting = |reason: String| Error::Setting { name: format!("TLS for {host}"), reason };
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(|e| setting(e.to_string()))?;
        let verifier: Arc<dyn ServerCertVerifier> = if check {
            let roots = self.roots_with(&own.authorities)?;
            let chains =
                WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone()).build();
            let pinned = self.pinned(own.authorities)?;
            let chains = chains.map_err(|_| setting(NO_ROOTS.to_owned()))?;
            Arc::new(pinned::Verifier { chains, pinned })
        } else {
            Arc::new(Unchecked { provider: self.provider.clone() })
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        match own.client {
            None => Ok(builder.with_no_client_auth()),
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain, key).map_err(|e| setting(e.to_string()))
            }
        }
    }

    /// The directory with the certificates of a host.
    fn certificates_of(&self, host: &str, port: u16) -> Result<Option<PathBuf>, Error> {
        let mut names = vec![format!("{host}:{port}")];
        if port == 443 {
            names.push(host.to_owned());
        }
        // A directory that the user named must exist; a mistyped one would silently add no
        // certificate.
        if let Some(named) = names.iter().find_map(|name| self.host_certs.get(name)) {
            std::fs::read_dir(named).map_err(|source| Error::File {
                action: "read",
                path: named.clone(),
                source,
            })?;
            return Ok(Some(named.clone()));
        }
        let below = |base: &PathBuf| names.iter().map(|name| base.join(name)).collect::<Vec<_>>();
        Ok(self.certs_dirs.iter().flat_map(below).find(|directory| directory.is_dir()))
    }

    /// The certificates that the user trusts explicitly: the host's own authorities and the
    /// settings' files.
    fn pinned(
        &self,
        mut own: Vec<CertificateDer<'static>>,
    ) -> Result<Vec<CertificateDer<'static>>, Error> {
        for file in self.extra.iter().chain(&self.files) {
            own.extend(certificates(file)?);
        }
        Ok(own)
    }

    fn roots_with(&self, own: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, Error> {
        let base = if let Some(roots) = self.roots.get() {
            roots.clone()
        } else {
            let read = Arc::new(self.read_roots()?);
            self.roots.get_or_init(|| read).clone()
        };
        if own.is_empty() {
            return Ok(base);
        }
        let mut roots = (*base).clone();
        roots.add_parsable_certificates(own.iter().cloned());
        Ok(Arc::new(roots))
    }

    fn read_roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let (mut files, mut directories) = (self.files.clone(), self.directories.clone());
        let chosen = !files.is_empty() || !directories.is_empty();
        if !chosen {
            let bundle = BUNDLES.iter().map(PathBuf::from).find(|path| path.exists());
            match bundle {
                Some(bundle) => files.push(bundle),
                None => directories.extend(DIRECTORIES.iter().map(PathBuf::from)),
            }
        }
        for file in &files {
            match certificates(file) {
                Ok(found) => drop(roots.add_parsable_certificates(found)),
                Err(error) if chosen => return Err(error),
                Err(error) => tracing::warn!(%error, "root certificates not read"),
            }
        }
        for file in directories.iter().flat_map(|directory| list(directory)) {
            // Such directories also hold files that are not certificates.
            if let Ok(found) = certificates(&file) {
                roots.add_parsable_certificates(found);
            }
        }
        for file in &self.extra {
            roots.add_parsable_certificates(certificates(file)?);
        }
        tracing::debug!(count = roots.len(), "root certificates");
        Ok(roots)
    }
}

/// The files in `certs.d` for a host.
#[derive(Default)]
struct HostFiles {
    authorities: Vec<CertificateDer<'static>>,
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl HostFiles {
    fn read(directory: Option<PathBuf>) -> Result<Self, Error> {
        let mut files = HostFiles::default();
        let Some(directory) = directory else {
            return Ok(files);
        };
        for path in list(&directory) {
            match path.extension().and_then(|e| e.to_str()) {
                Some("crt") => files.authorities.extend(certificates(&path)?),
                Some("cert") if files.client.is_none() => {
                    let key_path = path.with_extension("key");
                    let key = PrivateKeyDer::from_pem_slice(&read(&key_path)?)
                        .map_err(|e| Error::ConfigFile { path: key_path, reason: e.to_string() })?;
                    files.client = Some((certificates(&path)?, key));
                }
                _ => {}
            }
        }
        Ok(files)
    }
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> =
        entries.take(FILES_PER_DIRECTORY).filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|e| Error::ConfigFile { path: path.to_owned(), reason: e.to_string() })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |source| Error::File { action: "read", path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(limits::CONFIG_FILE).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// Accepts any certificate, but still requires that the handshake is signed with its key.
#[derive(Debug)]
struct Unchecked {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Converts a handshake's failure to this crate's error.
pub(crate) fn explain(error: &rustls::Error, host: &str) -> Error {
    use rustls::{CertificateError as Bad, Error as E, InvalidMessage};
    let host = host.to_owned();
    let (reason, untrusted) = match error {
        E::InvalidMessage(InvalidMessage::InvalidContentType) => return Error::PlainHttp { host },
        E::InvalidCertificate(bad) => {
            let reason = match bad {
                Bad::UnknownIssuer => "its certificate is signed by an unknown authority".into(),
                Bad::Expired | Bad::ExpiredContext { .. } => "its certificate has expired".into(),
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                    "its certificate is not valid yet; check this host's clock".into()
                }
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                    "its certificate is for another name".into()
                }
                other => format!("its certificate is not accepted: {other}"),
            };
            (reason, true)
        }
        E::AlertReceived(alert) => (format!("it refused the handshake: {alert:?}"), false),
        other => (other.to_string(), false),
    };
    Error::Tls { host, reason, untrusted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_roots_or_none() {
        let tls = Tls::new(&Settings::default());
        assert!(tls.config("h", 443, true).is_ok());
        assert!(tls.config("h", 443, false).is_ok());
    }

    #[test]
    fn named_files_must_be_there() {
        let settings = Settings { ca_files: vec!["/nonexistent/ca".into()], ..Settings::default() };
        let error = Tls::new(&settings).config("h", 443, true).unwrap_err();
        assert!(matches!(error, Error::File { .. }));
        assert!(Tls::new(&settings).config("h", 443, false).is_ok());
    }

    #[test]
    fn http_on_an_https_port_is_recognised() {
        let error = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(matches!(explain(&error, "h"), Error::PlainHttp { .. }));
    }
}
