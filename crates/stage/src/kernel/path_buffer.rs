//! Paths that are put together on the stack.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use hostfs::layout::Decimal;
use view::Errno;
use view::errno::Result;
use view::text::PATH_MAX;

/// A magic link, and a path behind it.
const LONG: usize = PATH_MAX + 64;

/// Memory for a path, which is not cleared before: what a process touches first on its stack has
/// to be given to it.
pub(crate) struct PathBuffer<const ROOM: usize> {
    bytes: [MaybeUninit<u8>; ROOM],
    length: usize,
}

/// For any path.
pub(super) type LongPath = PathBuffer<LONG>;
/// For a magic link.
pub(crate) type Link = PathBuffer<64>;

impl<const ROOM: usize> PathBuffer<ROOM> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [const { MaybeUninit::uninit() }; ROOM], length: 0 }
    }

    /// Adds text; `ENAMETOOLONG` where there is no room.
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<()> {
        let room = self.bytes.get_mut(self.length..self.length + text.len());
        let room = room.ok_or(Errno::ENAMETOOLONG)?;
        for (place, byte) in room.iter_mut().zip(text) {
            place.write(*byte);
        }
        self.length += text.len();
        Ok(())
    }

    /// Adds a decimal number.
    pub(crate) fn push_number(&mut self, number: u32) -> Result<()> {
        self.push(Decimal::new(number.into()).as_bytes())
    }

    /// Puts parts of a path together.
    #[inline(never)]
    pub(super) fn join(&mut self, parts: &[&[u8]]) -> Result<&CStr> {
        for part in parts {
            self.push(part)?;
        }
        self.push(b"\0")?;
        self.as_c_str()
    }

    /// The text, which has to end with a NUL.
    pub(crate) fn as_c_str(&self) -> Result<&CStr> {
        // SAFETY: so many bytes were written.
        let bytes =
            unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast::<u8>(), self.length) };
        CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::EINVAL)
    }
}
