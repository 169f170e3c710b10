//! Finds owner and mode of the directory that contains a name.

use super::files::{self, Found};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::Backend;
use crate::paths::Place;
use crate::text::Text;
use crate::world::Identity;

/// The directory that contains the name at `buffers.found[which]`. For a mount point this may be a
/// directory of another binding, but rules never make or remove a mount point.
pub fn look_parent<N: Backend>(
    context: &mut CallContext<'_, N>,
    identity: &Identity,
    place: &Place,
    which: usize,
) -> Result<Found> {
    parent_of(&context.buffers.found[which], &mut context.buffers.host)?;
    let path = context.buffers.host.as_c_str();
    files::look(context.backend, identity, place.kind, place.at, path)
}

/// Puts the directory part of a host path into `parent`. It is empty for a single name, which is in
/// the directory where the path starts.
fn parent_of(path: &Text, parent: &mut Text) -> Result<()> {
    let mut bytes = path.as_bytes();
    while let [rest @ .., b'/'] = bytes {
        bytes = rest;
    }
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(0) => parent.set(b"/"),
        Some(end) => parent.set(&bytes[..end]),
        None if path.as_bytes().first() == Some(&b'/') => parent.set(b"/"),
        None => {
            parent.clear();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::text;

    #[test]
    fn parents() {
        for (path, parent) in
            [("/a/b", "/a"), ("/a/b/", "/a"), ("/a", "/"), ("/", "/"), ("a", ""), ("a/b//", "a")]
        {
            let mut into = Text::EMPTY;
            parent_of(&text(path), &mut into).unwrap();
            assert_eq!(into, text(parent), "{path}");
        }
    }
}
