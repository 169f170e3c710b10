//! Sends one request to one registry, with retries, authorization and redirects.
//!
//! ```text
//! ask ─► each scheme the host may speak ─► repeat (429, 5xx, broken; Retry-After, backoff)
//!          ─► authorized: known header, else none; a 401 is answered once
//!               ─► follow: redirects by hand; `Authorization` stays with its origin
//! ```
//! [`crate::Retries`] limits the retries. A refused connection or a failed handshake is only
//! retried if the host was reached before: then it may be restarting. Otherwise it is probably
//! wrong or down, and retrying would only delay the error by a minute.

use std::io::Read;
use std::time::{Duration, SystemTime};

use super::authorize::Purpose;
use super::{Endpoint, Inner, response_text};
use crate::auth::Credential;
use crate::http::{Method, Request, Response};
use crate::url::{Scheme, Url};
use crate::{Error, Secret, limits};

/// How often a token server is asked again after a connection failed. It answers in one packet, so
/// that a further attempt rarely helps, and the user waits.
const TOKEN_RETRIES: u32 = 2;

/// A request to a registry's API.
#[derive(Debug, Clone)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Path and query; begins with `/v2/`.
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The token's scope.
    pub(super) scope: String,
    /// Purpose of the request, which decides about refresh tokens.
    pub(super) purpose: Purpose,
    /// Credentials to use instead of the settings' ones.
    pub(super) credential: Option<&'a Credential>,
}

impl Ask<'_> {
    pub(super) fn get(path: String, scope: String) -> Self {
        Ask {
            method: Method::Get,
            path,
            headers: Vec::new(),
            scope,
            purpose: Purpose::Access,
            credential: None,
        }
    }
}

/// A successful response, and facts about the request.
pub(super) struct Answer {
    pub(super) response: Response,
    /// True if the registry asked for authorization.
    pub(super) challenged: bool,
    pub(super) refresh_token: Option<Secret>,
}

impl Inner {
    /// Sends a request; any status except success is an error. `what` is the reference or digest
    /// that a 404 is about.
    pub(super) fn ask(
        &self,
        endpoint: &Endpoint,
        ask: &Ask<'_>,
        what: &str,
    ) -> Result<Answer, Error> {
        let schemes = self.hosts.schemes(&endpoint.authority);
        let mut first = None;
        for (at, scheme) in schemes.iter().enumerate() {
            let last = at + 1 == schemes.len();
            match self.repeat(endpoint, ask, *scheme, what) {
                Err(error) if !last && may_use_plain_http(&error) => first = Some(error),
                // If plain HTTP does not even connect, the error of HTTPS is the more useful one.
                Err(Error::Connect { .. } | Error::Broken { .. }) if first.is_some() => break,
                other => return other,
            }
        }
        Err(first.unwrap_or_else(|| Error::Broken {
            host: endpoint.authority.clone(),
            reason: "it speaks neither HTTPS nor HTTP".to_owned(),
        }))
    }

    fn repeat(
        &self,
        endpoint: &Endpoint,
        ask: &Ask<'_>,
        scheme: Scheme,
        what: &str,
    ) -> Result<Answer, Error> {
        let mut attempt = 0;
        loop {
            let error = match self.authorized(endpoint, ask, scheme) {
                Ok(answer) if (200..300).contains(&answer.response.status) => return Ok(answer),
                Ok(answer) => {
                    let challenged = answer.challenged;
                    refusal(endpoint, answer.response, what, challenged)
                }
                Err(error) => error,
            };
            self.pause(&endpoint.authority, &error, attempt).ok_or(error)?;
            attempt += 1;
        }
    }

    /// Waits before the next attempt; `None` if there should be none.
    pub(super) fn pause(&self, authority: &str, error: &Error, attempt: u32) -> Option<()> {
        let retries = &self.settings.retries;
        if attempt >= retries.attempts {
            return None;
        }
        let reached = self.hosts.was_reached(authority);
        let backoff = retries.base.saturating_mul(1 << attempt.min(16)).min(retries.most);
        let wait = match error {
            Error::RateLimited { retry_after: Some(after), .. } => {
                (*after <= retries.retry_after).then_some((*after).max(backoff))
            }
            Error::RateLimited { .. }
            | Error::Status { status: 408 | 425 | 500 | 502 | 503 | 504, .. } => Some(backoff),
            // A host that drops packets costs the whole timeout each time; one that hangs up before
            // it ever answered is probably no registry.
            Error::Broken { .. } | Error::Timeout { .. } if reached || attempt == 0 => {
                Some(backoff)
            }
            Error::Connect { .. } | Error::Tls { untrusted: false, .. } if reached => Some(backoff),
            _ => None,
        }?;
        tracing::debug!(authority, %error, attempt, ?wait, "trying again");
        std::thread::sleep(jitter(wait));
        Some(())
    }

