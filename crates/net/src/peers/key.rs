//! Keys of hosts: Ed25519 (RFC 8032), one for each host and network.
//!
//! The private key stands in the network's directory, in a file that only its user may read, until
//! the network is removed. The public key is written `ed25519:BASE64` in lists of members, and
//! nowhere else in full.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use crate::text::by_text;

/// What stands before the digits of a key.
const KIND: &str = "ed25519:";
/// `SubjectPublicKeyInfo` of a key of this kind, up to the key (RFC 8410, 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const LENGTH: usize = 32;
/// How many characters of a key are shown.
const SHORT: usize = 8;
/// A file of a key is not longer.
const LONGEST: u64 = 1024;

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; LENGTH]);

impl PublicKey {
    /// The key of these bytes.
    pub const fn of(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// The form in which TLS sends it (RFC 7250).
    pub(super) fn spki(&self) -> Vec<u8> {
        [&SPKI[..], &self.0].concat()
    }

    /// Reads that form.
    pub(super) fn of_spki(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.strip_prefix(&SPKI)?.try_into().ok()?))
    }

    /// A beginning that tells it from others, for people.
    pub fn short(&self) -> String {
        let text = self.to_string();
        format!("{}...", &text[..KIND.len() + SHORT])
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not ed25519: and 44 characters of base64")]
pub struct NoKey;

impl FromStr for PublicKey {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let digits = text.strip_prefix(KIND).ok_or(NoKey)?;
        let bytes = STANDARD.decode(digits).map_err(|_| NoKey)?;
        Ok(Self(bytes.try_into().map_err(|_| NoKey)?))
    }
}

by_text!(PublicKey, NoKey);

/// A private key, with its public one.
#[derive(Clone)]
pub struct Key {
    pkcs8: Vec<u8>,
    public: PublicKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.public).finish()
    }
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not an Ed25519 key in PKCS#8")
}

impl Key {
    /// Makes a new one.
    ///
    /// # Errors
    /// Where the kernel gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let made = made.map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        Self::of(made.as_ref().to_vec())
    }

    fn of(pkcs8: Vec<u8>) -> io::Result<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| bad())?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| bad())?;
        Ok(Self { pkcs8, public: PublicKey(public) })
    }

    /// Reads one from a file; `None` if there is none.
    ///
    /// # Errors
    /// Where it cannot be read, is not a key, or others may read it.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if file.metadata()?.mode() & 0o077 != 0 {
            let why = "others may read it: chmod 600, or make another key if they have";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Self::of(bytes).map(Some)
    }

    /// Writes it to a file that is not there yet.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("new");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).to_owned();
        let mut file = options.open(&unfinished)?;
        file.write_all(&self.pkcs8)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    /// Its public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// What TLS proves its possession with.
    pub(super) fn certified(&self) -> Result<Arc<CertifiedKey>, rustls::Error> {
        let der = PrivatePkcs8KeyDer::from(&self.pkcs8[..]);
        let signs = rustls::crypto::ring::sign::any_eddsa_type(&der)?;
        let chain = vec![CertificateDer::from(self.public.spki())];
        Ok(Arc::new(CertifiedKey::new(chain, signs)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn texts() {
        let key = PublicKey::of([7; 32]);
        let text = "ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(format!("{key:?}"), "ed25519:BwcHBwcH...");
        assert_eq!(PublicKey::of_spki(&key.spki()), Some(key));
        assert_eq!(PublicKey::of_spki(&key.spki()[1..]), None);
        for bad in ["", "ed25519:", "rsa:AAAA", &text[8..], &text[..50], "ed25519:!!!!"] {
            assert_eq!(bad.parse::<PublicKey>(), Err(NoKey), "{bad}");
        }
    }

    #[test]
    fn a_key_is_kept_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key-here");
        assert!(Key::read(&path).unwrap().is_none());
        let key = Key::generate().unwrap();
        key.write(&path).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        assert_eq!(Key::read(&path).unwrap().unwrap().public(), key.public());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_ne!(Key::generate().unwrap().public(), key.public());
        assert!(!format!("{key:?}").contains(&key.public().to_string()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("others may read it"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, [0; 40]).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("not an Ed25519 key"));
    }
}
