//! Image references, parsed exactly as Docker parses them.
//!
//! `debian` is `docker.io/library/debian:latest`; the part before the first slash is a registry if
//! it holds a dot, a colon or a capital letter, or is `localhost`. The grammar is that of the
//! `distribution/reference` package (its `reference.go` and `normalize.go`), implemented as small
//! scanners because it is only a few character classes:
//!
//! ```text
//! reference  := name [ ":" tag ] [ "@" digest ]
//! name       := [ domain "/" ] path
//! domain     := ( name-with-dots | IPv4 | "[" IPv6 "]" ) [ ":" port ]
//! path       := component { "/" component }        at most 255 bytes
//! component  := [a-z0-9]+ { ( "." | "_" | "__" | "-"+ ) [a-z0-9]+ }
//! tag        := [A-Za-z0-9_] [A-Za-z0-9_.-]{0,127}
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::clip;
use crate::{Digest, Error};

/// The registry of names without one.
pub const DEFAULT_REGISTRY: &str = "docker.io";
/// The tag of names without tag and digest.
pub const DEFAULT_TAG: &str = "latest";
const OFFICIAL: &str = "library/";
const LEGACY_REGISTRY: &str = "index.docker.io";
const PATH_MAX: usize = 255;
const TAG_MAX: usize = 128;
/// Longer input is refused before parsing; the longest legal reference is shorter.
const INPUT_MAX: usize = 2048;

