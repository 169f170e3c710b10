//! All settings, declared once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::choice::{Colour, HelperChoice, IdMapping, Progress, PullPolicy};
use super::value::{Bounded, Duration, Kind, SettingValue, Size};

/// One setting as data.
#[derive(Debug)]
pub struct Setting {
    /// Dotted key in the files.
    pub key: &'static str,
    /// Variables of the environment; the first that is set wins. `NAME=value`: if NAME is set, the
    /// setting is `value`.
    pub environment: &'static [&'static str],
    /// What values look like.
    pub kind: Kind,
    /// Lines of the doc comment.
    pub doc: &'static [&'static str],
    /// Reads the value from a file.
    pub set_toml: fn(&mut Settings, &toml::Value) -> Result<(), String>,
    /// Reads the value from text.
    pub set_text: fn(&mut Settings, &str) -> Result<(), String>,
    /// Shows the value to machines.
    pub json: fn(&Settings) -> serde_json::Value,
    /// Shows the value to a person.
    pub text: fn(&Settings) -> String,
}

impl Setting {
    /// The first line of its description.
    pub fn summary(&self) -> &'static str {
        self.doc.first().map_or("", |line| line.trim())
    }

    /// Its whole description as one paragraph.
    pub fn description(&self) -> String {
        let lines: Vec<&str> = self.doc.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $key:literal, [$($variable:literal),*];)+) => {
        /// The values of all settings.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($field: $default,)+ }
            }
        }

        /// Every setting, in the order in which `coracle config` shows them.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            environment: &[$($variable),*],
            kind: <$type as SettingValue>::KIND,
            doc: &[$($doc),+],
            set_toml: |settings, value| {
                settings.$field = SettingValue::from_toml(value)?;
                Ok(())
            },
            set_text: |settings, text| {
                settings.$field = SettingValue::from_text(text)?;
                Ok(())
            },
            json: |settings| settings.$field.json(),
            text: |settings| settings.$field.text(),
        },)+];
    };
}

