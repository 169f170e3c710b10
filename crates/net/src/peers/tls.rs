//! TLS between hosts: version 1.3 alone, raw public keys instead of certificates, on both sides.
//!
//! There is no name, no time and no authority to check: a key is in the list of hosts, or it is
//! not. So a wrong clock closes nobody out. Sessions are never resumed, because a resumed one would
//! not look at the list again.

use std::collections::HashSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName,
    Error, PeerIncompatible, ServerConfig, ServerConnection, SignatureScheme,
};

use super::key::{Key, PublicKey};
use crate::locks;

/// The keys that are let in; they change with the list.
pub(super) type Keys = Arc<RwLock<HashSet<PublicKey>>>;

/// What this host needs to begin and to take connections.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// With a key; `keys` are let in.
    pub(super) fn new(key: &Key, keys: Keys) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let own = key.certified()?;
        let check = Arc::new(Check { provider: Arc::clone(&provider), keys });
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(check)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.clone())));
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { provider, own, server: Arc::new(server) })
    }

    /// A connection that has come in.
    pub(super) fn accepted(&self) -> Result<rustls::Connection, Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(rustls::Connection::from)
    }

    /// A connection to the host with a key.
    pub(super) fn dialled(
        &self,
        key: PublicKey,
        address: Ipv4Addr,
    ) -> Result<rustls::Connection, Error> {
        let keys = Arc::new(RwLock::new(HashSet::from([key])));
        let check = Arc::new(Check { provider: Arc::clone(&self.provider), keys });
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(check)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                self.own.clone(),
            )));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let name = ServerName::IpAddress(std::net::IpAddr::V4(address).into());
        ClientConnection::new(Arc::new(client), name).map(rustls::Connection::from)
    }
}

/// The key of the other side, once it has proven that it has it.
pub(super) fn peer(connection: &rustls::Connection) -> Option<PublicKey> {
    PublicKey::of_spki(connection.peer_certificates()?.first()?)
}

/// In words for a user, what ended a connection.
pub fn explain(error: &io::Error) -> String {
    use rustls::AlertDescription as A;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(A::AccessDenied | A::CertificateUnknown)) => {
            "it does not know this host's key: join the newest list there".into()
        }
        Some(Error::InvalidCertificate(_)) => "it has another key than in the list".into(),
        Some(Error::InvalidMessage(_)) => "what listens there is no network agent".into(),
        Some(other) => format!("TLS: {other}"),
        None => match error.kind() {
            io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it does not answer".into(),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => "it has closed the connection".into(),
            _ => error.to_string(),
        },
    }
}

/// Accepts a peer whose key is one of those.
#[derive(Debug)]
struct Check {
    provider: Arc<CryptoProvider>,
    keys: Keys,
}

impl Check {
    fn key(&self, sent: &CertificateDer<'_>) -> Result<(), Error> {
        let keys = locks::read(&self.keys);
        match PublicKey::of_spki(sent) {
            Some(key) if keys.contains(&key) => Ok(()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        sent: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(sent.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }
}

fn too_old() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.key(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Check {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.key(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
