//! Lists containers as data: what their records and their state say, without words for people.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::spec::{MountSpec, NetworkMode, NetworkSpec, ProcessId};
use engine::supervise::state::{self, Observed};
use jiff::{SignedDuration, Timestamp};
use oci::Reference;
use serde::Deserialize;
use store::{ContainerDir, Store};

use super::record::Record;
use crate::error::Result;

/// A container of a list.
pub struct Listed {
    /// Its directory, id and names' place.
    pub container: ContainerDir,
    /// Its names.
    pub names: Vec<String>,
    /// What its record says.
    pub glance: Glance,
    /// What it does now.
    pub state: Observed,
    /// When its supervisor started its program (RFC 3339), or empty.
    pub started: String,
    /// When its program ended, or empty.
    pub finished: String,
    /// The machine on which it runs, or empty.
    pub host: String,
}

/// The fields of a record that a list shows. Reading no others counts when there are ten thousand
/// containers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Glance {
    /// RFC 3339.
    pub created: String,
    /// The image.
    pub image: Option<GlanceImage>,
    /// A plain tree.
    pub rootfs: Option<PathBuf>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Mounts.
    pub mounts: Vec<MountSpec>,
    /// Network and published ports.
    pub network: NetworkSpec,
    /// Ports of `--expose`.
    pub expose: Vec<String>,
    /// Whether it is isolated.
    pub security: GlanceSecurity,
    /// The mode of execution that it keeps.
    pub exec_mode: Option<String>,
    /// The image, as the user wrote it.
    pub image_name: String,
}

/// The image of a [`Glance`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GlanceImage {
    /// Canonical name.
    pub reference: String,
    /// Digest of the manifest.
    pub manifest: String,
    /// Digest of the configuration: the image's id.
    pub config: String,
}

/// The isolation of a [`Glance`].
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct GlanceSecurity {
    /// `--isolate`.
    pub isolate: bool,
}

/// The network that a container has, where the request may leave it to the profile.
pub fn network_mode(network: &NetworkSpec, isolate: bool) -> NetworkMode {
    match &network.mode {
        NetworkMode::Default if isolate => NetworkMode::Private,
        NetworkMode::Default => NetworkMode::Host,
        mode => mode.clone(),
    }
}

/// The ports that a container exposes, as `80/tcp` or `8000-8010/udp`: those of `--expose` and of
/// the image with this configuration, unless that is gone.
pub fn exposed(store: &Store, own: &[String], image: Option<&str>) -> Vec<String> {
    let image = image.and_then(|config| store.images().find(config).ok());
    let config = image.and_then(|image| image.config().ok());
    let mut ports = config.map(|config| config.exposed_ports().to_vec()).unwrap_or_default();
    ports.extend_from_slice(own);
    ports
}

/// Looks at containers, several at once, and makes something of each. `every`: also of those that
/// do not run. A record that cannot be read is passed over.
pub fn map<R: Send>(
    store: &Store,
    every: bool,
    make: impl Fn(Listed) -> R + Sync,
) -> Result<Vec<R>> {
    let look = |container: &ContainerDir| look(container, every).map(&make);
    // Names cost a look at the whole directory; those that run read theirs.
    let found = if every {
        store.containers().map(look)?
    } else {
        store.containers().map_nameless(look)?
    };
    Ok(found.into_iter().flatten().collect())
}

fn look(container: &ContainerDir, every: bool) -> Option<Listed> {
    let (state, kept) = state::look(&container.path()).ok()?;
    if !every && !matches!(state, Observed::Running(_) | Observed::Restarting { .. }) {
        return None;
    }
    let glance = container.read().ok()?;
    let names = container.names().unwrap_or_default();
    let host = host(&state);
    let (started, finished) = (kept.started, kept.finished);
    Some(Listed { container: container.clone(), names, glance, state, started, finished, host })
}

/// Docker's word for a state.
pub fn status_word(state: &Observed) -> &'static str {
    match state {
        Observed::Created => "created",
        Observed::Running(running) if running.paused => "paused",
        Observed::Running(_) => "running",
        Observed::Restarting { .. } => "restarting",
        Observed::Exited { .. } | Observed::Ended => "exited",
        Observed::Dead { .. } => "dead",
    }
}

/// The machine on which a container runs, or empty.
pub fn host(state: &Observed) -> String {
    match state {
        Observed::Running(running) => match &running.elsewhere {
            Some(there) => there.host.clone(),
            None => sys::machine::Machine::here().name.clone(),
        },
        Observed::Restarting { .. } => sys::machine::Machine::here().name.clone(),
        _ => String::new(),
    }
}

/// When a process began, by the kernel's clock.
pub fn started(process: &ProcessId) -> Option<Timestamp> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a machine's life fit")]
    let after_boot = process.start_time as f64 / rustix::param::clock_ticks_per_second() as f64;
    let ago = SignedDuration::try_from_secs_f64((uptime - after_boot).max(0.0)).ok()?;
    Timestamp::now().checked_sub(ago).ok()
}

/// The image of a container as its user knows it, or its plain tree.
pub fn image_name(record: &Record) -> String {
    let config = &record.config;
    let image = config.image.as_ref().map(|image| image.reference.as_str());
    title(&record.own.image_name, image, config.rootfs.as_deref())
}

impl Glance {
    /// The image of a container as its user knows it, or its plain tree.
    pub fn image_name(&self) -> String {
        let image = self.image.as_ref().map(|image| image.reference.as_str());
        title(&self.image_name, image, self.rootfs.as_deref())
    }
}

fn title(written: &str, image: Option<&str>, rootfs: Option<&Path>) -> String {
    if !written.is_empty() {
        return written.to_owned();
    }
    match (image, rootfs) {
        (Some(image), _) => Reference::parse(image)
            .map_or_else(|_| image.to_owned(), |reference| reference.familiar()),
        (None, Some(directory)) => directory.display().to_string(),
        (None, None) => String::new(),
    }
}
