//! Looks up names in `/etc/hosts` (hosts(5)).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use crate::limits;

/// The addresses of `name` in the file, in its order. An unreadable file gives none.
pub(super) fn look_up(path: &Path, name: &str) -> Vec<IpAddr> {
    match File::open(path) {
        Ok(file) => search(BufReader::new(file.take(limits::HOSTS_FILE)), name),
        Err(_) => Vec::new(),
    }
}

fn search(mut reader: impl BufRead, name: &str) -> Vec<IpAddr> {
    let name = name.trim_end_matches('.');
    let mut found = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return found,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace();
        let Some(address) = words.next() else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) {
            // An address with a scope (`fe80::1%eth0`) does not fit into `IpAddr`.
            if let Ok(address) = address.parse() {
                found.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds() {
        let file = b"# c\n127.0.0.1 localhost\n10.1.2.3\tReg.example reg # note\n::5 reg\nfe80::1%e reg\n\xff\xfe\nbad reg\n";
        let found =
            |name| search(&file[..], name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found("REG"), ["10.1.2.3", "::5"]);
        assert_eq!(found("reg.example."), ["10.1.2.3"]);
        assert!(found("note").is_empty());
        assert!(look_up(Path::new("/nonexistent"), "x").is_empty());
    }
}
