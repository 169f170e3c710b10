//! Opens files where the container's tree has two layers ([`crate::image`]).

use super::Request;
use crate::CallContext;
use crate::calls::arguments::Arguments;
use crate::calls::support::{call_at, from_tree};
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Purpose};
use crate::paths::{self, Place};
use crate::verdict::{After, Verdict};
use crate::world::Kind;
use linux_raw_sys::general::AT_FDCWD;

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
        let moves = context.buffers.moves;
        return Ok(Some(Verdict::Instead(call, After::FromTree { moves })));
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
