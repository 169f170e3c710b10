//! Reads a file line by line and writes another, in two buffers of fixed size, however long the
//! files are.

use crate::errno::Result;
use crate::guest::{Host, HostFd};
use crate::text::{DIGITS, decimal};
use core::ops::Range;

/// Lines of a host file. The caller passes the same buffer at every call; a line is a range of it.
pub(super) struct Lines {
    file: HostFd,
    offset: u64,
    /// The part of the buffer that has not been returned yet.
    rest: Range<usize>,
    over: bool,
}

impl Lines {
    pub(super) const fn new(file: HostFd) -> Self {
        Self { file, offset: 0, rest: 0..0, over: false }
    }

    /// The next line, with its newline if it has one; `None` at the end. A line longer than the
    /// buffer is cut.
    pub(super) fn next<const SIZE: usize>(
        &mut self,
        host: &mut impl Host,
        buffer: &mut [u8; SIZE],
    ) -> Result<Option<Range<usize>>> {
        loop {
            let rest = &buffer[self.rest.clone()];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.start..self.rest.start + at + 1;
                self.rest.start = line.end;
                return Ok(Some(line));
            }
            if self.over {
                let line = self.rest.clone();
                self.rest.start = self.rest.end;
                return Ok(if line.is_empty() { None } else { Some(line) });
            }
            if self.rest.len() == SIZE {
                self.skip(host)?;
                return Ok(Some(0..SIZE));
            }
            buffer.copy_within(self.rest.clone(), 0);
            self.rest = 0..self.rest.len();
            let got = host.pread(self.file, &mut buffer[self.rest.end..], self.offset)?;
            self.offset += got as u64;
            self.rest.end += got;
            self.over = got == 0;
        }
    }

    /// Drops the rest of a line that fills the buffer.
    fn skip(&mut self, host: &mut impl Host) -> Result<()> {
        self.rest = 0..0;
        let mut piece = [0; 256];
        loop {
            let got = host.pread(self.file, &mut piece, self.offset)?;
            let newline = piece[..got].iter().position(|byte| *byte == b'\n');
            self.offset += newline.map_or(got, |at| at + 1) as u64;
            self.over = got == 0;
            if self.over || newline.is_some() {
                return Ok(());
            }
        }
    }
}

/// A file that is written. The caller passes the same buffer at every call.
pub(super) struct Output {
    file: HostFd,
    used: usize,
}

impl Output {
    pub(super) const fn new(file: HostFd) -> Self {
        Self { file, used: 0 }
    }

    /// Appends bytes.
    pub(super) fn push<const SIZE: usize>(
        &mut self,
        host: &mut impl Host,
        buffer: &mut [u8; SIZE],
        mut bytes: &[u8],
    ) -> Result<()> {
        while !bytes.is_empty() {
            if self.used == SIZE {
                self.flush(host, buffer)?;
                self.used = 0;
            }
            let now = bytes.len().min(SIZE - self.used);
            buffer[self.used..self.used + now].copy_from_slice(&bytes[..now]);
            self.used += now;
            bytes = &bytes[now..];
        }
        Ok(())
    }

    /// Appends a path, with the bytes of `special` as a backslash and three octal digits.
    pub(super) fn push_escaped<const SIZE: usize>(
        &mut self,
        host: &mut impl Host,
        buffer: &mut [u8; SIZE],
        path: &[u8],
        special: &[u8],
    ) -> Result<()> {
        for byte in path {
            if special.contains(byte) {
                let digit = |shift: u8| b'0' + (byte >> shift & 7);
                self.push(host, buffer, &[b'\\', digit(6), digit(3), digit(0)])?;
            } else {
                self.push(host, buffer, &[*byte])?;
            }
        }
        Ok(())
    }

    /// Appends a number in decimal.
    pub(super) fn push_number<const SIZE: usize>(
        &mut self,
        host: &mut impl Host,
        buffer: &mut [u8; SIZE],
        number: u32,
    ) -> Result<()> {
        self.push(host, buffer, decimal(number, &mut [0; DIGITS]))
    }

    /// Writes the rest of the buffer; the last step.
    pub(super) fn flush<const SIZE: usize>(
        &self,
        host: &mut impl Host,
        buffer: &[u8; SIZE],
    ) -> Result<()> {
        if self.used == 0 { Ok(()) } else { host.write_all(self.file, &buffer[..self.used]) }
    }
}

/// Removes octal escapes of the bytes of `special`; other backslashes stay. `None` if the result is
/// longer than `into`.
pub(super) fn unescape<'b>(text: &[u8], special: &[u8], into: &'b mut [u8]) -> Option<&'b [u8]> {
    let (mut from, mut used) = (0, 0);
    while from < text.len() {
        let octal = match text[from..] {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        let (byte, width) = match octal {
            Some(byte) if special.contains(&byte) => (byte, 4),
            _ => (text[from], 1),
        };
        *into.get_mut(used)? = byte;
        from += width;
        used += 1;
    }
    Some(&into[..used])
}
