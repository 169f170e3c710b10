//! Reads a blob's bytes, and resumes by `Range` if a connection breaks.
//!
//! The reader keeps its position. When the connection ends early it opens a new one from there, at
//! the same host and, when that fails permanently, at the next one (mirror, registry). If a server
//! ignores `Range` and sends everything, the known part is skipped. The number of retries without a
//! new byte is bounded, and so is their total; a host that sends a byte now and then is left. The
//! end is exactly at the descriptor's size: a server that sends more is an error.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use oci::{Descriptor, Reference};

use super::response_text::Paced;
use super::session::{Ask, encoded};
use super::{Client, Endpoint, Inner};
use crate::Error;
use crate::http::{Response, explain_io};

/// Limit of connections for one blob, whatever the number of bytes from each.
const CONNECTIONS: u32 = 1000;

/// A blob's bytes from the registry. Broken connections are resumed where they ended; the end comes
/// exactly at the descriptor's size, else an error. The caller checks the digest. Errors hold an
/// [`Error`], see [`Error::from_io`].
pub struct BlobReader {
    inner: Arc<Inner>,
    endpoints: Vec<Endpoint>,
    /// Index into `endpoints`.
    at: usize,
    descriptor: Descriptor,
    position: u64,
    body: Option<Body>,
    /// Failures since the last byte.
    failures: u32,
    connections: u32,
}

struct Body {
    reader: Box<dyn Read + Send>,
    host: String,
}

impl fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobReader")
            .field("digest", &self.descriptor.digest)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a blob at `offset` (the length of a partial download). The connection is made here, so
    /// that a missing blob is reported at once.
    pub fn blob(
        &self,
        reference: &Reference,
        descriptor: &Descriptor,
        offset: u64,
    ) -> Result<BlobReader, Error> {
        if offset > descriptor.size {
            return Err(Error::WrongSize {
                what: descriptor.digest.to_string(),
                expected: descriptor.size,
                found: offset,
            });
        }
        let mut reader = BlobReader {
            inner: self.inner.clone(),
            endpoints: self.inner.endpoints(reference)?,
            at: 0,
            descriptor: descriptor.clone(),
            position: offset,
            body: None,
            failures: 0,
            connections: 0,
        };
        if offset < descriptor.size {
            reader.connect()?;
        }
        Ok(reader)
    }
}

impl BlobReader {
    /// Position in the blob, the offset included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The host that sends the bytes.
    pub fn source(&self) -> &str {
        self.endpoints.get(self.at).map_or("", |endpoint| &endpoint.registry)
    }

    /// Opens a connection at the position, at the current endpoint or one after it.
    fn connect(&mut self) -> Result<(), Error> {
        loop {
            self.connections += 1;
            let Some(endpoint) = self.endpoints.get(self.at) else {
                return Err(Error::Broken {
                    host: self.descriptor.digest.to_string(),
                    reason: "no registry or mirror is left to fetch it from".to_owned(),
                });
            };
            match self.open(endpoint) {
                Ok(body) => {
                    self.body = Some(body);
                    return Ok(());
                }
                Err(error) if self.at + 1 < self.endpoints.len() => {
                    self.inner.note_failure(endpoint, &error);
                    self.at += 1;
                }
                Err(error) => return Err(self.name_missing(endpoint, error)),
            }
        }
    }

    fn open(&self, endpoint: &Endpoint) -> Result<Body, Error> {
        let path = format!("/v2/{}/blobs/{}", endpoint.repository, self.descriptor.digest);
        let mut ask = Ask::get(path, endpoint.pull_scope());
        if self.position > 0 {
            ask.headers.push(("Range", format!("bytes={}-", self.position)));
        }
        let answer = self.inner.ask(endpoint, &ask, &self.descriptor.digest.to_string())?;
        self.start(endpoint, answer.response)
    }

