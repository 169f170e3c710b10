//! Resolves symbolic links under `/proc` for the guest.

use super::name::{Entry, entry};
use crate::calls::others;
use crate::calls::support::is_copy_of;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host};
use crate::identity::files::NO_FACTS;
use crate::paths::{Origin, reverse_by};
use crate::task::Task;
use crate::text::Text;
use crate::world::World;
use abi::calls::others::Right;
use core::ffi::CStr;
use core::fmt::Write;
use linux_raw_sys::general as raw;

/// Where a symbolic link under `/proc` leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A magic link to this path: absolute in the container's own root, whatever the task's root
    /// is, and without links.
    Jump,
    /// An ordinary link: its target is resolved like that of any link.
    Text,
    /// A magic link to a file without a name for the guest. The kernel follows the link itself; the
    /// text is for readlink(2).
    Kernel,
}

/// Suffix that the kernel adds to the name of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// Resolves the link at a canonical host path under `/proc`; the target is put into `into`. For a
/// [`Target::Jump`], readlink(2) shows [`crate::paths::seen_from`] the task's root.
///
/// Errors are the kernel's: `ENOENT`, `EACCES` for a process that the caller may not inspect,
/// `EINVAL` for a file that is not a link.
pub fn follow<N: Backend>(
    backend: &mut N,
    world: &World<'_>,
    task: &Task,
    host: &[u8],
    into: &mut Text,
) -> Result<Target> {
    let (pid, tid) = (backend.pid(), backend.tid());
    match host {
        b"/proc/self" => return write_text(into, format_args!("{pid}")),
        b"/proc/thread-self" => return write_text(into, format_args!("{pid}/task/{tid}")),
        _ => {}
    }
    let mut buffer = [0; NAME_LIMIT];
    let link = link_name(host, &mut buffer)?;
    // Asked in any case: the kernel decides if the link exists.
    backend.readlink(Dir::Root, link, into)?;
    let Some(entry) = entry(pid, tid, host) else { return Ok(Target::Text) };
    if !has_known_state(backend, &entry) {
        // Not a guest. In namespaces of the container's own, the kernel lets nobody inspect a
        // process outside them, and a process that left the view there has nothing to hide.
        // Elsewhere, as for a process of another user: files that other processes of the host have
        // open are neither shown nor reached.
        if !backend.program_of(entry.process, into) {
            return if world.namespaces { Ok(Target::Kernel) } else { Err(Errno::EACCES) };
        }
        backend.readlink(Dir::Root, link, into)?;
    }
    others::may(backend, world, task, entry.process, Right::Inspect).map_err(|_| Errno::EACCES)?;
    match entry.rest {
        b"exe" => exe(backend, world, &entry, link, into),
        b"root" => root(backend, task, &entry, into),
        b"cwd" => {
            let entered = directory_of(backend, task, &entry);
            named(backend, world, link, entered, into)
        }
        rest if rest.starts_with(b"fd/") => {
            let entered = if world.overlaps { descriptor_of(backend, &entry) } else { None };
            named(backend, world, link, entered, into)
        }
        rest if rest.starts_with(b"map_files/") => match named(backend, world, link, None, into)? {
            // The loader's mappings are anonymous memory for the guest.
            Target::Kernel if is_only_on_host(into) => Err(Errno::ENOENT),
            target => Ok(target),
        },
        rest if rest.starts_with(b"ns/") => Ok(Target::Kernel),
        _ => Ok(Target::Text),
    }
}

/// Returns true if the state of a thread is known to this backend.
fn has_known_state<N: Backend>(backend: &mut N, entry: &Entry<'_>) -> bool {
    let own = [backend.pid(), backend.tid()];
    own.contains(&entry.process)
        || own.contains(&entry.task())
        || backend.with_task(entry.process, &mut |_| {})
        || backend.with_task(entry.task(), &mut |_| {})
}

/// Length of the longest path of a link under `/proc`, with its NUL:
/// `/proc/N/task/N/map_files/FROM-TO`.
const NAME_LIMIT: usize = 128;

fn link_name<'b>(host: &[u8], buffer: &'b mut [u8; NAME_LIMIT]) -> Result<&'b CStr> {
    buffer.get_mut(..host.len()).ok_or(Errno::ENOENT)?.copy_from_slice(host);
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::ENOENT)
}

fn write_text(into: &mut Text, what: core::fmt::Arguments<'_>) -> Result<Target> {
    struct Adapter<'t>(&'t mut Text);
    impl Write for Adapter<'_> {
        fn write_str(&mut self, part: &str) -> core::fmt::Result {
            self.0.push(part.as_bytes()).map_err(|_| core::fmt::Error)
        }
    }
    into.clear();
    Adapter(into).write_fmt(what).map_err(|_| Errno::ENAMETOOLONG)?;
    Ok(Target::Text)
}

