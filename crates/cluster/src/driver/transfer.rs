//! `input` and `output` of a file: copies before and after the application, which are compared by
//! digests at both ends.
//!
//! **Input.** A node is asked which of the files it has ([`crate::files`]); what differs is packed
//! once, sent to all nodes that need it, and asked for again. So a copy that was cut is made whole
//! by the next `up`, and what is there already is not sent.
//!
//! **Output** is unpacked beside its place, compared, and then moved file by file, so that no file
//! has its name before it is whole.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use containers::Session;
use containers::container::copy::{Landing, Packing, spool};
use remote::channel::{Event, Stream};

use super::INTERRUPTED;
use super::archive::{feed, result};
use super::at::words;
use super::hosts::{Host, Hosts, at_once, report};
use crate::error::{Error, Result};
use crate::files::{Ask, Files, What, full};
use crate::plan::{Act, Copy, PROGRAM, Plan, Step};

/// So often something that changes while it is copied is copied again.
const TRIES: u32 = 3;

/// Copies of a cluster whose nodes run.
pub(super) struct Transfer<'t> {
    pub(super) hosts: &'t Hosts,
    pub(super) session: &'t Session,
    /// Whether to end.
    pub(super) stop: &'t (dyn Fn() -> bool + Sync),
}

/// How a copy from a node has ended.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// All of it is there.
    Whole,
    /// The node has nothing at the path.
    Nothing,
}

/// What became of the output of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// The copies that are there, as paths of this machine.
    pub(super) copied: Vec<String>,
    /// What nodes do not have.
    pub(super) missing: Vec<String>,
    /// Why something that a node has is not there.
    pub(super) failed: Option<Error>,
}

/// What a node needs of an input.
struct Need<'s> {
    copy: &'s Copy,
    host: &'s dyn Host,
    /// The directory in the container that the archive is unpacked in.
    directory: String,
    /// What the archive's first entry is called.
    entry: String,
    /// The path of the copy.
    path: String,
}

