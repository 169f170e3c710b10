//! Terminal verbs: the three standard descriptors, and the terminal behind them.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::termios::{tcgetwinsize, ttyname};
use serde_json::json;

use crate::{Answer, latin, name_of};

fn size(terminal: impl AsFd) -> Option<[u16; 2]> {
    tcgetwinsize(terminal).ok().map(|size| [size.ws_row, size.ws_col])
}

pub(crate) fn facts() -> Answer {
    let name = ttyname(std::io::stdin(), Vec::new()).ok().map(|name| latin(name.to_bytes()));
    let controlling =
        std::fs::File::open("/dev/tty").map_or_else(|e| name_of(&e), |_| "yes".into());
    let facts = json!({
        "stdin": std::io::stdin().is_terminal(),
        "stdout": std::io::stdout().is_terminal(),
        "stderr": std::io::stderr().is_terminal(),
        "size": size(std::io::stdin()),
        "name": name,
        "controlling": controlling,
        "term": std::env::var("TERM").ok(),
    });
    println!("{facts}");
    Ok(0)
}

/// Prints `ready`, then the size at each change; ends at the second one.
pub(crate) fn winch() -> Answer {
    let mut set = SigSet::empty();
    set.add(Signal::SIGWINCH);
    set.thread_block().map_err(|e| format!("{e:?}"))?;
    println!("ready {:?}", size(std::io::stdin()));
    for _ in 0..2 {
        set.wait().map_err(|e| format!("{e:?}"))?;
        println!("size {:?}", size(std::io::stdin()));
    }
    Ok(0)
}

/// Prints each byte read as a number until `q` or the end of input.
pub(crate) fn keys() -> Answer {
    println!("ready");
    let mut byte = [0];
    while std::io::stdin().read(&mut byte).map_err(|e| name_of(&e))? == 1 {
        let [byte] = byte;
        println!("key {byte}");
        std::io::stdout().flush().map_err(|e| name_of(&e))?;
        if byte == b'q' {
            break;
        }
    }
    Ok(0)
}
