//! The image configuration: the settings of a container of the image, and its layers' diff IDs.
//!
//! `oci_spec` parses it; fields that it drops and Docker's images have (health check, shell,
//! on-build steps) are read beside it. The bytes are kept because the image's id is their digest.
//! New and changed configurations go through [`ConfigEditor`], which edits the JSON itself, so that
//! unknown fields survive, in a fixed order, so that equal edits give equal bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use oci_spec::image::ImageConfiguration;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Digest, Error, Platform};

pub use oci_spec::image::History;

/// Size limit of a configuration in bytes.
pub const CONFIG_MAX: u64 = 8 << 20;

/// A parsed image configuration and its bytes.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    spec: ImageConfiguration,
    docker: DockerExtras,
    diff_ids: Vec<Digest>,
    exposed_ports: Vec<String>,
    volumes: Vec<String>,
    labels: BTreeMap<String, String>,
    raw: Arc<[u8]>,
}

/// Docker's own fields of the `config` object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DockerExtras {
    healthcheck: Option<Healthcheck>,
    shell: Option<Vec<String>>,
    on_build: Option<Vec<String>>,
    args_escaped: Option<bool>,
    hostname: Option<String>,
    domainname: Option<String>,
}

/// Docker's health check. Durations are in nanoseconds; 0 means "the default".
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Healthcheck {
    /// `["NONE"]`, `["CMD", args...]` or `["CMD-SHELL", command]`; empty inherits.
    pub test: Option<Vec<String>>,
    /// Time between checks.
    pub interval: i64,
    /// Time that a check may take.
    pub timeout: i64,
    /// Time in which failures do not count.
    pub start_period: i64,
    /// Time between checks in the start period.
    pub start_interval: i64,
    /// Failures in a row that make the container unhealthy.
    pub retries: i64,
}

#[derive(Deserialize)]
struct Outer {
    config: Option<DockerExtras>,
}

impl ImageConfig {
    /// Parses a configuration.
    pub fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Error> {
        let raw: Arc<[u8]> = bytes.into();
        let size = raw.len() as u64;
        if size > CONFIG_MAX {
            return Err(Error::TooLarge { what: "image configuration", size, limit: CONFIG_MAX });
        }
        let value: Value = serde_json::from_slice(&raw).map_err(malformed)?;
        let spec: ImageConfiguration =
            serde_json::from_value(with_defaults(value)?).map_err(malformed)?;
        let outer: Outer = serde_json::from_slice(&raw).map_err(malformed)?;
        let diff_ids = spec
            .rootfs()
            .diff_ids()
            .iter()
            .map(|text| text.parse())
            .collect::<Result<Vec<Digest>, Error>>()?;
        let inner = spec.config().as_ref();
        let sorted = |list: Option<&Vec<String>>| {
            let mut list = list.cloned().unwrap_or_default();
            list.sort();
            list
        };
        let exposed_ports = sorted(inner.and_then(|c| c.exposed_ports().as_ref()));
        let volumes = sorted(inner.and_then(|c| c.volumes().as_ref()));
        let labels = inner
            .and_then(|c| c.labels().as_ref())
            .map(|labels| labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
            .unwrap_or_default();
        let docker = outer.config.unwrap_or_default();
        Ok(ImageConfig { spec, docker, diff_ids, exposed_ports, volumes, labels, raw })
    }

    /// The original bytes.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The image's id: the digest of the bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.raw)
    }

    /// The whole configuration in the specification's types.
    pub fn spec(&self) -> &ImageConfiguration {
        &self.spec
    }

    /// `NAME=value` pairs.
    pub fn env(&self) -> &[String] {
        self.list(oci_spec::image::Config::env)
    }

    /// The program that gets the arguments, empty if there is none.
    pub fn entrypoint(&self) -> &[String] {
        self.list(oci_spec::image::Config::entrypoint)
    }

    /// The default command, or the default arguments of the entry point.
    pub fn cmd(&self) -> &[String] {
        self.list(oci_spec::image::Config::cmd)
    }

    /// The directory to start in, if the image sets one.
    pub fn working_dir(&self) -> Option<&str> {
        self.text(oci_spec::image::Config::working_dir).filter(|d| !d.is_empty())
    }

    /// `user[:group]`, by name or number, if the image sets one.
    pub fn user(&self) -> Option<&str> {
        self.text(oci_spec::image::Config::user).filter(|u| !u.is_empty())
    }

    /// The signal that asks the program to end, if the image sets one.
    pub fn stop_signal(&self) -> Option<&str> {
        self.text(oci_spec::image::Config::stop_signal).filter(|s| !s.is_empty())
    }

