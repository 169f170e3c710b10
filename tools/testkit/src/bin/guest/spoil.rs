//! Tries every way to write to an existing file, each on a file of its own; [`directories`] has the
//! ways to change a directory.
//!
//! For an engine whose containers share inodes with their image: no program may change the image.
//! Shared mappings and file handles are not tried here, because they need unsafe code: the suite
//! `contract` has a program in C for them.

pub(crate) mod directories;

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, ResolveFlags, Timespec,
    Timestamps, XattrFlags,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde_json::json;

use crate::{Answer, name_of};

type Way = fn(&Path) -> std::io::Result<()>;

const OTHER: &[u8] = b"spoilt by a container\n";
const TIMES: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 1, tv_nsec: 0 },
    last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
};

fn beside(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn own_name(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn write_to(path: impl AsRef<Path>) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(OTHER)
}

fn donor(path: &Path) -> std::io::Result<File> {
    let other = beside(path, ".other");
    fs::write(&other, OTHER)?;
    File::open(other)
}

/// Sends a descriptor through a socket.
fn passed(file: &File) -> std::io::Result<File> {
    let (one, other) = UnixStream::pair()?;
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(one, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(other, parts, &mut control, RecvFlags::empty())?;
    let mut received = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    received.next().map(File::from).ok_or_else(|| std::io::Error::other("no descriptor"))
}

/// Sets a flag of the file (`chattr +d`), which needs no descriptor that is open for writing. Not
/// every file system has flags.
fn set_flag(file: &File) -> std::io::Result<()> {
    match rustix::fs::ioctl_setflags(file, IFlags::NODUMP) {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}

/// The ways to write, each with the name of its file.
pub(crate) const WAYS: [(&str, Way); 51] = [
    ("write", |path| write_to(path)),
    ("append", |path| OpenOptions::new().append(true).open(path)?.write_all(OTHER)),
    ("open-truncate", |path| File::create(path).map(drop)),
    ("creat", |path| {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR)?);
        file.write_all_at(OTHER, 0)
    }),
    ("truncate", |path| {
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
        nix::unistd::truncate(path, 3).map_err(Into::into)
    }),
    ("truncate-only", |path| nix::unistd::truncate(path, 0).map_err(Into::into)),
    ("fallocate", |path| {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 4096)?)
    }),
    ("copy-file-range", |path| {
        let (from, to) = (donor(path)?, OpenOptions::new().write(true).open(path)?);
        Ok(rustix::fs::copy_file_range(from, None, to, None, 100).map(drop)?)
    }),
    ("sendfile", |path| {
        let (from, to) = (donor(path)?, OpenOptions::new().write(true).open(path)?);
        Ok(rustix::fs::sendfile(to, from, None, 100).map(drop)?)
    }),
    ("openat", |path| {
        let dir = File::open(path.parent().unwrap_or(Path::new("/")))?;
        let name = path.file_name().unwrap_or_default();
        let file = rustix::fs::openat(dir, name, OFlags::WRONLY, Mode::empty())?;
        File::from(file).write_all(OTHER)
    }),
    ("openat2", |path| {
        let file = match rustix::fs::openat2(
            CWD,
            path,
            OFlags::WRONLY,
            Mode::empty(),
            ResolveFlags::empty(),
        ) {
            Err(rustix::io::Errno::NOSYS) => return Ok(()),
            file => file?,
        };
        File::from(file).write_all(OTHER)
    }),
    ("open-by-descriptor", |path| {
        let file = File::open(path)?;
        write_to(own_name(&file))
    }),
    ("open-by-path-descriptor", |path| {
        let file = rustix::fs::open(path, OFlags::PATH, Mode::empty())?;
        write_to(own_name(&File::from(file)))
    }),
    ("open-through-link", |path| {
        let link = beside(path, ".link");
        std::os::unix::fs::symlink(path, &link)?;
        write_to(link)
    }),
    ("direct", |path| {
        let flags = OFlags::SYNC.bits() as i32;
        OpenOptions::new().write(true).custom_flags(flags).open(path)?.write_all(OTHER)
    }),
    ("chmod", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600))),
    ("chmod-setuid", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o4755))),
    ("fchmod", |path| File::open(path)?.set_permissions(fs::Permissions::from_mode(0o601))),
    ("chmod-by-descriptor", |path| {
        let file = File::open(path)?;
        fs::set_permissions(own_name(&file), fs::Permissions::from_mode(0o602))
    }),
    ("chown", |path| std::os::unix::fs::chown(path, Some(5), Some(6))),
    ("lchown", |path| std::os::unix::fs::lchown(path, Some(5), Some(6))),
    ("fchown", |path| std::os::unix::fs::fchown(File::open(path)?, Some(5), Some(6))),
    ("chown-to-root", |path| std::os::unix::fs::chown(path, Some(0), Some(0))),
    ("fchownat-empty", |path| {
        let file = rustix::fs::open(path, OFlags::PATH, Mode::empty())?;
        let (user, group) = (rustix::fs::Uid::from_raw(5), rustix::fs::Gid::from_raw(6));
        Ok(rustix::fs::chownat(file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?)
    }),
    ("utimens", |path| Ok(rustix::fs::utimensat(CWD, path, &TIMES, AtFlags::empty())?)),
    ("lutimens", |path| Ok(rustix::fs::utimensat(CWD, path, &TIMES, AtFlags::SYMLINK_NOFOLLOW)?)),
    ("futimens", |path| Ok(rustix::fs::futimens(File::open(path)?, &TIMES)?)),
    ("setxattr", |path| Ok(rustix::fs::setxattr(path, "user.test", b"x", XattrFlags::empty())?)),
    ("lsetxattr", |path| Ok(rustix::fs::lsetxattr(path, "user.test", b"x", XattrFlags::empty())?)),
    ("fsetxattr", |path| {
        let file = File::open(path)?;
        Ok(rustix::fs::fsetxattr(file, "user.test", b"x", XattrFlags::empty())?)
    }),
    ("removexattr", |path| {
        rustix::fs::setxattr(path, "user.gone", b"x", XattrFlags::empty())?;
        Ok(rustix::fs::removexattr(path, "user.gone")?)
    }),
    ("link-then-write", |path| {
        let link = beside(path, ".name");
        fs::hard_link(path, &link)?;
        write_to(link)
    }),
    ("link-by-descriptor-then-write", |path| {
        let file = File::open(path)?;
        let link = beside(path, ".name");
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(CWD, own_name(&file), CWD, &link, follow)?;
        write_to(link)
    }),
    ("rename-over", |path| {
        drop(donor(path)?);
        fs::rename(beside(path, ".other"), path)
    }),
    ("rename-then-write", |path| {
        let moved = beside(path, ".moved");
        fs::rename(path, &moved)?;
        write_to(moved)
    }),
    ("exchange", |path| {
        drop(donor(path)?);
        let other = beside(path, ".other");
        match rustix::fs::renameat_with(CWD, &other, CWD, path, RenameFlags::EXCHANGE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }),
    ("unlink", |path| fs::remove_file(path)),
    ("unlink-then-create", |path| {
        let old = File::open(path)?;
        fs::remove_file(path)?;
        fs::write(path, OTHER)?;
        let mut text = String::new();
        (&old).read_to_string(&mut text)?;
        old.set_permissions(fs::Permissions::from_mode(0o700))
    }),
    ("read-write-truncate", |path| {
        OpenOptions::new().read(true).write(true).truncate(true).open(path)?.write_all(OTHER)
    }),
    ("open-by-dev-fd", |path| {
        let file = File::open(path)?;
        write_to(format!("/dev/fd/{}", file.as_raw_fd()))
    }),
    ("early-then-truncate", |path| {
        let early = OpenOptions::new().read(true).write(true).open(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o640))?;
        early.set_len(1)
    }),
    ("early-descriptor-after-copy", |path| {
        let early = File::open(path)?;
        write_to(path)?;
        OpenOptions::new().write(true).open(own_name(&early))?.set_len(0)?;
        early.set_permissions(fs::Permissions::from_mode(0o603))
    }),
    ("passed-descriptor", |path| {
        let file = passed(&File::open(path)?)?;
        write_to(own_name(&file))
    }),
    ("passed-descriptor-fchmod", |path| {
        passed(&File::open(path)?)?.set_permissions(fs::Permissions::from_mode(0o604))
    }),
    ("splice", |path| {
        let (out, into) = rustix::pipe::pipe()?;
        rustix::io::write(&into, OTHER)?;
        let file = OpenOptions::new().write(true).open(path)?;
        let flags = rustix::pipe::SpliceFlags::empty();
        Ok(rustix::pipe::splice(out, None, file, None, OTHER.len(), flags).map(drop)?)
    }),
    ("punch-hole", |path| {
        let file = OpenOptions::new().write(true).open(path)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, flags, 0, 5)?)
    }),
    ("nameless-then-link", |path| {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let file = File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?);
        (&file).write_all(OTHER)?;
        fs::remove_file(path)?;
        let follow = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(CWD, own_name(&file), CWD, path, follow)?)
    }),
    ("touch-by-descriptor", |path| {
        let file = rustix::fs::open(path, OFlags::PATH, Mode::empty())?;
        Ok(rustix::fs::utimensat(file, "", &TIMES, AtFlags::EMPTY_PATH)?)
    }),
    ("set-flag", |path| set_flag(&File::open(path)?)),
    ("passed-set-flag", |path| set_flag(&passed(&File::open(path)?)?)),
    ("read-then-write", |path| {
        let mut old = String::new();
        let mut early = File::open(path)?;
        write_to(path)?;
        early.read_to_string(&mut old).map(drop)
    }),
];

