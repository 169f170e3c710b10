//! Reads and writes Docker's `config.json` and podman's `auth.json`, which have one format.
//!
//! ```json
//! { "auths": { "quay.io/team": { "auth": "dXNlcjpwYXNz" }, "https://index.docker.io/v1/": {} },
//!   "credHelpers": { "x.dkr.ecr.eu-west-1.amazonaws.com": "ecr-login" }, "credsStore": "pass" }
//! ```
//! Keys: podman writes `registry[/path]`, and the longest that is a prefix of the repository wins;
//! Docker writes the host, or a URL for the Hub. Writing keeps every field that this program does
//! not know. It goes through a temporary file of mode 0600 in the same directory and a rename,
//! under a lock on that directory (best effort: some network file systems have none).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::{Credential, helper};
use crate::{Error, Secret, limits};

/// Docker Hub's registry, and Docker's key for it.
const HUB: &str = "docker.io";
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// Returns a file's credentials for a registry.
pub(super) fn find(
    path: &Path,
    registry: &str,
    repository: Option<&str>,
) -> Result<Option<Credential>, Error> {
    let Some(root) = read(path)? else {
        return Ok(None);
    };
    if let Some(name) = root.get("credHelpers").and_then(|h| helper_for(h, registry))
        && let Some(found) = helper::get(name, &server_key(registry))?
    {
        return Ok(Some(found));
    }
    if let Some(auths) = table(&root) {
        for key in keys(auths, registry, repository) {
            if let Some(found) = entry(path, key, &auths[key])? {
                return Ok(Some(found));
            }
        }
    }
    match root.get("credsStore").and_then(Value::as_str).filter(|name| !name.is_empty()) {
        Some(name) => helper::get(name, &server_key(registry)),
        None => Ok(None),
    }
}

/// The entries of a file. udocker's keystore has them at its top, and nothing else.
fn table(root: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let is_docker =
        ["auths", "credHelpers", "credsStore"].iter().any(|key| root.contains_key(*key));
    if is_docker { root.get("auths")?.as_object() } else { Some(root) }
}

