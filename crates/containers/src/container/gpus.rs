//! Gives a container the host's GPUs: devices, libraries and tools, found anew at each start
//! (`--gpus`, `setup --nvidia`, `--device vendor.com/class=name`).
//!
//! A record keeps what was asked for, not what was found: devices, libraries and tools of the host
//! are looked for at each start and bound, so that a container survives another driver or another
//! host. Nothing is copied into it.
//!
//! A CDI file that describes `vendor.com/gpu` says best what is needed; without one, or where it
//! speaks of a driver that is gone, NVIDIA's driver is found by its files ([`host::driver`]), and
//! GPUs of others by their nodes, since their libraries come with the image.
//!
//! Libraries go where the image's loader looks by itself: beside its C library. So neither its
//! cache has to be made anew nor do programs need a variable. An image without a C library in a
//! known place gets a directory of its own and `LD_LIBRARY_PATH`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::mount_options::MountOptions;
use engine::plan::{Overrides, Root};
use engine::spec::{ContainerConfig, DeviceSpec, MountKind, MountSpec};
use host::cdi::{self, Edits, Placed, Specification};
use host::driver::{self, Card, Driver};

use super::record::Record;
use crate::error::{Error, Result};
use crate::request::gpus::{Choice, GpuRequest, choice};
use crate::session::Session;

/// Where an image's C library lies, by the places where loaders look by themselves. The machine's
/// name stands for `@`.
const WIDE: [&str; 6] =
    ["usr/lib/@-linux-gnu", "lib/@-linux-gnu", "usr/lib64", "lib64", "usr/lib", "lib"];
const NARROW: [&str; 6] =
    ["usr/lib/i386-linux-gnu", "lib/i386-linux-gnu", "usr/lib32", "lib32", "usr/lib", "lib"];

/// Where libraries go that no loader of the image would find: NVIDIA's images name it in
/// `LD_LIBRARY_PATH` already.
const OWN_DIRECTORY: &str = "/usr/local/nvidia/lib64";

const PATH: &str = "LD_LIBRARY_PATH";

/// The configuration and what differs from it, with what the host has for the container's GPUs;
/// `None` where the container asks for none.
pub fn effective(
    session: &Session,
    record: &Record,
    overrides: &Overrides,
    root: &Root,
) -> Result<Option<(ContainerConfig, Overrides)>> {
    let request = &record.own.gpus;
    if request.is_empty() {
        return Ok(None);
    }
    let mut found = Found { image: Image::look(root), ..Found::default() };
    found.search(session, request)?;
    let mut config = record.config.clone();
    let mut overrides = overrides.clone();
    config.own_devices |= found.only;
    config.devices.extend(found.devices);
    // What the user binds at the same place is what the user wants there.
    let taken = |target: &Path| {
        config.mounts.iter().chain(&overrides.mounts).any(|mount| mount.target == target)
    };
    found.mounts.retain(|target, _| !taken(target));
    let mounts = found.mounts.into_values();
    if request.now && !overrides.exec {
        overrides.mounts.extend(mounts);
    } else {
        config.mounts.extend(mounts);
    }
    for variable in found.env {
        set(&mut config.env, &variable);
    }
    if let Some(directories) = found.library_path {
        let own = format!("{PATH}=");
        let known = config.env.iter().find_map(|variable| variable.strip_prefix(&own));
        let value = match known.filter(|known| !known.is_empty()) {
            Some(known) => format!("{directories}:{known}"),
            None => directories,
        };
        set(&mut config.env, &format!("{PATH}={value}"));
    }
    Ok(Some((config, overrides)))
}

fn set(env: &mut Vec<String>, variable: &str) {
    let name = variable.split('=').next();
    env.retain(|known| known.split('=').next() != name);
    env.push(variable.to_owned());
}

/// Where the image's loaders look.
#[derive(Default)]
struct Image {
    wide: Option<PathBuf>,
    narrow: Option<PathBuf>,
}

impl Image {
    fn look(root: &Root) -> Self {
        let find = |places: &[&str], class: u8| {
            places.iter().map(|place| place.replace('@', std::env::consts::ARCH)).find_map(
                |place| {
                    let header = engine::accounts::header(root, &format!("{place}/libc.so.6"))?;
                    let fits = header.starts_with(b"\x7fELF") && header[4] == class;
                    fits.then(|| Path::new("/").join(place))
                },
            )
        };
        Self { wide: find(&WIDE, 2), narrow: find(&NARROW, 1) }
    }
}

