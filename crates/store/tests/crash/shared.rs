//! Several hosts on one store: each starts this program at the same time in one directory that all
//! of them have, named by `CORACLE_CRASH_SHARED`. `CORACLE_CRASH_HOSTS` says how many there are
//! (2).
//!
//! Each host starts and kills processes without regard to the others, and gives names to images
//! that nobody removes. When all have ended, one host checks the store and cleans it; then every
//! host checks it, so what it sees late counts too.
//!
//! `cargo xtask cluster nfs` runs it on NFS. The test itself simulates two hosts on a file system
//! with faults ([`on_faulty`]); `CORACLE_CRASH_FAULTS` is for the simulated hosts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use store::{Durability, Error, Store, remove_owned};

use crate::faulty::{self, CALM, Faults};
use crate::{Children, Driver, Failure, Random, image_name, pull, reference_of};

/// The variable that names the directory.
pub(crate) const PLACE: &str = "CORACLE_CRASH_SHARED";
/// How many times longer than on a local disk processes live.
pub(crate) const SLOWER: u32 = 12;
/// How long a host waits for the others: emulated ones are slow.
const LIMIT: Duration = Duration::from_mins(30);

/// The hosts of a run, by the files that each leaves in the directory.
struct Hosts<'a> {
    place: &'a Path,
    me: String,
    count: usize,
}

