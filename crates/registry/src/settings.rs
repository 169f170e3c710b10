//! All settings of a client: this crate reads no environment and no home directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{Credentials, NoCredentials};
use crate::registries_conf::RegistriesConf;

/// Settings of a [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Hosts (`host[:port]`) whose certificate is not checked and which may use plain HTTP, as
    /// podman's `--tls-verify=false`; `*` means all.
    pub insecure: BTreeSet<String>,
    /// Hosts for which plain HTTP is used at once, without trying HTTPS.
    pub plain_http: BTreeSet<String>,
    /// The system's root certificates. Empty lists mean the usual paths.
    pub roots: Roots,
    /// Further root certificates (PEM).
    pub ca_files: Vec<PathBuf>,
    /// Directories with per-host `*.crt`, `*.cert` and `*.key`, as `/etc/docker/certs.d`, first
    /// wins.
    pub certs_dirs: Vec<PathBuf>,
    /// Directories with such files for one `host[:port]`, instead of the ones in `certs_dirs`.
    pub host_certs: BTreeMap<String, PathBuf>,
    /// Proxies to use.
    pub proxy: ProxySettings,
    /// Mirrors, rewrites and blocks.
    pub registries: RegistriesConf,
    /// More mirrors by registry, tried before it: `docker.io` to `https://mirror.example/prefix`.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Retries.
    pub retries: Retries,
    /// The source of credentials.
    pub credentials: Arc<dyn Credentials>,
    /// Settings of host name resolution.
    pub resolver: ResolverSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            user_agent: concat!("coracle/", env!("CARGO_PKG_VERSION")).to_owned(),
            insecure: BTreeSet::new(),
            plain_http: BTreeSet::new(),
            roots: Roots::default(),
            ca_files: Vec::new(),
            certs_dirs: vec![
                PathBuf::from("/etc/containers/certs.d"),
                PathBuf::from("/etc/docker/certs.d"),
            ],
            host_certs: BTreeMap::new(),
            proxy: ProxySettings::default(),
            registries: RegistriesConf::default(),
            mirrors: BTreeMap::new(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            credentials: Arc::new(NoCredentials),
            resolver: ResolverSettings::default(),
        }
    }
}

/// Paths of root certificates; `SSL_CERT_FILE` and `SSL_CERT_DIR` go here.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    /// Bundles in PEM.
    pub files: Vec<PathBuf>,
    /// Directories of PEM files.
    pub directories: Vec<PathBuf>,
}

/// The values of the usual proxy variables.
#[derive(Debug, Clone, Default)]
pub struct ProxySettings {
    /// For `http` requests: `[scheme://][user:password@]host[:port]`, scheme `http`, `https`,
    /// `socks4`, `socks4a`, `socks5` or `socks5h`.
    pub http: Option<crate::Secret>,
    /// For `https` requests.
    pub https: Option<crate::Secret>,
    /// For both schemes, if their own setting is empty.
    pub all: Option<crate::Secret>,
    /// Hosts that are reached directly: names (with their subdomains), `.suffix`, addresses,
    /// networks (`10.0.0.0/8`), each with an optional port; `*` means all.
    pub no_proxy: String,
}

/// How long to wait before an attempt counts as failed.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For resolving a name.
    pub resolve: Duration,
    /// For a TCP connection and its TLS handshake.
    pub connect: Duration,
    /// For the header of a response.
    pub response: Duration,
    /// For the next bytes of a body.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            resolve: Duration::from_secs(20),
            connect: Duration::from_secs(20),
            response: Duration::from_mins(1),
            idle: Duration::from_mins(1),
        }
    }
}

/// Number of retries, and the waits between them.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Retries after the first attempt. A blob's count is reset whenever bytes arrive.
    pub attempts: u32,
    /// The wait before the first retry; doubles with each.
    pub base: Duration,
    /// The longest wait, unless the registry asks for one.
    pub most: Duration,
    /// The longest wait that a registry may ask for by `Retry-After`.
    pub retry_after: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            attempts: 5,
            base: Duration::from_millis(500),
            most: Duration::from_secs(20),
            retry_after: Duration::from_secs(crate::limits::RETRY_AFTER_SECONDS),
        }
    }
}

/// Settings of host name resolution.
#[derive(Debug, Clone)]
pub struct ResolverSettings {
    /// Usually `/etc/hosts`.
    pub hosts: PathBuf,
    /// Usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The programs to try as `getent ahosts NAME` if the files and DNS have no answer.
    pub getent: Vec<PathBuf>,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        ResolverSettings {
            hosts: PathBuf::from("/etc/hosts"),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            getent: vec![PathBuf::from("/usr/bin/getent"), PathBuf::from("/bin/getent")],
        }
    }
}
