//! Content digests: `sha256:` and hexadecimal digits.
//!
//! A [`Digest`] is always well formed: a registered algorithm and the right number of lower-case
//! digits, so its parts may be used as file names. A [`Digester`] hashes a stream. Chain IDs name a
//! stack of layers (config.md, "Layer `ChainID`").

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::Error;

/// A registered hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256, which every tool uses.
    Sha256,
    /// SHA-384, accepted by Docker's parser.
    Sha384,
    /// SHA-512, registered by OCI.
    Sha512,
}

impl Algorithm {
    /// The name before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha384 => "sha384",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// The number of hexadecimal digits after the colon.
    pub fn hex_len(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha384 => 96,
            Algorithm::Sha512 => 128,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Algorithm::Sha256),
            "sha384" => Some(Algorithm::Sha384),
            "sha512" => Some(Algorithm::Sha512),
            _ => None,
        }
    }
}

/// A content digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

impl Digest {
    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::new(Algorithm::Sha256);
        digester.update(bytes);
        digester.finish()
    }

    /// The hash algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The lower-case hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The first twelve digits, as commands print them.
    pub fn short(&self) -> &str {
        &self.hex[..12]
    }

    /// A hasher of the same algorithm, to check bytes against this digest.
    pub fn digester(&self) -> Digester {
        Digester::new(self.algorithm)
    }

    /// Returns true if `bytes` have this digest.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let mut digester = self.digester();
        digester.update(bytes);
        digester.finish() == *self
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.hex)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self, Error> {
        let refuse = |reason| Error::Digest { input: clip(input), reason };
        let (name, hex) =
            input.split_once(':').ok_or_else(|| refuse("it has no algorithm before a colon"))?;
        let algorithm =
            Algorithm::from_name(name).ok_or_else(|| refuse("the algorithm is not supported"))?;
        if hex.len() != algorithm.hex_len() {
            return Err(refuse("it has the wrong number of digits"));
        }
        if !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refuse("its digits are not lower-case hexadecimal"));
        }
        Ok(Digest { algorithm, hex: hex.into() })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Hashes a stream piece by piece.
#[derive(Debug, Clone)]
pub struct Digester {
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Digester {
    /// An empty hasher.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha384 => State::Sha384(Sha384::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        };
        Digester { state }
    }

    /// An empty hasher of SHA-256.
    pub fn sha256() -> Self {
        Self::new(Algorithm::Sha256)
    }

    /// Adds the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Sha256(hasher) => hasher.update(bytes),
            State::Sha384(hasher) => hasher.update(bytes),
            State::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of all bytes so far.
    pub fn finish(self) -> Digest {
        match self.state {
            State::Sha256(hasher) => from_raw(Algorithm::Sha256, &hasher.finalize()),
            State::Sha384(hasher) => from_raw(Algorithm::Sha384, &hasher.finalize()),
            State::Sha512(hasher) => from_raw(Algorithm::Sha512, &hasher.finalize()),
        }
    }
}

impl std::io::Write for Digester {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn from_raw(algorithm: Algorithm, raw: &[u8]) -> Digest {
    let mut hex = String::with_capacity(raw.len() * 2);
    for byte in raw {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Digest { algorithm, hex: hex.into() }
}

/// The chain IDs of the layer stacks `[1]`, `[1, 2]`, `[1, 2, 3]`, ... of these diff IDs.
pub fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let next = match chain.last() {
            None => diff_id.clone(),
            Some(parent) => Digest::of(format!("{parent} {diff_id}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

/// Shortens input for an error message.
pub(crate) fn clip(input: &str) -> String {
    const MOST: usize = 300;
    match input.char_indices().nth(MOST) {
        None => input.to_owned(),
        Some((end, _)) => format!("{}...", &input[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn hashes_and_prints() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        let digest: Digest = EMPTY.parse().unwrap();
        assert!(digest.matches(b""));
        assert!(!digest.matches(b"x"));
        assert_eq!(digest.short(), "e3b0c44298fc");
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{EMPTY}\""));
    }

    #[test]
    fn other_algorithms() {
        for algorithm in [Algorithm::Sha384, Algorithm::Sha512] {
            let mut digester = Digester::new(algorithm);
            digester.update(b"abc");
            let digest = digester.finish();
            assert_eq!(digest.hex().len(), algorithm.hex_len());
            assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        }
    }

    #[test]
    fn refuses() {
        let upper = EMPTY.to_ascii_uppercase();
        let slashes = format!("sha256:{}", "/".repeat(64));
        for bad in ["", "sha256", "sha256:", "md5:00", "sha256:abc", &upper, &slashes] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn chains() {
        let a = Digest::of(b"a");
        let b = Digest::of(b"b");
        let chain = chain_ids(&[a.clone(), b.clone()]);
        assert_eq!(chain[0], a);
        assert_eq!(chain[1], Digest::of(format!("{a} {b}").as_bytes()));
        assert!(chain_ids(&[]).is_empty());
    }
}