    /// Skips to the position in the response's body.
    fn start(&self, endpoint: &Endpoint, response: Response) -> Result<Body, Error> {
        let host = response.url.authority();
        let begin = match response.status {
            206 => {
                let range = response.header("content-range").unwrap_or_default();
                let begin =
                    range.strip_prefix("bytes ").and_then(|r| r.split('-').next()?.parse().ok());
                begin.ok_or_else(|| Error::Protocol {
                    url: response.url.to_string(),
                    reason: format!("Content-Range {:?}", super::response_text::clean(range, 60)),
                })?
            }
            _ => 0,
        };
        if begin > self.position {
            return Err(Error::Protocol {
                url: response.url.to_string(),
                reason: format!("it began at byte {begin}, not at {}", self.position),
            });
        }
        let length = response.header("content-length").and_then(|n| n.parse::<u64>().ok());
        // Some stores serve a compressed layer as it is and call that an encoding.
        let encoding = response.header("content-encoding").unwrap_or_default().trim();
        let whole = length.is_some_and(|n| begin.saturating_add(n) == self.descriptor.size);
        if !(encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") || whole) {
            return Err(encoded(&response));
        }
        if let Some(length) = length
            && begin.saturating_add(length) > self.descriptor.size
        {
            return Err(Error::WrongSize {
                what: self.descriptor.digest.to_string(),
                expected: self.descriptor.size,
                found: begin.saturating_add(length),
            });
        }
        let (window, what) =
            (self.inner.settings.timeouts.idle, self.descriptor.digest.to_string());
        let mut reader = Box::new(Paced::new(response.body, window, what));
        let skip = self.position - begin;
        let skipped = io::copy(&mut reader.by_ref().take(skip), &mut io::sink());
        match skipped {
            Ok(n) if n == skip => Ok(Body { reader, host }),
            Ok(_) => Err(Error::Broken { host, reason: "it closed the connection".to_owned() }),
            Err(error) => {
                let authority = endpoint.authority.clone();
                Err(Error::from_io(error)
                    .unwrap_or_else(|error| explain_io(error, authority, None)))
            }
        }
    }

    fn name_missing(&self, endpoint: &Endpoint, error: Error) -> Error {
        match error {
            Error::NotFound { registry, .. } => match self.descriptor.urls.first() {
                Some(url) if self.descriptor.is_foreign() => Error::ForeignLayer {
                    digest: self.descriptor.digest.clone(),
                    url: super::response_text::clean(url, 200),
                },
                _ => Error::BlobMissing {
                    registry,
                    repository: endpoint.repository.clone(),
                    digest: self.descriptor.digest.clone(),
                },
            },
            other => other,
        }
    }

    /// Waits and connects again after `error`, or gives up.
    fn recover(&mut self, error: Error) -> Result<(), Error> {
        self.body = None;
        if self.connections >= CONNECTIONS {
            return Err(error);
        }
        let authority = self.endpoints.get(self.at).map_or("", |e| &e.authority);
        if self.inner.pause(authority, &error, self.failures).is_none() {
            if self.at + 1 >= self.endpoints.len() {
                return Err(error);
            }
            self.at += 1;
            self.failures = 0;
        }
        self.failures += 1;
        self.connect()
    }

    fn too_long(&self) -> io::Error {
        Error::WrongSize {
            what: self.descriptor.digest.to_string(),
            expected: self.descriptor.size,
            found: self.descriptor.size.saturating_add(1),
        }
        .into_io()
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let left = self.descriptor.size - self.position;
        if left == 0 {
            // One more byte is too much. An error here does not matter, since the blob is complete.
            let more = self.body.take().map(|mut body| body.reader.read(&mut [0; 1]));
            return if matches!(more, Some(Ok(1))) { Err(self.too_long()) } else { Ok(0) };
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        loop {
            let Some(body) = &mut self.body else {
                self.connect().map_err(Error::into_io)?;
                continue;
            };
            let error = match body.reader.read(&mut buffer[..most]) {
                Ok(0) => Error::Broken {
                    host: body.host.clone(),
                    reason: format!("it closed the connection {left} bytes before the end"),
                },
                Ok(n) => {
                    self.position += n as u64;
                    self.failures = 0;
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Error::from_io(error).unwrap_or_else(|error| Error::Broken {
                    host: body.host.clone(),
                    reason: error.to_string(),
                }),
            };
            self.recover(error).map_err(Error::into_io)?;
        }
    }
}