/// What is put into a container.
#[derive(Default)]
struct Found {
    image: Image,
    /// By their targets: a path is bound once.
    mounts: BTreeMap<PathBuf, MountSpec>,
    devices: Vec<DeviceSpec>,
    env: Vec<String>,
    library_path: Option<String>,
    /// Only these of the host's devices are to be seen.
    only: bool,
}

impl Found {
    fn search(&mut self, session: &Session, request: &GpuRequest) -> Result<()> {
        let settings = session.settings();
        let (specifications, faults) = cdi::read(&settings.cdi_dirs);
        for fault in faults {
            session.warn(&format!("{fault}"));
        }
        let mut names = request.devices.clone();
        if let Some(choice) = choice(&request.gpus)? {
            match described(session, &specifications, &choice, &settings.driver_root)? {
                Some(described) => names.extend(described),
                None => self.without_cdi(&settings.driver_root, &choice)?,
            }
            self.only |= choice != Choice::All;
        }
        if names.is_empty() {
            return Ok(());
        }
        let edits = cdi::resolve(&specifications, names.iter().map(String::as_str))?;
        if let Some(missing) = edits.missing() {
            return Err(Error::unsupported(format!(
                "a CDI file names {}, which this host does not have",
                missing.display()
            ))
            .with_hint("an administrator makes the file anew after the driver has changed: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"));
        }
        self.edits(session, &edits);
        Ok(())
    }

    fn without_cdi(&mut self, root: &Path, choice: &Choice) -> Result<()> {
        if let Some(driver) = Driver::find(root) {
            if driver.nodes.is_empty() && driver.gpus.is_empty() {
                return Err(Error::unsupported(
                    "this host has NVIDIA's driver, but none of its device nodes",
                )
                .with_hint(
                    "an administrator loads the module: modprobe nvidia; nvidia-modprobe -u -c0",
                ));
            }
            return self.driver(&driver, choice);
        }
        // The libraries of other vendors come with the image.
        let nodes = rendering(root);
        if nodes.is_empty() {
            return Err(Error::unsupported("--gpus: no GPU was found on this host")
                .because("there is no CDI file for one, no driver of NVIDIA's and no node in /dev/dri")
                .with_hint("'coracle doctor' tells what is there; a driver in another place is named by devices.driver-root (CORACLE_DRIVER_ROOT)"));
        }
        let cards = nodes.into_iter().map(|node| Card { uuid: None, node }).collect();
        for card in chosen(cards, choice)? {
            self.device(&card.node.0, &card.node.1, "");
        }
        if let Some(compute) = beneath(root, "dev/kfd") {
            self.device(&compute, Path::new("/dev/kfd"), "");
        }
        Ok(())
    }

    fn driver(&mut self, driver: &Driver, choice: &Choice) -> Result<()> {
        for (host, inside) in &driver.nodes {
            self.device(host, inside, "");
        }
        // In WSL all GPUs are one device.
        if !(driver.gpus.is_empty() && driver.version.is_empty()) {
            for card in chosen(driver.gpus.clone(), choice)? {
                self.device(&card.node.0, &card.node.1, "");
            }
        }
        let own = Path::new(OWN_DIRECTORY);
        for library in &driver.libraries {
            let directory = match (library.is_32_bit, &self.image.wide, &self.image.narrow) {
                (false, Some(wide), _) => wide.join(&library.name),
                (true, _, Some(narrow)) => narrow.join(&library.name),
                (false, None, _) => own.join(&library.name),
                // No program of the image could load it.
                (true, _, None) => continue,
            };
            self.bind(&library.host, &directory, &[]);
        }
        if self.image.wide.is_none() {
            self.library_path = Some(OWN_DIRECTORY.to_owned());
        }
        for (host, inside) in &driver.files {
            self.bind(host, inside, &[]);
        }
        Ok(())
    }

