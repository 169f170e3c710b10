//! Where the two layers of a container's tree are; [`crate::overlay`] puts them together.

use view::image::Image;

/// The layers of a container's tree.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// The image, and where the upper directory is.
    pub image: Image<'a>,
    /// A directory on the same file system, where files are made before they get their names.
    pub work: &'a [u8],
    /// The log of directories of the image that have got another name ([`crate::layout::MOVED`]).
    pub moved: &'a [u8],
}
