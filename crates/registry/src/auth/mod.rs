//! Who we are to a registry: credentials, the files and helpers they are kept in.

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
    /// An OAuth2 refresh token.
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
