//! What is done to a tree, in two layers or in one.

use super::super::layered::UPPER;
use super::super::machine::Kind;
use super::Container;
use super::tree::c_string;
use crate::kernel::{CWD, Kernel};
use crate::overlay::{copy_up, real_path};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY,
    O_RDWR, S_IFIFO, S_IFREG, timespec,
};
use std::ffi::CString;
use std::format;
use std::string::String;
use std::vec::Vec;
use view::guest::Purpose;
use view::{Dir, Errno, Text};

/// An operation. Paths begin at the root of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Read(String),
    ReadLink(String),
    Look(String),
    Attribute(String),
    MakeDirectory(String),
    MakeFile(String),
    MakePipe(String),
    MakeLink(String, String),
    Link(String, String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String, u32),
    /// `open` with `O_CREAT`, as the view does it.
    Create(String),
    /// `bind`, which makes a name and is made by the guest itself.
    Bind(String),
    SetMode(String, u32),
    SetGroup(String, u32),
    SetTimes(String, i64),
    SetAttribute(String, String),
    Truncate(String, u64),
    Append(String),
    /// What every change does first; also done for nothing.
    CopyUp(String),
    /// Opens a directory. Paths that begin with `@` begin there from then on.
    Hold(String),
    /// The name of that directory.
    Name,
    Restart,
}

use Operation::*;

/// What is seen of an operation.
pub(super) type Outcome = Result<Vec<u8>, Errno>;

impl Operation {
    /// The paths that it names.
    pub(super) fn paths(&self) -> Vec<&str> {
        match self {
            Link(from, to) | Rename(from, to, _) => Vec::from([from.as_str(), to]),
            Read(path)
            | ReadLink(path)
            | Look(path)
            | Attribute(path)
            | MakeDirectory(path)
            | MakeFile(path)
            | MakePipe(path)
            | MakeLink(path, _)
            | Unlink(path)
            | RemoveDirectory(path)
            | Create(path)
            | Bind(path)
            | SetMode(path, _)
            | SetGroup(path, _)
            | SetTimes(path, _)
            | SetAttribute(path, _)
            | Truncate(path, _)
            | Append(path)
            | CopyUp(path)
            | Hold(path) => Vec::from([path.as_str()]),
            Name | Restart => Vec::new(),
        }
    }

    /// It follows a link at the end of its path, which the view does before.
    pub(super) fn follows(&self) -> bool {
        matches!(
            self,
            Read(_) | Create(_) | SetMode(..) | SetAttribute(..) | Truncate(..) | Append(_)
        )
    }
}

fn path(name: &str) -> CString {
    c_string(&format!("{UPPER}/{name}"))
}

impl Operation {
    /// It begins at a directory that is open.
    pub(super) fn is_relative(&self) -> bool {
        self.paths().iter().any(|path| path.starts_with('@'))
    }
}

impl Container {
    /// Does it.
    pub(super) fn run(&mut self, operation: &Operation) -> Outcome {
        let nothing = |()| Vec::new();
        match operation {
            Restart => {
                self.restart();
                Ok(Vec::new())
            }
            CopyUp(name) => self.copy_up(name).map(nothing),
            Hold(name) => self.hold(name).map(nothing),
            SetMode(..) | SetGroup(..) | SetTimes(..) | SetAttribute(..) | Truncate(..)
            | Append(_) => self.change(operation).map(nothing),
            Create(name) => self.create(&path(name), Purpose::Open).map(nothing),
            Bind(name) => self.create(&path(name), Purpose::Make).map(nothing),
            _ => self.other(operation),
        }
    }

