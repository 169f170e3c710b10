//! The digest of a file.

use std::fs::File;
use std::io;

use oci::Digester;

/// The bytes that are read at once.
const PIECE: usize = 1 << 18;

/// SHA-256 of a file from where it is being read, in hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn digest(file: &mut File) -> io::Result<String> {
    let mut hash = Digester::sha256();
    io::copy(&mut io::BufReader::with_capacity(PIECE, file), &mut hash)?;
    Ok(hash.finish().hex().to_owned())
}
