//! The files of a batch system whose nodes are containers.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::hosts::{Host, Hosts};
use super::{Setting, site_of};
use crate::error::{Error, Result};
use crate::plan::{self, Site};
use crate::spec::{Batch, BatchKind, Spec};

/// Bytes of the key of MUNGE, of which it wants 32 to 1024.
const KEY: usize = 128;
/// `cgroup.conf(5)`. Nothing uses control groups here, but `slurmd` ends where it is to find out by
/// itself which version they have, and a container has none.
const CGROUP: &str = "CgroupPlugin=cgroup/v1\n";

/// Writes the configuration of a file's batch system on all hosts.
///
/// # Errors
/// If a file cannot be written, or the caller has not the same id on all hosts.
pub(super) fn configure(
    spec: &Spec,
    (hosts, sites): (&Hosts, &[Site]),
    (setting, kept): (&Setting, &Path),
) -> Result<()> {
    let (Some(batch), Some(first)) = (&spec.batch, sites.first()) else { return Ok(()) };
    if let Some(other) = sites.iter().find(|site| site.user != first.user) {
        let name = |site: &Site| site.host.clone().unwrap_or_default();
        let fact = format!(
            "you have the user id {} on {}, and {} on {}",
            first.user,
            name(first),
            other.user,
            name(other)
        );
        return Err(Error::new(fact).with_hint("a batch system knows its user by the id"));
    }
    let logins = ("authorized_keys", 0o600, logins(setting));
    let mut files = match batch.kind {
        BatchKind::Slurm => slurm(spec, batch, sites, (setting, kept, hosts.driver()))?,
        BatchKind::GridEngine => {
            let files = plan::gridengine::files(spec, sites).into_iter();
            files.map(|(name, text)| (name, 0o644, text.into_bytes())).collect()
        }
    };
    files.push(logins);
    let put = |host: &dyn Host| {
        let directory = PathBuf::from(site_of(sites, host).batch(batch.kind));
        let put = |(name, mode, bytes): &File| host.put(&directory.join(name), *mode, bytes);
        files.iter().try_for_each(put)
    };
    hosts.each(put).into_iter().collect::<Result<Vec<()>>>().map(drop)
}

/// The name of a file, its permission bits, and what is in it.
type File = (&'static str, u32, Vec<u8>);

/// The files of a Slurm.
fn slurm(
    spec: &Spec,
    batch: &Batch,
    sites: &[Site],
    (setting, kept, here): (&Setting, &Path, &dyn Host),
) -> Result<Vec<File>> {
    // Slurm starts no program that others could have changed.
    let mode = std::fs::metadata(&setting.program).map_or(0, |found| found.mode());
    if mode & 0o022 != 0 {
        let program = setting.program.display();
        let fact = format!("others may write to {program}, so Slurm would not start it");
        return Err(Error::new(fact).with_hint(format!("chmod go-w {program}")));
    }
    Ok(vec![
        ("slurm.conf", 0o644, plan::slurm::conf(&spec.name, batch, sites).into_bytes()),
        ("cgroup.conf", 0o644, CGROUP.as_bytes().to_vec()),
        ("munge.key", 0o400, key(&kept.join("munge.key"), here)?),
    ])
}

/// The key by which the containers know each other, made if it is not there.
fn key(path: &Path, here: &dyn Host) -> Result<Vec<u8>> {
    if let Ok(key) = std::fs::read(path) {
        return Ok(key);
    }
    let mut key = vec![0; KEY];
    // So many are given at once (getrandom(2)).
    rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::new(format!("a key: {error}")))?;
    here.put(path, 0o600, &key)?;
    Ok(key)
}

/// The keys with which the caller may log in: those that open his account here, and his own.
fn logins(setting: &Setting) -> Vec<u8> {
    let Some(home) = setting.variable("HOME") else { return Vec::new() };
    let directory = Path::new(home).join(".ssh");
    let all = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_key = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "pub") || path.ends_with("authorized_keys")
    };
    let mut files: Vec<PathBuf> = all.map(|entry| entry.path()).filter(is_key).collect();
    files.sort();
    let texts = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let lines: Vec<String> = texts.map(|text| text.trim_end().to_owned() + "\n").collect();
    lines.concat().into_bytes()
}
