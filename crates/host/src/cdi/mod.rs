//! Reads CDI files, in which vendors describe what a container needs for a device.
//!
//! The Container Device Interface (CNCF, versions 0.3 to 1.1) names devices as
//! `vendor.com/class=name`. A file in `/etc/cdi` or `/var/run/cdi`, JSON or YAML, lists for each
//! device the edits to a container's configuration: device nodes, mounts, variables and hooks.
//! Hooks are programs of the host that a runtime executes with its privileges; this crate executes
//! none. It implements those that NVIDIA's generator writes: `create-symlinks` (names for files
//! that are mounted) and `update-ldcache` (directories that the loader has to search). Other hooks
//! are reported if they would change what a program sees.
//!
//! Reading does not check the files that a specification names; the code that mounts them finds
//! missing ones.

mod yaml;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::devices::names_in;
use crate::error::Error;

/// Size limit of a specification in bytes.
const SIZE_MAX: u64 = 16 << 20;

/// Hooks whose effect is not needed: modes of directories above device nodes, compatibility
/// libraries of the driver that an image contains, and settings against a driver that makes nodes.
const NEEDLESS: [&str; 3] = ["chmod", "enable-cuda-compat", "disable-device-node-modification"];

/// One CDI file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Specification {
    /// Path of the file.
    pub file: PathBuf,
    /// `vendor.com/class`.
    pub kind: String,
    /// Devices by name.
    pub devices: Vec<(String, Edits)>,
    /// Edits for all devices of the file.
    pub edits: Edits,
}

/// Edits to a container's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits {
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// Device nodes.
    pub nodes: Vec<Placed>,
    /// Files and directories to mount.
    pub mounts: Vec<Placed>,
    /// Symbolic links to make: path and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Directories that the loader has to search.
    pub library_directories: Vec<PathBuf>,
    /// Hooks that are not executed.
    pub hooks: Vec<String>,
}

/// A file of the host and its path in the container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// Path on the host.
    pub host: PathBuf,
    /// Path in the container.
    pub inside: PathBuf,
    /// Mount options, or `r`, `w`, `m` of a node.
    pub options: Vec<String>,
}

impl Edits {
    /// Adds the edits of another device, without duplicates.
    pub fn add(&mut self, other: &Edits) {
        fn more<T: PartialEq + Clone>(own: &mut Vec<T>, other: &[T]) {
            for one in other {
                if !own.contains(one) {
                    own.push(one.clone());
                }
            }
        }
        more(&mut self.env, &other.env);
        more(&mut self.nodes, &other.nodes);
        more(&mut self.mounts, &other.mounts);
        more(&mut self.links, &other.links);
        more(&mut self.library_directories, &other.library_directories);
        more(&mut self.hooks, &other.hooks);
    }

    /// The first file of the host that is named and missing.
    pub fn missing(&self) -> Option<&Path> {
        let all = self.nodes.iter().chain(&self.mounts);
        all.map(|placed| placed.host.as_path()).find(|host| !host.exists())
    }
}

/// Reads all specifications in some directories; returns them, and the errors of files that cannot
/// be used. Files of later directories come first: they override those of earlier ones.
pub fn read(directories: &[PathBuf]) -> (Vec<Specification>, Vec<Error>) {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for directory in directories.iter().rev() {
        for name in names_in(directory) {
            if [".json", ".yaml", ".yml"].iter().any(|end| name.ends_with(end)) {
                match read_file(&directory.join(name)) {
                    Ok(specification) => found.push(specification),
                    Err(error) => faults.push(error),
                }
            }
        }
    }
    (found, faults)
}

/// Returns true for a device's qualified name: `vendor.com/class=name`.
pub fn is_name(text: &str) -> bool {
    let Some((kind, name)) = text.split_once('=') else { return false };
    let Some((vendor, class)) = kind.split_once('/') else { return false };
    let good = |part: &str, more: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    good(vendor, "_-.") && good(class, "_-.") && good(name, "_-.:")
}

