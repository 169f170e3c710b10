//! Kills processes that are working on a store, hundreds of times at random points. After each time
//! it checks that no half-done work counts as finished, that nothing finished is lost, and that the
//! next command works.
//!
//! This test is a program of its own, which starts itself as the processes that it kills.
//! `CORACLE_CRASH_ROUNDS` sets the number of rounds (default 90, a few seconds),
//! `CORACLE_CRASH_SEED` repeats a run as far as the scheduler allows. `CORACLE_CRASH_SHARED` is a
//! directory that several hosts have; each runs this program there at the same time ([`shared`]).

mod faulty;
mod shared;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oci::{Descriptor, Digest, Reference, media};
use store::{
    Abilities, BeginBlob, BeginTree, CollectOptions, Durability, Error, Kind, LockMethod, Options,
    Store, VerifyOptions, VolumeInfo, WaitPolicy, remove_owned,
};

const CHILD: &str = "CORACLE_CRASH_CHILD";
const METHODS: [LockMethod; 3] = [LockMethod::Flock, LockMethod::Ofd, LockMethod::Symlink];
const IMAGES: u64 = 6;
/// Every image has two of these layers; neighbours share one.
const LAYERS: u64 = 6;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    if let Ok(task) = std::env::var(CHILD) {
        return child(&task);
    }
    // Asked by `cargo test -- --list`.
    if std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("CORACLE_CRASH_ROUNDS").unwrap_or(90);
    let seed = number("CORACLE_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("crash: {rounds} rounds, CORACLE_CRASH_SEED={seed}");
    let start = Instant::now();
    if let Some(place) = std::env::var_os(shared::PLACE) {
        return shared::run(Path::new(&place), rounds, seed);
    }
    let mut kills = 0;
    for (index, method) in METHODS.into_iter().enumerate() {
        let dir = tempfile::tempdir()?;
        let mut driver = Driver {
            path: dir.path().join("store"),
            log: dir.path().join("log"),
            method: Some(method),
            random: Random::new(seed),
            kills: 0,
        };
        driver.open()?;
        let share = rounds / 3 + u64::from((index as u64) < rounds % 3);
        for round in 0..share {
            if let Err(failure) = driver.round(round) {
                let kept = dir.keep();
                let kept = kept.display();
                return Err(format!(
                    "{method:?}, round {round}: {failure} (the store is in {kept})"
                )
                .into());
            }
        }
        kills += driver.kills;
    }
    if std::env::var_os("CORACLE_CRASH_ROUNDS").is_none() {
        shared::on_faulty(4, seed)?;
    }
    println!("crash: {kills} processes killed in {:.1} s: ok", start.elapsed().as_secs_f64());
    Ok(())
}

/// xorshift64: random enough to hit every point.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Child processes, killed at the latest when they are dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Driver {
    path: PathBuf,
    log: PathBuf,
    /// The kind of lock; `None` for the one that the store has chosen.
    method: Option<LockMethod>,
    random: Random,
    kills: u64,
}

fn open(path: &Path, method: Option<LockMethod>, durability: Durability) -> Result<Store, Error> {
    // Hosts that are emulated are slow.
    let seconds = if method.is_some() { 20 } else { 300 };
    let limit = Duration::from_secs(seconds);
    let wait = WaitPolicy { limit, content_limit: Some(limit), on_wait: None };
    let abilities = match method {
        None => None,
        Some(locks) => {
            let plain = Store::open(path, Options { create: true, ..Options::default() })?;
            Some(Abilities { locks, ..plain.abilities().clone() })
        }
    };
    Store::open(path, Options { create: true, durability, wait, abilities, ..Options::default() })
}

impl Driver {
    fn open(&self) -> Result<Store, Error> {
        open(&self.path, self.method, Durability::Relaxed)
    }

    fn start(&mut self) -> Result<Child, Failure> {
        let method = serde_json::to_string(&self.method)?;
        let task =
            [self.path.to_str(), self.log.to_str()].map(Option::unwrap_or_default).join("\n");
        Ok(Command::new(std::env::current_exe()?)
            .env(CHILD, format!("{task}\n{method}\n{}", self.random.below(u64::MAX >> 11) | 1))
            .stdout(Stdio::null())
            .spawn()?)
    }

