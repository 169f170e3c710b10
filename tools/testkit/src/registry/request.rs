//! Reads HTTP requests.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET`, `HEAD`, `POST`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body of a POST.
    pub body: String,
}

impl Asked {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a query parameter or form field, undecoded.
    pub fn field(&self, name: &str) -> Option<&str> {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').chain(self.body.split('&')).find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then_some(value)
        })
    }

    /// Reads the next request of a connection; `None` at its end.
    pub(super) fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err(io::Error::other("not a request"));
        };
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => {
                    headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => break,
            }
        }
        let mut asked = Self { method, path, headers, body: String::new() };
        let length = asked.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        reader.take(length).read_to_string(&mut asked.body)?;
        Ok(Some(asked))
    }
}
