//! The way from the driver to a balancer's admin socket: a program in the balancer's container
//! that reads a command from each line, and writes each answer behind its length. Each command
//! has a connection of its own, so a balancer that was started again is found again.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// A balancer answers within so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer has at most so many bytes.
const LONGEST: u64 = 16 << 20;

/// Passes commands of standard input on to a socket, until there are no more.
///
/// # Errors
/// If the answers cannot be written.
pub fn serve(socket: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(format!("nobody is there to answer: {error}"));
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let (sign, answer) = match ask(socket, &line) {
            Ok(answer) => ('=', answer),
            Err(error) => ('!', format!("{}: {error}", socket.display()).into_bytes()),
        };
        writeln!(output, "{sign}{}", answer.len())
            .and_then(|()| output.write_all(&answer))
            .and_then(|()| output.flush())
            .map_err(failed)?;
    }
    Ok(())
}

fn ask(socket: &Path, command: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Puts answers together from what has come.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
}

impl Answers {
    /// Takes what has come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next answer, or why there is none for its command; `None` if more has to come.
    ///
    /// # Errors
    /// If what has come is not an answer.
    pub fn take(&mut self) -> Result<Option<Result<String, String>>> {
        let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let head = str::from_utf8(&self.bytes[..end]).ok();
        let head = head.and_then(|head| {
            let is_answer = head.starts_with('=');
            let rest = head.strip_prefix(['=', '!'])?;
            Some((is_answer, rest.parse::<usize>().ok()?))
        });
        let Some((is_answer, length)) = head else {
            return Err(Error::new("what speaks for the balancer is not understood"));
        };
        let (begin, end) = (end + 1, end + 1 + length);
        if self.bytes.len() < end {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&self.bytes[begin..end]).into_owned();
        self.bytes.drain(..end);
        Ok(Some(if is_answer { Ok(text) } else { Err(text) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_pieces() {
        let mut answers = Answers::default();
        let mut found = Vec::new();
        for byte in b"=3\na\nb!2\nno=0\n" {
            answers.feed(&[*byte]);
            found.extend(answers.take().unwrap());
        }
        assert_eq!(found, [Ok("a\nb".to_owned()), Err("no".to_owned()), Ok(String::new())]);
        answers.feed(b"sh: not found\n");
        answers.take().unwrap_err();
    }
}
