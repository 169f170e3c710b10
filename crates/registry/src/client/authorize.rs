//! Turns a challenge into an `Authorization` header, and caches it while it is valid.
//!
//! Bearer tokens (Docker's token specification, `docs/spec/auth`) are requested by GET with Basic
//! credentials or none, or by POST with a refresh token (identity token). They are cached per host
//! and scope until shortly before they expire. Basic credentials are sent directly. A token server
//! gets the credentials only over HTTPS, or if its registry is insecure.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::challenge::{self, Challenge};
use super::{Inner, response_text};
use crate::auth::Credential;
use crate::http::{Method, Request, Response};
use crate::url::{Scheme, Url, encode};
use crate::{Error, Secret, limits};

/// The specification's default lifetime of a token.
const LIFETIME: Duration = Duration::from_mins(1);
/// Tokens are dropped this long before they expire, so that none expires during a request.
const MARGIN: Duration = Duration::from_secs(10);
/// Upper limit of a token's lifetime, in seconds.
const LIFETIME_MAX: u64 = 86_400;

/// Headers by host and scope, with the time until which they are valid.
#[derive(Debug, Default)]
pub(super) struct Headers {
    known: Mutex<HashMap<(String, String), Header>>,
}

type Header = (Secret, Option<Instant>);

impl Headers {
    pub(super) fn get(&self, authority: &str, scope: &str) -> Option<Secret> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (header, until) = known.get(&(authority.to_owned(), scope.to_owned()))?;
        until.is_none_or(|until| Instant::now() < until).then(|| header.clone())
    }

    pub(super) fn forget(&self, authority: &str, scope: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&(authority.to_owned(), scope.to_owned()));
    }

    fn keep(&self, authority: &str, scope: &str, header: &Secret, until: Option<Instant>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((authority.to_owned(), scope.to_owned()), (header.clone(), until));
    }
}

/// A token server's response.
#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the protocol")]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
    refresh_token: Option<String>,
    #[serde(default, deserialize_with = "lenient_seconds")]
    expires_in: Option<u64>,
}

/// Some servers write the number as text, one writes a fraction; for anything else the default is
/// used.
fn lenient_seconds<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(d)?;
    Ok(value
        .as_u64()
        .or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
        .or_else(|| value.as_str()?.parse().ok()))
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A pull or a list.
    Access,
    /// A login, which may bring a refresh token.
    Login,
}

/// Result of answering a challenge.
pub(super) struct Authorized {
    /// The header to send.
    pub(super) header: Secret,
    /// True if the header has credentials.
    pub(super) with_credentials: bool,
    /// A refresh token that the server sent with it.
    pub(super) refresh_token: Option<Secret>,
}

impl Inner {
    /// Answers a 401; `None` if that is impossible (no known scheme, or Basic without credentials).
    pub(super) fn authorize(
        &self,
        refused: &Response,
        scope: &str,
        credential: Option<&Credential>,
        purpose: Purpose,
    ) -> Result<Option<Authorized>, Error> {
        let challenges: Vec<Challenge> =
            refused.headers("www-authenticate").into_iter().flat_map(challenge::parse).collect();
        let authority = refused.url.authority();
        let bearer = challenges.iter().find(|c| c.scheme == "bearer" && c.get("realm").is_some());
        if let Some(bearer) = bearer {
            let (token, refresh_token) = self.token(refused, bearer, scope, credential, purpose)?;
            let until = Instant::now() + token.lifetime.saturating_sub(MARGIN);
            let header = Secret::new(format!("Bearer {}", token.text.expose()));
            self.headers.keep(&authority, scope, &header, Some(until));
            let with_credentials = credential.is_some();
            return Ok(Some(Authorized { header, with_credentials, refresh_token }));
        }
        let basic = challenges.iter().any(|c| c.scheme == "basic");
        match credential {
            Some(Credential::Basic { username, password }) if basic => {
                self.refuse_in_clear(&refused.url, &authority)?;
                let header = basic_header(username, password);
                self.headers.keep(&authority, scope, &header, None);
                Ok(Some(Authorized { header, with_credentials: true, refresh_token: None }))
            }
            _ => Ok(None),
        }
    }

    fn refuse_in_clear(&self, url: &Url, registry: &str) -> Result<(), Error> {
        if url.scheme == Scheme::Https
            || self.hosts.is_insecure(registry)
            || self.hosts.is_plain(registry)
        {
            return Ok(());
        }
        Err(Error::Token {
            realm: url.to_string(),
            reason: "credentials are not sent over plain HTTP".to_owned(),
        })
    }