    /// Starts one to three processes and kills them one after the other.
    fn kill_some(&mut self) -> Result<(), Failure> {
        let count = 1 + self.random.below(3);
        let mut children = Children(Vec::new());
        for _ in 0..count {
            children.0.push(self.start()?);
        }
        for child in &mut children.0 {
            // The first milliseconds are the start of the program.
            let slower = if self.method.is_some() { 1 } else { shared::SLOWER };
            std::thread::sleep(Duration::from_micros(2_000 + self.random.below(40_000)) * slower);
            if let Some(status) = child.try_wait()? {
                return Err(format!("a process ended by itself: {status}").into());
            }
            child.kill()?;
            child.wait()?;
            self.kills += 1;
        }
        Ok(())
    }

    /// Kills processes, then checks the store.
    fn round(&mut self, round: u64) -> Result<(), Failure> {
        self.kill_some()?;
        let store = self.open()?;
        self.check(&store)?;
        if round.is_multiple_of(5) {
            self.check_clean(&store)?;
        }
        // The next command works, and finds what the others left.
        let image = self.random.below(IMAGES);
        pull(&store, image, &mut self.random)?;
        let container = create(&store, image, None)?;
        container.remove()?;
        self.check(&store)
    }

    /// Invariants that hold whenever no process is at work.
    fn check(&self, store: &Store) -> Result<(), Failure> {
        let tree_is_whole = |kind: Kind, cached: &store::Cached| -> Result<(), String> {
            let files: usize = cached.meta().map_err(|error| error.to_string())?;
            let found =
                std::fs::read_dir(cached.tree()).map_err(|error| error.to_string())?.count();
            if files == found {
                Ok(())
            } else {
                Err(format!("{kind:?} has {found} of {files} files"))
            }
        };
        let options =
            VerifyOptions { check_tree: Some(&tree_is_whole), ..VerifyOptions::default() };
        let problems = store.verify(&options)?;
        if let Some(problem) = problems.first() {
            return Err(format!("{} problems: {problem}", problems.len()).into());
        }
        let mut seen = BTreeSet::new();
        for image in store.images().list()? {
            image.config()?;
            let name = image.reference().map(|name| name.to_string());
            if let Some(name) = name.filter(|name| !seen.insert(name.clone())) {
                return Err(format!("two images are called {name}").into());
            }
        }
        for container in store.containers().list()? {
            let config: serde_json::Value = container.read()?;
            if config["id"] != container.id() {
                return Err(format!("container {} has {config}", container.id()).into());
            }
            let mut reverse = store.containers().find(container.id())?.names()?;
            reverse.sort();
            if reverse != container.names()? {
                return Err(format!(
                    "{}: links {:?}, list {reverse:?}",
                    container.id(),
                    container.names()?
                )
                .into());
            }
            for name in reverse {
                if store.containers().find(&name)?.id() != container.id() {
                    return Err(format!("{name} does not lead to {}", container.id()).into());
                }
            }
        }
        for volume in store.volumes().list()? {
            if !volume.data().is_dir() || volume.info()?.created != "now" {
                return Err(format!("volume {} is not whole", volume.name()).into());
            }
        }
        self.check_log(store)
    }

