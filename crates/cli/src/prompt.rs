//! Questions to the user, asked on standard error and answered on standard input.

use std::io::{Read, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use containers::{Error, Result};

/// What Ctrl-C sends.
const INTERRUPT: u8 = 3;
/// No answer is longer.
const LONGEST: u64 = 64 << 10;

/// Restores the terminal's echo, whatever happens.
struct Echo(Termios);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
        let _ = writeln!(std::io::stderr());
    }
}

fn ask(question: &str) -> Result<String> {
    let answer = read(question, |byte| byte == b'\n')?;
    Ok(answer.trim_end_matches(['\n', '\r']).to_owned())
}

/// Asks, and reads to a byte that ends the answer.
fn read(question: &str, ends: impl Fn(u8) -> bool) -> Result<String> {
    let fail = |error| Error::failed("cannot read the answer").cause(error);
    let mut error = std::io::stderr();
    write!(error, "{question}").and_then(|()| error.flush()).map_err(fail)?;
    let mut answer = Vec::new();
    let input = std::io::stdin().lock();
    for byte in input.take(LONGEST).bytes() {
        let byte = byte.map_err(fail)?;
        answer.push(byte);
        if ends(byte) {
            break;
        }
    }
    if answer.is_empty() {
        return Err(Error::failed("there was no answer"));
    }
    String::from_utf8(answer).map_err(|_| Error::failed("the answer is not UTF-8"))
}

/// A line.
pub(crate) fn line(question: &str) -> Result<String> {
    ask(question)
}

/// A secret: the terminal does not show it.
pub(crate) fn secret(question: &str) -> Result<registry::Secret> {
    let shown = tcgetattr(std::io::stdin()).map_err(|error| {
        Error::failed("a password can only be asked for on a terminal")
            .cause(error)
            .with_hint("use --password-stdin")
    })?;
    let mut hidden = shown.clone();
    hidden.local_modes -= LocalModes::ECHO;
    // Ctrl-C would end the program before the echo is back: it ends the line instead.
    hidden.local_modes -= LocalModes::ISIG;
    hidden.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
    hidden.special_codes[SpecialCodeIndex::VINTR] = 0;
    tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)
        .map_err(|error| Error::failed("cannot hide what is typed").cause(error))?;
    let _echo = Echo(shown);
    let answer = read(question, |byte| matches!(byte, b'\n' | INTERRUPT))?;
    if answer.ends_with(char::from(INTERRUPT)) {
        return Err(Error::cancelled("interrupted"));
    }
    Ok(registry::Secret::new(answer.trim_end_matches(['\n', '\r'])))
}

/// Yes or no; everything but a clear yes is no.
pub(crate) fn sure(question: &str) -> Result<bool> {
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES"))
}
