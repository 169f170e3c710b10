//! Network verbs: loopback ports and interfaces. Never resolves a name.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::{Answer, name_of};

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text} is not an address"))
}

/// Connects and prints the first line from the other side.
pub(crate) fn connect(to: &str) -> Answer {
    let mut stream = TcpStream::connect_timeout(&address(to)?, Duration::from_secs(3))
        .map_err(|e| name_of(&e))?;
    let _ = stream.set_read_timeout(Some(Duration::from_secs(3)));
    let mut text = [0; 64];
    let count = stream.read(&mut text).unwrap_or_default();
    println!("connected {}", String::from_utf8_lossy(&text[..count]).trim());
    Ok(0)
}

/// Prints `ready PORT`, greets this many callers and ends.
pub(crate) fn listen(at: &str, callers: u64) -> Answer {
    let listener = TcpListener::bind(address(at)?).map_err(|e| name_of(&e))?;
    println!("ready {}", listener.local_addr().map_err(|e| name_of(&e))?.port());
    for _ in 0..callers {
        let (mut stream, _) = listener.accept().map_err(|e| name_of(&e))?;
        stream.write_all(b"hello from the guest\n").map_err(|e| name_of(&e))?;
    }
    Ok(0)
}

pub(crate) fn interfaces() -> Answer {
    let text = fs::read_to_string("/proc/net/dev").map_err(|e| name_of(&e))?;
    let mut names: Vec<&str> =
        text.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    names.sort_unstable();
    println!("{}", names.join(" "));
    Ok(0)
}