impl Transfer<'_> {
    fn may_go_on(&self) -> Result<()> {
        if (self.stop)() { Err(Error::new(INTERRUPTED)) } else { Ok(()) }
    }

    /// Has the input on all nodes. Returns whether something was copied.
    ///
    /// # Errors
    /// If something is not there, or cannot be copied.
    pub(super) fn input(&self, steps: &[Step]) -> Result<bool> {
        let mut by_source: BTreeMap<&str, Vec<(&Step, &Copy)>> = BTreeMap::new();
        for step in steps {
            if let Act::Input(copy) = &step.act {
                by_source.entry(&copy.from).or_default().push((step, copy));
            }
        }
        let mut is_new = false;
        for (from, all) in by_source {
            is_new |= self.one_input(Path::new(from), &all)?;
        }
        Ok(is_new)
    }

    fn one_input(&self, from: &Path, all: &[(&Step, &Copy)]) -> Result<bool> {
        let wrong = |why: String| {
            Error::new(format!("input {}: {why}", from.display()))
                .with_hint("a path of input that is relative begins at the cluster file")
        };
        let source = Files::at(from).map_err(|error| wrong(error.to_string()))?;
        if source.top().is_none() {
            return Err(wrong("no file or directory is there".to_owned()));
        }
        self.may_go_on()?;
        let looks = at_once(all.iter(), |&(step, copy)| {
            self.need(copy, self.hosts.of(step.host.as_deref())?, from, &source)
        });
        let needs: Vec<Need<'_>> =
            looks.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let mut archives: BTreeMap<&str, File> = BTreeMap::new();
        for need in &needs {
            if !archives.contains_key(&*need.entry) {
                self.may_go_on()?;
                let packing = Packing::of(from, true)?;
                let archive = packing.pack(self.session, Path::new(&need.entry), false)?;
                archives.insert(&need.entry, archive);
            }
        }
        let sent = at_once(needs.iter(), |need| {
            self.may_go_on()?;
            need.send(&archives[&*need.entry])?;
            let there = list(need.host, need.copy, Ask::Beside, &need.path, &source)?;
            match source.differs_from(&there) {
                None => Ok(()),
                Some(path) => Err(Error::new(format!(
                    "the copy of {} on {} differs from it: {}",
                    from.display(),
                    need.copy.node,
                    full(Path::new(&need.path), path).display()
                ))
                .with_hint("does something change it? repeat: coracle cluster up")),
            }
        });
        sent.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(!needs.is_empty())
    }

    /// What a node needs of a source; `None` if it has all of it.
    fn need<'s>(
        &self,
        copy: &'s Copy,
        host: &'s dyn Host,
        from: &Path,
        source: &Files,
    ) -> Result<Option<Need<'s>>> {
        self.may_go_on()?;
        let to = copy.to.trim_end_matches('/');
        let need = |directory: &str, entry: &str, path: String| {
            let [directory, entry] = [directory, entry].map(str::to_owned);
            Need { copy, host, directory, entry, path }
        };
        if source.top() == Some(&What::Directory) {
            let there = list(host, copy, Ask::InDirectory, &copy.to, source)?;
            let need = need(&copy.to, ".", copy.to.clone());
            return Ok(source.differs_from(&there).map(|_| need));
        }
        let base = from.file_name().map(|name| name.to_string_lossy().into_owned());
        let base = base.ok_or_else(|| Error::new(format!("{} has no name", from.display())))?;
        let within = || need(&copy.to, &base, format!("{to}/{base}"));
        let mut need = if copy.to.ends_with('/') {
            within()
        } else {
            let (parent, last) = to.rsplit_once('/').unwrap_or(("", to));
            need(if parent.is_empty() { "/" } else { parent }, last, to.to_owned())
        };
        let mut there = list(host, copy, Ask::Beside, &need.path, source)?;
        if there.top() == Some(&What::Directory) && !copy.to.ends_with('/') {
            need = within();
            there = list(host, copy, Ask::Beside, &need.path, source)?;
        }
        Ok(source.differs_from(&there).map(|_| need))
    }

    /// Copies the output of all nodes, and goes on where one has failed.
    pub(super) fn output(&self, plan: &Plan) -> Output {
        let mut output = Output::default();
        let steps = plan.phases.iter().flat_map(|phase| &phase.steps);
        for step in steps {
            let Act::Output(copy) = &step.act else { continue };
            let taken = self.hosts.of(step.host.as_deref()).and_then(|host| self.take(host, copy));
            match taken {
                Ok(Taken::Whole) => output.copied.push(copy.to.clone()),
                Ok(Taken::Nothing) => {
                    output.missing.push(format!("{} has no {}", copy.node, copy.from));
                }
                Err(error) => output.failed = output.failed.or(Some(error)),
            }
        }
        output
    }

    fn take(&self, host: &dyn Host, copy: &Copy) -> Result<Taken> {
        let mut there = list(host, copy, Ask::All, &copy.from, &Files::default())?;
        let Some(top) = there.top() else { return Ok(Taken::Nothing) };
        let to = Path::new(&copy.to);
        let failed = |error: io::Error| {
            Error::new(format!("output {} of {} to {}: {error}", copy.from, copy.node, copy.to))
        };
        let is_within = *top != What::Directory && (copy.to.ends_with('/') || to.is_dir());
        let place = match Path::new(&copy.from).file_name() {
            Some(name) if is_within => to.join(name),
            _ => to.to_owned(),
        };
        let parent = place.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(failed)?;
        for _ in 0..TRIES {
            self.may_go_on()?;
            let part = Part::beside(&place).map_err(failed)?;
            self.unpack(host, copy, &part.0.join("copy"))?;
            let copied = part.0.join("copy");
            open_up(&copied).map_err(failed)?;
            let own = Files::at(&copied).map_err(failed)?;
            if own == there {
                move_all(&own, &copied, &place).map_err(failed)?;
                return Ok(Taken::Whole);
            }
            there = list(host, copy, Ask::All, &copy.from, &Files::default())?;
        }
        let fact = format!("{} of {} changes while it is copied", copy.from, copy.node);
        Err(Error::new(fact).with_hint("a process that the application has left writes to it"))
    }

    fn unpack(&self, host: &dyn Host, copy: &Copy, target: &Path) -> Result<()> {
        let landing = Landing::of(&copy.from, target)?;
        let words =
            ["cp", "-L", "--entry=copy", "--", &format!("{}:{}", copy.container, copy.from), "-"];
        let task = host.start(&words.map(str::to_owned), false)?;
        let mut file = spool(self.session)?;
        let full = |error: io::Error| Error::new(format!("cannot write the copy: {error}"));
        result(&*task, &copy.container, &mut |bytes| {
            self.may_go_on()?;
            io::Write::write_all(&mut file, bytes).map_err(full)
        })?;
        Ok(landing.unpack(file)?)
    }
}

impl Need<'_> {
    fn send(&self, archive: &File) -> Result<()> {
        let target = format!("{}:{}", self.copy.container, self.directory);
        let task = self.host.start(&words(&["cp", "--", "-", &target]), true)?;
        feed(&*task, &self.copy.container, &mut From(archive, 0))
    }
}

