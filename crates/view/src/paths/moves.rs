//! Directories that get another name while something is looked for beneath them.
//!
//! A directory that may be in both layers of the container's tree ([`crate::image`]) is found by
//! its name, also one that is open. It may be moved after its name was asked for. Then what is
//! looked for by that name is missing, or another directory's, although it is there. A counter
//! tells ([`abi::shared::changes::Changes::moves`]). It is advanced before and after each move by
//! who makes it, and may stay in between where that process is killed, or waits for a processor.

use crate::guest::Host;
use crate::image::Image;
use abi::shared::changes::is_moving;

/// The counter, before names are asked for. `None` while no directory of the image has got another
/// name.
pub(crate) fn now(image: Option<&Image<'_>>) -> Option<u64> {
    let changes = &image?.changes;
    changes.has_redirects().then(|| changes.moves())
}

/// Returns true if a directory may have been moved since the counter was `before`: names must be
/// asked for again. It waits for a move that is being made.
pub(crate) fn may_mislead(
    image: Option<&Image<'_>>,
    host: &mut impl Host,
    before: Option<u64>,
) -> bool {
    let now = now(image);
    let is_moving = now.is_some_and(is_moving);
    if now == before && is_moving {
        host.await_move();
    }
    now != before || is_moving
}
