//! Frames: a `u32` with the length of what follows, a byte with the kind, a `u32` with the number,
//! the payload. Numbers are little-endian.

use std::collections::VecDeque;

use super::{Error, Kind, LONGEST};

/// Kind and number.
const HEAD: usize = 5;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its meaning.
    pub kind: Kind,
    /// What it belongs to.
    pub id: u32,
    /// Bytes or JSON, by kind.
    pub payload: Vec<u8>,
}

/// The longest payload, in bytes.
pub const fn room() -> usize {
    LONGEST - HEAD
}

/// Appends a frame to `out`.
///
/// # Errors
/// [`Error::Length`] if the payload is longer than [`room`]; nothing is appended then.
#[inline(never)] // It has many callers, and four copies into the queue.
pub fn append(out: &mut VecDeque<u8>, kind: Kind, id: u32, payload: &[u8]) -> Result<(), Error> {
    let length = payload.len() + HEAD;
    if length > LONGEST {
        return Err(Error::Length(length));
    }
    let mut head = [kind as u8; 4 + HEAD];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[5..].copy_from_slice(&id.to_le_bytes());
    out.extend(&head);
    out.extend(payload);
    Ok(())
}

/// Takes bytes as they come and gives frames. It keeps at most one frame that is not complete, and
/// what came behind it in one call.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How many of them have been given.
    taken: usize,
}

impl Decoder {
    /// Takes bytes from the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame. A length that cannot be is an error at once, not when all of it has
    /// arrived. After an error the stream is of no use.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Kind`].
    #[inline(never)]
    pub fn take(&mut self) -> Result<Option<Frame>, Error> {
        let rest = &self.bytes[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEAD..=LONGEST).contains(&length) {
            return Err(Error::Length(length));
        }
        if let Some(&kind) = rest.first()
            && Kind::of(kind).is_none()
        {
            return Err(Error::Kind(kind));
        }
        let Some(body) = rest.get(..length) else {
            self.bytes.reserve(length - rest.len());
            return Ok(None);
        };
        let head = body.split_first_chunk().ok_or(Error::Length(length))?;
        let (&[kind, a, b, c, d], payload) = head;
        let kind = Kind::of(kind).ok_or(Error::Kind(kind))?;
        let frame = Frame { kind, id: u32::from_le_bytes([a, b, c, d]), payload: payload.to_vec() };
        self.taken += 4 + length;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
            // A long frame is not remembered by an idle agent.
            self.bytes.shrink_to(super::PIECE * 2);
        }
        Ok(Some(frame))
    }

    /// Returns true if no part of a frame is waiting for the rest.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}
