//! Random bytes for names: different each time, but not secret.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::Read as _;

/// Fills a buffer.
///
/// `getrandom` came with Linux 3.17, and soon after boot it may block for minutes until the kernel
/// has enough entropy. A name does not need that: then `/dev/urandom` is used.
///
/// # Errors
/// Those of opening `/dev/urandom`.
pub fn fill(buffer: &mut [u8]) -> std::io::Result<()> {
    let mut rest = &mut *buffer;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::NONBLOCK) {
            Ok(count) => rest = &mut rest[count..],
            Err(Errno::INTR) => {}
            Err(_) => return std::fs::File::open("/dev/urandom")?.read_exact(rest),
        }
    }
    Ok(())
}

/// 16 random lower-case hexadecimal digits, for the name of a temporary file.
///
/// A process id is not unique enough: hosts and pid namespaces that share a directory use the same
/// ids.
///
/// # Errors
/// Those of [`fill`].
pub fn suffix() -> std::io::Result<String> {
    let mut bytes = [0_u8; 8];
    fill(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn suffixes_differ() {
        let all: std::collections::HashSet<_> =
            (0..100).map(|_| super::suffix().unwrap()).collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|suffix| suffix.len() == 16));
    }

    #[test]
    fn the_whole_buffer_is_filled() {
        let mut bytes = [0_u8; 1000];
        super::fill(&mut bytes).unwrap();
        assert!(bytes.chunks(20).all(|part| part.iter().any(|byte| *byte != 0)));
    }
}
