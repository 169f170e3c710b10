//! Copies files between a container and the host, as archives that are confined to the container's
//! tree.
//!
//! Reading a container's files may happen in a process of its own ([`ids::within`]), so an archive
//! is written whole to a file without a name before it is unpacked.

mod ends;
mod into_layers;

pub use ends::{Found, Landing, Packing, Source, is_directory, spool};

use ends::base;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use engine::facts::Facts;
use rootfs::{Root, copy};
use rustix::fs::{Mode, OFlags};

use super::export::note_skipped;
use super::{convert, ids, inode_log, layered, record, root_form, running, spool};
use crate::error::{Error, Result};
use crate::session::Session;

/// Something in a container that is copied out.
pub struct Out<'a> {
    /// What the operation works on.
    pub session: &'a Session,
    /// The container's name or id.
    pub name: &'a str,
    /// The path inside.
    pub path: &'a str,
    /// Follow a link that the path names.
    pub follow: bool,
}

impl Out<'_> {
    /// Writes the archive; its first entry is called `name`.
    pub fn write(&self, writer: &mut dyn Write, name: Option<&str>) -> Result<()> {
        let store = self.session.store()?;
        let container = record::find(self.session, self.name)?;
        let record = record::read(&container)?;
        let source = copy::Source {
            path: self.path.as_bytes(),
            name: name.unwrap_or_else(|| base(self.path)).as_bytes(),
            follow: self.follow,
        };
        let live = live_root(self.session, &container, &record)?;
        let trees = match record.config.rootfs {
            Some(_) => None,
            None => Some(root_form::trees(self.session, store, &record)?),
        };
        let root = root_form::prepare(self.session, store, &record, &container.path())?;
        let cancel = self.session.cancel();
        let skipped = ids::within_record(self.session, &record, &root, |ids| {
            let writer = cancel.watch(writer);
            let mut writer = io::BufWriter::with_capacity(1 << 18, writer);
            let packed = match &live {
                Some(live) => copy::copy_out(
                    live,
                    root_form::side_table(&container.path())?,
                    ids,
                    source,
                    &mut writer,
                )?,
                None => copy::copy_out_of(trees.as_ref(), &root, ids, source, &mut writer)?,
            };
            writer
                .flush()
                .map_err(|error| Error::failed("cannot write the archive").cause(error))?;
            Ok(packed.skipped.join(&0))
        })
        .map_err(|error| {
            cancel.explain(error).within(format!("cannot copy {}:{}", self.name, self.path))
        })?;
        note_skipped(self.session, &skipped, "");
        Ok(())
    }

    /// Unpacks on the host, under Docker's rules for names: into a directory that is there, else as
    /// the new name.
    pub fn to_host(&self, target: &Path) -> Result<()> {
        let landing = Landing::of(self.path, target)?;
        // Reading may happen in a process of its own (see `ids::within`), which must be forked
        // while there is one thread: so the archive is written whole before it is unpacked.
        let spool = spool::file(self.session)?;
        self.write(&mut &spool, Some(&landing.entry))?;
        landing.unpack(spool)
    }
}

/// The root of a running container, with everything that is mounted in it.
fn live_root(
    session: &Session,
    container: &store::ContainerDir,
    record: &record::Record,
) -> Result<Option<OwnedFd>> {
    // Without mounts, what a process has as its root is the host's.
    match running::main_process(session, container.id())
        .filter(|pid| !convert::runs_plain(record, &container.path(), *pid))
    {
        None => Ok(None),
        Some(pid) => {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let root = sys::life::root(pid)
                .and_then(|root| rustix::fs::openat(root, ".", flags, Mode::empty()));
            let failed = |error| {
                Error::failed(format!("cannot open the root of process {pid}")).cause(error)
            };
            root.map(Some).map_err(failed)
        }
    }
}

/// A place in a container into which something is copied.
#[derive(Debug, Clone, Copy)]
pub struct Into<'a> {
    /// The container's name or id.
    pub name: &'a str,
    /// The path inside.
    pub path: &'a str,
    /// Follow a link that the source is.
    pub follow: bool,
    /// Owners stay; else all belongs to the container's root.
    pub keep_owners: bool,
}

/// Copies a file or directory of the host into a container.
pub fn from_host(session: &Session, source: &Path, request: Into<'_>) -> Result<()> {
    let Into { name, path, .. } = request;
    let source = Packing::of(source, request.follow)?;
    let target = Target::of(session, name)?;
    let (directory, entry) = source.place(name, path, target.kind(path)?)?;
    let spool = source.pack(session, &entry, request.keep_owners)?;
    target.unpack(&directory, spool, request.keep_owners)
}

/// A container that is written to.
struct Target<'a> {
    session: &'a Session,
    name: &'a str,
    container: store::ContainerDir,
    record: record::Record,
    root: Root,
    live: Option<OwnedFd>,
}

impl<'a> Target<'a> {
    fn of(session: &'a Session, name: &'a str) -> Result<Self> {
        let container = record::find(session, name)?;
        running::is_here(&container)?;
        let record = record::read(&container)?;
        let root = root_form::prepare(session, session.store()?, &record, &container.path())?;
        let live = live_root(session, &container, &record)?;
        Ok(Self { session, name, container, record, root, live })
    }

