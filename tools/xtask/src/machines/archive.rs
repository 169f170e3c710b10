//! Writes archives that kernels unpack as their initial file system.

/// A cpio archive of the kind that kernels unpack:
/// <https://docs.kernel.org/driver-api/early-userspace/buffer-format.html>.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(super) fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let (links, size) = (1, data.len() as u32);
        let header =
            [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in header {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends() {
        let mut archive = Archive::default();
        archive.entry("a", 0o100_644, b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        // A header of 110 bytes, the name and its end, the data: each part at a multiple of four.
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..120], b"12345\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.len().is_multiple_of(4));
    }
}
