//! The interfaces between archives and the store of blobs.

use std::io::{self, Read};

use oci::{Descriptor, Digest};

/// Stores the blobs of an archive or a layout.
pub trait BlobSink {
    /// Returns true if the blob is stored already, so that its bytes need not be read.
    fn has(&self, digest: &Digest) -> bool;

    /// Stores a blob: everything that `reader` yields until its end. With `expected` the bytes must
    /// have this digest, else the blob is refused (`InvalidData`). Returns the digest and the size.
    fn put(
        &mut self,
        expected: Option<&Digest>,
        reader: &mut dyn Read,
    ) -> io::Result<(Digest, u64)>;
}

/// Provides blobs for an archive or a layout.
pub trait BlobSource {
    /// The blob's length in bytes; `NotFound` if it is missing.
    fn size(&self, digest: &Digest) -> io::Result<u64>;

    /// The blob's bytes.
    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read + Send>>;

    /// The length of a layer's tar stream once decompressed, if it is known; saves a docker-archive
    /// the first of two decompressions.
    fn uncompressed_size(&self, layer: &Descriptor) -> Option<u64> {
        let _ = layer;
        None
    }
}
