//! The directory that a name stands in.

use super::files::{self, Found};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::Backend;
use crate::paths::Place;
use crate::text::Text;
use crate::world::Identity;

/// The directory that the name at `buffers.found[which]` stands in. A mount point may stand in one of another kind; but nobody makes or removes one.
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

/// Puts the directory part of a host path into `parent`: empty for a single name, which stands where the path starts.
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
