//! The digest of a file.

use std::fs::File;
use std::io::{self, Read as _};

use oci::Digester;

/// The bytes that are read at once.
const PIECE: usize = 1 << 18;

/// SHA-256 of a file, in hexadecimal digits.
pub(crate) fn digest(file: &mut File) -> io::Result<String> {
    let (mut hash, mut piece) = (Digester::sha256(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => hash.update(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hash.finish().hex().to_owned())
}
