//! Makes the tree of a real distribution: Debian's minimal base by `mmdebstrap`, kept in [`cache`].
//!
//! It takes some ten seconds and a package mirror, the machine's own. If that is not available the
//! callers skip with the reason. A tree with other packages is another file, so a changed list
//! never uses an old tree.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::command::find_program;
use crate::image::{Image, Pack};
use crate::skip::Skip;

/// The Debian release of the tree.
pub const SUITE: &str = "bookworm";

/// The release with the newest C library and programs.
pub const NEWEST: &str = "sid";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Directory in which trees, images and tools are kept, for all clones: `CORACLE_TEST_CACHE`, else
/// `/var/cache/coracle-tests` for root, from where other users can read, else the caller's own
/// cache. What is in it has what it was made from in its name.
pub fn cache() -> PathBuf {
    let own = || {
        if rustix::process::getuid().is_root() {
            return PathBuf::from("/var/cache");
        }
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let place = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        place.unwrap_or_else(std::env::temp_dir)
    };
    let named = std::env::var_os("CORACLE_TEST_CACHE").map(PathBuf::from);
    named.unwrap_or_else(|| own().join("coracle-tests"))
}

/// A file with the tree as one tar stream.
pub fn tar() -> Result<PathBuf, Skip> {
    make(SUITE, "", &[], &[])
}

/// The tree of another release.
pub fn release(suite: &str) -> Result<PathBuf, Skip> {
    make(suite, "", &[], &[])
}

/// The tree with more packages, kept under its own name.
pub fn tar_with(name: &str, packages: &[&str]) -> Result<PathBuf, Skip> {
    make(SUITE, name, packages, &[])
}

/// The same with answers to what packages ask when they are installed
/// (`debconf-set-selections(1)`).
pub fn tar_answering(name: &str, packages: &[&str], answers: &[&str]) -> Result<PathBuf, Skip> {
    make(SUITE, name, packages, answers)
}

/// The tree of [`NEWEST`] with more packages. `apt-get` in it accepts package lists that are older
/// than the archive promises, as mirrors have them.
pub fn newest_with(name: &str, packages: &[&str]) -> Result<PathBuf, Skip> {
    make(NEWEST, name, packages, &[])
}

fn make(suite: &str, name: &str, packages: &[&str], answers: &[&str]) -> Result<PathBuf, Skip> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = file_name(suite, name, &[packages, answers].concat());
    let file = cache().join(format!("{name}.tar"));
    if file.exists() {
        return Ok(file);
    }
    let program =
        find_program("mmdebstrap").ok_or_else(|| Skip("mmdebstrap is not installed".to_owned()))?;
    let trouble = |what: &str, error: std::io::Error| Skip(format!("{what}: {error}"));
    fs::create_dir_all(cache()).map_err(|e| trouble("making the cache directory", e))?;
    // Another test binary may be making the same file.
    let part = part(&format!("{name}.tar"));
    let mut command = Command::new(program);
    command
        // A tree that a loss of power damages is made again, so `dpkg` need not sync each file.
        .args(["--variant=minbase", "--quiet", "--dpkgopt=force-unsafe-io"])
        .args((!packages.is_empty()).then(|| format!("--include={}", packages.join(","))));
    for answer in answers {
        command.arg(format!(
            "--essential-hook=echo '{answer}' | chroot \"$1\" debconf-set-selections"
        ));
    }
    if suite == SUITE {
        command.arg(suite).arg(&part).args(sources());
    } else {
        command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
        command.arg(suite).arg(&part).arg(mirror());
    }
    let output =
        command.stdin(Stdio::null()).output().map_err(|e| trouble("starting mmdebstrap", e))?;
    if !output.status.success() {
        let _ = fs::remove_file(&part);
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|line| line.contains("E:")).unwrap_or_default();
        return Err(Skip(format!("mmdebstrap could not make Debian's tree: {last}")));
    }
    fs::rename(&part, &file).map_err(|e| trouble("keeping Debian's tree", e))?;
    Ok(file)
}

/// A path in the cache for what this process makes and then renames. Removes what processes have
/// left there that were killed.
fn part(name: &str) -> PathBuf {
    const BEGIN: &str = "part-";
    for entry in fs::read_dir(cache()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(BEGIN)?.split('-').next());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
    cache().join(format!("{BEGIN}{}-{name}", std::process::id()))
}