    /// Checks that logged work is done: containers that were made and not removed exist.
    fn check_log(&self, store: &Store) -> Result<(), Failure> {
        let text = shared::logs(&self.log);
        let (mut made, mut removed) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            // Another process may remove a container before its maker has logged it.
            match line.split_once(' ') {
                Some(("made", id)) => made.insert(id),
                Some(("removing", id)) => removed.insert(id),
                _ => return Err(format!("the log has {line:?}").into()),
            };
        }
        for id in made.difference(&removed) {
            store.containers().find(id)?;
        }
        Ok(())
    }

    /// After a collection, nothing is left from dead processes.
    fn check_clean(&self, store: &Store) -> Result<(), Failure> {
        let options = CollectOptions { partials_older_than: Duration::ZERO, grace: Duration::ZERO };
        store.collect(&options, &remove_owned)?;
        for (directory, allowed) in [
            ("tmp", &["build", "ingest"][..]),
            ("tmp/ingest", &[]),
            ("tmp/build", &[]),
            ("trash", &[]),
            ("oci", &["blobs", "index.json", "oci-layout"]),
        ] {
            for entry in std::fs::read_dir(self.path.join(directory)).into_iter().flatten() {
                let name = entry?.file_name();
                if !allowed.iter().any(|allowed| name == *allowed) {
                    return Err(format!("{directory}/{} is left over", name.display()).into());
                }
            }
        }
        let usage = store.usage()?;
        let unused =
            usage.blobs.unused_count + usage.layers.unused_count + usage.trees.unused_count;
        if unused > 0 {
            return Err(format!("{unused} things are left that nothing refers to").into());
        }
        // Makes room: the containers of killed processes add up.
        for container in store.containers().list()? {
            writeln!(append(&self.log)?, "removing {}", container.id())?;
            container.remove()?;
        }
        Ok(())
    }
}

fn append(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::File::options().create(true).append(true).open(path)
}

/// Works on the store at random until it is killed.
fn child(task: &str) -> Result<(), Failure> {
    // Does not outlive a parent that was killed itself.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut parts = task.split('\n');
    let mut part = || parts.next().unwrap_or_default();
    let (path, log) = (PathBuf::from(part()), PathBuf::from(part()));
    let method: Option<LockMethod> = serde_json::from_str(part())?;
    let mut random = Random(part().parse()?);
    let durability = match random.below(8) {
        0 => Durability::Full,
        1 => Durability::Deferred,
        _ => Durability::Relaxed,
    };
    let mut log = shared::retried(|| append(&log))?;
    loop {
        // A new value each time, as every command opens the store anew.
        let store = match open(&path, method, durability) {
            Err(error) if shared::is_fault(&error) => continue,
            other => other?,
        };
        if let Err(error) = work(&store, &mut random, &mut log) {
            if shared::is_fault(&error) {
                continue;
            }
            // Other processes may remove what this one is using, by name.
            let expected = matches!(
                error,
                Error::NoImage { .. }
                    | Error::NoContainer { .. }
                    | Error::NoVolume { .. }
                    | Error::NameInUse { .. }
                    | Error::ImageInUse { .. }
                    | Error::AmbiguousImage { .. }
            );
            if !expected {
                eprintln!("crash: {error}: {:?}", std::error::Error::source(&error));
                return Err(error.into());
            }
        }
    }
}

fn work(store: &Store, random: &mut Random, log: &mut std::fs::File) -> Result<(), Error> {
    let image = random.below(IMAGES);
    let any_container = |random: &mut Random| -> Result<store::ContainerDir, Error> {
        let mut all = store.containers().list()?;
        if all.is_empty() {
            return Err(Error::NoContainer { name: String::new() });
        }
        Ok(all.swap_remove(random.below(all.len() as u64) as usize))
    };
    let mut say = |what: &str, id: &str| {
        // One write, so that the line is whole or not there.
        let _ = log.write_all(format!("{what} {id}\n").as_bytes());
    };
    match random.below(20) {
        0..=5 => pull(store, image, random),
        6..=8 => store.images().remove(&image_name(image), random.below(2) == 0).map(|_| ()),
        9..=12 => {
            let name = (random.below(2) == 0).then(|| format!("name{}", random.below(4)));
            let container = create(store, image, name.as_deref())?;
            say("made", container.id());
            container.write_file("state.json", &random.below(100))
        }
        13 => any_container(random)?.rename(None, &format!("name{}", random.below(4))),
        14 => {
            let mut container = any_container(random)?;
            container.add_name(&format!("name{}", random.below(4)))?;
            container.remove_name(&format!("name{}", random.below(4))).map(|_| ())
        }
        15..=16 => {
            let container = any_container(random)?;
            let Some(_lock) = container.try_lock_exclusive()? else { return Ok(()) };
            say("removing", container.id());
            container.remove()
        }
        17 => {
            let name = format!("volume{}", random.below(3));
            let info = VolumeInfo { created: "now".into(), ..VolumeInfo::default() };
            let (volume, new) = store.volumes().create(&name, &info)?;
            if new { Ok(()) } else { volume.remove() }
        }
        18 => store.sweep(&remove_owned).map(|_| ()),
        _ => {
            let options =
                CollectOptions { partials_older_than: Duration::ZERO, grace: Duration::ZERO };
            store.collect(&options, &remove_owned).map(|_| ())
        }
    }
}

