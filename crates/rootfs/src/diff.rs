//! What a container changed.
use crate::drivers::Root;
use crate::error::Error;
use crate::image::ImageTrees;

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// New.
    Added,
    /// Other content or attributes.
    Changed,
    /// Gone.
    Deleted,
}

impl ChangeKind {
    /// Docker's letter: A, C, D.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Changed => 'C',
            Self::Deleted => 'D',
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Relative to the root, without leading slash.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
}

/// What `root` has other than `image`, sorted by path.
pub fn diff(image: &ImageTrees, root: &Root) -> Result<Vec<Change>, Error> {
    let _ = (image, root);
    Err(Error::Driver { driver: "diff", why: "under construction".into() })
}