    fn other(&self, operation: &Operation) -> Outcome {
        let files = &self.files;
        let at = |name: &str| match name.strip_prefix('@') {
            Some(name) => (Dir::Held(self.held.unwrap()), c_string(name)),
            None => (Dir::Root, path(name)),
        };
        let mut text = Text::EMPTY;
        match operation {
            Read(name) => {
                let file = files.open(at(name).0, &at(name).1, O_RDONLY | O_NOFOLLOW, 0, 0)?;
                let mut bytes = [0; 500];
                let is_directory = {
                    let number = files.process.files.borrow()[&file.0].0;
                    !matches!(files.process.machine().inode(number).kind, Kind::File(_))
                };
                let got = if is_directory { Ok(0) } else { files.pread(file, &mut bytes, 0) };
                files.close(file);
                Ok(bytes[..got?].into())
            }
            ReadLink(name) => {
                files.readlink(at(name).0, &at(name).1, &mut text).map(|()| text.as_bytes().into())
            }
            Look(name) => {
                let mut status = abi::layout::stat::EMPTY_STATX;
                files.statx(at(name).0, &at(name).1, AT_SYMLINK_NOFOLLOW, &mut status)?;
                Ok((status.stx_mode & !0o1000).to_le_bytes().into())
            }
            Attribute(name) => {
                let mut value = [0; 10];
                let length =
                    files.getxattr(at(name).0, &at(name).1, true, c"user.z", &mut value)?;
                Ok(value[..length].into())
            }
            MakeDirectory(name) => files.mkdir(at(name).0, &at(name).1, 0o755).map(|()| Vec::new()),
            MakeFile(name) => {
                files.mknod(at(name).0, &at(name).1, S_IFREG | 0o640).map(|()| Vec::new())
            }
            MakePipe(name) => {
                files.mknod(at(name).0, &at(name).1, S_IFIFO | 0o600).map(|()| Vec::new())
            }
            MakeLink(name, target) => {
                files.symlink(&c_string(target), at(name).0, &at(name).1).map(|()| Vec::new())
            }
            Link(from, to) => {
                files.link((at(from).0, &at(from).1), (at(to).0, &at(to).1), 0).map(|()| Vec::new())
            }
            Unlink(name) => files.unlink(at(name).0, &at(name).1, 0).map(|()| Vec::new()),
            RemoveDirectory(name) => {
                files.unlink(at(name).0, &at(name).1, AT_REMOVEDIR).map(|()| Vec::new())
            }
            Rename(from, to, flags) => files
                .rename((at(from).0, &at(from).1), (at(to).0, &at(to).1), *flags)
                .map(|()| Vec::new()),
            Name => {
                files.path_of(Dir::Held(self.held.unwrap()), &mut text)?;
                let is_gone = text.as_bytes().ends_with(b" (deleted)");
                // Where a directory was that is removed is not said.
                Ok(if is_gone { b"gone".into() } else { text.as_bytes().into() })
            }
            other => panic!("{other:?}"),
        }
    }

    fn hold(&mut self, name: &str) -> Result<(), Errno> {
        let flags = O_PATH | O_NOFOLLOW | O_DIRECTORY;
        let held = self.files.open(Dir::Root, &path(name), flags, 0, 0)?;
        if let Some(before) = self.held.replace(held) {
            self.files.close(before);
        }
        Ok(())
    }

    /// What the view has done before a change: the container gets its own file.
    fn copy_up(&mut self, name: &str) -> Result<(), Errno> {
        let path = path(name);
        if self.files.process.layers.is_some() {
            return copy_up(&self.files.process, &path, |_, _| Ok(())).unwrap();
        }
        let mut machine = self.files.process.machine.lock().unwrap();
        let number = machine.find(1, path.to_str().unwrap(), false)?;
        if self.shared.contains(&number) {
            let (above, name) = machine.parent(1, path.to_str().unwrap()).unwrap();
            let copy = machine.inode(number).clone();
            let new = machine.inodes.keys().last().unwrap() + 1;
            machine.inodes.insert(new, crate::tests::machine::Inode { links: 1, ..copy });
            machine.inodes.get_mut(&number).unwrap().links -= 1;
            let Kind::Directory(names) = &mut machine.inodes.get_mut(&above).unwrap().kind else {
                unreachable!();
            };
            names.insert(name, new);
        }
        Ok(())
    }