/// Lists the registries and repositories that a file has credentials for.
pub fn list(path: &Path) -> Result<Vec<String>, Error> {
    let root = read(path)?.unwrap_or_default();
    let keys = |name: &str| -> Vec<String> {
        let table = root.get(name).and_then(Value::as_object);
        table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all = keys("auths");
    all.extend(keys("credHelpers"));
    all.sort();
    all.dedup();
    Ok(all)
}

/// Stores credentials for `key` (`registry[/path]`) in the file, or in a helper if the file names
/// one for the registry. Makes the file and its directory if they are missing.
pub fn store(path: &Path, key: &str, credential: &Credential) -> Result<(), Error> {
    change(path, |root| {
        let registry = key.split('/').next().unwrap_or(key);
        if let Some(name) = responsible_helper(root, registry) {
            return helper::store(&name, &server_key(registry), credential);
        }
        let auths = root.entry("auths").or_insert_with(|| json!({}));
        if !auths.is_object() {
            *auths = json!({});
        }
        auths[file_key(key)] = match credential {
            Credential::Basic { username, password } => {
                json!({ "auth": BASE64.encode(format!("{username}:{}", password.expose())) })
            }
            // Docker's own form: the user name `<token>`, and the token beside it.
            Credential::IdentityToken(token) => {
                json!({ "auth": BASE64.encode("<token>:"), "identitytoken": token.expose() })
            }
        };
        Ok(())
    })
}

/// Removes the credentials for `key`; returns true if there were any.
pub fn remove(path: &Path, key: &str) -> Result<bool, Error> {
    if read(path)?.is_none() {
        return Ok(false);
    }
    let mut found = false;
    change(path, |root| {
        let registry = key.split('/').next().unwrap_or(key);
        if let Some(name) = responsible_helper(root, registry) {
            helper::erase(&name, &server_key(registry))?;
            found = true;
        }
        if let Some(auths) = root.get_mut("auths").and_then(Value::as_object_mut) {
            let spelled: Vec<String> =
                auths.keys().filter(|k| plain_key(k) == plain_key(key)).cloned().collect();
            for key in spelled {
                found |= auths.shift_remove(&key).is_some();
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn responsible_helper(root: &Map<String, Value>, registry: &str) -> Option<String> {
    let own = root.get("credHelpers").and_then(|helpers| helper_for(helpers, registry));
    let general = root.get("credsStore").and_then(Value::as_str);
    own.or(general).filter(|name| !name.is_empty()).map(str::to_owned)
}

fn helper_for<'a>(helpers: &'a Value, registry: &str) -> Option<&'a str> {
    let table = helpers.as_object()?;
    let named = table.iter().find(|(key, _)| plain_key(key) == registry);
    named.and_then(|(_, name)| name.as_str()).filter(|name| !name.is_empty())
}

/// The key that helpers and Docker use for a registry.
fn server_key(registry: &str) -> String {
    if registry == HUB { HUB_KEY.to_owned() } else { registry.to_owned() }
}

/// The key to write, which both Docker and podman find.
fn file_key(key: &str) -> String {
    if key == HUB { HUB_KEY.to_owned() } else { key.to_owned() }
}

/// A key without scheme, version path and the Hub's other names.
fn plain_key(key: &str) -> String {
    let (host, legacy) = match key.split_once("://") {
        Some((_, rest)) => (rest.split('/').next().unwrap_or(rest), true),
        None => (key.trim_end_matches('/'), false),
    };
    let (first, rest) = match host.split_once('/') {
        // `index.docker.io/v1` without a scheme is a version, not a repository.
        Some((first, rest)) if !legacy && !matches!(rest, "v1" | "v2") => (first, Some(rest)),
        Some((first, _)) => (first, None),
        None => (host, None),
    };
    let first = match first {
        "index.docker.io" | "registry-1.docker.io" | "docker.io" => HUB,
        other => other,
    };
    match rest {
        Some(rest) => format!("{first}/{rest}"),
        None => first.to_owned(),
    }
}

/// The keys that match, most specific first.
fn keys<'a>(
    auths: &'a Map<String, Value>,
    registry: &str,
    repository: Option<&str>,
) -> Vec<&'a String> {
    let name = match repository {
        Some(repository) => format!("{registry}/{repository}"),
        None => registry.to_owned(),
    };
    let begins = |plain: &str| {
        name.strip_prefix(plain).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut fitting: Vec<(usize, &String)> = auths
        .keys()
        .map(|key| (plain_key(key), key))
        .filter(|(plain, _)| begins(plain))
        .map(|(plain, key)| (plain.len(), key))
        .collect();
    fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    fitting.into_iter().map(|(_, key)| key).collect()
}

fn entry(path: &Path, key: &str, entry: &Value) -> Result<Option<Credential>, Error> {
    let refuse = |reason: &str| Error::ConfigFile {
        path: path.to_owned(),
        reason: format!("the entry of {key} {reason}"),
    };
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
    if let Some(token) = text("identitytoken") {
        return Ok(Some(Credential::IdentityToken(Secret::new(token))));
    }
    if let Some(encoded) = text("auth") {
        let decoded = BASE64
            .decode(encoded.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| refuse("is not base64"))?;
        let (username, password) = decoded.split_once(':').ok_or_else(|| refuse("has no colon"))?;
        // Docker sometimes pads with NUL bytes (its own decoder trims them).
        let password = Secret::new(password.trim_end_matches('\0'));
        return Ok(Some(Credential::Basic { username: username.to_owned(), password }));
    }
    Ok(match (text("username"), text("password")) {
        (Some(username), Some(password)) => Some(Credential::Basic {
            username: username.to_owned(),
            password: Secret::new(password),
        }),
        // Docker leaves an empty entry if a helper has the password.
        _ => None,
    })
}

fn read(path: &Path) -> Result<Option<Map<String, Value>>, Error> {
    let fail = |source| Error::File { action: "read", path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other.map_err(fail)?,
    };
    let mut bytes = Vec::new();
    file.take(limits::CONFIG_FILE).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Some(Map::new()));
    }
    // The parser's message could quote the secret next to the error: only its position is shown.
    let parsed = serde_json::from_slice(&bytes).map_err(|e| Error::ConfigFile {
        path: path.to_owned(),
        reason: format!("it is not a JSON object (line {}, column {})", e.line(), e.column()),
    })?;
    Ok(Some(parsed))
}

fn change(
    path: &Path,
    edit: impl FnOnce(&mut Map<String, Value>) -> Result<(), Error>,
) -> Result<(), Error> {
    // A symbolic link (dotfile managers) is written through, not replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fail = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(fail("create", directory))?;
    let lock = File::open(directory).map_err(fail("open", directory))?;
    if let Err(error) = lock.lock() {
        tracing::debug!(%error, "no lock on the auth file's directory");
    }
    let before = read(&path)?.unwrap_or_default();
    let mut root = before.clone();
    edit(&mut root)?;
    if root == before && path.exists() {
        return Ok(());
    }
    let mut text = serde_json::to_vec_pretty(&root).unwrap_or_default();
    text.push(b'\n');
    let temporary = temporary_beside(&path);
    let written = write_new(&temporary, &text)
        .map_err(fail("write", &temporary))
        .and_then(|()| std::fs::rename(&temporary, &path).map_err(fail("write", &path)))
        .and_then(|()| sync_directory(&path).map_err(fail("write", &path)));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Waits until a file's directory entry is on the disk too.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    match File::open(directory)?.sync_all() {
        // Some network file systems cannot sync a directory, or do so by themselves.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        other => other,
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{count}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match open() {
        // A killed process with the same id left it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
