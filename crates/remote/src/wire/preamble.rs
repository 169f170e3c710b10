//! What comes before the frames: lines of the login shell, lines of the script that looks for the
//! binary, and at last the agent's own line.

use super::MAGIC;

/// Beginning of the lines of the script that looks for the binary.
pub const SCRIPT: &str = "coracle node script: ";

/// At most so many bytes are skipped.
pub const MOST: usize = 64 << 10;

/// Lines of others are kept up to this many bytes, to be quoted.
const KEPT: usize = 600;

/// What a line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The shell on the node waits for the script.
    Script,
    /// The script waits for the bytes of the binary.
    Binary,
    /// The script has ended without an agent; the reason.
    Failed(String),
    /// Frames follow, and these bytes are their beginning.
    Frames(Vec<u8>),
    /// Something else has printed more than may be skipped.
    TooMuch,
}

/// Takes bytes as they come until the frames begin.
#[derive(Debug, Default)]
pub struct Preamble {
    line: Vec<u8>,
    kept: String,
    count: usize,
}

impl Preamble {
    /// Takes bytes; gives the first thing that they say and the bytes behind it, which are to be
    /// fed again (there are none behind [`Said::Frames`]).
    pub fn feed<'a>(&mut self, bytes: &'a [u8]) -> Option<(Said, &'a [u8])> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.count += end + 1;
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            let line = line.trim_end_matches('\r');
            if line.ends_with(MAGIC) {
                return Some((Said::Frames(rest.to_vec()), &[]));
            }
            // A banner without an end of line may stand before it.
            if let Some((_, word)) = line.split_once(SCRIPT) {
                return Some((
                    match word {
                        "ready" => Said::Script,
                        "binary" => Said::Binary,
                        why => Said::Failed(why.to_owned()),
                    },
                    rest,
                ));
            }
            self.keep(line);
            if self.count > MOST {
                return Some((Said::TooMuch, rest));
            }
        }
        self.count += rest.len();
        self.line.extend_from_slice(rest);
        (self.count > MOST).then_some((Said::TooMuch, &[]))
    }

    fn keep(&mut self, line: &str) {
        let printable = |c: char| if c.is_control() && c != '\t' { '?' } else { c };
        self.kept.extend(line.chars().map(printable));
        self.kept.push('\n');
        let mut cut = self.kept.len().saturating_sub(KEPT);
        while !self.kept.is_char_boundary(cut) {
            cut += 1;
        }
        self.kept.drain(..cut);
    }

    /// The last lines that were skipped, the one that has not ended too.
    pub fn skipped(&mut self) -> String {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        if !line.is_empty() {
            self.keep(&line);
        }
        self.kept.trim().to_owned()
    }
}
