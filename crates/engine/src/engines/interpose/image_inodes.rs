//! The list of the inodes that a container shares with its image.

use std::path::Path;

/// Bytes of an entry: inode (8), names inside the image (4), little-endian; sorted by inode.
const ENTRY: usize = 12;

/// The list, in memory.
#[derive(Debug, Clone, Default)]
pub struct ImageInodes {
    entries: Vec<u8>,
}

impl ImageInodes {
    /// Reads the list; a file that is not there is an empty list.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        match std::fs::read(path) {
            Ok(entries) => Ok(Self { entries }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing is shared.
    pub fn is_empty(&self) -> bool {
        self.entries.len() < ENTRY
    }

    fn at(&self, index: usize) -> Option<(u64, u32)> {
        let entry = self.entries.get(index * ENTRY..(index + 1) * ENTRY)?;
        let links = entry.get(8..).and_then(<[u8]>::first_chunk)?;
        Some((u64::from_le_bytes(*entry.first_chunk()?), u32::from_le_bytes(*links)))
    }

    /// How many names an inode has inside the image, if it is the image's.
    pub fn links(&self, inode: u64) -> Option<u32> {
        let (mut low, mut high) = (0, self.entries.len() / ENTRY);
        while low < high {
            let middle = low + (high - low) / 2;
            let (here, links) = self.at(middle)?;
            match here.cmp(&inode) {
                std::cmp::Ordering::Equal => return Some(links),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_searched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inodes");
        assert!(ImageInodes::read(&path).unwrap().is_empty());
        let inodes = [3_u64, 4, 100, 1 << 40];
        let mut bytes = Vec::new();
        for (inode, links) in inodes.into_iter().zip(1_u32..) {
            bytes.extend(inode.to_le_bytes());
            bytes.extend(links.to_le_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        let images = ImageInodes::read(&path).unwrap();
        for (inode, links) in inodes.into_iter().zip(1..) {
            assert_eq!(images.links(inode), Some(links));
            assert_eq!(images.links(inode + 10), None);
        }
        assert_eq!(images.links(0), None);
        assert_eq!(images.links(u64::MAX), None);
        assert_eq!(ImageInodes::default().links(1), None);
    }
}
