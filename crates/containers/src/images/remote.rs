//! Makes clients for registries from the settings, a request and the credentials that are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci::Reference;
use registry::auth::{AuthFiles, Credential, FixedCredentials};
use registry::registries_conf::RegistriesConf;
use registry::{Client, Secret};

use crate::error::{Error, Result};
use crate::events::Question;
use crate::request::RegistryRequest;
use crate::session::Session;

/// A name in canonical form; a name without a registry gets the configured one.
pub fn reference(session: &Session, name: &str) -> Result<Reference> {
    let default = &session.settings().default_registry;
    let first = name.split('/').next().unwrap_or_default();
    let has_registry = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if default == oci::reference::DEFAULT_REGISTRY || has_registry {
        return Ok(Reference::parse(name)?);
    }
    // Checked alone first, so that an error shows what the user wrote.
    Reference::parse(name)?;
    Ok(Reference::parse(&format!("{default}/{name}"))?)
}

/// A name with the request's registry, unless it has one itself.
pub fn named(flags: &RegistryRequest, name: &str) -> String {
    let first = name.split('/').next().unwrap_or_default();
    let has_registry = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    match &flags.host {
        Some(url) if !has_registry => format!("{}/{name}", host_of(url).0),
        _ => name.to_owned(),
    }
}

/// A client for `registry`, a host. What the request says of TLS and credentials is meant for it.
pub fn client(session: &Session, flags: &RegistryRequest, registry: &str) -> Result<Client> {
    let wishes = session.settings();
    let mut settings = registry::Settings::default();
    settings.insecure.extend(wishes.insecure_registries.iter().cloned());
    let verify = flags.tls_verify.unwrap_or(wishes.tls_verify);
    if !verify {
        settings.insecure.insert(if flags.tls_verify == Some(false) {
            registry.to_owned()
        } else {
            "*".to_owned()
        });
    }
    if let Some((host, true)) = flags.host.as_deref().map(host_of) {
        settings.insecure.insert(host);
    }
    settings.ca_files.clone_from(&wishes.ca_files);
    if let Some(file) = session.variable("SSL_CERT_FILE") {
        settings.roots.files.push(PathBuf::from(file));
    }
    if let Some(directories) = session.variable("SSL_CERT_DIR") {
        settings.roots.directories.extend(std::env::split_paths(directories));
    }
    if let Some(directory) = &flags.cert_dir {
        settings.host_certs.insert(registry.to_owned(), session.absolute(directory)?);
    }
    settings.certs_dirs.splice(0..0, certificate_directories(session));
    settings.proxy.https = wishes.https_proxy.clone().map(Secret::new);
    settings.proxy.http = wishes.http_proxy.clone().map(Secret::new);
    settings.proxy.no_proxy = wishes.no_proxy.join(",");
    if let Some(proxy) = &flags.proxy {
        settings.proxy = registry::ProxySettings {
            all: Some(Secret::new(proxy)),
            ..registry::ProxySettings::default()
        };
    }
    settings.mirrors.clone_from(&wishes.mirrors);
    settings.timeouts.idle = wishes.timeout.0;
    settings.timeouts.response = wishes.timeout.0;
    settings.retries.attempts = u32::try_from(wishes.retries.get()).unwrap_or(u32::MAX);
    settings.registries = registries_conf(session)?;
    settings.credentials = credentials(session, flags, registry)?;
    Ok(Client::new(settings)?)
}

fn credentials(
    session: &Session,
    flags: &RegistryRequest,
    registry: &str,
) -> Result<Arc<dyn registry::auth::Credentials>> {
    if let Some(creds) = &flags.creds {
        let (username, password) = match creds.split_once(':') {
            Some((username, password)) => (username.to_owned(), Secret::new(password)),
            None => (creds.clone(), session.events().ask(&Question::Password { user: creds })?),
        };
        let credential = Credential::Basic { username, password };
        return Ok(Arc::new(FixedCredentials { registry: registry.to_owned(), credential }));
    }
    Ok(Arc::new(AuthFiles { files: auth_files(session, flags.authfile.as_deref())? }))
}

/// The file that `login` writes: the one that is named, else the configured one.
pub fn auth_file(session: &Session, flag: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = flag {
        return session.absolute(file);
    }
    session.settings().auth_file.clone().ok_or_else(|| {
        Error::failed("there is no home directory, so there is no place for credentials")
            .with_hint("use --authfile FILE")
    })
}

/// All files that may have credentials: Coracle's, Podman's, Docker's, in this order. A file that
/// was named is the only one.
fn auth_files(session: &Session, flag: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(file) = flag {
        return Ok(vec![session.absolute(file)?]);
    }
    let mut files: Vec<PathBuf> = session.settings().auth_file.clone().into_iter().collect();
    let runtime = session
        .variable("XDG_RUNTIME_DIR")
        .map(|directory| PathBuf::from(directory).join("containers/auth.json"));
    files.extend(runtime);
    files.extend(configuration(session).map(|directory| directory.join("containers/auth.json")));
    let docker = session
        .variable("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| Some(session.home()?.join(".docker")));
    files.extend(docker.map(|directory| directory.join("config.json")));
    files.extend(session.dialect().keystore.clone());
    Ok(files)
}

/// The user's directories that have a directory of certificates per host, as Podman and rootless
/// Docker have them.
fn certificate_directories(session: &Session) -> Vec<PathBuf> {
    let Some(configuration) = configuration(session) else { return Vec::new() };
    ["coracle", "containers", "docker"]
        .map(|tool| configuration.join(tool).join("certs.d"))
        .to_vec()
}

/// The directory of the user's configuration files (`XDG_CONFIG_HOME`).
fn configuration(session: &Session) -> Option<PathBuf> {
    let named = session.variable("XDG_CONFIG_HOME").map(PathBuf::from);
    // The specification says that relative paths are to be ignored.
    let named = named.filter(|directory| directory.is_absolute());
    named.or_else(|| Some(session.home()?.join(".config")))
}

/// Podman's `registries.conf`: the configured one, else the user's, else the system's, each of the
/// latter with its drop-in directories.
fn registries_conf(session: &Session) -> Result<RegistriesConf> {
    if let Some(file) = &session.settings().registries_conf {
        return Ok(RegistriesConf::load(file, &[])?);
    }
    let configuration = configuration(session).map(|directory| directory.join("containers"));
    let own = configuration
        .as_ref()
        .map(|directory| directory.join("registries.conf"))
        .filter(|file| file.exists());
    let mut drop_ins = vec![PathBuf::from("/etc/containers/registries.conf.d")];
    drop_ins.extend(configuration.map(|directory| directory.join("registries.conf.d")));
    let file = own.unwrap_or_else(|| PathBuf::from("/etc/containers/registries.conf"));
    Ok(RegistriesConf::load(&file, &drop_ins)?)
}

/// Host and port of a registry's URL, and whether the URL is plain HTTP.
pub fn host_of(url: &str) -> (String, bool) {
    let bare = url.trim_start_matches("https://").trim_start_matches("http://");
    let host = bare.split('/').next().unwrap_or(bare);
    let host = match host {
        "registry-1.docker.io" | "index.docker.io" | "hub.docker.com" => "docker.io",
        host => host,
    };
    (host.to_owned(), url.starts_with("http://"))
}