/// File name of a tree: its release, its name, and its packages.
fn file_name(suite: &str, name: &str, packages: &[&str]) -> String {
    if packages.is_empty() {
        return format!("debian-{suite}");
    }
    let mut sum = DefaultHasher::new();
    packages.hash(&mut sum);
    format!("debian-{suite}-{name}-{:08x}", sum.finish() >> 32)
}

/// Package files of a release, for a place into which they would pull too many others.
pub fn package_files(suite: &str, name: &str, packages: &[&str]) -> Result<Vec<PathBuf>, Skip> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = cache().join(file_name(suite, name, packages));
    let list = |dir: &Path| -> Vec<PathBuf> {
        let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|file| file.extension().is_some_and(|end| end == "deb")).collect()
    };
    if dir.exists() {
        return Ok(list(&dir));
    }
    let part = part(&format!("packages-{name}"));
    let line = format!("deb [trusted=yes] {} {suite} main\n", mirror());
    let words = [&["-qq", "download"], packages].concat();
    let done = fetch(&part, &line, &words);
    done.map_err(|why| Skip(format!("fetching packages of {suite}: {why}")))?;
    // Another process was quicker and has left the same there.
    if fs::rename(&part, &dir).is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    Ok(list(&dir))
}

/// Runs `apt-get` in a new directory, with package lists of its own.
fn fetch(part: &Path, line: &str, words: &[&str]) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    fs::create_dir_all(part.join("state/lists/partial")).map_err(failed)?;
    fs::create_dir_all(part.join("cache/archives/partial")).map_err(failed)?;
    let wanted = part.join("sources.list");
    fs::write(&wanted, line).map_err(failed)?;
    for words in [&["-qq", "update"][..], words] {
        let output = Command::new("apt-get")
            .arg(format!("-oDir::State={}", part.join("state").display()))
            .arg(format!("-oDir::Cache={}", part.join("cache").display()))
            .arg(format!("-oDir::Etc::sourcelist={}", wanted.display()))
            .args(["-oDir::State::status=/dev/null", "-oDir::Etc::sourceparts=/dev/null"])
            .args(["-oAPT::Sandbox::User=", "-oAcquire::Check-Valid-Until=false"])
            .args(words)
            .current_dir(part)
            .stdin(Stdio::null())
            .output()
            .map_err(failed)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rev().find(|line| line.starts_with("E:")).unwrap_or_default();
            let _ = fs::remove_dir_all(part);
            return Err(last.to_owned());
        }
    }
    for name in ["state", "cache"] {
        fs::remove_dir_all(part.join(name)).map_err(failed)?;
    }
    Ok(())
}

/// The upstream archive of a source package, as `apt-get source` fetches it.
pub fn source(package: &str) -> Result<PathBuf, Skip> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = cache().join(format!("source-{SUITE}-{package}"));
    if let Some(file) = archive_in(&dir) {
        return Ok(file);
    }
    let part = part(&format!("source-{SUITE}-{package}"));
    let line = format!("deb-src {} {SUITE} main\n", mirror());
    let done = fetch(&part, &line, &["-qq", "source", "--download-only", "--tar-only", package]);
    done.map_err(|why| Skip(format!("fetching the source of {package}: {why}")))?;
    // Another process was quicker and has left the same there.
    if fs::rename(&part, &dir).is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    archive_in(&dir).ok_or_else(|| Skip(format!("the source of {package} has no archive")))
}

fn archive_in(dir: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.into_iter().find(|file| file.to_string_lossy().contains(".orig.tar"))
}

/// The machine's mirror of Debian's packages.
fn mirror() -> String {
    let text = sources().first().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    text.split_whitespace()
        .find(|word| word.starts_with("http") && word.ends_with("/debian"))
        .unwrap_or("http://deb.debian.org/debian")
        .to_owned()
}

/// Debian as an image of one layer.
pub fn image() -> Result<Image, Skip> {
    let bytes =
        fs::read(tar()?).map_err(|error| Skip(format!("reading Debian's tree: {error}")))?;
    Ok(Image::new()
        .packed(bytes, Pack::Gzip)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .cmd(&["bash"]))
}

/// The machine's own package sources for Debian, so that a local mirror is used; mmdebstrap's
/// default without one.
fn sources() -> Vec<PathBuf> {
    ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"]
        .iter()
        .map(PathBuf::from)
        .filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(SUITE)))
        .take(1)
        .collect()
}
