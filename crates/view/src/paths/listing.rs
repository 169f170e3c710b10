//! Adds bindings without a mount point on disk to the directory listings that the guest reads.
//!
//! Natively a mount point is an entry of its directory. Here it may be missing, because
//! placeholders are not put into the host's directories. The missing entries are put in front of
//! the kernel's own when a directory is read from its beginning, which the offset of the open file
//! shows: so `rewinddir`, `dup`, `fork` and threads need no extra state. The kernel reads into the
//! guest's buffer behind the space for these entries. Their own offset is 0: a program that seeks
//! back to one of them starts over.
//!
//! If the buffer is too small for all of them and one entry of the kernel's, as many as fit are
//! shown. The old `readdir` of i386, which reads one entry at a time, shows none.

use super::bindings::{behind, mounts_beneath};
use super::entries::{ENTRY_MAX, layout_of, put};
use super::reverse::{Origin, reverse_by};
use crate::CallContext;
use crate::calls::arguments::Arguments;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity;
use crate::verdict::{After, Call, Verdict};
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, statx};

/// `getdents` and `getdents64`.
pub(crate) fn enter<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let Dir::Guest(fd) = arguments.dir(0) else { return Ok(Verdict::Pass) };
    if let Some(verdict) = super::merged::list(context, arguments, fd)? {
        return Ok(verdict);
    }
    // An error here does not fail the call: the kernel itself then reports what is wrong.
    if !matches!(look(context, fd), Ok(true)) {
        return Ok(Verdict::Pass);
    }
    let layout = layout_of(arguments);
    let size = arguments.int(2) as usize;
    let mut room = 0;
    missing(context, fd, |_, name, _| {
        let entry = layout.size(name.len());
        if room + entry + ENTRY_MAX <= size {
            room += entry;
        }
        Ok(())
    })?;
    if room == 0 || !at_beginning(context, fd) {
        return Ok(Verdict::Pass);
    }
    let mut call = *arguments.call;
    call.arguments[1] = arguments.word(1).wrapping_add(room as u64);
    call.arguments[2] = (size - room) as u64;
    // The number fits into the buffer, whose size is an `int`.
    Ok(Verdict::Instead(call, After::Listing { room: room as u32 }))
}

/// Fills the space in front of the entries that the kernel read.
pub(crate) fn leave<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    room: u32,
    result: i64,
) -> i64 {
    if result < 0 {
        return result;
    }
    match fill(context, call, room as usize) {
        Ok(()) => result + i64::from(room),
        Err(error) => error.result(),
    }
}

fn fill<N: Backend>(context: &mut CallContext<'_, N>, call: &Call, room: usize) -> Result<()> {
    let arguments = Arguments::of(call).ok_or(Errno::ENOSYS)?;
    let (Dir::Guest(fd), buffer) = (arguments.dir(0), arguments.word(1)) else {
        return Err(Errno::EBADF);
    };
    let layout = layout_of(&arguments);
    look(context, fd)?;
    let mut entry = [0; ENTRY_MAX];
    let mut done = 0;
    missing(context, fd, |backend, name, facts| {
        let size = layout.size(name.len());
        if done + size <= room {
            put(layout, &mut entry, size, name, facts, 0);
            backend.write(buffer.wrapping_add(done as u64), &entry[..size])?;
            done += size;
        }
        Ok(())
    })?;
    // A mount point was made meanwhile: no entry may stay without contents.
    if done == room { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Puts the guest's name of a directory into `buffers.position`. Returns true if there are bindings
/// below it.
fn look<N: Backend>(context: &mut CallContext<'_, N>, fd: i32) -> Result<bool> {
    if name_by_index(context, fd).is_none() {
        let CallContext { backend, world, buffers, .. } = context;
        backend.path_of(Dir::Guest(fd), &mut buffers.link)?;
        let entered = || backend.entered(fd);
        let origin = reverse_by(world, buffers.link.as_bytes(), entered, &mut buffers.position)?;
        if !matches!(origin, Origin::Inside(_)) {
            return Ok(false);
        }
    }
    Ok(mounts_beneath(context.world, context.buffers.position.as_bytes()).next().is_some())
}

/// The same for a directory of the image that has its name there in the container too.
fn name_by_index<N: Backend>(context: &mut CallContext<'_, N>, fd: i32) -> Option<()> {
    let CallContext { backend, world, buffers, .. } = context;
    let image = world.image.filter(|_| !world.overlaps)?;
    let mut facts = identity::files::NO_FACTS;
    backend.inode_of(Dir::Guest(fd), &mut facts).ok()?;
    let (record, _) = image.of_facts(&facts).filter(|(record, _)| image.is_reached(*record))?;
    image.place(record, &mut buffers.link)?;
    buffers.position.set(b"/").ok()?;
    buffers.position.push_component(image.in_upper(buffers.link.as_bytes())?).ok()
}

/// Calls `each` for the bindings in the directory at `buffers.position` that have no entry in the
/// directory itself, with their name and the status of the bound file.
fn missing<N: Backend>(
    context: &mut CallContext<'_, N>,
    fd: i32,
    mut each: impl FnMut(&mut N, &[u8], &statx) -> Result<()>,
) -> Result<()> {
    let CallContext { backend, world, buffers, .. } = context;
    let above = buffers.position.as_bytes();
    for (_, binding) in mounts_beneath(world, above) {
        let name = behind(binding.guest, above).unwrap_or_default();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        if name.contains(&b'/') || name.len() > 255 {
            continue;
        }
        let mut facts = identity::files::NO_FACTS;
        buffers.host.set(name)?;
        let exists =
            backend.statx(Dir::Guest(fd), buffers.host.as_c_str(), AT_SYMLINK_NOFOLLOW, &mut facts);
        if exists != Err(Errno::ENOENT) {
            continue;
        }
        buffers.host.set(binding.host)?;
        let bound =
            backend.statx(Dir::Root, buffers.host.as_c_str(), AT_SYMLINK_NOFOLLOW, &mut facts);
        if bound.is_ok() {
            each(backend, name, &facts)?;
        }
    }
    Ok(())
}

/// Returns true if the offset of an open directory is 0: `pos` of `/proc/PID/fdinfo/N`.
fn at_beginning<N: Backend>(context: &mut CallContext<'_, N>, fd: i32) -> bool {
    let CallContext { backend, buffers, .. } = context;
    let mut facts = identity::files::NO_FACTS;
    let is_directory = backend.statx(Dir::Guest(fd), c"", AT_EMPTY, &mut facts).is_ok()
        && u32::from(facts.stx_mode) & S_IFMT == S_IFDIR;
    let mut text = [0; 64];
    if !is_directory {
        return false;
    }
    let got = crate::proc::about_descriptor(*backend, fd, &mut buffers.host, &mut text);
    let text = &text[..got.unwrap_or(0)];
    text.strip_prefix(b"pos:").is_some_and(|rest| {
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        line.trim_ascii() == b"0"
    })
}

const AT_EMPTY: u32 = linux_raw_sys::general::AT_EMPTY_PATH;
