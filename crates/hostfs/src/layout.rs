//! The names of files in a container's directory that processes without namespaces share.
//!
//! ```text
//!   containers/<id>/
//!     ROOT/             the tree; its regular files may be hard links of the image's
//!     inodes            which inodes of the tree are the image's (abi::shared::image)
//!     upper/            in its place, where the image is beneath: what the container has changed
//!     moved             directories of the image that have got another name, a line each: number,
//!                       space, path, NUL; it exists if upper/ has files that are the image's, too
//!     notes             the log of records of inodes without attributes (abi::notes)
//!     run/              what the container needs while a process lives in it
//!       shared          the file that its processes map (abi::shared)
//!       .presence       locked by each tracer
//!       .copy-turn      locked while a copy takes the place of a file
//!       .copy-of-T-N    copies that are being made
//!       .text-T-N       files that lose their name as soon as they are made
//!       memory/         directories in the place of memory file systems
//!         .host-name    the container's host name (host_name), and what guests write to set it
//!       aliases/        links to directories with long paths
//! ```
//!
//! Containers of older builds have the same names, and processes of two builds may use one
//! container at the same time: names and formats do not change.

/// The container's tree.
pub const ROOT: &str = "ROOT";
/// The container's changes, above its image.
pub const UPPER: &str = "upper";
/// The log of directories of the image with another name.
pub const MOVED: &str = "moved";
/// The list of the image's inodes.
pub const IMAGE_INODES: &str = "inodes";
/// The log of records of inodes.
pub const INODE_LOG: &str = "notes";
/// The directory of what is needed while a process lives in the container. Copies are made here:
/// it is on the file system of the tree.
pub const RUN: &str = "run";
/// In [`RUN`]: the file that the container's processes map.
pub const SHARED: &str = "shared";
/// In [`RUN`]: the file that each tracer locks.
pub const PRESENCE: &str = ".presence";
/// In [`RUN`]: directories in the place of memory file systems.
pub const MEMORY: &str = "memory";

/// In [`MEMORY`]: the host name.
pub const HOST_NAME: &str = ".host-name";
/// The file that guests write to who set it by the one in `/proc`.
pub(crate) const HOST_NAME_WRITTEN: &str = ".host-name-written";
/// The first of them, as it is being made.
pub(crate) const HOST_NAME_NEW: &str = ".host-name-new";

/// In the directory of copies: the lock of replacing a file by its copy.
pub(crate) const COPY_LOCK: &[u8] = b".copy-turn";

/// A kind of temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporary {
    /// A copy that is being made.
    Copy,
    /// A file that loses its name at once.
    Text,
}

impl Temporary {
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Copy => b".copy-of-",
            Self::Text => b".text-",
        }
    }

    /// The name of a thread's file with this number.
    pub fn name(self, thread: u32, number: u32) -> TemporaryName {
        let mut name = TemporaryName { bytes: [0; LONGEST], length: 0 };
        name.push(self.prefix());
        name.push(Decimal::new(thread.into()).as_bytes());
        name.push(b"-");
        name.push(Decimal::new(number.into()).as_bytes());
        name
    }
}

/// Whether a name in [`RUN`] is that of a temporary file. When no process lives in the container,
/// its maker was killed, and it is removed.
pub fn is_temporary(name: &[u8]) -> bool {
    [Temporary::Copy, Temporary::Text].iter().any(|kind| name.starts_with(kind.prefix()))
}

/// The longest prefix, two numbers of ten digits, and what is between them.
const LONGEST: usize = 32;

/// The name of a temporary file.
#[derive(Debug, Clone, Copy)]
pub struct TemporaryName {
    bytes: [u8; LONGEST],
    length: usize,
}

impl TemporaryName {
    fn push(&mut self, text: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *place = *byte;
        }
        self.length += text.len();
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A number as decimal text.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// Writes a number.
    pub fn new(number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        let mut left = number;
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            // One decimal digit.
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            start = at;
            if left == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 4_294_967_295, u64::MAX] {
            assert_eq!(Decimal::new(number).as_bytes(), std::format!("{number}").as_bytes());
        }
    }

    #[test]
    fn temporary_names_are_recognised_and_others_are_not() {
        let longest = Temporary::Copy.name(u32::MAX, u32::MAX);
        assert_eq!(longest.as_bytes(), b".copy-of-4294967295-4294967295");
        assert_eq!(Temporary::Text.name(12, 3).as_bytes(), b".text-12-3");
        assert!(is_temporary(longest.as_bytes()) && is_temporary(b".copy-of-1-2"));
        // An older build has no number behind the process's.
        assert!(is_temporary(b".text-12"));
        for other in [COPY_LOCK, b"text-12b", SHARED.as_bytes(), PRESENCE.as_bytes(), b".runs"] {
            assert!(!is_temporary(other));
        }
    }
}