    fn change(&mut self, operation: &Operation) -> Result<(), Errno> {
        let name = operation.paths()[0];
        let before = self.try_change(operation);
        let number = self.machine().at(path(name).to_str().unwrap());
        let is_layered = self.files.process.layers.is_some();
        if is_layered && before != Err(Errno::EROFS) {
            return before;
        }
        if is_layered || number.is_ok_and(|number| self.shared.contains(&number)) {
            self.copy_up(name)?;
            return self.try_change(operation);
        }
        before
    }

    /// A change of a file that the container may share with the image.
    fn try_change(&self, operation: &Operation) -> Result<(), Errno> {
        let (files, root) = (&self.files, Dir::Root);
        let name = operation.paths()[0];
        let number = self.machine().at(path(name).to_str().unwrap());
        if number.is_ok_and(|number| self.shared.contains(&number)) {
            return Err(Errno::EROFS);
        }
        match operation {
            SetMode(name, mode) => {
                // As the view, which leaves the mark of what the image has.
                let is_layered = self.files.process.layers.is_some();
                let is_images = number.map_or(is_layered, |number| {
                    self.machine().inode(number).attributes.contains_key("user.coracle.origin")
                });
                let mark = if is_images { 0o1000 } else { 0 };
                files.chmod(root, &path(name), mode | mark)
            }
            SetGroup(name, group) => {
                files.chown(root, &path(name), u32::MAX, *group, AT_SYMLINK_NOFOLLOW)
            }
            SetTimes(name, seconds) => {
                let times = [timespec { tv_sec: *seconds, tv_nsec: 0 }; 2];
                files.utimens(root, &path(name), Some(&times), AT_SYMLINK_NOFOLLOW)
            }
            SetAttribute(name, value) => {
                files.setxattr(root, &path(name), true, c"user.z", value.as_bytes(), 0)
            }
            Truncate(name, size) => {
                // Another error than this kernel's, which does not know it.
                self.must_be_file(&path(name))?;
                files.truncate(root, &path(name), *size)
            }
            Append(name) => {
                self.must_be_file(&path(name))?;
                let file = files.open(root, &path(name), O_RDWR | O_NOFOLLOW, 0, 0)?;
                let written = files.write_all(file, b"+");
                files.close(file);
                written
            }
            other => panic!("{other:?}"),
        }
    }

    fn must_be_file(&self, path: &CStr) -> Result<(), Errno> {
        let mut status = abi::layout::stat::EMPTY_STATX;
        self.files.statx(Dir::Root, path, AT_SYMLINK_NOFOLLOW, &mut status)?;
        if u32::from(status.stx_mode) & S_IFREG == S_IFREG { Ok(()) } else { Err(Errno::EISDIR) }
    }

    /// A call that makes a file, and that the guest makes itself.
    fn create(&self, path: &CStr, purpose: Purpose) -> Result<(), Errno> {
        let (process, mut real) = (&self.files.process, Text::EMPTY);
        let mut status = abi::layout::stat::EMPTY_STATX;
        if purpose == Purpose::Make
            && self.files.statx(Dir::Root, path, AT_SYMLINK_NOFOLLOW, &mut status).is_ok()
        {
            return Err(Errno::EEXIST);
        }
        let is_hidden = real_path(process, path, purpose, &mut real)?;
        if purpose == Purpose::Make {
            return process.mknodat(CWD, real.as_c_str(), S_IFREG | 0o600);
        }
        if is_hidden {
            return self.files.mknod(Dir::Root, path, S_IFREG | 0o600);
        }
        let flags = O_CREAT | O_EXCL | O_RDONLY;
        process.openat(CWD, real.as_c_str(), flags, 0o600).map(|file| process.close(file))
    }
}