/// The edits for devices by their qualified names, in the given order.
pub fn resolve<'a>(
    specifications: &[Specification],
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Edits, Error> {
    let mut edits = Edits::default();
    for name in names {
        let (kind, device) = name.split_once('=').unwrap_or((name, ""));
        let found = specifications.iter().filter(|one| one.kind == kind).find_map(|one| {
            let own = one.devices.iter().find(|(known, _)| known == device)?;
            Some((&one.edits, &own.1))
        });
        let Some((common, own)) = found else {
            let all = specifications.iter().flat_map(|one| {
                one.devices.iter().map(|(device, _)| format!("{}={device}", one.kind))
            });
            return Err(Error::NoDevice { name: name.to_owned(), known: all.take(20).collect() });
        };
        edits.add(common);
        edits.add(own);
    }
    Ok(edits)
}

fn read_file(path: &Path) -> Result<Specification, Error> {
    let bad = |why: String| Error::Specification { path: path.to_owned(), why };
    let unread = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unread)?.len() > SIZE_MAX {
        return Err(bad("it is too long".into()));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let value = if path.extension().is_some_and(|end| end == "json") {
        serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?
    } else {
        yaml::parse(&text).map_err(bad)?
    };
    specification(path, &value).map_err(bad)
}

fn specification(path: &Path, value: &Value) -> Result<Specification, String> {
    let kind = word(value, "kind").ok_or("'kind' is missing")?;
    if word(value, "cdiVersion").is_none() {
        return Err("'cdiVersion' is missing".into());
    }
    let mut devices = Vec::new();
    for device in list(value, "devices")? {
        let name = word(device, "name").ok_or("a device without a name")?;
        devices.push((name, edits(&device["containerEdits"])?));
    }
    Ok(Specification {
        file: path.to_owned(),
        kind,
        devices,
        edits: edits(&value["containerEdits"])?,
    })
}

/// A string, or a number as a string.
fn word(value: &Value, key: &str) -> Option<String> {
    match &value[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match &value[key] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(format!("'{key}' is not a list")),
    }
}

fn words(value: &Value, key: &str) -> Result<Vec<String>, String> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    let all: Option<Vec<String>> = list(value, key)?.iter().map(text).collect();
    all.ok_or_else(|| format!("'{key}' is not a list of strings"))
}

fn path(value: &Value, key: &str) -> Result<Option<PathBuf>, String> {
    match word(value, key) {
        None => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(path.into())),
        Some(path) => Err(format!("'{key}': {path} is not an absolute path")),
    }
}

fn edits(value: &Value) -> Result<Edits, String> {
    let mut edits = Edits { env: words(value, "env")?, ..Edits::default() };
    for node in list(value, "deviceNodes")? {
        let inside = path(node, "path")?.ok_or("a device node without 'path'")?;
        let host = path(node, "hostPath")?.unwrap_or_else(|| inside.clone());
        let options = word(node, "permissions").into_iter().collect();
        edits.nodes.push(Placed { host, inside, options });
    }
    for mount in list(value, "mounts")? {
        let inside = path(mount, "containerPath")?.ok_or("a mount without 'containerPath'")?;
        // A mount of another type than a bind has no host path; no device needs one.
        if let Some(host) = path(mount, "hostPath")? {
            edits.mounts.push(Placed { host, inside, options: words(mount, "options")? });
        }
    }
    for hook in list(value, "hooks")? {
        apply_hook(&words(hook, "args")?, &word(hook, "path").unwrap_or_default(), &mut edits)?;
    }
    Ok(edits)
}