    fn authorized(
        &self,
        endpoint: &Endpoint,
        ask: &Ask<'_>,
        scheme: Scheme,
    ) -> Result<Answer, Error> {
        let url =
            Url::new(scheme, &endpoint.authority, &ask.path).ok_or_else(|| Error::Resolve {
                host: endpoint.authority.clone(),
                reason: "it is not a host name".to_owned(),
            })?;
        let known = self.headers.get(&url.authority(), &ask.scope);
        let mut request = Request {
            method: ask.method,
            url,
            headers: ask.headers.clone(),
            authorization: known.clone(),
            form: None,
        };
        let response = self.follow(&request)?;
        self.hosts.set_scheme(&endpoint.authority, scheme);
        // A 401 from another origin concerns the redirect's own signature, not these credentials.
        if response.status != 401 || !response.url.same_origin(&request.url) {
            let challenged = known.is_some();
            return Ok(Answer { response, challenged, refresh_token: None });
        }
        self.headers.forget(&request.url.authority(), &ask.scope);
        let (credential, helper_failed) = self.credential(endpoint, ask)?;
        let refuse = |with_credentials, message| {
            // A helper's failure is more useful to the user than "it requires credentials".
            helper_failed.unwrap_or_else(|| unauthorized(endpoint, with_credentials, message))
        };
        let authorized =
            match self.authorize(&response, &ask.scope, credential.as_ref(), ask.purpose) {
                Ok(Some(authorized)) => authorized,
                Ok(None) => return Err(refuse(false, response_text::messages_of(response))),
                Err(Error::Unauthorized { with_credentials, message, .. }) => {
                    return Err(refuse(with_credentials, message));
                }
                Err(error) => return Err(error),
            };
        request.authorization = Some(authorized.header);
        let response = self.follow(&request)?;
        if response.status == 401 && response.url.same_origin(&request.url) {
            self.headers.forget(&request.url.authority(), &ask.scope);
            return Err(refuse(authorized.with_credentials, response_text::messages_of(response)));
        }
        let refresh_token = authorized.refresh_token;
        Ok(Answer { response, challenged: true, refresh_token })
    }

    /// The credentials for this registry, and the error of a helper that should have them.
    fn credential(
        &self,
        endpoint: &Endpoint,
        ask: &Ask<'_>,
    ) -> Result<(Option<Credential>, Option<Error>), Error> {
        if let Some(given) = ask.credential {
            return Ok((Some(given.clone()), None));
        }
        let repository = Some(endpoint.repository.as_str()).filter(|r| !r.is_empty());
        match self.settings.credentials.find(&endpoint.registry, repository) {
            Err(error @ Error::Helper { .. }) => {
                tracing::warn!(%error, "trying without credentials");
                Ok((None, Some(error)))
            }
            found => Ok((found?, None)),
        }
    }

    /// Sends a request and follows redirects. `Authorization` goes to the first origin only. A
    /// redirect from HTTPS to plain HTTP is refused, unless the first host is insecure.
    fn follow(&self, request: &Request) -> Result<Response, Error> {
        let mut current = request.clone();
        for _ in 0..=limits::REDIRECTS {
            let response = self.http.send(&current)?;
            self.hosts.set_reached(&current.url.authority());
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let refuse = |reason: String| Error::Redirect { url: current.url.to_string(), reason };
            let location = response.header("location").unwrap_or_default();
            let target =
                current.url.join(location).filter(|_| !location.is_empty()).ok_or_else(|| {
                    refuse(format!("nowhere: {:?}", response_text::clean(location, 100)))
                })?;
            let downgrade = current.url.scheme == Scheme::Https && target.scheme == Scheme::Http;
            if downgrade && !self.hosts.is_insecure(&request.url.authority()) {
                return Err(refuse(format!("from HTTPS to plain HTTP: {target}")));
            }
            current.authorization =
                if target.same_origin(&request.url) { request.authorization.clone() } else { None };
            current.url = target;
        }
        let reason = format!("more than {} times", limits::REDIRECTS);
        Err(Error::Redirect { url: request.url.to_string(), reason })
    }

