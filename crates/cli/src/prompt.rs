//! Questions to the user, asked on standard error and answered on standard input.

use std::io::{BufRead, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::report::Report;

/// Restores the terminal's echo, whatever happens.
struct Echo(Termios);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
        let _ = writeln!(std::io::stderr());
    }
}

fn ask(question: &str) -> Result<String, Report> {
    let fail = |error| Report::new("cannot read the answer").cause(error);
    let mut error = std::io::stderr();
    write!(error, "{question}").and_then(|()| error.flush()).map_err(fail)?;
    let mut answer = String::new();
    let count = std::io::stdin().lock().read_line(&mut answer).map_err(fail)?;
    if count == 0 {
        return Err(Report::new("there was no answer"));
    }
    Ok(answer.trim_end_matches(['\n', '\r']).to_owned())
}

/// A line.
pub(crate) fn line(question: &str) -> Result<String, Report> {
    ask(question)
}

/// A secret: the terminal does not show it.
pub(crate) fn secret(question: &str) -> Result<registry::Secret, Report> {
    let shown = tcgetattr(std::io::stdin()).map_err(|error| {
        Report::new("a password can only be asked for on a terminal")
            .cause(error)
            .hint("use --password-stdin")
    })?;
    let mut hidden = shown.clone();
    hidden.local_modes -= LocalModes::ECHO;
    tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)
        .map_err(|error| Report::new("cannot hide what is typed").cause(error))?;
    let _echo = Echo(shown);
    ask(question).map(registry::Secret::new)
}

/// Yes or no; everything but a clear yes is no.
pub(crate) fn sure(question: &str) -> Result<bool, Report> {
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES"))
}
