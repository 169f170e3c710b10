//! Tries every way to change an existing directory and the names in it, each on a directory of its
//! own, which holds `file`, `sub/two`, `empty`, and the symbolic link `link`.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, IFlags, Mode, OFlags, RenameFlags, XattrFlags};
use serde_json::json;

use super::{TIMES, Way, beside};
use crate::{Answer, name_of};

/// The ways, each with the name of its directory.
pub(crate) const WAYS: [(&str, Way); 31] = [
    ("create", |dir| File::create(dir.join("new")).map(drop)),
    ("create-by-descriptor", |dir| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        Ok(rustix::fs::openat(File::open(dir)?, "new", flags, Mode::RUSR).map(drop)?)
    }),
    ("mkdir", |dir| fs::create_dir(dir.join("new"))),
    ("mkdir-by-descriptor", |dir| Ok(rustix::fs::mkdirat(File::open(dir)?, "new", Mode::RWXU)?)),
    ("mknod", |dir| {
        let path = dir.join("new");
        Ok(rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0)?)
    }),
    ("mknod-by-descriptor", |dir| {
        Ok(rustix::fs::mknodat(File::open(dir)?, "new", FileType::RegularFile, Mode::RUSR, 0)?)
    }),
    ("bind", |dir| {
        // The name of a socket must be short.
        rustix::process::chdir(dir)?;
        let bound = UnixListener::bind("new").map(drop);
        rustix::process::chdir("/")?;
        bound
    }),
    ("symlink", |dir| symlink("file", dir.join("new"))),
    ("symlink-by-descriptor", |dir| Ok(rustix::fs::symlinkat("file", File::open(dir)?, "new")?)),
    ("link", |dir| fs::hard_link(dir.join("file"), dir.join("new"))),
    ("link-by-descriptor", |dir| {
        let dir = File::open(dir)?;
        Ok(rustix::fs::linkat(&dir, "file", &dir, "new", AtFlags::empty())?)
    }),
    ("link-of-link", |dir| fs::hard_link(dir.join("link"), dir.join("new"))),
    ("unlink", |dir| fs::remove_file(dir.join("file"))),
    ("unlink-by-descriptor", |dir| {
        Ok(rustix::fs::unlinkat(File::open(dir)?, "file", AtFlags::empty())?)
    }),
    ("unlink-link", |dir| fs::remove_file(dir.join("link"))),
    ("rmdir", |dir| fs::remove_dir(dir.join("empty"))),
    ("rmdir-by-descriptor", |dir| {
        Ok(rustix::fs::unlinkat(File::open(dir)?, "empty", AtFlags::REMOVEDIR)?)
    }),
    ("remove-all", |dir| fs::remove_dir_all(dir)),
    ("rename", |dir| fs::rename(dir, beside(dir, ".moved"))),
    ("rename-inside", |dir| fs::rename(dir.join("sub"), dir.join("moved"))),
    ("rename-by-descriptor", |dir| {
        let dir = File::open(dir)?;
        Ok(rustix::fs::renameat(&dir, "sub", &dir, "moved")?)
    }),
    ("rename-over-empty", |dir| fs::rename(dir.join("sub"), dir.join("empty"))),
    ("exchange", |dir| {
        let (one, two) = (dir.join("sub"), dir.join("file"));
        match rustix::fs::renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }),
    ("chmod", |dir| fs::set_permissions(dir, fs::Permissions::from_mode(0o700))),
    ("fchmod", |dir| File::open(dir)?.set_permissions(fs::Permissions::from_mode(0o701))),
    ("chown", |dir| std::os::unix::fs::chown(dir, Some(5), Some(6))),
    ("fchown", |dir| std::os::unix::fs::fchown(File::open(dir)?, Some(5), Some(6))),
    ("times", |dir| Ok(rustix::fs::futimens(File::open(dir)?, &TIMES)?)),
    ("attribute", |dir| {
        rustix::fs::setxattr(dir, "user.test", b"x", XattrFlags::empty())?;
        Ok(rustix::fs::fsetxattr(File::open(dir)?, "user.two", b"x", XattrFlags::empty())?)
    }),
    ("flag", |dir| match rustix::fs::ioctl_setflags(File::open(dir)?, IFlags::NODUMP) {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }),
    ("owner-and-time-of-link", |dir| {
        let link = dir.join("link");
        lchown(&link, Some(5), Some(6))?;
        Ok(rustix::fs::utimensat(CWD, &link, &TIMES, AtFlags::SYMLINK_NOFOLLOW)?)
    }),
];

/// Tries all of them below a directory with a directory for each; prints those that failed.
pub(crate) fn spoil(dir: &Path) -> Answer {
    let failed: Vec<(&str, String)> = WAYS
        .iter()
        .filter_map(|(name, way)| Some((*name, name_of(&way(&dir.join(name)).err()?))))
        .collect();
    println!("{}", json!(failed));
    Ok(0)
}

/// Prints the names of the directories that [`spoil`] needs.
pub(crate) fn ways() -> Answer {
    println!("{}", json!(WAYS.map(|(name, _)| name).to_vec()));
    Ok(0)
}
