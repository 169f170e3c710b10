//! Taking a layer's compression off, while it arrives.
//!
//! The stream's first bytes say what it is; a media type may lie. gzip goes through zlib-rs with large buffers, any number
//! of members; zstd any number of frames. [`parallel`] decodes a gzip blob that is already on disk on several threads.
//!
//! A bomb is stopped by ratio: once a lot has come out, each compressed byte may not stand for more than
//! [`Limits::ratio`] plain ones.

use crate::error::Error;
use crate::limits::Limits;
use oci::Compression;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of the buffer for compressed bytes.
const INPUT: usize = 256 * 1024;

/// Opens a stream that may be compressed. The magic has the last word, not the media type.
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
            // The format's own maximum for streams that all decoders must read is 8 MiB; `--ultra` and `--long` make more.
            decoder.window_log_max(27).map_err(|source| Error::Read { offset: 0, source })?;
            Ok(guard(Box::new(decoder)))
        }
        Compression::Bzip2 => Err(Error::Compression("bzip2")),
        Compression::Xz => Err(Error::Compression("xz")),
    }
}

/// The first bytes of a stream; fewer than asked only where it ends before.
fn head(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(Compression::MAGIC_LEN);
    reader.take(Compression::MAGIC_LEN as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Opens a blob on disk, with up to `threads` threads where it is gzip and large enough for that to pay.
pub fn parallel(
    file: File,
    threads: usize,
    limits: &Limits,
) -> Result<Box<dyn Read + Send>, Error> {
    let fail = |source| Error::Read { offset: 0, source };
    let size = file.metadata().map_err(fail)?.len();
    let mut head = [0_u8; 2];
    let is_gzip = std::os::unix::fs::FileExt::read_at(&file, &mut head, 0).map_err(fail)? == 2
        && head == [0x1f, 0x8b];
    if !is_gzip || threads < 2 || size < PARALLEL_FROM {
        return open(file, limits);
    }
    let decoder = rapidgzip_core::Decoder::builder()
        .decoder_threads(threads)
        .build()
        .map_err(|error| fail(io::Error::other(error)))?;
    let reader = decoder.reader(file).map_err(|error| fail(io::Error::other(error)))?;
    Ok(Box::new(Guarded {
        inner: Box::new(reader),
        taken: Arc::new(AtomicU64::new(size)),
        given: 0,
        ratio: limits.ratio,
        after: limits.ratio_after,
    }))
}

/// Compressed size from which several threads are worth their start.
const PARALLEL_FROM: u64 = 16 << 20;

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
                    "{taken} compressed bytes have become {} plain ones, more than {} for one: a bomb",
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
    fn bombs_stop() {
        let limits = Limits { ratio: 100, ratio_after: 1 << 20, ..Limits::default() };
        let bomb = gzip(&vec![0; 8 << 20]);
        let error = plain(&bomb, &limits).unwrap_err();
        assert!(error.to_string().contains("bomb"), "{error}");
        assert_eq!(plain(&bomb, &Limits::default()).unwrap().len(), 8 << 20);
    }

    #[test]
    fn several_threads_read_the_same() {
        let mut data = Vec::new();
        let mut state = 1_u32;
        while data.len() < 40 << 20 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            data.extend_from_slice(&state.to_le_bytes());
            data.extend_from_slice(b"some text that repeats");
        }
        let mut random = data.clone();
        let mut wide = 88_172_645_463_325_252_u64;
        for chunk in random.chunks_exact_mut(8).take(3 << 20) {
            wide ^= wide << 13;
            wide ^= wide >> 7;
            wide ^= wide << 17;
            chunk.copy_from_slice(&wide.to_le_bytes());
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&gzip(&random)).unwrap();
        assert!(file.metadata().unwrap().len() > PARALLEL_FROM);
        let mut out = Vec::new();
        parallel(file, 2, &Limits::default()).unwrap().read_to_end(&mut out).unwrap();
        assert!(out == random);
    }
}