    /// Sends a token request, with retries like [`Inner::repeat`]. Redirects are not followed,
    /// since they would send the credentials to another server.
    pub(super) fn send_with_retries(&self, request: &Request) -> Result<Response, Error> {
        let authority = request.url.authority();
        let mut attempt = 0;
        loop {
            let error = match self.http.send(request) {
                Ok(response) => {
                    self.hosts.set_reached(&authority);
                    match response.status {
                        429 | 500 | 502..=504 => status_error(&authority, response),
                        _ => return Ok(response),
                    }
                }
                Err(error) if attempt >= TOKEN_RETRIES => return Err(error),
                Err(error) => error,
            };
            self.pause(&authority, &error, attempt).ok_or(error)?;
            attempt += 1;
        }
    }

    /// Reads a small document: within a limit of bytes, and at least as fast as [`SLOWEST`] after
    /// the time that a body may be silent. An encoding that was not asked for is undone.
    pub(super) fn document(
        &self,
        response: &mut Response,
        limit: u64,
        what: impl Fn() -> String,
    ) -> Result<Vec<u8>, Error> {
        let body = std::mem::replace(&mut response.body, Box::new(std::io::empty()));
        let encoding = response.header("content-encoding").unwrap_or_default().trim();
        let body: Box<dyn Read + Send> = match encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => body,
            "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
            _ => return Err(encoded(response)),
        };
        self.read_in_time(body, limit, what)
    }

    /// The same for bytes that come as they are.
    pub(super) fn read_in_time(
        &self,
        body: impl Read,
        limit: u64,
        what: impl Fn() -> String,
    ) -> Result<Vec<u8>, Error> {
        let grace = self.settings.timeouts.idle;
        response_text::read_limited(response_text::InTime::new(body, grace, what()), limit, what)
    }
}

/// The error of a body in an encoding that was not asked for.
pub(super) fn encoded(response: &Response) -> Error {
    let encoding = response.header("content-encoding").unwrap_or_default();
    Error::Protocol {
        url: response.url.to_string(),
        reason: format!(
            "it has Content-Encoding: {}, which was not asked for",
            response_text::clean(encoding, 40)
        ),
    }
}

/// Returns true if plain HTTP is worth trying after this error.
fn may_use_plain_http(error: &Error) -> bool {
    matches!(
        error,
        Error::PlainHttp { .. }
            | Error::Tls { .. }
            | Error::Connect { .. }
            | Error::Broken { .. }
            | Error::Timeout { .. }
    )
}

/// Returns half to all of the wait, so that many waiting clients do not retry at once.
fn jitter(wait: Duration) -> Duration {
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    let part = f64::from(nanos % 1_000_000) / 1_000_000.0;
    wait.mul_f64(0.5 + part / 2.0)
}

fn status_error(registry: &str, response: Response) -> Error {
    let status = response.status;
    if status == 429 {
        let after = response.header("retry-after");
        let retry_after = after.and_then(|v| response_text::retry_after(v, SystemTime::now()));
        let message = response_text::messages_of(response);
        return Error::RateLimited { registry: registry.to_owned(), retry_after, message };
    }
    let url = response.url.to_string();
    Error::Status { url, status, message: response_text::messages_of(response) }
}

fn unauthorized(endpoint: &Endpoint, with_credentials: bool, message: String) -> Error {
    Error::Unauthorized {
        registry: endpoint.registry.clone(),
        what: endpoint.described(),
        with_credentials,
        message,
    }
}

fn refusal(endpoint: &Endpoint, response: Response, what: &str, with_credentials: bool) -> Error {
    let registry = endpoint.registry.clone();
    let same_host = response.url.authority() == endpoint.authority;
    match response.status {
        401 if same_host => {
            unauthorized(endpoint, with_credentials, response_text::messages_of(response))
        }
        403 if same_host => Error::Denied {
            registry,
            what: endpoint.described(),
            message: response_text::messages_of(response),
        },
        404 => Error::NotFound {
            reference: what.to_owned(),
            registry,
            message: response_text::messages_of(response),
        },
        _ => status_error(&registry, response),
    }
}