/// Tries all of them in a directory with a file for each; prints those that failed.
pub(crate) fn spoil(dir: &Path) -> Answer {
    let failed: Vec<(&str, String)> = WAYS
        .iter()
        .filter_map(|(name, way)| Some((*name, name_of(&way(&dir.join(name)).err()?))))
        .collect();
    println!("{}", json!(failed));
    Ok(0)
}

/// Prints the names of the files that [`spoil`] needs.
pub(crate) fn ways() -> Answer {
    println!("{}", json!(WAYS.map(|(name, _)| name).to_vec()));
    Ok(0)
}

/// Waits for a process of the container that executes another program than this, writes to that
/// program's file, and prints the result. The file must be on a writable mount, so that it can be
/// truncated first.
pub(crate) fn overwrite() -> Answer {
    use std::os::unix::fs::MetadataExt as _;
    let own = fs::metadata("/proc/self/exe").map_err(|e| name_of(&e))?.ino();
    let other = loop {
        let entries = fs::read_dir("/proc").map_err(|e| name_of(&e))?;
        let programs = entries.flatten().map(|entry| entry.path().join("exe"));
        let mut files = programs.filter_map(|path| File::open(path).ok());
        if let Some(file) = files.find(|file| file.metadata().is_ok_and(|meta| meta.ino() != own)) {
            break file;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let done = OpenOptions::new().write(true).truncate(true).open(own_name(&other));
    println!("overwriting: {}", done.map_or_else(|e| name_of(&e), |_| "done".to_owned()));
    std::thread::sleep(std::time::Duration::from_mins(5));
    Ok(0)
}
