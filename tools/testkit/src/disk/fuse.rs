//! A file system of one file, which is the disk: implements the part of the kernel's FUSE protocol
//! that a loop device uses.
//!
//! The root of the file system is the file itself, so no name is ever looked up. Requests are
//! answered one after the other, so the log has a total order: a write is in it before the kernel
//! learns that it is done.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use rustix::fd::AsRawFd as _;
use rustix::io::Errno;

use super::image::Image;

const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const FORGET: u32 = 2;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Size of a request's header in bytes.
const HEADER: usize = 40;
/// Size in bytes of the part after it in READ and WRITE.
const TRANSFER: usize = 40;
/// Maximum number of bytes written by one request: the kernel's default.
const MOST: u32 = 128 << 10;
/// Requests may write more than a page (`FUSE_BIG_WRITES`).
const BIG_WRITES: u32 = 1 << 5;

/// How long an unmounted file system may keep its loop device.
const PATIENCE: Duration = Duration::from_mins(1);

/// The disk and the number of opens of its file.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) image: Mutex<Image>,
    opens: Mutex<u32>,
    closed: Condvar,
}

impl Served {
    pub(super) fn new(image: Image) -> Self {
        Self { image: Mutex::new(image), opens: Mutex::new(0), closed: Condvar::new() }
    }

    /// Waits until the file is closed: an unmounted loop device is removed a moment later.
    pub(super) fn wait_closed(&self) -> io::Result<()> {
        let opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        let (opens, _) = self
            .closed
            .wait_timeout_while(opens, PATIENCE, |opens| *opens > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *opens == 0 { Ok(()) } else { Err(io::Error::other("the disk is still in use")) }
    }

    fn opened(&self, change: i32) {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        *opens = opens.saturating_add_signed(change);
        self.closed.notify_all();
    }
}

/// Mounts the file system over an existing file; returns the FUSE device.
pub(super) fn attach(target: &Path) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", device.as_raw_fd());
    mount(Some("disk"), target, Some("fuse"), MsFlags::empty(), Some(options.as_str()))
        .map_err(io::Error::from)?;
    Ok(device)
}

/// Answers requests until the file system is unmounted.
pub(super) fn serve(mut device: File, served: &Served) -> io::Result<()> {
    let mut buffer = vec![0; MOST as usize + (64 << 10)];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            // The request was withdrawn before it was read.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let request = &buffer[..length];
        let opcode = number(request, 4);
        if matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            continue;
        }
        let (error, body) = match answer(opcode, request, served) {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut reply = length.to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        match device.write_all(&reply) {
            // The request was withdrawn meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            other => other?,
        }
    }
}

fn answer(opcode: u32, request: &[u8], served: &Served) -> Result<Vec<u8>, Errno> {
    let image = || served.image.lock().unwrap_or_else(PoisonError::into_inner);
    match opcode {
        INIT => Ok(init(request)),
        GETATTR | SETATTR => Ok(attributes(image().size)),
        OPEN => {
            served.opened(1);
            Ok(vec![0; 16])
        }
        READ => {
            let (offset, size) = (long(request, HEADER + 8), number(request, HEADER + 16));
            let image = image();
            let size = u64::from(size).min(image.size.saturating_sub(offset));
            let mut bytes = vec![0; size as usize];
            image.read(offset, &mut bytes);
            Ok(bytes)
        }
        WRITE => {
            let (offset, size) = (long(request, HEADER + 8), number(request, HEADER + 16));
            let data = HEADER + TRANSFER;
            let bytes = request.get(data..data + size as usize).ok_or(Errno::INVAL)?;
            image().write(offset, bytes).map_err(|_| Errno::IO)?;
            Ok([size, 0].iter().flat_map(|word| word.to_ne_bytes()).collect())
        }
        FSYNC => {
            image().flush();
            Ok(Vec::new())
        }
        RELEASE => {
            served.opened(-1);
            Ok(Vec::new())
        }
        STATFS => Ok(vec![0; 80]),
        FLUSH | DESTROY => Ok(Vec::new()),
        _ => Err(Errno::NOSYS),
    }
}

/// The version (the kernel's, at most 7.31) and sizes.
fn init(request: &[u8]) -> Vec<u8> {
    let minor = number(request, HEADER + 4).min(31);
    // Background requests: at most 16, and the kernel counts as congested from 12 on.
    let background = 16 | 12 << 16;
    let words = [7, minor, number(request, HEADER + 8), BIG_WRITES, background, MOST, 1];
    let mut body: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    body
}

/// Attributes of a regular file of this size, valid for an hour.
fn attributes(size: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(104);
    // Validity in seconds; inode, size, blocks; three times.
    for value in [3600, 0, 1, size, size / 512, 0, 0, 0] {
        body.extend(u64::to_ne_bytes(value));
    }
    // Nanoseconds of the times, mode, links, user, group, device, block size, flags.
    for value in [0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0] {
        body.extend(u32::to_ne_bytes(value));
    }
    body
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_ne_bytes)
}
