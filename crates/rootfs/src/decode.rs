//! Decompresses a layer while it arrives.
//!
//! The format is recognised by the stream's first bytes, since a media type may be wrong. gzip goes
//! through zlib-rs with large buffers and any number of members; zstd with any number of frames.
//! One thread decodes one layer: layers arrive several at once, and decoding one gzip stream on two
//! threads (rapidgzip) gained nothing beyond noise on two CPUs.
//!
//! A decompression bomb is stopped by its ratio: after [`Limits::ratio_after`] bytes of output,
//! each compressed byte may yield at most [`Limits::ratio`] plain ones.

use crate::error::Error;
use crate::limits::Limits;
use oci::Compression;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size in bytes of the buffer for compressed bytes.
const INPUT: usize = 256 * 1024;

/// Opens a stream that may be compressed. The magic number decides, not the media type.
pub fn open<'a>(
    reader: impl Read + Send + 'a,
    limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>, Error> {
    let taken = Arc::new(AtomicU64::new(0));
    let mut counted = Counted { reader, taken: Arc::clone(&taken) };
    let head = head(&mut counted).map_err(|source| Error::Read { offset: 0, source })?;
    let compression = Compression::from_magic(&head);
    let input = BufReader::with_capacity(INPUT, io::Cursor::new(head).chain(counted));
    let guard = |inner: Box<dyn Read + Send + 'a>| {
        Box::new(Guarded { inner, taken, given: 0, ratio: limits.ratio, after: limits.ratio_after })
            as Box<dyn Read + Send + 'a>
    };
    match compression {
        Compression::None => Ok(Box::new(input)),
        Compression::Gzip => Ok(guard(Box::new(flate2::bufread::MultiGzDecoder::new(input)))),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)
                .map_err(|source| Error::Read { offset: 0, source })?;
            // The format's own maximum for streams that all decoders must read is 8 MiB; `--ultra`
            // and `--long` make more.
            decoder.window_log_max(27).map_err(|source| Error::Read { offset: 0, source })?;
            Ok(guard(Box::new(decoder)))
        }
        Compression::Bzip2 => Err(Error::Compression("bzip2")),
        Compression::Xz => Err(Error::Compression("xz")),
    }
}

/// Reads the first bytes of a stream; fewer than asked only if it ends before.
fn head(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(Compression::MAGIC_LEN);
    reader.take(Compression::MAGIC_LEN as u64).read_to_end(&mut head)?;
    Ok(head)
}

struct Counted<R> {
    reader: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

struct Guarded<'a> {
    inner: Box<dyn Read + Send + 'a>,
    taken: Arc<AtomicU64>,
    given: u64,
    ratio: u64,
    after: u64,
}

impl Read for Guarded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.given += count as u64;
        if self.given > self.after {
            let taken = self.taken.load(Ordering::Relaxed);
            if self.given / taken.max(1) > self.ratio {
                return Err(io::Error::other(format!(
                    "{taken} compressed bytes yield {} bytes, more than {} times as many: a \
                     decompression bomb",
                    self.given, self.ratio
                )));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn plain(bytes: &[u8], limits: &Limits) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        open(bytes, limits).map_err(io::Error::other)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let limits = Limits::default();
        let two = [gzip(b"hello "), gzip(b"world")].concat();
        assert_eq!(plain(&two, &limits).unwrap(), b"hello world");
        let frames = [
            zstd::encode_all(&b"hello "[..], 1).unwrap(),
            zstd::encode_all(&b"world"[..], 1).unwrap(),
        ]
        .concat();
        assert_eq!(plain(&frames, &limits).unwrap(), b"hello world");
        assert_eq!(plain(b"tar", &limits).unwrap(), b"tar");
        assert_eq!(plain(b"", &limits).unwrap(), b"");
    }

    #[test]
    fn truncated_and_flipped_streams_are_errors() {
        let limits = Limits::default();
        let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let good = gzip(&data);
        assert!(plain(&good[..good.len() - 4], &limits).is_err());
        let mut bad = good.clone();
        let end = bad.len() - 6;
        bad[end] ^= 1;
        assert!(plain(&bad, &limits).is_err());
        assert!(plain(&[&good[..], b"garbage"].concat(), &limits).is_err());
        assert!(plain(b"BZh91AY&SY", &limits).is_err());
    }

    #[test]
    fn decompression_bombs_stop() {
        let limits = Limits { ratio: 100, ratio_after: 1 << 20, ..Limits::default() };
        let bomb = gzip(&vec![0; 8 << 20]);
        let error = plain(&bomb, &limits).unwrap_err();
        assert!(error.to_string().contains("bomb"), "{error}");
        assert_eq!(plain(&bomb, &Limits::default()).unwrap().len(), 8 << 20);
    }
}
