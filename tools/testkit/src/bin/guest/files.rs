//! Files, directories, mounts.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps, XattrFlags};
use serde_json::{Value, json};

use crate::{Answer, latin, name_of};

fn kind(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "dir",
        () if kind.is_symlink() => "link",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () => "file",
    }
}

fn describe(path: &Path) -> Result<Value, String> {
    let meta = fs::symlink_metadata(path).map_err(|e| name_of(&e))?;
    Ok(json!({
        "kind": kind(&meta),
        "mode": format!("{:o}", meta.permissions().mode() & 0o7777),
        "uid": meta.uid(),
        "gid": meta.gid(),
        "size": meta.size(),
        "nlink": meta.nlink(),
        "rdev": [meta.rdev() >> 8 & 0xfff, (meta.rdev() & 0xff) | (meta.rdev() >> 12 & 0xfff00)],
        "mtime": meta.mtime(),
        "dev": meta.dev(),
        "ino": meta.ino(),
    }))
}

pub(crate) fn stat(path: &Path) -> Answer {
    println!("{}", describe(path)?);
    Ok(0)
}

pub(crate) fn statfs(path: &Path) -> Answer {
    let facts = rustix::fs::statfs(path).map_err(|e| e.to_string())?;
    let flags = rustix::fs::statvfs(path).map_err(|e| e.to_string())?.f_flag.bits();
    let size = facts.f_blocks * facts.f_bsize.cast_unsigned();
    println!("{}", json!({ "type": format!("{:#x}", facts.f_type), "flags": flags, "size": size }));
    Ok(0)
}

fn names(path: &Path) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .map_err(|e| name_of(&e))?
        .flatten()
        .map(|entry| latin(entry.file_name().as_bytes()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn list(path: &Path) -> Answer {
    println!("{}", json!(names(path)?));
    Ok(0)
}

/// Lists every path below, with type, mode, owner and size.
pub(crate) fn tree(path: &Path) -> Answer {
    let mut stack = vec![path.to_owned()];
    let mut lines = Vec::new();
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).map_err(|e| name_of(&e))?.flatten() {
            let below = entry.path();
            let meta = fs::symlink_metadata(&below).map_err(|e| name_of(&e))?;
            let mode = meta.permissions().mode() & 0o7777;
            let name = latin(below.as_os_str().as_bytes());
            lines.push(format!("{name} {} {mode:o} {}:{}", kind(&meta), meta.uid(), meta.gid()));
            if meta.is_dir() {
                stack.push(below);
            }
        }
    }
    lines.sort_unstable();
    println!("{}", lines.join("\n"));
    Ok(0)
}

/// Lists every path below with all that is known of it, and of each directory that every name is
/// there once. What is mounted is left out, and so are times of reading.
pub(crate) fn walk(root: &Path) -> Answer {
    let device = fs::symlink_metadata(root).map_err(|e| name_of(&e))?.dev();
    let mut stack = vec![root.to_owned()];
    let mut lines = Vec::new();
    while let Some(path) = stack.pop() {
        let failed = |error: std::io::Error| format!("{}: {}", path.display(), name_of(&error));
        let meta = fs::symlink_metadata(&path).map_err(failed)?;
        if meta.dev() != device {
            continue;
        }
        if meta.is_dir() {
            let mut below: Vec<PathBuf> =
                fs::read_dir(&path).map_err(failed)?.flatten().map(|entry| entry.path()).collect();
            below.sort_unstable();
            if let Some(twice) = below.windows(2).find(|two| two[0] == two[1]) {
                return Err(format!("{} is listed twice", twice[0].display()));
            }
            stack.extend(below);
        }
        let target = fs::read_link(&path).unwrap_or_default();
        let size = if meta.is_dir() { 0 } else { meta.size() };
        lines.push(format!(
            "{} {} {:o} {}:{} links {} size {size} device {} time {}.{:09} {:?} {}",
            latin(path.as_os_str().as_bytes()),
            kind(&meta),
            meta.permissions().mode() & 0o7777,
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.rdev(),
            meta.mtime(),
            meta.mtime_nsec(),
            testkit::fingerprint::attributes(&path),
            latin(target.as_os_str().as_bytes()),
        ));
    }
    lines.sort_unstable();
    println!("{}", lines.join("\n"));
    Ok(0)
}

pub(crate) fn read(path: &Path) -> Answer {
    let bytes = fs::read(path).map_err(|e| name_of(&e))?;
    std::io::stdout().write_all(&bytes).map_err(|e| name_of(&e))?;
    Ok(0)
}

/// Changes the working directory.
pub(crate) fn change_directory(path: &Path) -> Answer {
    rustix::process::chdir(path).map_err(|errno| name_of(&errno.into()))?;
    Ok(0)
}

/// The same by an open directory (`fchdir`).
pub(crate) fn change_directory_by_descriptor(path: &Path) -> Answer {
    let directory = fs::File::open(path).map_err(|e| name_of(&e))?;
    rustix::process::fchdir(directory).map_err(|errno| name_of(&errno.into()))?;
    Ok(0)
}