impl Hosts<'_> {
    /// Names of the hosts that have come this far, sorted.
    fn at(&self, stage: &str) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        for entry in retried(|| std::fs::read_dir(self.place))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(host) = name.strip_prefix(&format!("{stage}-")) {
                found.push(host.to_owned());
            }
        }
        found.sort();
        Ok(found)
    }

    fn say(&self, stage: &str) -> Result<(), Failure> {
        Ok(write(&self.place.join(format!("{stage}-{}", self.me)), b"")?)
    }

    /// Waits until so many hosts have come this far; fails if one has failed.
    fn wait(&self, stage: &str, count: usize) -> Result<Vec<String>, Failure> {
        let start = std::time::Instant::now();
        loop {
            if let Some(other) = self.at("failed")?.first() {
                return Err(format!("host {other} failed").into());
            }
            let there = self.at(stage)?;
            if there.len() >= count {
                return Ok(there);
            }
            if start.elapsed() > LIMIT {
                return Err(format!("only {there:?} came to {stage:?}").into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// What a simulated host has of its own: names, process ids, a boot. `$0` is this program.
const HOST: &str = "hostname \"$1\" && mkdir -p \"$2\" && echo \"$1-boot\" > \"$2.boot\" \
    && mount --bind \"$2.boot\" /proc/sys/kernel/random/boot_id && exec \"$0\"";
/// The variable with the faults of a simulated host: its shown directory, `ESTALE` one time in so
/// many, `EIO` one time in so many.
const FAULTS: &str = "CORACLE_CRASH_FAULTS";

/// Two simulated hosts on a file system with faults: without I/O errors, then with them.
pub(crate) fn on_faulty(rounds: u64, seed: u64) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
        println!("SKIP crash: a file system with faults needs root and /dev/fuse");
        return Ok(());
    }
    for errors in [0, 150] {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("shown"))?;
        let mut hosts = Children(Vec::new());
        for host in ["faulty1", "faulty2"] {
            let mut command = Command::new("unshare");
            command.args(["--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            command.args(["sh", "-c", HOST]).arg(std::env::current_exe()?).arg(host);
            let place = dir.path().join(host);
            command.arg(&place).env(PLACE, &place).env("CORACLE_CRASH_ROUNDS", rounds.to_string());
            command.env("CORACLE_CRASH_SEED", (seed + hosts.0.len() as u64).to_string());
            let shown = dir.path().join("shown");
            command.env(FAULTS, format!("{}\n40\n{errors}", shown.display()));
            hosts.0.push(command.spawn()?);
        }
        for host in &mut hosts.0 {
            let status = host.wait()?;
            if !status.success() {
                let kept = dir.keep();
                let kept = kept.display();
                return Err(format!("a host failed: {status} (the files are in {kept})").into());
            }
        }
    }
    Ok(())
}

/// Mounts the file system of a simulated host.
fn mount(place: &Path) -> Result<Option<fuser::BackgroundSession>, Failure> {
    let Ok(text) = std::env::var(FAULTS) else { return Ok(None) };
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default();
    let shown = PathBuf::from(line());
    let faults = Faults { stale: line().parse()?, errors: line().parse()? };
    Ok(Some(faulty::mount(&shown, place, faults)?))
}

/// Returns true on a file system that loses bytes which only the process that wrote them could
/// know of.
pub(crate) fn loses_bytes() -> bool {
    std::env::var(FAULTS).is_ok_and(|faults| faults.lines().nth(2) != Some("0"))
}

/// Returns true for an I/O error of the file system with faults.
pub(crate) fn is_fault(error: &(dyn std::error::Error + 'static)) -> bool {
    let fails = std::env::var_os(FAULTS).is_some();
    let is_io = |error: &(dyn std::error::Error + 'static)| {
        let number = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        number.map(Errno::from_raw_os_error) == Some(Errno::IO)
            || error.downcast_ref::<sys::fs::Error>().is_some_and(|error| error.errno == Errno::IO)
    };
    fails && std::iter::successors(Some(error), |error| error.source()).any(is_io)
}

/// Makes a call again while the file system fails by chance.
fn patiently<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match call() {
            Err(error) if is_fault(&error) => {}
            other => return other,
        }
    }
}

/// Runs this host's part.
pub(crate) fn run(place: &Path, rounds: u64, seed: u64) -> Result<(), Failure> {
    let count = std::env::var("CORACLE_CRASH_HOSTS").ok().and_then(|text| text.parse().ok());
    let me = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = Hosts { place, me, count: count.unwrap_or(2) };
    let session = mount(place)?;
    let result = work(&hosts, rounds, seed);
    CALM.store(true, Ordering::Relaxed);
    if result.is_err() {
        hosts.say("failed")?;
    }
    drop(session);
    result
}

fn work(hosts: &Hosts<'_>, rounds: u64, seed: u64) -> Result<(), Failure> {
    // A simulated host writes its log without faults.
    let faults = std::env::var(FAULTS).ok();
    let logs = faults.as_deref().and_then(|text| text.lines().next()).map(PathBuf::from);
    let mut driver = Driver {
        path: hosts.place.join("store"),
        log: logs.as_deref().unwrap_or(hosts.place).join(format!("log-{}", hosts.me)),
        method: None,
        random: Random::new(seed),
        kills: 0,
    };
    let store = open(&driver)?;
    println!("{}: {:?}", hosts.me, store.abilities());
    hosts.say("ready")?;
    hosts.wait("ready", hosts.count)?;
    let mut kept = Vec::new();
    for round in 0..rounds {
        driver.kill_some()?;
        let name = format!("kept-{}-{round}", hosts.me);
        let store = open(&driver)?;
        patiently(|| keep(&store, &name, &mut driver.random))?;
        kept.push(name);
        let store = open(&driver)?;
        patiently(|| check_kept(&store, &kept))?;
    }
    CALM.store(true, Ordering::Relaxed);
    // What killed processes have locked by links only their own host can free.
    open(&driver)?.sweep(&remove_owned)?;
    hosts.say("done")?;
    let all = hosts.wait("done", hosts.count)?;
    let kept: Vec<String> = all
        .iter()
        .flat_map(|host| (0..rounds).map(move |round| format!("kept-{host}-{round}")))
        .collect();
    let check = || -> Result<(), Failure> {
        let store = open(&driver)?;
        check_kept(&store, &kept)?;
        driver.check(&store)
    };
    if all.first() == Some(&hosts.me) {
        check()?;
        driver.check_clean(&open(&driver)?)?;
        hosts.say("checked")?;
    }
    hosts.wait("checked", 1)?;
    check()?;
    println!("{}: {} processes killed, {} hosts: ok", hosts.me, driver.kills, hosts.count);
    hosts.say("ended")?;
    // The directory is not left while another host still checks.
    hosts.wait("ended", hosts.count).map(drop)
}

fn open(driver: &Driver) -> Result<Store, Error> {
    patiently(|| crate::open(&driver.path, driver.method, Durability::Deferred))
}

/// Gives an image a name that stays.
fn keep(store: &Store, name: &str, random: &mut Random) -> Result<(), Error> {
    let image = random.below(crate::IMAGES);
    // Another process may remove the image's own name between the two.
    for _ in 0..100 {
        pull(store, image, random)?;
        let _lease = store.lease()?;
        match store.images().find(&image_name(image)) {
            Ok(found) => return store.images().tag(&reference_of(name)?, found.descriptor()),
            Err(Error::NoImage { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Error::NoImage { name: image_name(image) })
}

fn check_kept(store: &Store, kept: &[String]) -> Result<(), Error> {
    for name in kept {
        store.images().find(name)?.config()?;
    }
    Ok(())
}

/// Writes a file, as programs do that know nothing of file servers.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    retried(|| std::fs::write(path, bytes))
}

/// Makes a call again while the file server says that a file is stale.
pub(crate) fn retried<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..10 {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::StaleNetworkFileHandle => {}
            other => return other,
        }
    }
    call()
}

/// The text of a log, with those of the other hosts: the files beside it whose names begin alike.
pub(crate) fn logs(log: &Path) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let Some(directory) = log.parent() else { return String::new() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_log = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("log");
    entries.filter(|entry| is_log(&entry.file_name())).map(|entry| read(entry.path())).collect()
}