    fn edits(&mut self, session: &Session, edits: &Edits) {
        self.env.extend(edits.env.iter().cloned());
        for Placed { host, inside, options } in &edits.nodes {
            self.device(host, inside, options.first().map_or("", String::as_str));
        }
        let searched =
            |directory: &Path| edits.library_directories.iter().any(|one| one == directory);
        let mut unseen = Vec::new();
        for Placed { host, inside, options } in &edits.mounts {
            self.bind(host, inside, options);
            let Some(directory) = inside.parent().filter(|directory| searched(directory)) else {
                continue;
            };
            let Some(narrow) = driver::is_32_bit(host) else { continue };
            let names = driver::other_names(host);
            for name in &names {
                self.bind(host, &directory.join(name), options);
            }
            let own = if narrow { &self.image.narrow } else { &self.image.wide };
            let own = own.clone().filter(|own| own != directory);
            match own {
                Some(own) => {
                    let first =
                        inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    for name in names.iter().chain([&first]) {
                        self.bind(host, &own.join(name), options);
                    }
                }
                None if !narrow && self.image.wide.is_none() => unseen.push(directory),
                None => {}
            }
        }
        if !unseen.is_empty() {
            unseen.sort_unstable();
            unseen.dedup();
            let names: Vec<String> = unseen.iter().map(|path| path.display().to_string()).collect();
            self.library_path = Some(names.join(":"));
        }
        self.links(&edits.links);
        for hook in &edits.hooks {
            session.warn(&format!("hooks of CDI files are not run: {hook}"));
        }
    }

    /// A link to something that is bound is that, under another name; a link may lead to one that
    /// is made before or after it.
    fn links(&mut self, links: &[(PathBuf, PathBuf)]) {
        for _ in 0..links.len().min(8) {
            for (place, text) in links {
                let target = normal(&place.parent().unwrap_or(Path::new("/")).join(text));
                if let Some(mount) = self.mounts.get(&target).cloned() {
                    let target = place.clone();
                    self.mounts.entry(target.clone()).or_insert(MountSpec { target, ..mount });
                } else if let Some(device) = self.devices.iter().find(|one| one.target == target)
                    && self.only
                    && !self.devices.iter().any(|one| one.target == *place)
                {
                    let again = DeviceSpec { target: place.clone(), ..device.clone() };
                    self.devices.push(again);
                }
            }
        }
    }

    fn bind(&mut self, host: &Path, inside: &Path, options: &[String]) {
        let known = ["nosuid", "nodev", "noexec"];
        let kept = options.iter().map(String::as_str).filter(|option| known.contains(option));
        let spec = MountSpec {
            source: host.to_owned(),
            target: inside.to_owned(),
            // No program in a container may change the host's driver.
            read_only: options.is_empty() || options.iter().any(|option| option == "ro"),
            options: MountOptions::of(MountKind::Bind, kept).unwrap_or_default(),
            ..MountSpec::default()
        };
        self.mounts.entry(spec.target.clone()).or_insert(spec);
    }

    fn device(&mut self, host: &Path, inside: &Path, access: &str) {
        let access = if access.is_empty() { "rwm" } else { access };
        let device =
            DeviceSpec { source: host.into(), target: inside.into(), access: access.to_owned() };
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }
}

/// A path without `.` and `..`, by its words alone: nothing of it is there yet.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut whole = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    whole
}

/// The names under which CDI files describe the chosen GPUs: NVIDIA's, else another vendor's.
fn described(
    session: &Session,
    specifications: &[Specification],
    choice: &Choice,
    root: &Path,
) -> Result<Option<Vec<String>>> {
    let mut kinds = specifications.iter().filter(|one| one.kind.ends_with("/gpu"));
    let nvidia = specifications.iter().find(|one| one.kind == "nvidia.com/gpu");
    let Some(specification) = nvidia.or_else(|| kinds.next()) else { return Ok(None) };
    let names = || specification.devices.iter().map(|(name, _)| name.as_str());
    let numbered = || names().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let chosen: Vec<&str> = match choice {
        Choice::All if names().any(|name| name == "all") => vec!["all"],
        Choice::All => names().collect(),
        Choice::Count(count) => {
            let all = numbered().count();
            if all < *count {
                return Err(too_few(*count, all));
            }
            numbered().take(*count).collect()
        }
        Choice::Named(wanted) => wanted.iter().map(String::as_str).collect(),
    };
    let kind = &specification.kind;
    let whole = |name: &str| {
        if cdi::is_name(name) { name.to_owned() } else { format!("{kind}={name}") }
    };
    // A file that speaks of a driver that is gone must not keep the one that is there from being
    // found.
    let names: Vec<String> = chosen.into_iter().map(whole).collect();
    if *choice == Choice::All
        && kind == "nvidia.com/gpu"
        && cdi::resolve(specifications, names.iter().map(String::as_str))?.missing().is_some()
        && Driver::find(root).is_some()
    {
        let file = specification.file.display();
        session.warn(&format!("{file} names files that are gone; the driver is looked for"));
        return Ok(None);
    }
    Ok(Some(names))
}

