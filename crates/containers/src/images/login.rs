//! Keeps and removes credentials for registries.
//!
//! A password goes into the file with credentials (mode 0600) or to the helper that the file names,
//! and nowhere else: never into an error, a log, or another program's arguments.

use std::path::Path;

use registry::auth::{self, Credential};

use super::remote;
use crate::error::{Error, Result};
use crate::request::RegistryRequest;
use crate::session::Session;

/// A registry as credentials are kept for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What they are kept for: a registry, or a part of one as in Podman.
    pub key: String,
    /// The registry.
    pub registry: String,
}

impl Server {
    /// Reads `HOST[:PORT][/PATH]`, with or without a scheme; `None` for the configured registry.
    /// The names of Docker Hub are one.
    pub fn parse(session: &Session, name: Option<&str>) -> Result<Self> {
        let key = key(session, name)?;
        let registry = key.split('/').next().unwrap_or(&key).to_owned();
        Ok(Self { key, registry })
    }
}

fn key(session: &Session, name: Option<&str>) -> Result<String> {
    let Some(name) = name else { return Ok(session.settings().default_registry.clone()) };
    let bare = name.trim_start_matches("https://").trim_start_matches("http://");
    let host = bare.split('/').next().unwrap_or(bare);
    // Only the name of a registry makes a reference together with that of a repository.
    let whole = format!("{}/x", bare.trim_end_matches('/'));
    if host.is_empty() || oci::Reference::parse(&whole).is_err() {
        return Err(Error::invalid(format!("'{name}' is not the name of a registry"))
            .with_hint("write HOST or HOST:PORT"));
    }
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" | "hub.docker.com" => {
            Ok("docker.io".to_owned())
        }
        _ => Ok(bare.trim_end_matches('/').to_owned()),
    }
}

/// Credentials that are to be kept.
#[derive(Debug)]
pub struct LoginRequest {
    /// For which registry.
    pub server: Server,
    /// User and password.
    pub credential: Credential,
    /// Keep them without asking the registry whether it accepts them.
    pub unchecked: bool,
    /// How the registry is reached, and the file with credentials.
    pub registry: RegistryRequest,
}

/// The answer to a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedIn {
    /// The registry has accepted the credentials.
    Accepted,
    /// The registry asks for no credentials; they are kept.
    NotRequired,
    /// The registry was not asked.
    Unchecked,
}

/// Asks the registry whether it accepts the credentials, and keeps them.
pub fn login(session: &Session, request: LoginRequest) -> Result<LoggedIn> {
    let LoginRequest { server, credential, unchecked, registry: access } = request;
    let file = remote::auth_file(session, access.authfile.as_deref())?;
    if unchecked {
        auth::store(&file, &server.key, &credential)?;
        return Ok(LoggedIn::Unchecked);
    }
    let registry = &server.registry;
    let client = remote::client(session, &access, registry)?;
    let login = client
        .login(registry, Some(&credential))
        .map_err(|error| Error::from(error).within(format!("cannot log in to {registry}")))?;
    let kept = login.identity_token.map_or(credential, Credential::IdentityToken);
    auth::store(&file, &server.key, &kept)?;
    Ok(if login.required { LoggedIn::Accepted } else { LoggedIn::NotRequired })
}

/// The credentials that are kept for a registry.
pub fn known(
    session: &Session,
    server: &Server,
    access: &RegistryRequest,
) -> Result<Option<Credential>> {
    let client = remote::client(session, access, &server.registry)?;
    Ok(client.settings().credentials.find(&server.registry, None)?)
}

/// All that credentials are kept for, by the file that a request or the settings name.
pub fn list(session: &Session, authfile: Option<&Path>) -> Result<Vec<String>> {
    Ok(auth::list(&remote::auth_file(session, authfile)?)?)
}

/// Removes the credentials that are kept for `key`.
///
/// # Errors
/// [`Error::NotFound`] if there are none.
pub fn logout(session: &Session, key: &str, authfile: Option<&Path>) -> Result<()> {
    let file = remote::auth_file(session, authfile)?;
    if auth::remove(&file, key)? {
        return Ok(());
    }
    Err(Error::not_found(format!("not logged in to {key}"))
        .because(format!("{} has no credentials for it", file.display()))
        .with_hint("what Docker or Podman keep is changed by their own logout"))
}