/// Reads a file from a place of its own, so that several threads may.
struct From<'f>(&'f File, u64);

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(buffer, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// Asks a node's container what it has at a path, and below it of `wanted`.
fn list(host: &dyn Host, copy: &Copy, ask: Ask, path: &str, wanted: &Files) -> Result<Files> {
    let mut all = words(&["exec", "-i", "--user", "0", &copy.container, PROGRAM]);
    all.extend(words(&["cluster", "files"]));
    match ask {
        Ask::All => {}
        Ask::InDirectory => all.push("--in".to_owned()),
        Ask::Beside => all.push("--beside".to_owned()),
    }
    all.extend(["--".to_owned(), path.to_owned()]);
    let task = host.start(&all, true)?;
    let mut input = Vec::new();
    for path in wanted.paths() {
        input.extend(path);
        input.push(0);
    }
    let (mut out, mut said, mut status) = (Vec::new(), Vec::new(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // One that has ended says why.
            let _ = task.input(&input).and_then(|()| task.close_input());
        });
        while let Some(event) = task.event() {
            match event {
                Event::Output(Stream::Output, bytes) => out.extend(bytes),
                Event::Output(Stream::Errors, bytes) => said.extend(bytes),
                Event::Ended(ended) => status = Some(ended.exit_status()),
                Event::Failed(why) => said.extend(why.into_bytes()),
                Event::Lost(why) => said.extend(why.to_string().into_bytes()),
            }
        }
    });
    let found = (status == Some(0)).then(|| Files::from_bytes(&out)).flatten();
    found.ok_or_else(|| {
        let said = String::from_utf8_lossy(&said);
        Error::new(format!("{path} on {}: {}", copy.node, report(&said)))
    })
}

/// A directory for a copy that is not whole yet, which is removed at the end.
struct Part(PathBuf);

impl Part {
    /// Beside the place of the copy, on its file system.
    fn beside(place: &Path) -> io::Result<Self> {
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = format!(".{}.{}", name.unwrap_or_default(), sys::random::suffix()?);
        let path = place.with_file_name(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        Ok(Self(path))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let (Some(parent), Some(name)) = (self.0.parent(), self.0.file_name())
            && let Ok(parent) = File::open(parent)
        {
            let _ = sys::fs::remove_tree(&parent, name.as_bytes());
        }
    }
}

/// Lets the owner read all, which a program of the container may not have wanted for itself.
fn open_up(top: &Path) -> io::Result<()> {
    let meta = top.symlink_metadata()?;
    let bits = if meta.is_dir() { 0o700 } else { 0o400 };
    let mode = meta.permissions().mode() & 0o7777;
    if (meta.is_dir() || meta.is_file()) && mode & bits != bits {
        fs::set_permissions(top, Permissions::from_mode(mode | bits))?;
    }
    if meta.is_dir() {
        for entry in fs::read_dir(top)? {
            open_up(&entry?.path())?;
        }
    }
    Ok(())
}

/// Gives files that are whole their names. A directory that is there keeps what else is in it.
fn move_all(files: &Files, from: &Path, to: &Path) -> io::Result<()> {
    for (path, what) in files.iter() {
        let (source, target) = (full(from, path), full(to, path));
        if *what != What::Directory {
            fs::rename(&source, &target)?;
            continue;
        }
        // Below the place itself links are not followed: the container may have made them.
        let there = if path.is_empty() { fs::metadata(&target) } else { target.symlink_metadata() };
        match there {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => {
                let fact = format!("{} is there, and is not a directory", target.display());
                return Err(io::Error::other(fact));
            }
            Err(_) => {
                fs::create_dir(&target)?;
                fs::set_permissions(&target, source.symlink_metadata()?.permissions())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_moved_whole_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["new/a", "new/b", "old/a", "elsewhere"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for (name, text) in [("new/a/x", "2"), ("new/b/y", "2"), ("old/a/x", "1"), ("old/z", "1")] {
            fs::write(path(name), text).unwrap();
        }
        let files = Files::at(&path("new")).unwrap();
        move_all(&files, &path("new"), &path("old")).unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!([read("old/a/x"), read("old/b/y"), read("old/z")], ["2", "2", "1"]);
        assert_eq!(Files::at(&path("new")).unwrap().paths(), ["", "a", "b"].map(str::as_bytes));

        fs::write(path("new/a/x"), "3").unwrap();
        fs::remove_dir_all(path("old/a")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("old/a")).unwrap();
        let files = Files::at(&path("new")).unwrap();
        let error = move_all(&files, &path("new"), &path("old")).unwrap_err().to_string();
        assert!(error.contains("is not a directory"), "{error}");
        assert_eq!(fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn a_part_is_removed_whatever_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let part = Part::beside(&place.path().join("out")).unwrap();
        fs::create_dir(part.0.join("closed")).unwrap();
        fs::write(part.0.join("closed/file"), "").unwrap();
        fs::set_permissions(part.0.join("closed"), Permissions::from_mode(0o0)).unwrap();
        drop(part);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