    /// Paths that get a volume each, sorted.
    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }

    /// Exposed ports as `port/protocol`, sorted.
    pub fn exposed_ports(&self) -> &[String] {
        &self.exposed_ports
    }

    /// The image's labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Digests of the uncompressed layers, lowest first.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.diff_ids
    }

    /// The build steps of the image, oldest first.
    pub fn history(&self) -> &[History] {
        self.spec.history().as_deref().unwrap_or_default()
    }

    /// Creation time of the image (RFC 3339), if it is set.
    pub fn created(&self) -> Option<&str> {
        self.spec.created().as_deref().filter(|t| !t.is_empty())
    }

    /// The author, if it is set.
    pub fn author(&self) -> Option<&str> {
        self.spec.author().as_deref().filter(|t| !t.is_empty())
    }

    /// The image's platform, in normalised spelling.
    pub fn platform(&self) -> Platform {
        let (os, architecture) = (self.spec.os().to_string(), self.spec.architecture().to_string());
        Platform::new(&os, &architecture, self.spec.variant().as_deref())
    }

    /// Docker's health check.
    pub fn healthcheck(&self) -> Option<&Healthcheck> {
        self.docker.healthcheck.as_ref()
    }

    /// Docker's shell for the shell form of commands; empty if the image sets none.
    pub fn shell(&self) -> &[String] {
        self.docker.shell.as_deref().unwrap_or_default()
    }

    /// Docker's steps for images built on this one.
    pub fn on_build(&self) -> &[String] {
        self.docker.on_build.as_deref().unwrap_or_default()
    }

    /// Docker for Windows' flag that the command is one escaped string.
    pub fn args_escaped(&self) -> bool {
        self.docker.args_escaped.unwrap_or_default()
    }

    /// The host name, which very old images set.
    pub fn hostname(&self) -> Option<&str> {
        self.docker.hostname.as_deref().filter(|h| !h.is_empty())
    }

    /// The domain name, which very old images set.
    pub fn domainname(&self) -> Option<&str> {
        self.docker.domainname.as_deref().filter(|d| !d.is_empty())
    }

    /// An editor that starts from this configuration.
    pub fn edit(&self) -> ConfigEditor {
        // The bytes were parsed before, so they parse now.
        let root = serde_json::from_slice(&self.raw).unwrap_or_default();
        ConfigEditor { root }
    }

    fn list(&self, get: fn(&oci_spec::image::Config) -> &Option<Vec<String>>) -> &[String] {
        self.spec.config().as_ref().and_then(|c| get(c).as_deref()).unwrap_or_default()
    }

    fn text(&self, get: fn(&oci_spec::image::Config) -> &Option<String>) -> Option<&str> {
        self.spec.config().as_ref().and_then(|c| get(c).as_deref())
    }
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Malformed { what: "image configuration", reason: error.to_string() }
}

/// Adds fields that the specification requires and old images lack; Docker assumes the host's
/// values.
fn with_defaults(value: Value) -> Result<Value, Error> {
    let Value::Object(mut root) = value else {
        return Err(malformed("it is not an object"));
    };
    let host = Platform::host();
    for (key, default) in [("os", host.os), ("architecture", host.architecture)] {
        let missing = root.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
        if missing {
            root.insert(key.into(), default.into());
        }
    }
    match root.get_mut("rootfs") {
        None | Some(Value::Null) => return Err(malformed("it lists no layers (rootfs)")),
        Some(rootfs) => {
            if rootfs.get("diff_ids").is_none_or(Value::is_null) {
                rootfs["diff_ids"] = json!([]);
            }
        }
    }
    Ok(Value::Object(root))
}

/// Creates or changes a configuration. Empty values remove the field.
#[derive(Debug, Clone)]
pub struct ConfigEditor {
    root: Map<String, Value>,
}

impl ConfigEditor {
    /// An empty configuration for a platform.
    pub fn new(platform: &Platform) -> Self {
        let mut root = Map::new();
        root.insert("architecture".into(), platform.architecture.clone().into());
        root.insert("os".into(), platform.os.clone().into());
        if let Some(variant) = &platform.variant {
            root.insert("variant".into(), variant.clone().into());
        }
        root.insert("config".into(), json!({}));
        root.insert("rootfs".into(), json!({"type": "layers", "diff_ids": []}));
        root.insert("history".into(), json!([]));
        ConfigEditor { root }
    }

