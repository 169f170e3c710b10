//! Runs Docker's credential helpers: `docker-credential-NAME get|store|erase`.
//!
//! The protocol is that of `docker-credential-helpers`: the server's URL (or a JSON object to
//! store) on standard input, JSON or an error message on standard output. Secrets go through pipes
//! only.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Credential;
use crate::{Error, Secret, limits};

/// The message of helpers that have no credentials for a server.
const NOT_FOUND: &str = "credentials not found";
/// The user name that marks an identity token.
const TOKEN_USER: &str = "<token>";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record {
    #[serde(rename = "ServerURL", default)]
    server: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// Gets a server's credentials from a helper.
pub fn get(name: &str, server: &str) -> Result<Option<Credential>, Error> {
    let (success, output) = run(name, "get", server)?;
    if !success {
        if output.contains(NOT_FOUND) {
            return Ok(None);
        }
        return Err(failed(name, &output));
    }
    let record: Record = serde_json::from_str(&output)
        .map_err(|_| failed(name, "its output is not valid JSON credentials"))?;
    let secret = Secret::new(record.secret);
    Ok(Some(match record.username.as_str() {
        TOKEN_USER => Credential::IdentityToken(secret),
        _ => Credential::Basic { username: record.username, password: secret },
    }))
}

/// Stores credentials in a helper.
pub fn store(name: &str, server: &str, credential: &Credential) -> Result<(), Error> {
    let (username, secret) = match credential {
        Credential::Basic { username, password } => (username.as_str(), password),
        Credential::IdentityToken(token) => (TOKEN_USER, token),
    };
    let record = Record {
        server: server.to_owned(),
        username: username.to_owned(),
        secret: secret.expose().to_owned(),
    };
    let input = serde_json::to_string(&record).map_err(|e| failed(name, &e.to_string()))?;
    match run(name, "store", &input)? {
        (true, _) => Ok(()),
        (false, output) => Err(failed(name, &output)),
    }
}

/// Removes a server's credentials from a helper.
pub fn erase(name: &str, server: &str) -> Result<(), Error> {
    match run(name, "erase", server)? {
        (true, _) => Ok(()),
        (false, output) if output.contains(NOT_FOUND) => Ok(()),
        (false, output) => Err(failed(name, &output)),
    }
}

fn failed(name: &str, reason: &str) -> Error {
    let reason = crate::client::response_text::clean(reason, 300);
    Error::Helper { name: name.to_owned(), reason }
}

fn run(name: &str, verb: &str, input: &str) -> Result<(bool, String), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(failed(name, "the name of the helper is not valid"));
    }
    let fail = |error: std::io::Error| failed(name, &error.to_string());
    let mut child = Command::new(format!("docker-credential-{name}"))
        .arg(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input reports the reason in its output.
        let _ = stdin.write_all(input.as_bytes());
    }
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(limits::HELPER_OUTPUT).read_to_end(&mut output).map_err(fail)?;
    }
    let status = child.wait().map_err(fail)?;
    Ok((status.success(), String::from_utf8_lossy(&output).into_owned()))
}
