//! Pushes generated images to a loopback registry: plain PUTs over one `TcpStream` per request.
//!
//! Implements only the HTTP/1.1 that `docker-registry` needs (Distribution protocol v2, "Pushing"):
//! a monolithic upload per blob and a PUT per manifest, with basic authentication on request. No
//! TLS; tests of TLS push through the registry's storage directory or with `skopeo`.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::image::{Blob, Built};

/// Address and credentials of a registry.
#[derive(Clone, Debug)]
pub struct Target {
    /// The registry's address.
    pub address: SocketAddr,
    /// `user:password` already in base64, for basic authentication.
    pub basic: Option<String>,
}

impl Target {
    /// Pushes an image under a tag.
    pub fn image(&self, repository: &str, tag: &str, image: &Built) -> io::Result<()> {
        for blob in image.blobs() {
            self.blob(repository, blob)?;
        }
        self.manifest(repository, tag, &image.manifest)
    }

    /// Pushes images and an index of them, under a tag.
    pub fn index(
        &self,
        repository: &str,
        tag: &str,
        images: &[&Built],
        index: &Blob,
    ) -> io::Result<()> {
        for image in images {
            self.image(repository, &image.manifest.digest, image)?;
        }
        self.manifest(repository, tag, index)
    }

    /// Pushes one blob.
    pub fn blob(&self, repository: &str, blob: &Blob) -> io::Result<()> {
        let start = self.request("POST", &format!("/v2/{repository}/blobs/uploads/"), None, &[])?;
        start.expect(202)?;
        let location = start
            .header("location")
            .ok_or_else(|| io::Error::other("the registry gave no upload location"))?;
        let path = match location.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
            None => location,
        };
        let sign = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{sign}digest={}", blob.digest);
        self.request("PUT", &path, Some("application/octet-stream"), &blob.bytes)?.expect(201)
    }

    /// Pushes a manifest or an index under a tag or digest.
    pub fn manifest(&self, repository: &str, tag: &str, document: &Blob) -> io::Result<()> {
        let path = format!("/v2/{repository}/manifests/{tag}");
        self.request("PUT", &path, Some(&document.media_type), &document.bytes)?.expect(201)
    }

    /// Returns true if the registry answers at all (200 or 401).
    pub fn alive(&self) -> bool {
        self.request("GET", "/v2/", None, &[])
            .is_ok_and(|answer| matches!(answer.status, 200 | 401))
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        if let Some(kind) = content_type {
            let _ = write!(head, "Content-Type: {kind}\r\n");
        }
        if let Some(basic) = &self.basic {
            let _ = write!(head, "Authorization: Basic {basic}\r\n");
        }
        head += "\r\n";
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Answer::parse(&bytes)
    }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| io::Error::other("no HTTP answer from the registry"))?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Self { status, headers, body: body.to_owned() })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn expect(&self, status: u16) -> io::Result<()> {
        if self.status == status {
            return Ok(());
        }
        Err(io::Error::other(format!("the registry answered {}: {}", self.status, self.body)))
    }
}