    fn token(
        &self,
        refused: &Response,
        bearer: &Challenge,
        scope: &str,
        credential: Option<&Credential>,
        purpose: Purpose,
    ) -> Result<(Fresh, Option<Secret>), Error> {
        let realm = bearer.get("realm").unwrap_or_default();
        let failed =
            |reason: String| Error::Token { realm: response_text::clean(realm, 200), reason };
        let url = refused.url.join(realm).ok_or_else(|| failed("it is not a URL".to_owned()))?;
        let registry = refused.url.authority();
        if url.host == refused.url.host && self.hosts.is_insecure(&registry) {
            self.hosts.set_insecure(&url.authority());
        }
        if credential.is_some() {
            self.refuse_in_clear(&url, &registry)?;
        }
        let service = bearer.get("service").unwrap_or_default();
        // The scope in the registry's challenge takes precedence.
        let named = bearer.get("scope").unwrap_or_default();
        let scopes: Vec<&str> = if named.is_empty() { vec![scope] } else { vec![named] };
        let request = match credential {
            Some(Credential::IdentityToken(token)) => {
                by_refresh(url.clone(), service, &scopes, token)
            }
            other => by_get(url.clone(), service, &scopes, other, purpose),
        };
        let of_server = |error| of_token_server(&url, error);
        let mut response = self.send_with_retries(&request).map_err(of_server)?;
        let status = response.status;
        let body =
            self.document(&mut response, limits::TOKEN, || url.to_string()).map_err(of_server)?;
        if status != 200 {
            let message = response_text::error_words(&body);
            return Err(match status {
                401 | 403 | 400 => Error::Unauthorized {
                    registry,
                    what: described(scope),
                    with_credentials: credential.is_some(),
                    message,
                },
                _ => failed(format!("it answered {status} {message}").trim_end().to_owned()),
            });
        }
        let token: Token = serde_json::from_slice(&body).map_err(|e| failed(invalid_json(&e)))?;
        let fresh = token.token.or(token.access_token).filter(|t| !t.is_empty());
        let text = fresh.ok_or_else(|| failed("the response has no token".to_owned()))?;
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(failed("the token has characters that are not allowed".to_owned()));
        }
        let lifetime =
            token.expires_in.map_or(LIFETIME, |s| Duration::from_secs(s.min(LIFETIME_MAX)));
        let refresh = token.refresh_token.filter(|t| !t.is_empty()).map(Secret::new);
        Ok((Fresh { text: text.into(), lifetime }, refresh))
    }
}

/// Marks an error as the token server's: it says nothing about the registry, which is neither asked
/// again nor by another scheme.
fn of_token_server(url: &Url, error: Error) -> Error {
    match error {
        Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::Tls { .. }
        | Error::PlainHttp { .. }
        | Error::Proxy { .. }
        | Error::Timeout { .. }
        | Error::Broken { .. }
        | Error::TooSlow { .. } => {
            Error::TokenServer { realm: url.to_string(), source: Box::new(error) }
        }
        other => other,
    }
}

/// The parser's message could quote the token: only the position of the error is shown.
fn invalid_json(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!("its response is not valid JSON (line {line}, column {column})")
}

struct Fresh {
    text: Secret,
    lifetime: Duration,
}

fn by_get(
    mut url: Url,
    service: &str,
    scopes: &[&str],
    who: Option<&Credential>,
    purpose: Purpose,
) -> Request {
    let mut query = Vec::new();
    if !service.is_empty() {
        query.push(format!("service={}", encode(service)));
    }
    query.extend(scopes.iter().filter(|s| !s.is_empty()).map(|s| format!("scope={}", encode(s))));
    let mut authorization = None;
    if let Some(Credential::Basic { username, password }) = who {
        query.push(format!("account={}", encode(username)));
        if purpose == Purpose::Login {
            // Servers that have refresh tokens return one; others ignore the parameter.
            query.push("offline_token=true&client_id=coracle".to_owned());
        }
        authorization = Some(basic_header(username, password));
    }
    if !query.is_empty() {
        url.path.push(if url.path.contains('?') { '&' } else { '?' });
        url.path.push_str(&query.join("&"));
    }
    Request { authorization, ..Request::get(url) }
}

fn by_refresh(url: Url, service: &str, scopes: &[&str], token: &Secret) -> Request {
    let form = format!(
        "grant_type=refresh_token&service={}&client_id=coracle&scope={}&refresh_token={}",
        encode(service),
        encode(&scopes.join(" ")),
        encode(token.expose()).replace('/', "%2F").replace(':', "%3A"),
    );
    Request { method: Method::Post, form: Some(form.into()), ..Request::get(url) }
}

fn basic_header(username: &str, password: &Secret) -> Secret {
    let pair = BASE64.encode(format!("{username}:{}", password.expose()));
    Secret::new(format!("Basic {pair}"))
}

/// A scope for messages: `repository:a/b:pull` is `a/b`.
fn described(scope: &str) -> String {
    match scope.split(':').nth(1) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "the registry".to_owned(),
    }
}
