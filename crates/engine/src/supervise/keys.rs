//! Detach keys: parsing Docker's `--detach-keys` and finding the sequence in what is typed.
//!
//! A sequence is a comma-separated list of single characters or `ctrl-` with a letter or one of
//! `@ [ \ ] ^ _`. Bytes that may be the beginning of the sequence are held back until the next
//! byte decides; nothing is lost when it was not meant.

use std::str::FromStr;

/// The keys that leave a container running: default `ctrl-p,ctrl-q`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

impl Default for DetachKeys {
    fn default() -> Self {
        Self(vec![0x10, 0x11])
    }
}

impl DetachKeys {
    /// No sequence detaches.
    pub fn none() -> Self {
        Self(Vec::new())
    }
}

/// A `--detach-keys` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a key (a single character, or ctrl- and one of a-z @ [ \\ ] ^ _)")]
pub struct UnknownKey(pub String);

impl FromStr for DetachKeys {
    type Err = UnknownKey;

    /// The empty text is the default, as in Docker.
    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.split(',').map(key).collect::<Result<_, _>>().map(Self)
    }
}

fn key(text: &str) -> Result<u8, UnknownKey> {
    let unknown = || UnknownKey(text.to_owned());
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        bytes => match bytes.strip_prefix(b"ctrl-") {
            Some([letter @ (b'a'..=b'z' | b'@' | b'['..=b'_')]) => Ok(letter & 0x1f),
            _ => Err(unknown()),
        },
    }
}

/// Looks for the sequence in a stream.
#[derive(Debug)]
pub(crate) struct Matcher {
    keys: Vec<u8>,
    /// How many bytes of the sequence have been seen and held back.
    held: usize,
}

impl Matcher {
    pub(crate) fn new(keys: &DetachKeys) -> Self {
        Self { keys: keys.0.clone(), held: 0 }
    }

    /// Takes what was typed, appends to `out` what is meant for the program; `true` when the
    /// sequence is complete (the rest of `typed` is dropped).
    pub(crate) fn feed(&mut self, typed: &[u8], out: &mut Vec<u8>) -> bool {
        if self.keys.is_empty() {
            out.extend_from_slice(typed);
            return false;
        }
        for &byte in typed {
            // A mismatch may still continue a shorter beginning: for keys "aab", "aaab".
            while self.held > 0 && self.keys[self.held] != byte {
                let shorter = self.shorter_beginning();
                out.extend_from_slice(&self.keys[..self.held - shorter]);
                self.held = shorter;
            }
            if self.keys[self.held] != byte {
                out.push(byte);
                continue;
            }
            self.held += 1;
            if self.held == self.keys.len() {
                self.held = 0;
                return true;
            }
        }
        false
    }

    /// What is held back, at the end of the input.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.keys[..self.held]);
        self.held = 0;
    }

    /// The longest proper beginning of the keys with which the held bytes end.
    fn shorter_beginning(&self) -> usize {
        let held = &self.keys[..self.held];
        (1..self.held).rev().find(|&n| held.ends_with(&self.keys[..n])).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(keys: &str, typed: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut matcher = Matcher::new(&keys.parse().unwrap());
        let mut out = Vec::new();
        for part in typed {
            if matcher.feed(part, &mut out) {
                return (out, true);
            }
        }
        matcher.finish(&mut out);
        (out, false)
    }

    #[test]
    fn the_sequence_is_found_across_reads_and_nothing_else_is_lost() {
        assert_eq!(run("", &[b"ls\x10", b"\x11rest"]), (b"ls".to_vec(), true));
        assert_eq!(run("", &[b"\x10x\x10\x10", b"y"]), (b"\x10x\x10\x10y".to_vec(), false));
        assert_eq!(run("", &[b"\x10\x10\x11"]), (b"\x10".to_vec(), true));
        assert_eq!(run("a,a,b", &[b"aaab"]), (b"a".to_vec(), true));
        assert_eq!(run("a,b", &[b"xa"]), (b"xa".to_vec(), false));
    }

    #[test]
    fn keys_are_read_as_docker_writes_them() {
        assert_eq!("ctrl-a,d".parse(), Ok(DetachKeys(vec![1, b'd'])));
        assert_eq!("ctrl-\\,ctrl-@".parse(), Ok(DetachKeys(vec![0x1c, 0])));
        assert_eq!("".parse(), Ok(DetachKeys::default()));
        for bad in ["ctrl-", "ctrl-1", "ab", "a,,b", "ctrl-aa"] {
            assert!(bad.parse::<DetachKeys>().is_err(), "{bad}");
        }
    }
}
