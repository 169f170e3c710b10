//! Writes a start's world and filter into the file that all processes of the container share.

use super::Mode;
use super::stage_file::StageFile;
use crate::engines::interpose::aliases::{aliases, remove_aliases};
use crate::engines::interpose::common::{self, Common};
use crate::engines::interpose::prepare::Prepared;
use crate::error::{Error, Result};
use abi::boot::{self, RANGE};
use abi::bpf::Instruction;
use abi::calls::Arch;
use abi::calls::filter::Interest;
use abi::shared::Switches;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use view::World;
use view::stored::{self, Places, Start};
use view::world::Kind;

/// After this time without new text, another build's is removed.
const OLD: Duration = Duration::from_hours(24);
/// A directory of changed text that takes up more bytes by itself has thousands of them, most of
/// programs that are gone.
const LARGEST: u64 = 1 << 18;
/// Room for a world: the most bindings, with two of the longest paths each.
const WORLD_MAX: usize = 256 * 8192 + 64 * 1024;

/// What the hand-over says of the file.
#[derive(Debug)]
pub(super) struct Shared {
    /// Its host path.
    pub(super) path: PathBuf,
    /// Number of the record with the world.
    pub(super) world: u32,
    /// Number of the record with the filter.
    pub(super) filter: u32,
    /// Features that are switched off.
    pub(super) switches: Switches,
}

impl Shared {
    /// The caller holds the container's lock; `fresh` says that no process lives there.
    pub(super) fn new(
        mode: Mode,
        switches: u64,
        prepared: &Prepared,
        world: &World<'_>,
        stage: &StageFile,
        fresh: bool,
    ) -> Result<Self> {
        let files = &prepared.files;
        let path = files.run.join(common::NAME);
        let failed = |error: std::io::Error| Error::File {
            doing: "make".into(),
            path: path.clone(),
            errno: error.into(),
        };
        // Processes that live here without it are traced; their tracer notices it when it appears.
        let is_made = !fresh || prepared.layers.is_some();
        let known = if is_made { Common::open(&path) } else { None };
        let common = match known {
            Some(common) => common,
            None => {
                Common::create(&path, &files.image_inodes, &files.notes, fresh).map_err(failed)?
            }
        };
        let shared = common.shared();
        let full = || failed(std::io::Error::from(Errno::NOSPC));
        let mut switches = Switches(switches);
        let filter = filter(prepared, stage, switches)?;
        let filter = shared.records().add(&filter).ok_or_else(full)?;
        if mode != Mode::Rewritten {
            switches = switches.with(Switches::NO_REWRITING);
        }
        if mode.has_texts() {
            switches = switches.with(Switches::TEXTS);
        }
        if mode == Mode::Traps {
            switches = switches.with(Switches::ONLY_TRAPS);
        }
        if fresh {
            // Of those who lived here before.
            remove_aliases(&files.run);
        }
        let aliases = aliases(&files.run).unwrap_or_default();
        let beside = files.beside_image.as_ref().filter(|_| mode.has_texts());
        let texts = beside.and_then(|beside| texts(beside, stage)).unwrap_or_default();
        let tree = world.bindings.iter().find(|binding| binding.guest == b"/");
        let (layers, networks) = (files.layers.as_ref(), files.networks.as_ref());
        let places = Places {
            tree: tree.filter(|root| root.kind == Kind::Tree).map_or(&[][..], |root| root.host),
            stage: stage.path.to_bytes(),
            shared: path.as_os_str().as_bytes(),
            notes: files.notes.as_os_str().as_bytes(),
            copy_dir: files.run.as_os_str().as_bytes(),
            run: files.run.as_os_str().as_bytes(),
            aliases: aliases.as_bytes(),
            index: layers.map_or(&[], |layers| layers.index.as_os_str().as_bytes()),
            lower: layers.map_or(&[], |layers| layers.lower.as_os_str().as_bytes()),
            moved: layers.map_or(&[], |layers| layers.moved.as_os_str().as_bytes()),
            texts: texts.as_os_str().as_bytes(),
            networks: networks.map_or(&[], |place| place.table.as_os_str().as_bytes()),
        };
        let (identity, host_name) = (prepared.world.identity(), prepared.world.host_name());
        let slot = networks.map_or(0, |place| place.slot.into());
        let start = Start { identity, switches, filter, places, host_name, slot };
        let mut bytes = vec![0; WORLD_MAX];
        let length = stored::write(&start, world, &mut bytes).ok_or_else(|| Error::Invalid {
            what: "mounts".into(),
            value: world.bindings.len().to_string(),
            why: format!("this engine has room for {}", stored::BINDINGS_MAX),
        })?;
        let world = shared.records().add(&bytes[..length]).ok_or_else(full)?;
        Ok(Self { path: path.clone(), world, filter, switches })
    }
}