/// A normalised image reference: always a registry and a repository, and a tag, a digest or both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses and normalises user input; without tag and digest the tag is `latest`.
    pub fn parse(input: &str) -> Result<Self, Error> {
        let mut reference = Self::parse_name(input)?;
        if reference.tag.is_none() && reference.digest.is_none() {
            reference.tag = Some(DEFAULT_TAG.to_owned());
        }
        Ok(reference)
    }

    /// As [`Reference::parse`], but a name without tag and digest gets none: it names the
    /// repository.
    pub fn parse_name(input: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Reference { input: clip(input), reason: reason.into() };
        if input.is_empty() {
            return Err(refuse("it is empty"));
        }
        if input.len() > INPUT_MAX {
            return Err(refuse("it is too long"));
        }
        if input.len() == 64 && input.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refuse(
                "a name must not consist of 64 hexadecimal digits, which are an id",
            ));
        }
        let (registry, rest) = split_registry(input);
        let (rest, digest) = match rest.split_once('@') {
            None => (rest, None),
            Some((rest, digest)) => (rest, Some(digest)),
        };
        let (path, tag) = match rest.split_once(':') {
            None => (rest, None),
            Some((path, tag)) => (path, Some(tag)),
        };
        check_registry(registry).map_err(refuse)?;
        let mut repository = path.to_owned();
        if registry == DEFAULT_REGISTRY && !repository.contains('/') {
            repository.insert_str(0, OFFICIAL);
        }
        check_path(path, &repository).map_err(refuse)?;
        if let Some(tag) = tag {
            check_tag(tag).map_err(refuse)?;
        }
        let digest = digest
            .map(str::parse::<Digest>)
            .transpose()
            .map_err(|e| Error::Reference { input: clip(input), reason: e.to_string() })?;
        let tag = tag.map(str::to_owned);
        Ok(Reference { registry: registry.to_owned(), repository, tag, digest })
    }

    /// The registry's host and port, `docker.io` for Docker Hub.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository, with `library/` where Docker adds it.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if there is one. With a digest the tag is only informative.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// True if a digest pins the content.
    pub fn is_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// `registry/repository`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name as a user writes it: without `docker.io/` and `library/`, if that parses back to
    /// the same.
    pub fn familiar_name(&self) -> String {
        let full = self.name();
        if self.registry != DEFAULT_REGISTRY {
            return full;
        }
        let short = self
            .repository
            .strip_prefix(OFFICIAL)
            .filter(|rest| !rest.contains('/'))
            .unwrap_or(&self.repository);
        // `docker.io/localhost/x` would be read as a registry of that name, and 64 digits as an id.
        match Self::parse_name(short) {
            Ok(back) if back.registry == self.registry && back.repository == self.repository => {
                short.to_owned()
            }
            _ => full,
        }
    }

    /// The reference as a user writes it.
    pub fn familiar(&self) -> String {
        let mut text = self.familiar_name();
        self.append_suffix(&mut text);
        text
    }

    /// The same repository with this tag and no digest.
    pub fn with_tag(&self, tag: &str) -> Result<Self, Error> {
        check_tag(tag)
            .map_err(|reason| Error::Reference { input: clip(tag), reason: reason.into() })?;
        Ok(Reference { tag: Some(tag.to_owned()), digest: None, ..self.clone() })
    }

    /// The same repository pinned to a digest; the tag stays, only informative.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Reference { digest: Some(digest), ..self.clone() }
    }

    /// The same repository without tag and digest.
    #[must_use]
    pub fn without_tag(&self) -> Self {
        Reference { tag: None, digest: None, ..self.clone() }
    }

    /// The version to request from a registry: the digest, else the tag, else `latest`.
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    fn append_suffix(&self, text: &mut String) {
        if let Some(tag) = &self.tag {
            text.push(':');
            text.push_str(tag);
        }
        if let Some(digest) = &self.digest {
            text.push('@');
            text.push_str(&digest.to_string());
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.name();
        self.append_suffix(&mut text);
        f.write_str(&text)
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self, Error> {
        Self::parse(input)
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse_name(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Returns true if `text` is a valid tag.
pub fn is_tag(text: &str) -> bool {
    check_tag(text).is_ok()
}

/// `splitDockerDomain` of normalize.go.
fn split_registry(input: &str) -> (&str, &str) {
    let Some((first, rest)) = input.split_once('/') else {
        return (DEFAULT_REGISTRY, input);
    };
    let is_registry =
        first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase);
    match first {
        LEGACY_REGISTRY => (DEFAULT_REGISTRY, rest),
        _ if is_registry => (first, rest),
        _ => (DEFAULT_REGISTRY, input),
    }
}

fn check_registry(registry: &str) -> Result<(), &'static str> {
    const BAD_HOST: &str = "the part before the first slash is not a host name";
    let (host, port) = if let Some(rest) = registry.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or("the IPv6 address has no ]")?;
        let plain =
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        if !plain {
            return Err("the part in brackets is not an IPv6 address");
        }
        match after {
            "" => return Ok(()),
            _ => ("x", Some(after.strip_prefix(':').ok_or(BAD_HOST)?)),
        }
    } else {
        match registry.split_once(':') {
            None => (registry, None),
            Some((host, port)) => (host, Some(port)),
        }
    };
    let good_part = |part: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !host.split('.').all(good_part) {
        return Err(BAD_HOST);
    }
    match port {
        Some(port) if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) => {
            Err("the port is not a number")
        }
        _ => Ok(()),
    }
}

fn check_path(written: &str, repository: &str) -> Result<(), &'static str> {
    if written.is_empty() {
        return Err("the repository name is empty");
    }
    if written.chars().any(char::is_uppercase) {
        return Err("the repository name must be lower case");
    }
    if repository.len() > PATH_MAX {
        return Err("the repository name is longer than 255 bytes");
    }
    if repository.split('/').all(is_component) {
        Ok(())
    } else {
        Err("the repository name may have a-z, 0-9 and, between them, one of . _ __ or dashes")
    }
}

fn is_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|&b| is_word(b));
    if !edge(bytes.first()) || !edge(bytes.last()) {
        return false;
    }
    component
        .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|sep| matches!(sep, "" | "." | "_" | "__") || sep.bytes().all(|b| b == b'-'))
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    if tag.is_empty() {
        return Err("the tag is empty");
    }
    if tag.len() > TAG_MAX {
        return Err("the tag is longer than 128 bytes");
    }
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good =
        is_word(tag.as_bytes()[0]) && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-');
    if good { Ok(()) } else { Err("a tag may have letters, digits, _ . and -") }
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
