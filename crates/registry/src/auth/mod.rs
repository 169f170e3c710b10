//! Who we are to a registry: credentials, the files and helpers they are kept in.
//!
//! Docker, podman and skopeo keep credentials in JSON files of one format (`auths`, `credHelpers`,
//! `credsStore`), and so do we: [`AuthFiles`] asks a list of such files in order, [`store`] and
//! [`remove`] change one. Keys may be as specific as a repository, as podman has it. Helpers are
//! the programs `docker-credential-NAME` ([`helper`]).
//!
//! The `docker_credential` crate was looked at: it finds `$HOME` by itself, knows no keys per
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

/// Finds credentials.
pub trait Credentials: std::fmt::Debug + Send + Sync {
    /// The credentials for `registry` (`docker.io` for Docker Hub), the more specific ones for
    /// `repository` (`library/debian`) where there are such; `None` means anonymous.
    fn find(&self, registry: &str, repository: Option<&str>) -> Result<Option<Credential>, Error>;
}

/// Always anonymous.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCredentials;

impl Credentials for NoCredentials {
    fn find(&self, _: &str, _: Option<&str>) -> Result<Option<Credential>, Error> {
        Ok(None)
    }
}

/// The same credentials for one registry, as a command line gives them.
#[derive(Debug, Clone)]
pub struct FixedCredentials {
    /// The registry they are for; nothing else gets them.
    pub registry: String,
    /// The credentials.
    pub credential: Credential,
}

impl Credentials for FixedCredentials {
    fn find(&self, registry: &str, _: Option<&str>) -> Result<Option<Credential>, Error> {
        Ok((registry == self.registry).then(|| self.credential.clone()))
    }
}

/// Credentials in files, the first file that knows the registry wins. Files that do not exist know
/// nothing; one that cannot be read or understood is an error, because going on anonymously would
/// end in a misleading refusal by the registry. A helper that fails is an error only when no later
/// file knows the registry; the client then still tries anonymously, because a `config.json` copied
/// from another machine often names a helper that is not here.
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