/// Prints the working directory, as `getcwd` and as `/proc` name it.
pub(crate) fn working_directory() -> Answer {
    let asked = std::env::current_dir().map_err(|e| name_of(&e))?;
    let linked = fs::read_link("/proc/self/cwd").map_err(|e| name_of(&e))?;
    println!("{} {}", asked.display(), linked.display());
    Ok(0)
}

pub(crate) fn read_link(path: &Path) -> Answer {
    println!("{}", latin(fs::read_link(path).map_err(|e| name_of(&e))?.as_os_str().as_bytes()));
    Ok(0)
}

fn done(result: std::io::Result<()>) -> Answer {
    result.map(|()| 0).map_err(|error| name_of(&error))
}

pub(crate) fn write(path: &Path, text: &str) -> Answer {
    done(fs::write(path, text))
}

pub(crate) fn append(path: &Path, text: &str) -> Answer {
    done(
        fs::OpenOptions::new()
            .append(true)
            .open(path)
            .and_then(|mut f| f.write_all(text.as_bytes())),
    )
}

pub(crate) fn remove(path: &Path) -> Answer {
    let dir = fs::symlink_metadata(path).map_err(|e| name_of(&e))?.is_dir();
    done(if dir { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

pub(crate) fn make_dir(path: &Path) -> Answer {
    done(fs::create_dir(path))
}

pub(crate) fn rename(from: &Path, to: &Path) -> Answer {
    done(fs::rename(from, to))
}

pub(crate) fn symlink(target: &str, path: &Path) -> Answer {
    done(std::os::unix::fs::symlink(target, path))
}

pub(crate) fn chmod(path: &Path, octal: &str) -> Answer {
    let mode = u32::from_str_radix(octal, 8).map_err(|_| "no octal mode".to_owned())?;
    done(fs::set_permissions(path, fs::Permissions::from_mode(mode)))
}

pub(crate) fn chown(path: &Path, uid: u32, gid: u32) -> Answer {
    done(std::os::unix::fs::lchown(path, Some(uid), Some(gid)))
}

pub(crate) fn mknod(path: &Path, kind: &str, major: u64, minor: u64) -> Answer {
    let kind = if kind == "b" { FileType::BlockDevice } else { FileType::CharacterDevice };
    let device = rustix::fs::makedev(major as u32, minor as u32);
    done(
        rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)
            .map_err(Into::into),
    )
}

pub(crate) fn fifo(path: &Path) -> Answer {
    let mode = Mode::from_raw_mode(0o600);
    done(rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).map_err(Into::into))
}

pub(crate) fn set_attribute(path: &Path, name: &str, value: &str) -> Answer {
    let set = rustix::fs::lsetxattr(path, name, value.as_bytes(), XattrFlags::empty());
    done(set.map_err(Into::into))
}

/// Prints all that the caller may see.
pub(crate) fn attributes(path: &Path) -> Answer {
    println!("{}", json!(testkit::fingerprint::attributes(path)));
    Ok(0)
}

pub(crate) fn mounts() -> Answer {
    print!("{}", fs::read_to_string("/proc/self/mountinfo").map_err(|e| name_of(&e))?);
    Ok(0)
}

/// Writes up to `megabytes` and prints the error at which it stopped.
pub(crate) fn fill(path: &Path, megabytes: u64) -> Answer {
    let mut file = fs::File::create(path).map_err(|e| name_of(&e))?;
    let chunk = vec![b'x'; 1 << 20];
    for done in 0..megabytes {
        if let Err(error) = file.write_all(&chunk) {
            println!("full after {done} MB: {}", name_of(&error));
            return Ok(0);
        }
    }
    println!("wrote {megabytes} MB");
    Ok(0)
}

/// Eleven ways to change a tree, each tried on `dir` (which holds `file`); prints the result of
/// each.
pub(crate) fn mutate(dir: &Path) -> Answer {
    let file = dir.join("file");
    let fresh = |name: &str| -> PathBuf { dir.join(name) };
    let linux = |result: rustix::io::Result<()>| result.map_err(std::io::Error::from);
    let c_path = CString::new(file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    let tries: [(&str, std::io::Result<()>); 11] = [
        ("open for writing", fs::OpenOptions::new().write(true).open(&file).map(drop)),
        ("truncate", fs::OpenOptions::new().write(true).truncate(true).open(&file).map(drop)),
        ("create", fs::File::create(fresh("new")).map(drop)),
        ("mkdir", fs::create_dir(fresh("new-dir"))),
        ("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o600))),
        ("chown", std::os::unix::fs::chown(&file, Some(0), Some(0))),
        ("set times", {
            let now = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
            let times = Timestamps { last_access: now, last_modification: now };
            linux(rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()))
        }),
        (
            "set attribute",
            linux(rustix::fs::setxattr(c_path.as_c_str(), c"user.test", b"x", XattrFlags::empty())),
        ),
        ("symlink", std::os::unix::fs::symlink("x", fresh("new-link"))),
        ("rename", fs::rename(&file, fresh("renamed"))),
        ("unlink", fs::remove_file(&file)),
    ];
    let answers: Vec<(String, String)> = tries
        .into_iter()
        .map(|(name, result)| {
            (name.to_owned(), result.map_or_else(|e| name_of(&e), |()| "done".to_owned()))
        })
        .collect();
    println!("{}", json!(answers));
    Ok(0)
}