/// The kernel's link leads to the loader, so the backend is asked for the program.
fn exe<N: Backend>(
    backend: &mut N,
    world: &World<'_>,
    entry: &Entry<'_>,
    link: &CStr,
    into: &mut Text,
) -> Result<Target> {
    let kernels = *into;
    if backend.program_of(entry.process, into) {
        return Ok(Target::Jump);
    }
    *into = kernels;
    named(backend, world, link, None, into)
}

/// The binding by which a thread entered its working directory, if that is known.
fn directory_of<N: Backend>(backend: &mut N, task: &Task, entry: &Entry<'_>) -> Option<usize> {
    let own = [backend.pid(), backend.tid()];
    if own.contains(&entry.task()) {
        return Some(task.entered.into());
    }
    let mut entered = None;
    backend.with_task(entry.task(), &mut |other| entered = Some(other.entered.into()));
    entered
}

/// The same for a descriptor of the calling process.
fn descriptor_of<N: Backend>(backend: &mut N, entry: &Entry<'_>) -> Option<usize> {
    let own = [backend.pid(), backend.tid()].contains(&entry.process);
    let number = core::str::from_utf8(entry.rest.get(3..)?).ok()?.parse().ok()?;
    own.then(|| backend.entered(number)).flatten()
}

/// The kernel does not know a guest's `chroot`. A process that is not of this container appears to
/// have the container's root.
fn root<N: Backend>(
    backend: &mut N,
    task: &Task,
    entry: &Entry<'_>,
    into: &mut Text,
) -> Result<Target> {
    into.set(b"/")?;
    if entry.task() == backend.tid() || entry.task() == backend.pid() {
        *into = task.root;
    } else {
        backend.with_task(entry.task(), &mut |other| *into = other.root);
    }
    Ok(Target::Jump)
}

/// Translates the kernel's name of an open file, mapping or directory, which is in `into`.
fn named(
    backend: &mut impl Host,
    world: &World<'_>,
    link: &CStr,
    entered: Option<usize>,
    into: &mut Text,
) -> Result<Target> {
    let kernels = *into;
    // What a process was given open from outside of the container's mounts has a name that means
    // another file here, or none.
    if world.namespaces && !has_that_name(backend, link, &kernels) {
        return Ok(Target::Kernel);
    }
    let gone = kernels.as_bytes().ends_with(DELETED) && !has_that_name(backend, link, &kernels);
    match reverse_by(world, kernels.as_bytes(), || entered, into)? {
        // To the guest, the copy of a file of the image is that file.
        Origin::Inside(_) if gone && has_copy(backend, link, &kernels) => {
            into.truncate(into.len() - DELETED.len());
            Ok(Target::Jump)
        }
        Origin::Inside(_) if gone => Ok(Target::Kernel),
        Origin::Inside(_) => Ok(Target::Jump),
        Origin::Outside | Origin::Unnamed => {
            *into = kernels;
            Ok(Target::Kernel)
        }
    }
}

/// Returns true if a name belongs to a file that only the host has. Memory files and the like are
/// in no directory.
fn is_only_on_host(name: &Text) -> bool {
    let name = name.as_bytes();
    name.first() == Some(&b'/') && !name.ends_with(DELETED)
}

/// Returns true if a file that the kernel calls deleted was replaced by its own copy.
fn has_copy(backend: &mut impl Host, link: &CStr, name: &Text) -> bool {
    let (mut facts, mut copy) = (NO_FACTS, *name);
    copy.truncate(name.len() - DELETED.len());
    backend.statx(Dir::Root, link, 0, &mut facts).is_ok()
        && backend.image_links(facts.stx_ino).is_some()
        && is_copy_of(backend, copy.as_c_str(), &facts)
}

/// Returns true if a file is really named `x (deleted)`.
fn has_that_name(backend: &mut impl Host, link: &CStr, name: &Text) -> bool {
    let (mut through, mut by_name) = (NO_FACTS, NO_FACTS);
    backend.statx(Dir::Root, link, 0, &mut through).is_ok()
        && backend.statx(Dir::Root, name.as_c_str(), raw::AT_SYMLINK_NOFOLLOW, &mut by_name).is_ok()
        && (through.stx_ino, through.stx_dev_major, through.stx_dev_minor)
            == (by_name.stx_ino, by_name.stx_dev_major, by_name.stx_dev_minor)
}
