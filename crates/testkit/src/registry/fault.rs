//! What can go wrong with one request.

use std::time::Duration;

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status with these headers and body, in place of the answer.
    Status(u16, Vec<(String, String)>, String),
    /// A redirect to this place.
    Redirect(String),
    /// The connection is closed without an answer.
    HangUp,
    /// Nothing is answered for this long, then the connection is closed.
    Silence(Duration),
    /// The connection is closed after so many bytes of the body.
    Cut(usize),
    /// The body comes in pieces of so many bytes with a pause after each.
    Slow(usize, Duration),
    /// One byte of the body is another.
    Corrupt,
    /// More bytes follow, and the length says so.
    Longer(usize),
    /// The last bytes are missing, and the length says so.
    Shorter(usize),
    /// `Range` is not looked at.
    NoRange,
    /// A range is answered from another byte than the one asked for.
    RangeFrom(u64),
    /// No length: the body comes in chunks.
    Chunked,
    /// `Docker-Content-Digest` names something else.
    WrongDigestHeader,
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
