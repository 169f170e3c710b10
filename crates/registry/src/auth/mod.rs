//! Credentials for registries, and the files and helpers that store them.
//!
//! Docker, podman and skopeo keep credentials in JSON files of one format (`auths`, `credHelpers`,
//! `credsStore`), and so does Coracle: [`AuthFiles`] searches a list of such files in order,
//! [`store`] and [`remove`] change one. Keys may be as specific as a repository, as in podman.
//! Helpers are the programs `docker-credential-NAME` ([`helper`]).
//!
//! The `docker_credential` crate is not used: it looks up `$HOME` by itself, knows no keys per
//! repository and does not write.

mod file;
pub mod helper;

use std::path::PathBuf;

pub use file::{list, remove, store};

use crate::{Error, Secret};

/// A user name and password, or an identity token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A user name and a password (or an access token in its place).
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// An `OAuth2` refresh token.
    IdentityToken(Secret),
}

/// A source of credentials.
pub trait Credentials: std::fmt::Debug + Send + Sync {
    /// The credentials for `registry` (`docker.io` for Docker Hub), preferring more specific ones
    /// for `repository` (`library/debian`); `None` means anonymous.
    fn find(&self, registry: &str, repository: Option<&str>) -> Result<Option<Credential>, Error>;
}

/// No credentials: always anonymous.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCredentials;

impl Credentials for NoCredentials {
    fn find(&self, _: &str, _: Option<&str>) -> Result<Option<Credential>, Error> {
        Ok(None)
    }
}

/// Fixed credentials for one registry, as given on a command line.
#[derive(Debug, Clone)]
pub struct FixedCredentials {
    /// The registry that they are for; they are sent to no other.
    pub registry: String,
    /// The credentials.
    pub credential: Credential,
}

impl Credentials for FixedCredentials {
    fn find(&self, registry: &str, _: Option<&str>) -> Result<Option<Credential>, Error> {
        Ok((registry == self.registry).then(|| self.credential.clone()))
    }
}

/// Credentials in files; the first file that has the registry wins. Missing files are skipped. A
/// file that cannot be read or parsed is an error, because going on anonymously would end in a
/// misleading refusal by the registry. A failing helper is an error only when no later file has the
/// registry; the client then still tries anonymously, because a `config.json` copied from another
/// machine often names a helper that is not installed.
#[derive(Debug, Clone, Default)]
pub struct AuthFiles {
    /// `auth.json` and `config.json` files, most important first.
    pub files: Vec<PathBuf>,
}

impl Credentials for AuthFiles {
    fn find(&self, registry: &str, repository: Option<&str>) -> Result<Option<Credential>, Error> {
        let mut failed = None;
        for path in &self.files {
            match file::find(path, registry, repository) {
                Ok(None) => {}
                Err(error @ Error::Helper { .. }) => failed = failed.or(Some(error)),
                found => return found,
            }
        }
        failed.map_or(Ok(None), Err)
    }
}