/// Where this stage keeps text that it has changed, beside an image. Other builds' are removed once
/// they are old. None where it cannot be made or is somebody else's, and where the stage is not
/// executed from a file: then nothing that is kept there could be executed either.
fn texts(beside: &Path, stage: &StageFile) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(stage.path.to_bytes()));
    let name = path.strip_prefix("/proc/self").is_err().then(|| path.file_name())??;
    let place = beside.join(name);
    if place.metadata().is_ok_and(|found| found.is_dir() && found.len() > LARGEST) {
        let _ = std::fs::remove_dir_all(&place);
    }
    let is_new = match std::fs::create_dir_all(beside).and_then(|()| std::fs::create_dir(&place)) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(_) => return None,
    };
    if is_new {
        let old = |entry: &std::fs::DirEntry| {
            let changed = entry.metadata().and_then(|found| found.modified());
            changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD))
        };
        for entry in std::fs::read_dir(beside).into_iter().flatten().flatten().filter(old) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let is_ours = |found: std::fs::Metadata| found.uid() == rustix::process::geteuid().as_raw();
    place.metadata().is_ok_and(is_ours).then_some(place)
}

/// Loads the instruction pointer: of a filter that begins so, the kernel can note for no call that
/// it always passes.
const LOOK: Instruction = Instruction { code: 0x20, jt: 0, jf: 0, k: 8 };

/// The seccomp program, as the kernel reads it.
fn filter(prepared: &Prepared, stage: &StageFile, switches: Switches) -> Result<Vec<u8>> {
    let start = boot::start(stage.base);
    let interest = Interest {
        identity: prepared.world.identity().is_some(),
        shared_image: prepared.layers.is_some() || prepared.files.image_inodes.exists(),
        listing: prepared.layers.is_some() || prepared.world.lacks_mount_points(),
        host_name: !prepared.world.host_name().is_empty(),
        networks: prepared.files.networks.is_some(),
        loader: Some((start, start + RANGE)),
        in_process: true,
        namespaces: switches.has(Switches::NAMESPACES),
    };
    let program = abi::calls::filter::program(&[Arch::X86_64, Arch::I386], &interest);
    let program = program.map_err(|_| Error::Call {
        doing: "make the system call filter".into(),
        errno: Errno::TOOBIG.into(),
    })?;
    let bytes = |one: &Instruction| {
        let [low, high] = one.code.to_le_bytes();
        let [k0, k1, k2, k3] = one.k.to_le_bytes();
        [low, high, one.jt, one.jf, k0, k1, k2, k3]
    };
    let first = switches.has(Switches::NO_FILTER_CACHE).then_some(&LOOK);
    Ok(first.into_iter().chain(&program).flat_map(bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_builds_go_when_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("made");
        let stage = |path: &str| StageFile::at(path);
        assert_eq!(texts(&beside, &stage("/proc/self/fd/3")), None);
        let first = texts(&beside, &stage("/c/run/stage-1-0")).unwrap();
        assert_eq!((first.clone(), true), (beside.join("stage-1-0"), first.is_dir()));
        let other = texts(&beside, &stage("/d/run/stage-2-0")).unwrap();
        let yesterday = std::time::SystemTime::now() - 2 * OLD;
        for place in [&first, &other] {
            let times = std::fs::FileTimes::new().set_modified(yesterday);
            std::fs::File::open(place).unwrap().set_times(times).unwrap();
        }
        // It is there already.
        assert_eq!(texts(&beside, &stage("/c/run/stage-2-0")), Some(other.clone()));
        assert!(first.is_dir());
        let third = texts(&beside, &stage("/c/run/stage-3-0")).unwrap();
        assert!(third.is_dir() && !first.exists() && !other.exists());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(texts(&dir.path().join("file"), &stage("/c/run/stage-2-0")), None);
    }
}