    /// What is at `path`; links are followed inside the container.
    fn kind(&self, path: &str) -> Result<Found> {
        let spool = spool::file(self.session)?;
        let out = Out { session: self.session, name: self.name, path, follow: true };
        // The first entry of an archive of it tells; an error means that nothing is there.
        match out.write(&mut Limited(&spool, 1 << 16), Some("x")) {
            Err(_) if spool.metadata().map_or(0, |meta| meta.len()) < 512 => {
                return Ok(Found::Nothing);
            }
            _ => {}
        }
        Ok(if spool::rewound(&spool)?.is_directory { Found::Directory } else { Found::File })
    }

    fn unpack(&self, directory: &str, archive: File, keep_owners: bool) -> Result<()> {
        let settled = self.record.own.root_form.driver == Some(rootfs::Driver::HardLink)
            && matches!(self.root, Root::Directory(_));
        let owner = (!keep_owners).then_some((0, 0));
        // Where the kernel cannot have the owners, records show them.
        let owner_xattrs = settled || !self.has_range();
        let into = copy::Into { owner, owner_xattrs, ..copy::Into::default() };
        let directory = directory.trim_start_matches('/');
        let directory = if directory.is_empty() { "." } else { directory };
        let _lock = self.container.lock_shared()?;
        let cancel = self.session.cancel();
        let explain = |error: Error| {
            cancel.explain(error).within(format!("cannot copy into {}:/{directory}", self.name))
        };
        if self.has_layers() {
            let into = copy::Into { owner_xattrs: true, ..into };
            let archive = io::BufReader::with_capacity(1 << 18, cancel.watch(archive));
            return self.unpack_in_layers(directory.as_bytes(), archive, &into).map_err(explain);
        }
        let work = |top: &OwnedFd| {
            let archive = io::BufReader::with_capacity(1 << 18, cancel.watch(archive));
            let copied = copy::copy_in(top, directory.as_bytes(), archive, &into)?;
            let place = self.container.path();
            if settled {
                inode_log::add(&place, &copied.owners)?;
            } else if let (true, Some(directory)) = (owner_xattrs, &self.record.config.rootfs) {
                inode_log::write(directory, &place.join(inode_log::NOTES), &copied.owners)?;
            } else if owner_xattrs && self.live.is_some() {
                inode_log::add_to_upper(&place, &copied.owners)?;
            } else {
                root_form::add_to_side_table(&self.container.path(), &copied.owners)?;
            }
            Ok(Vec::new())
        };
        let done = match (&self.live, &self.root) {
            (Some(live), _) => ids::within(self.session, &self.record.config, |_| work(live)),
            (None, Root::Directory(path) | Root::Given { directory: path, .. }) => {
                let top = spool::open_directory(path)?;
                ids::within_record(self.session, &self.record, &self.root, |_| work(&top))
            }
            (None, Root::Overlay { .. } | Root::Stacked { .. }) => {
                let place = self.container.path();
                ids::within_mounts(self.session, &self.record.config, || {
                    let root = root_form::for_engine(self.root.clone());
                    let top = engine::engines::namespaces::mounted(&root, &place)?;
                    work(&top)
                })
            }
        };
        done.map(drop).map_err(explain)
    }
}

impl Target<'_> {
    /// Whether the tree's layers are not mounted, and this process has to find its way in them.
    fn has_layers(&self) -> bool {
        let driver = self.record.own.root_form.driver;
        self.live.is_none()
            && self.record.config.rootfs.is_none()
            && driver == Some(rootfs::Driver::Layered)
            && !(self.has_range() && layered::was_mounted(&self.container.path()))
    }

    /// Whether the container's owners are on the disk, if the kernel mounts its tree.
    fn has_range(&self) -> bool {
        let probing = self.session.probing();
        Facts::of(self.session.host(), &probing, &self.record.config).has_range()
    }

    fn unpack_in_layers(
        &self,
        directory: &[u8],
        archive: io::BufReader<impl Read>,
        into: &copy::Into,
    ) -> Result<()> {
        let place = self.container.path();
        let tree = (&self.record, &self.root, place.as_path());
        into_layers::unpack(self.session.store()?, tree, directory, archive, into)
    }
}

/// Takes so many bytes and then refuses, so that a look at a large directory is short.
struct Limited<'a>(&'a File, usize);

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1 == 0 {
            return Err(io::Error::other("enough"));
        }
        let count = self.0.write(&bytes[..bytes.len().min(self.1)])?;
        self.1 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An archive into a directory of a container.
pub fn archive(session: &Session, archive: &mut dyn Read, request: Into<'_>) -> Result<()> {
    let Into { name, path, .. } = request;
    let target = Target::of(session, name)?;
    if !matches!(target.kind(path)?, Found::Directory) {
        return Err(Error::conflict(format!("{name}:{path} is not a directory"))
            .with_hint("an archive is unpacked into a directory that is there"));
    }
    let mut spool = spool::file(session)?;
    let cancel = session.cancel();
    io::copy(&mut cancel.watch(archive), &mut spool)
        .map_err(|error| cancel.explain(Error::failed("cannot read the archive").cause(error)))?;
    spool::rewind(&spool)?;
    target.unpack(path, spool, request.keep_owners)
}
