//! The log of a container: `log.json`, and `log.json.1`, `log.json.2`, ... for what was rotated
//! away.
//!
//! One JSON object per line, in Docker's json-file form, so that what reads Docker's logs reads
//! these: `{"log":"text\n","stream":"stdout","time":"2026-11-20T09:00:00.123456789Z"}`. A line of
//! the program longer than 16 KiB becomes several objects; only the last ends in a newline.
//!
//! Docker replaces bytes that are not UTF-8 and so loses them. Here such a line has a fourth
//! member, `"raw"`, with the bytes in base64; `"log"` holds the same replacement text as Docker's.
//! [`read`] prefers `raw`, hence `coracle logs` returns every byte that was written.

mod reader;
mod spool;
mod writer;

pub use reader::{Entry, Query, read};
pub(crate) use spool::Spool;
pub(crate) use writer::Writer;

use std::path::{Path, PathBuf};

/// One of the program's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1; also everything from a terminal.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl Stream {
    /// `stdout`, `stderr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// 1 or 2.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }
}

/// The file that is written now (`number` 0) or the `number`-th older one.
pub(crate) fn file(dir: &Path, number: u32) -> PathBuf {
    match number {
        0 => dir.join("log.json"),
        n => dir.join(format!("log.json.{n}")),
    }
}
