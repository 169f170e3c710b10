//! Faults that the registry can inject into a request.

use std::time::Duration;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status with these headers and body, instead of the answer.
    Status(u16, Vec<(String, String)>, String),
    /// A redirect to this URL.
    Redirect(String),
    /// The connection is closed without an answer.
    HangUp,
    /// No answer for this long, then the connection is closed.
    Silence(Duration),
    /// The connection is closed after this many bytes of the body.
    Cut(usize),
    /// The body comes in pieces of this many bytes with a pause after each.
    Slow(usize, Duration),
    /// One byte of the body is changed.
    Corrupt,
    /// This many more bytes follow, and the length includes them.
    Longer(usize),
    /// This many bytes are missing at the end, and the length excludes them.
    Shorter(usize),
    /// `Range` is ignored.
    NoRange,
    /// A range starts at this byte instead of the requested one.
    RangeFrom(u64),
    /// No length: the body comes in chunks.
    Chunked,
    /// `Docker-Content-Digest` has another digest.
    WrongDigestHeader,
    /// The body is compressed by gzip, and `Content-Encoding` says this.
    Encoded(&'static str),
    /// `Content-Encoding` says this, and the body is as it should be.
    SaidEncoded(&'static str),
    /// Another media type.
    ContentType(String),
}

impl Fault {
    /// A status without headers and body.
    pub fn status(code: u16) -> Self {
        Fault::Status(code, Vec::new(), String::new())
    }

    /// 429 with `Retry-After`.
    pub fn busy(retry_after: &str) -> Self {
        let header = ("Retry-After".to_owned(), retry_after.to_owned());
        let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
        Fault::Status(429, vec![header], body.to_owned())
    }
}
