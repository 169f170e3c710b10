//! Opens files where the container's tree has two layers ([`crate::image`]).

use super::Request;
use crate::CallContext;
use crate::calls::arguments::{Arguments, open_bits};
use crate::calls::names::{allow_new, in_directory, record_new};
use crate::calls::support::{call_at, from_tree, on_place};
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Purpose};
use crate::paths::{self, Place};
use crate::verdict::{After, Verdict};
use crate::world::Kind;
use abi::calls::Op;
use linux_raw_sys::general::{AT_FDCWD, S_IFREG};

/// Opens a file of the image for reading, by its index alone.
pub(super) fn open_by_index<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &Request,
    from: Dir,
) -> Result<Option<Verdict>> {
    let Some(image) = context.world.image else { return Ok(None) };
    let follow = !request.flags.no_follow();
    let Some(found) = paths::record_of(context, from, 0, follow) else { return Ok(None) };
    let paths::FoundRecord { record, entry, direct } = found?;
    // Of others the rules decide.
    let opens = entry.is_directory() || entry.is_file() && !request.flags.directory();
    if opens && direct {
        return Ok(Some(Verdict::Pass));
    }
    let found = &mut context.buffers.found[0];
    if !opens || image.place(record, found).is_none() {
        return Ok(None);
    }
    if let Some(call) = from_tree(context, arguments, 0, (Some(record), Purpose::Use))? {
        return Ok(Some(Verdict::Instead(call, After::FromTree)));
    }
    let buffers = &mut *context.buffers;
    if image.real(record, &mut buffers.spare[0]).is_none() {
        return Ok(None);
    }
    let path = context.backend.scratch(buffers.spare[0].with_nul(), 1)?;
    let (dir, at) = arguments.path_position(0).ok_or(Errno::ENOSYS)?;
    let mut call = call_at(arguments.call, &[(at, path)]);
    if let Some(dir) = dir {
        call.arguments[dir] = u64::from(AT_FDCWD as u32);
    }
    Ok(Some(Verdict::Instead(call, After::Nothing)))
}

/// Returns true if something that the guest does not see is in the place of a new file.
pub(super) fn is_hidden<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
) -> Result<bool> {
    if context.world.image.is_none() || place.at != Dir::Root || place.kind != Kind::Tree {
        return Ok(false);
    }
    let CallContext { backend, buffers, .. } = context;
    backend.real_path(buffers.found[0].as_c_str(), Purpose::Open, &mut buffers.spare[0])
}

/// Makes a file where `open` cannot, and has it opened as one that exists.
#[cold]
pub(super) fn make_over_hidden<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &mut Request,
    place: &Place,
) -> Result<Verdict> {
    let new = allow_new(context, place, 0, S_IFREG | request.mode, (0, 0))?;
    let bits = new.map_or(request.mode & !context.task.umask, |new| new.disk_bits());
    let made = in_directory(context, &[(place, 0)], |context| {
        context.backend.mknod(place.at, context.buffers.found[0].as_c_str(), S_IFREG | bits)
    });
    match made {
        // Another process was first.
        Err(Errno::EEXIST) if !request.flags.exclusive() => {}
        made => {
            made?;
            record_new(context, place, 0, new.as_ref())?;
        }
    }
    request.flags.raw &= !(open_bits::CREAT | open_bits::EXCL);
    let mut call = *arguments.call;
    if let Some((_, at)) = arguments.path_position(0)
        && arguments.op() != Op::Openat2
    {
        call.arguments[at + 1] = u64::from(request.flags.raw);
    }
    let arguments = Arguments::of(&call).ok_or(Errno::ENOSYS)?;
    let place = &Place { missing: false, ..*place };
    on_place(context, &arguments, place, 0, After::Nothing)
}