    /// Sets the creation time (RFC 3339).
    pub fn created(&mut self, time: &str) -> &mut Self {
        set(&mut self.root, "created", time.into());
        self
    }

    /// Sets the author.
    pub fn author(&mut self, author: &str) -> &mut Self {
        set(&mut self.root, "author", author.into());
        self
    }

    /// Sets one variable, replacing an earlier value in place.
    pub fn env(&mut self, name: &str, value: &str) -> &mut Self {
        let entry = Value::from(format!("{name}={value}"));
        let list = array(self.inner(), "Env");
        let prefix = format!("{name}=");
        let at = list.iter().position(|e| e.as_str().is_some_and(|e| e.starts_with(&prefix)));
        match at {
            Some(at) => list[at] = entry,
            None => list.push(entry),
        }
        self
    }

    /// Sets the entry point.
    pub fn entrypoint(&mut self, argv: &[String]) -> &mut Self {
        set(self.inner(), "Entrypoint", argv.into());
        self
    }

    /// Sets the default command.
    pub fn cmd(&mut self, argv: &[String]) -> &mut Self {
        set(self.inner(), "Cmd", argv.into());
        self
    }

    /// Sets the directory to start in.
    pub fn working_dir(&mut self, directory: &str) -> &mut Self {
        set(self.inner(), "WorkingDir", directory.into());
        self
    }

    /// Sets `user[:group]`.
    pub fn user(&mut self, user: &str) -> &mut Self {
        set(self.inner(), "User", user.into());
        self
    }

    /// Sets the signal that asks the program to end.
    pub fn stop_signal(&mut self, signal: &str) -> &mut Self {
        set(self.inner(), "StopSignal", signal.into());
        self
    }

    /// Adds a label, replacing an earlier value.
    pub fn label(&mut self, name: &str, value: &str) -> &mut Self {
        object(self.inner(), "Labels").insert(name.to_owned(), value.into());
        self
    }

    /// Adds an exposed port, as `80/tcp`.
    pub fn expose(&mut self, port: &str) -> &mut Self {
        object(self.inner(), "ExposedPorts").insert(port.to_owned(), json!({}));
        self
    }

    /// Adds a path that gets a volume.
    pub fn volume(&mut self, path: &str) -> &mut Self {
        object(self.inner(), "Volumes").insert(path.to_owned(), json!({}));
        self
    }

    /// Sets Docker's shell.
    pub fn shell(&mut self, argv: &[String]) -> &mut Self {
        set(self.inner(), "Shell", argv.into());
        self
    }

    /// Adds one of Docker's on-build steps.
    pub fn on_build(&mut self, step: &str) -> &mut Self {
        array(self.inner(), "OnBuild").push(step.into());
        self
    }

    /// Sets Docker's health check.
    pub fn healthcheck(&mut self, check: Option<&Healthcheck>) -> &mut Self {
        let value = check.and_then(|c| serde_json::to_value(c).ok()).unwrap_or(Value::Null);
        set(self.inner(), "Healthcheck", value);
        self
    }

    /// Adds a layer on top.
    pub fn layer(&mut self, diff_id: &Digest) -> &mut Self {
        let rootfs = object(&mut self.root, "rootfs");
        rootfs.entry("type").or_insert_with(|| "layers".into());
        array(rootfs, "diff_ids").push(diff_id.to_string().into());
        self
    }

    /// Adds a step to the history; `empty` if it made no layer.
    pub fn history(&mut self, created: &str, by: &str, comment: &str, empty: bool) -> &mut Self {
        let mut step = Map::new();
        for (key, value) in [("created", created), ("created_by", by), ("comment", comment)] {
            set(&mut step, key, value.into());
        }
        if empty {
            step.insert("empty_layer".into(), true.into());
        }
        array(&mut self.root, "history").push(step.into());
        self
    }

    /// Returns the finished configuration.
    pub fn finish(&self) -> Result<ImageConfig, Error> {
        ImageConfig::parse(serde_json::to_vec(&self.root).map_err(malformed)?)
    }

    fn inner(&mut self) -> &mut Map<String, Value> {
        object(&mut self.root, "config")
    }
}

fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    if empty {
        map.shift_remove(key);
    } else {
        map.insert(key.to_owned(), value);
    }
}

fn object<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(key).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(inner) => inner,
        _ => unreachable!("made an object above"),
    }
}

fn array<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let slot = map.entry(key).or_insert_with(|| json!([]));
    if !slot.is_array() {
        *slot = json!([]);
    }
    match slot {
        Value::Array(inner) => inner,
        _ => unreachable!("made an array above"),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