/// Applies a hook's effect to the edits, without executing it.
fn apply_hook(arguments: &[String], program: &str, edits: &mut Edits) -> Result<(), String> {
    let option = |name: &str| {
        let mut values: Vec<&str> = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.strip_prefix("--").and_then(|text| text.strip_prefix(name)) {
                Some("") => values.extend(rest.next().map(String::as_str)),
                Some(text) => values.extend(text.strip_prefix('=')),
                None => {}
            }
        }
        values
    };
    // The program is `nvidia-ctk hook NAME` or `nvidia-cdi-hook NAME`.
    let is = |name: &str| arguments.iter().take(3).any(|argument| argument == name);
    if is("create-symlinks") {
        for link in option("link") {
            let (target, place) = link
                .split_once("::")
                .ok_or_else(|| format!("'{link}' does not have the form TARGET::LINK"))?;
            edits.links.push((place.into(), target.into()));
        }
    } else if is("update-ldcache") {
        edits.library_directories.extend(option("folder").into_iter().map(PathBuf::from));
    } else if !NEEDLESS.iter().any(|name| is(name)) {
        let words = if arguments.is_empty() { program.to_owned() } else { arguments.join(" ") };
        edits.hooks.push(words);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = include_str!("../../tests/fixtures/nvidia.yaml");

    fn placed(path: &str, options: &[&str]) -> Placed {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Placed { host: path.into(), inside: path.into(), options }
    }

    #[test]
    fn what_nvidias_generator_writes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("nvidia.yaml"), YAML).unwrap();
        std::fs::write(directory.path().join("bad.json"), "{").unwrap();
        std::fs::write(directory.path().join("notes.txt"), "{").unwrap();
        let none = directory.path().join("none");
        let (found, faults) = read(&[none, directory.path().to_owned()]);
        assert_eq!((found.len(), faults.len()), (1, 1), "{faults:?}");
        assert_eq!(found[0].kind, "nvidia.com/gpu");
        let names: Vec<&str> = found[0].devices.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["0", "GPU-4c5f6a5e-1111-2222-3333-444455556666", "all"]);
        let edits = resolve(&found, ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]).unwrap();
        assert_eq!(edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
        assert_eq!(edits.nodes[0], placed("/dev/nvidia-modeset", &[]));
        assert_eq!(
            edits.nodes.iter().filter(|node| **node == placed("/dev/nvidia0", &[])).count(),
            1
        );
        let options = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
        let library = placed("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", &options);
        assert!(edits.mounts.contains(&library), "{:?}", edits.mounts);
        let link = ("/usr/lib/x86_64-linux-gnu/libcuda.so".into(), "libcuda.so.1".into());
        assert!(edits.links.contains(&link), "{:?}", edits.links);
        assert_eq!(edits.library_directories, [PathBuf::from("/usr/lib/x86_64-linux-gnu")]);
        assert_eq!(edits.hooks, Vec::<String>::new());
        assert_eq!(edits.missing(), Some(Path::new("/dev/nvidia-modeset")));
        let error = resolve(&found, ["nvidia.com/gpu=7"]).unwrap_err();
        assert!(error.hint().unwrap().contains("nvidia.com/gpu=0"), "{error}");
    }

    #[test]
    fn later_directories_and_json() {
        let directory = tempfile::tempdir().unwrap();
        let [etc, run] = ["etc", "run"].map(|name| directory.path().join(name));
        for (place, value) in [(&etc, "1"), (&run, "2")] {
            std::fs::create_dir(place).unwrap();
            let text = format!(
                r#"{{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{{"name": "0", "containerEdits": {{"env": ["X={value}"], "hooks": [{{"hookName": "createContainer", "path": "/bin/special"}}]}}}}]}}"#
            );
            std::fs::write(place.join("amd.json"), text).unwrap();
        }
        let (found, faults) = read(&[etc, run]);
        assert!(faults.is_empty(), "{faults:?}");
        let edits = resolve(&found, ["amd.com/gpu=0"]).unwrap();
        assert_eq!((edits.env, edits.hooks), (vec!["X=2".into()], vec!["/bin/special".into()]));
    }

    #[test]
    fn names() {
        for (text, is) in [
            ("nvidia.com/gpu=all", true),
            ("nvidia.com/gpu=GPU-1:0", true),
            ("/dev/x=y", false),
            ("/dev/dri", false),
            ("a/b=", false),
            ("a=b", false),
        ] {
            assert_eq!(is_name(text), is, "{text}");
        }
    }
}