fn image_name(image: u64) -> String {
    format!("image{image}")
}

fn layer_content(layer: u64) -> Vec<u8> {
    (0..20_000 + layer * 10_000).map(|n| (n * (layer + 3) % 253) as u8).collect()
}

fn reference_of(name: &str) -> Result<Reference, Error> {
    Reference::parse(name).map_err(|error| Error::BadDocument {
        digest: String::new(),
        what: "name",
        why: error.to_string(),
    })
}

/// Fetches, unpacks and names an image, as `pull` does.
fn pull(store: &Store, image: u64, random: &mut Random) -> Result<(), Error> {
    let _lease = store.lease()?;
    let mut layers = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in [image % LAYERS, (image + 1) % LAYERS] {
        let content = layer_content(layer);
        layers.push(ingest(store, media::OCI_LAYER, &content, random)?);
        let diff_id = Digest::of(&content);
        if let BeginTree::Build(staging) = store.layers().begin(&diff_id)? {
            let files = 5 + layer as usize;
            for file in 0..files {
                let path = staging.tree().join(file.to_string());
                shared::write(&path, &content[..100]).map_err(|source| Error::Io {
                    step: store::Step::Write,
                    path,
                    source,
                })?;
            }
            staging.commit(&files)?;
        }
        diff_ids.push(diff_id);
    }
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {"Labels": {"n": image.to_string()}},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = ingest(store, media::OCI_CONFIG, config.to_string().as_bytes(), random)?;
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": media::OCI_MANIFEST, "config": config, "layers": layers,
    });
    let manifest = ingest(store, media::OCI_MANIFEST, manifest.to_string().as_bytes(), random)?;
    store.images().tag(&reference_of(&image_name(image))?, &manifest)
}

fn ingest(
    store: &Store,
    media_type: &str,
    bytes: &[u8],
    random: &mut Random,
) -> Result<Descriptor, Error> {
    let descriptor = Descriptor::of(media_type, bytes);
    while let BeginBlob::Ingest(mut ingest) = store.blobs().begin(&descriptor)? {
        let is_resumed = ingest.offset() > 0;
        let rest = &bytes[ingest.offset() as usize..];
        for chunk in rest.chunks(1 + random.below(20_000) as usize) {
            ingest.write_all(chunk).map_err(|source| Error::Io {
                step: store::Step::Write,
                path: ingest.path(),
                source,
            })?;
        }
        match ingest.commit() {
            // What a killed process had written may lack bytes that the file server has lost. It is
            // removed then, and the next attempt fetches all.
            Err(Error::WrongDigest { .. }) if is_resumed && shared::loses_bytes() => {}
            other => return other.map(|_| descriptor),
        }
    }
    Ok(descriptor)
}

/// Makes a container of an image, as `create` does.
fn create(store: &Store, image: u64, name: Option<&str>) -> Result<store::ContainerDir, Error> {
    let _lease = store.lease()?;
    let found = store.images().find(&image_name(image))?;
    let config = found.config()?;
    let layers = config.diff_ids();
    for layer in layers {
        if store.layers().get(layer)?.is_none() {
            return Err(Error::NoTree { what: "layer", digest: layer.to_string() });
        }
    }
    store.containers().create(name, |id, _| {
        serde_json::json!({"id": id, "image": {"manifest": found.digest(), "layers": layers}})
    })
}
