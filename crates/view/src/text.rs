//! A byte string of at most a path's length in memory of fixed size, always followed by a NUL.

use crate::errno::{Errno, Result};
use core::ffi::CStr;

/// `PATH_MAX`: the longest path that one call takes, with its NUL; see `path_resolution(7)`.
pub const PATH_MAX: usize = 4096;

/// A byte string without NUL of at most [`PATH_MAX`] - 1 bytes. A longer one fails with
/// [`Errno::ENAMETOOLONG`].
// The length comes first in memory, so that it is in the same page as a short text.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Text {
    length: usize,
    bytes: [u8; PATH_MAX],
}

impl Default for Text {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl core::fmt::Debug for Text {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl Text {
    /// The empty text.
    pub const EMPTY: Self = Self { length: 0, bytes: [0; PATH_MAX] };

    /// `/`.
    pub const ROOT: Self = {
        let mut root = Self::EMPTY;
        root.bytes[0] = b'/';
        root.length = 1;
        root
    };

    /// The text without its NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The text with its NUL.
    pub fn with_nul(&self) -> &[u8] {
        &self.bytes[..=self.length]
    }

    /// The text as a C string, for a call to the host.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(self.with_nul()).unwrap_or(c"")
    }

    /// Length in bytes, without the NUL.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes the text empty.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        if length <= self.length {
            self.length = length;
            self.bytes[length] = 0;
        }
    }

    /// Drops the first `length` bytes.
    pub fn cut_front(&mut self, length: usize) {
        let length = length.min(self.length);
        self.bytes.copy_within(length..=self.length, 0);
        self.length -= length;
    }

    /// Copies another text: only its used bytes, where an assignment copies the whole buffer.
    pub fn copy(&mut self, from: &Self) {
        let length = from.length + 1;
        self.bytes[..length].copy_from_slice(&from.bytes[..length]);
        self.length = from.length;
    }

    /// Replaces the text. A NUL inside fails with [`Errno::EINVAL`].
    pub fn set(&mut self, text: &[u8]) -> Result<()> {
        self.clear();
        self.push(text)
    }

    /// Replaces the text by the bytes that `write` puts at the beginning of the buffer; `write`
    /// returns their number. If it fails, or there is a NUL inside ([`Errno::EINVAL`]), the text is
    /// empty.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8; PATH_MAX]) -> Result<usize>) -> Result<()> {
        self.length = 0;
        let result = match write(&mut self.bytes) {
            Ok(length) if length >= PATH_MAX => Err(Errno::ENAMETOOLONG),
            Ok(length) if self.bytes[..length].contains(&0) => Err(Errno::EINVAL),
            result => result,
        };
        self.length = result.unwrap_or(0);
        self.bytes[self.length] = 0;
        result.map(|_| ())
    }

    /// As [`Text::fill`], for a `write` that never puts a NUL among its bytes.
    #[inline]
    pub fn fill_to_nul(
        &mut self,
        write: impl FnOnce(&mut [u8; PATH_MAX]) -> Result<usize>,
    ) -> Result<()> {
        let result = match write(&mut self.bytes) {
            Ok(length) if length >= PATH_MAX => Err(Errno::ENAMETOOLONG),
            result => result,
        };
        self.length = result.unwrap_or(0);
        self.bytes[self.length] = 0;
        debug_assert!(!self.as_bytes().contains(&0), "a NUL among the bytes");
        result.map(|_| ())
    }

    /// Replaces the text by two parts of other texts, which contain no NUL.
    pub(crate) fn set_both(&mut self, one: &[u8], other: &[u8]) -> Result<()> {
        let (middle, end) = (one.len(), one.len() + other.len());
        if end >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.bytes[..middle].copy_from_slice(one);
        self.bytes[middle..end].copy_from_slice(other);
        self.bytes[end] = 0;
        self.length = end;
        Ok(())
    }

    /// Adds bytes at the end; on an error nothing is added.
    pub fn push(&mut self, text: &[u8]) -> Result<()> {
        let end = self.length + text.len();
        if end >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if text.contains(&0) {
            return Err(Errno::EINVAL);
        }
        self.bytes[self.length..end].copy_from_slice(text);
        self.bytes[end] = 0;
        self.length = end;
        Ok(())
    }

    /// Adds a number in decimal.
    pub fn push_number(&mut self, number: u32) -> Result<()> {
        self.push(decimal(number, &mut [0; DIGITS]))
    }

    /// Adds a component, with a `/` before it unless the text ends in one.
    pub fn push_component(&mut self, name: &[u8]) -> Result<()> {
        let before = self.length;
        if self.as_bytes().last() != Some(&b'/') {
            self.push(b"/")?;
        }
        self.push(name).inspect_err(|_| self.truncate(before))
    }
}

/// Number of digits of the largest number.
pub(crate) const DIGITS: usize = 10;

/// Formats a number in decimal, at the end of a buffer.
pub(crate) fn decimal(number: u32, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = DIGITS;
    let mut left = number;
    loop {
        at -= 1;
        // One decimal digit.
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_components() {
        let mut text = Text::EMPTY;
        text.set(b"/").unwrap();
        text.push_component(b"usr").unwrap();
        text.push_component(b"lib").unwrap();
        assert_eq!(text.as_c_str(), c"/usr/lib");
        assert_eq!(text.push(&[b'x'; PATH_MAX]), Err(Errno::ENAMETOOLONG));
        assert_eq!(text.push_component(&[b'x'; PATH_MAX - 9]), Err(Errno::ENAMETOOLONG));
        assert_eq!(text.as_bytes(), b"/usr/lib");
        assert_eq!(text.push(b"a\0b"), Err(Errno::EINVAL));
        text.cut_front(4);
        assert_eq!(text.as_c_str(), c"/lib");
        text.cut_front(9);
        assert_eq!(text.as_c_str(), c"");
        let filled = |text: &mut Text, with: &[u8]| {
            text.fill(|bytes| {
                bytes[..with.len()].copy_from_slice(with);
                Ok(with.len())
            })
        };
        assert_eq!(filled(&mut text, b"/x"), Ok(()));
        assert_eq!(text.as_c_str(), c"/x");
        assert_eq!(filled(&mut text, b"a\0b"), Err(Errno::EINVAL));
        assert_eq!(text.as_c_str(), c"");
        assert_eq!(filled(&mut text, &[b'x'; PATH_MAX]), Err(Errno::ENAMETOOLONG));
        assert_eq!(text.fill(|_| Err(Errno::EFAULT)), Err(Errno::EFAULT));
        assert!(text.is_empty());
        text.push_number(0).unwrap();
        text.push_number(u32::MAX).unwrap();
        assert_eq!(text.as_bytes(), b"04294967295");
    }
}
