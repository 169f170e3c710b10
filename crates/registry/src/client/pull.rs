//! Resolves references and fetches manifests and configurations: small documents, read whole and
//! checked.

use oci::media;
use oci::{Descriptor, Digest, Document, ImageConfig, Index, Manifest, Platform, Reference};

use super::session::{Answer, Ask};
use super::{Client, Endpoint, Fetched, Inner, Resolved};
use crate::http::Method;
use crate::{Error, limits};

impl Client {
    /// Finds the image for a platform (`None`: the host's).
    pub fn resolve(
        &self,
        reference: &Reference,
        platform: Option<&Platform>,
    ) -> Result<Resolved, Error> {
        let wanted = platform.map_or_else(Platform::host, Platform::normalised);
        let mut fetched = self.manifest(reference)?;
        let top = fetched.descriptor.clone();
        let mut index: Option<Index> = None;
        for _ in 0..limits::INDEX_DEPTH {
            let found = match fetched.document {
                Document::Manifest(manifest) => {
                    return finish(
                        reference,
                        manifest,
                        fetched.descriptor,
                        index,
                        top,
                        fetched.source,
                    );
                }
                Document::Index(found) => found,
            };
            let entry = found.choose(&wanted).map_err(|e| document(reference, e))?;
            let pinned = reference.with_digest(entry.digest.clone());
            fetched = self.manifest(&pinned)?;
            index.get_or_insert(found);
        }
        let reason = format!("indexes are nested more than {} deep", limits::INDEX_DEPTH);
        Err(document(reference, oci::Error::Malformed { what: "index", reason }))
    }

    /// Fetches the manifest or index that a reference points to, checked against its digest.
    pub fn manifest(&self, reference: &Reference) -> Result<Fetched, Error> {
        self.inner.first(reference, |endpoint| self.inner.manifest_at(endpoint, reference))
    }

    /// The descriptor that a reference points to, by `HEAD`, which Docker Hub does not count as a
    /// pull. Fetches the document if the registry's response lacks the digest.
    pub fn head(&self, reference: &Reference) -> Result<Descriptor, Error> {
        let found =
            self.inner.first(reference, |endpoint| self.inner.head_at(endpoint, reference))?;
        match found {
            Some(descriptor) => Ok(descriptor),
            None => Ok(self.manifest(reference)?.descriptor),
        }
    }

    /// Fetches the image's configuration, checked against its digest.
    pub fn config(&self, reference: &Reference, manifest: &Manifest) -> Result<ImageConfig, Error> {
        let descriptor = &manifest.config;
        let what = || format!("the configuration of {}", reference.familiar());
        if descriptor.size > limits::CONFIG {
            return Err(Error::TooLarge { what: what(), limit: limits::CONFIG });
        }
        let reader = self.blob(reference, descriptor, 0)?;
        let bytes = self.inner.read_in_time(reader, limits::CONFIG, what)?;
        check_digest(&what(), &descriptor.digest, &bytes)?;
        ImageConfig::parse(bytes).map_err(|e| document(reference, e))
    }
}

impl Inner {
    fn manifest_at(&self, endpoint: &Endpoint, reference: &Reference) -> Result<Fetched, Error> {
        let what = || reference.familiar();
        let ask = manifest_ask(endpoint, reference, Method::Get);
        let mut attempt = 0;
        let (bytes, answer) = loop {
            let mut answer = self.ask(endpoint, &ask, &what())?;
            match self.document(&mut answer.response, limits::MANIFEST, what) {
                Ok(bytes) => break (bytes, answer),
                Err(error) => {
                    self.pause(&endpoint.authority, &error, attempt).ok_or(error)?;
                    attempt += 1;
                }
            }
        };
        let digest = check_manifest(reference, &answer, &bytes)?;
        let media_type = answer.response.header("content-type").unwrap_or_default().to_owned();
        let size = bytes.len() as u64;
        let parsed = Document::parse(bytes, &media_type).map_err(|e| document(reference, e))?;
        let descriptor = Descriptor::new(parsed.media_type(), digest, size);
        Ok(Fetched { document: parsed, descriptor, source: endpoint.registry.clone() })
    }

    fn head_at(
        &self,
        endpoint: &Endpoint,
        reference: &Reference,
    ) -> Result<Option<Descriptor>, Error> {
        let ask = manifest_ask(endpoint, reference, Method::Head);
        let answer = self.ask(endpoint, &ask, &reference.familiar())?;
        let header = |name| answer.response.header(name);
        let digest = header("docker-content-digest").and_then(|d| d.parse::<Digest>().ok());
        // The length of an encoded document is not its size.
        let plain = header("content-encoding").is_none();
        let size = header("content-length").filter(|_| plain).and_then(|n| n.parse().ok());
        let media_type = header("content-type").map(media::essence).unwrap_or_default();
        let known = media::is_index(media_type) || media::is_manifest(media_type);
        match (digest, size) {
            (Some(digest), Some(size)) if known => {
                Ok(Some(Descriptor::new(media_type, digest, size)))
            }
            _ => Ok(None),
        }
    }
}

fn manifest_ask(endpoint: &Endpoint, reference: &Reference, method: Method) -> Ask<'static> {
    let path = format!("/v2/{}/manifests/{}", endpoint.repository, reference.version());
    let accept = ("Accept", media::ACCEPTED.join(", "));
    Ask { method, headers: vec![accept], ..Ask::get(path, endpoint.pull_scope()) }
}

/// Returns the document's digest: the requested one, which the bytes must have, else their SHA-256.
/// The digest in the registry's header must match as well.
fn check_manifest(reference: &Reference, answer: &Answer, bytes: &[u8]) -> Result<Digest, Error> {
    let what = format!("the manifest of {}", reference.familiar());
    if let Some(digest) = reference.digest() {
        check_digest(&what, digest, bytes)?;
        return Ok(digest.clone());
    }
    let said = answer.response.header("docker-content-digest");
    if let Some(said) = said.and_then(|d| d.parse::<Digest>().ok()) {
        check_digest(&what, &said, bytes)?;
    }
    Ok(Digest::of(bytes))
}

fn check_digest(what: &str, expected: &Digest, bytes: &[u8]) -> Result<(), Error> {
    let mut digester = expected.digester();
    digester.update(bytes);
    let found = digester.finish();
    if found == *expected {
        return Ok(());
    }
    Err(Error::WrongDigest { what: what.to_owned(), expected: expected.clone(), found })
}

fn document(reference: &Reference, source: oci::Error) -> Error {
    Error::Document { what: reference.familiar(), source }
}

fn finish(
    reference: &Reference,
    manifest: Manifest,
    descriptor: Descriptor,
    index: Option<Index>,
    top: Descriptor,
    source: String,
) -> Result<Resolved, Error> {
    manifest.check_is_image().map_err(|e| document(reference, e))?;
    Ok(Resolved { reference: reference.clone(), manifest, descriptor, index, top, source })
}