fn too_few(wanted: usize, there: usize) -> Error {
    Error::unsupported(format!("--gpus {wanted}: this host has {there}"))
        .with_hint("--gpus all takes those that are there")
}

/// Those of the GPUs that were chosen.
fn chosen(cards: Vec<Card>, choice: &Choice) -> Result<Vec<Card>> {
    match choice {
        Choice::All => Ok(cards),
        Choice::Count(count) if *count > cards.len() => Err(too_few(*count, cards.len())),
        Choice::Count(count) => Ok(cards.into_iter().take(*count).collect()),
        Choice::Named(names) => {
            let find = |name: &String| {
                let index = name.rsplit('=').next().unwrap_or(name);
                let by_number = index.parse::<usize>().ok().and_then(|index| cards.get(index));
                let is = |card: &&Card| {
                    card.uuid
                        .as_deref()
                        .is_some_and(|uuid| uuid.starts_with(index) && index.len() > 4)
                };
                by_number.or_else(|| cards.iter().find(is)).cloned().ok_or_else(|| {
                    Error::unsupported(format!("--gpus: this host has no GPU '{name}'"))
                        .with_hint(format!("there are {}, counted from 0", cards.len()))
                })
            };
            names.iter().map(find).collect()
        }
    }
}

fn beneath(root: &Path, path: &str) -> Option<PathBuf> {
    let own = root.join(path);
    let host = if own.exists() { own } else { Path::new("/").join(path) };
    host.exists().then_some(host)
}

/// Nodes for rendering and computing: on the host, in the container.
fn rendering(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let Some(directory) = beneath(root, "dev/dri") else { return Vec::new() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut nodes: Vec<(PathBuf, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
        .map(|entry| (entry.path(), Path::new("/dev/dri").join(entry.file_name())))
        .collect();
    nodes.sort_unstable();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_names_of_what_is_bound() {
        let mut found = Found::default();
        let inside = Path::new("/usr/lib/libcuda.so.1");
        found.bind(Path::new("/host/libcuda.so.550"), inside, &["ro".into(), "rbind".into()]);
        let link = |place: &str, text: &str| (PathBuf::from(place), PathBuf::from(text));
        found.links(&[
            link("/usr/lib/again/libcuda.so", "../libcuda.so"),
            link("/usr/lib/libcuda.so", "libcuda.so.1"),
            link("/usr/lib/other.so", "none.so"),
        ]);
        let targets: Vec<&str> = found.mounts.keys().filter_map(|path| path.to_str()).collect();
        assert_eq!(
            targets,
            ["/usr/lib/again/libcuda.so", "/usr/lib/libcuda.so", "/usr/lib/libcuda.so.1"]
        );
        assert!(
            found
                .mounts
                .values()
                .all(|mount| mount.read_only && mount.options == MountOptions::default())
        );
    }

    #[test]
    fn some_of_several() {
        let card = |uuid: &str| Card { uuid: Some(uuid.to_owned()), ..Card::default() };
        let cards = vec![card("GPU-aaaa"), card("GPU-bbbb")];
        let uuids = |text: &str| -> Result<Vec<String>> {
            let choice = choice(text)?.expect("a choice");
            Ok(chosen(cards.clone(), &choice)?.into_iter().filter_map(|card| card.uuid).collect())
        };
        assert_eq!(uuids("1").unwrap(), ["GPU-aaaa"]);
        assert_eq!(uuids("device=1").unwrap(), ["GPU-bbbb"]);
        assert_eq!(uuids("device=GPU-b").unwrap(), ["GPU-bbbb"]);
        assert!(uuids("3").is_err() && uuids("device=2").is_err() && uuids("device=GPU-").is_err());
    }
}