settings! {
    /// Where images and containers are kept.
    /// The default is `$XDG_DATA_HOME/coracle`, else `~/.local/share/coracle`.
    store_dir: Option<PathBuf> = None, "store.dir", ["CORACLE_DIR"];

    /// Read-only stores that are stacked beneath the user's own: an administrator's shared images.
    store_read_only: Vec<PathBuf> = Vec::new(), "store.read-only", ["CORACLE_STORE_RO"];

    /// The execution mode of containers that name none (see `coracle doctor`).
    /// Without it the best that the host allows is chosen.
    execmode: Option<String> = None, "run.execmode", ["CORACLE_EXECMODE"];

    /// Whether new containers of modes without mounts lie above their image.
    /// The image's index tells what is in it. If not, each gets a whole tree of hard links.
    index: bool = true, "run.index", ["CORACLE_INDEX"];

    /// The OCI runtime of modes R1, R2 and R3: a path, or a name in PATH.
    /// Without it `runc` is taken, else `crun`.
    runtime: Option<String> = None, "run.runtime", ["CORACLE_RUNTIME"];

    /// The Apptainer or Singularity of mode S1: a path, or a name in PATH.
    /// Without it `apptainer` is taken, else `singularity`.
    apptainer: Option<String> = None, "run.apptainer", ["CORACLE_APPTAINER"];

    /// Isolate containers as Docker does.
    /// They get their own pid, ipc and network namespaces, a seccomp profile and few capabilities.
    isolate: bool = false, "run.isolate", ["CORACLE_ISOLATE"];

    /// How ids are mapped in user namespaces.
    userns: IdMapping = IdMapping::Auto, "run.userns", ["CORACLE_USERNS"];

    /// When `run` and `create` fetch an image.
    pull: PullPolicy = PullPolicy::Missing, "run.pull", ["CORACLE_PULL"];

    /// The program that makes private networks.
    network_helper: HelperChoice = HelperChoice::Auto, "run.network-helper", ["CORACLE_NETWORK_HELPER"];

    /// Directories with CDI files, which describe GPUs and other devices.
    /// Later ones override earlier ones.
    cdi_dirs: Vec<PathBuf> = vec!["/etc/cdi".into(), "/var/run/cdi".into()], "devices.cdi-dirs", ["CORACLE_CDI_DIRS"];

    /// Where NVIDIA's driver is looked for if no CDI file describes it.
    /// It is the root of the driver's tree (`/run/nvidia/driver` on some clusters).
    driver_root: PathBuf = "/".into(), "devices.driver-root", ["CORACLE_DRIVER_ROOT"];

    /// Keys that detach from a container's terminal.
    detach_keys: String = "ctrl-p,ctrl-q".into(), "run.detach-keys", ["CORACLE_DETACH_KEYS"];

    /// The registry of images that name none.
    default_registry: String = "docker.io".into(), "registry.default", ["CORACLE_REGISTRY"];

    /// Registries that are spoken to by http, or whose certificates are not checked.
    /// Each is HOST or HOST:PORT.
    insecure_registries: Vec<String> = Vec::new(), "registry.insecure", ["CORACLE_INSECURE_REGISTRIES"];

    /// Mirrors to ask first, by registry.
    mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new(), "registry.mirrors", ["CORACLE_MIRRORS"];

    /// Check the certificates of registries.
    tls_verify: bool = true, "registry.tls-verify", ["CORACLE_TLS_VERIFY"];

    /// Files with further certificate authorities, in PEM form.
    ca_files: Vec<PathBuf> = Vec::new(), "registry.ca-files", ["CORACLE_CA_FILES"];

    /// Proxy for https registries: http://, https:// or socks5://.
    https_proxy: Option<String> = None, "registry.https-proxy", ["CORACLE_HTTPS_PROXY", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

    /// Proxy for http registries.
    /// The upper-case `HTTP_PROXY` is not read: in a CGI program a client could set it.
    http_proxy: Option<String> = None, "registry.http-proxy", ["CORACLE_HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

    /// Hosts that are reached without a proxy: names, .domains, addresses, networks, or *.
    no_proxy: Vec<String> = Vec::new(), "registry.no-proxy", ["CORACLE_NO_PROXY", "NO_PROXY", "no_proxy"];

    /// How many layers are fetched at once.
    parallel_downloads: Bounded<1, 64> = Bounded::new(6), "registry.parallel-downloads", ["CORACLE_PARALLEL_DOWNLOADS"];

    /// How long a registry may stay silent.
    timeout: Duration = Duration(std::time::Duration::from_mins(1)), "registry.timeout", ["CORACLE_TIMEOUT"];

    /// How often a failed request is tried again.
    retries: Bounded<0, 100> = Bounded::new(5), "registry.retries", ["CORACLE_RETRIES"];

    /// The file that `login` writes to.
    /// The default is auth.json beside config.toml. Docker's and Podman's files are read too.
    auth_file: Option<PathBuf> = None, "registry.auth-file", ["CORACLE_AUTH_FILE", "REGISTRY_AUTH_FILE"];

    /// The registries.conf to read in place of the usual ones.
    registries_conf: Option<PathBuf> = None, "registry.registries-conf", ["CORACLE_REGISTRIES_CONF", "CONTAINERS_REGISTRIES_CONF"];

    /// Size at which a container's log is rotated.
    log_max_size: Size = Size(Some(16 << 20)), "log.max-size", ["CORACLE_LOG_MAX_SIZE"];

    /// How many files of a container's log are kept.
    log_max_file: Bounded<1, 1000> = Bounded::new(3), "log.max-file", ["CORACLE_LOG_MAX_FILE"];

    /// The most entries that one layer may have.
    limit_entries: Bounded<1, { u64::MAX }> = Bounded::new(5_000_000), "limits.entries", ["CORACLE_LIMIT_ENTRIES"];

    /// The most bytes that one layer may unpack to.
    limit_layer_size: Size = Size(Some(1 << 40)), "limits.layer-size", ["CORACLE_LIMIT_LAYER_SIZE"];

    /// The largest file in a layer, holes included.
    limit_file_size: Size = Size(Some(1 << 40)), "limits.file-size", ["CORACLE_LIMIT_FILE_SIZE"];

    /// How progress is shown.
    progress: Progress = Progress::Auto, "output.progress", ["CORACLE_PROGRESS"];

    /// When output is coloured.
    colour: Colour = Colour::Auto, "output.colour", ["CORACLE_COLOUR", "CORACLE_COLOR", "NO_COLOR=never", "CLICOLOR_FORCE=always"];
}
