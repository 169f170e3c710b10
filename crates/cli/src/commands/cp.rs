//! `cp`: between a container and the host, as tar streams that are confined to the container's tree.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rootfs::union::IdMap;
use rootfs::{Root, copy};
use rustix::fs::{Mode, OFlags};

use crate::args::archives::CpArgs;
use crate::container::{convert, ids, launch, notes, record, root, spool};
use crate::context::Context;
use crate::progress;
use crate::report::{Exit, Report};

/// One end of a copy.
enum End {
    Container { name: String, path: String },
    Host(PathBuf),
    Stream,
}

/// `NAME:PATH`, a host path, or `-`. As in Docker, what begins with `/` or `.` is a host path whatever it contains.
fn end(text: &str) -> End {
    if text == "-" {
        return End::Stream;
    }
    match text.split_once(':') {
        Some((name, path)) if !text.starts_with(['/', '.']) && !name.is_empty() => {
            End::Container { name: name.to_owned(), path: path.to_owned() }
        }
        _ => End::Host(text.into()),
    }
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &CpArgs) -> Result<Exit, Report> {
    match (end(&args.source), end(&args.target)) {
        (End::Container { name, path }, End::Host(target)) => {
            Out { context, name: &name, path: &path, follow: args.follow_link }.to_host(&target)?;
        }
        (End::Container { name, path }, End::Stream) => {
            if context.output_is_terminal() {
                return Err(Report::usage("an archive is not written to a terminal")
                    .hint("redirect it: coracle cp NAME:PATH - > files.tar"));
            }
            Out { context, name: &name, path: &path, follow: args.follow_link }
                .write(io::stdout(), None)?;
        }
        (End::Host(source), End::Container { name, path }) => {
            from_host(context, args, &source, &name, &path)?;
        }
        (End::Stream, End::Container { name, path }) => {
            into(context, args, &name, &path, io::stdin())?;
        }
        (End::Container { .. }, End::Container { .. }) => {
            return Err(Report::usage("one of the two must be on the host")
                .hint("copy to the host first, or use '-' and a pipe"));
        }
        _ => {
            return Err(Report::usage("none of the two is in a container")
                .hint("write CONTAINER:PATH for one of them"));
        }
    }
    Ok(Exit::OK)
}

/// Something in a container that is copied out.
struct Out<'a> {
    context: &'a Context,
    name: &'a str,
    path: &'a str,
    follow: bool,
}

impl Out<'_> {
    /// The last part of the path; the archive's entries begin with it.
    fn base(&self) -> &str {
        let trimmed = self.path.trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/.").unwrap_or(trimmed);
        trimmed.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..").unwrap_or(".")
    }

    /// Writes the archive; its first entry is called `name`.
    fn write(&self, writer: impl Write, name: Option<&str>) -> Result<(), Report> {
        let store = self.context.store()?;
        let container = record::find(self.context, self.name)?;
        let record = record::read(&container)?;
        let source = copy::Source {
            path: self.path.as_bytes(),
            name: name.unwrap_or_else(|| self.base()).as_bytes(),
            follow: self.follow,
        };
        let live = live_root(self.context, &container, &record)?;
        let trees = match record.config.rootfs {
            Some(_) => None,
            None => Some(root::trees(self.context, store, &record)?),
        };
        let root = root::prepare(self.context, store, &record, &container.path())?;
        ids::within_record(self.context, &record, &root, |ids| {
            let mut writer = io::BufWriter::with_capacity(1 << 18, writer);
            let packed = match &live {
                Some(live) => copy::copy_out(
                    live,
                    root::side_table(&container.path())?,
                    ids,
                    source,
                    &mut writer,
                )?,
                None => copy::copy_out_of(trees.as_ref(), &root, ids, source, &mut writer)?,
            };
            writer.flush().map_err(|error| Report::new("cannot write the archive").cause(error))?;
            for path in &packed.skipped {
                progress::note(&format!("left out: socket {}", String::from_utf8_lossy(path)));
            }
            Ok(())
        })
        .map_err(|report| report.within(format!("cannot copy {}:{}", self.name, self.path)))
    }

    /// Unpacks on the host, under Docker's rules for names: into a directory that is there, else as the new name.
    fn to_host(&self, target: &Path) -> Result<(), Report> {
        let contents_only = self.path.ends_with("/.");
        let (directory, name) = if target.is_dir() {
            (target.to_owned(), if contents_only { "." } else { self.base() }.to_owned())
        } else {
            let wants_directory = target.as_os_str().as_bytes().ends_with(b"/");
            let parent = target
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            let name = target.file_name().and_then(OsStr::to_str);
            let Some(name) = name.filter(|_| parent.is_dir()) else {
                return Err(Report::new(format!("{} is no directory", parent.display()))
                    .hint("make it first"));
            };
            if wants_directory && !contents_only {
                return Err(Report::new(format!("{} is no directory", target.display()))
                    .hint("make it first, or leave the '/' away"));
            }
            (parent.to_owned(), name.to_owned())
        };
        // Reading may happen in a process of its own (see `ids::within`), which must be forked while there is one thread:
        // so the archive is written whole before it is unpacked.
        let spool = spool::file(self.context)?;
        self.write(&spool, Some(&name))?;
        spool::rewind(&spool)?;
        let top = spool::open_directory(&directory)?;
        // Owners of the container mean nothing on the host: what is copied belongs to the caller. So a program of an
        // image that runs as its owner would run as the caller, whoever starts it.
        let into = copy::Into { owner: Some((0, 0)), no_set_id: true, ..copy::Into::default() };
        copy::copy_in(&top, b".", io::BufReader::with_capacity(1 << 18, spool), &into).map_err(
            |error| Report::from(error).within(format!("cannot write to {}", directory.display())),
        )?;
        Ok(())
    }
}

/// The root of a running container, with everything that is mounted in it.
fn live_root(
    context: &Context,
    container: &store::ContainerDir,
    record: &record::Record,
) -> Result<Option<OwnedFd>, Report> {
    // Without mounts, what a process has as its root is the host's.
    match launch::main_process(context, container.id())
        .filter(|pid| !convert::runs_plain(record, &container.path(), *pid))
    {
        None => Ok(None),
        Some(pid) => {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let root = sys::life::root(pid)
                .and_then(|root| rustix::fs::openat(root, ".", flags, Mode::empty()));
            let failed =
                |error| Report::new(format!("cannot open the root of process {pid}")).cause(error);
            root.map(Some).map_err(failed)
        }
    }
}

/// A host file or directory into a container.
fn from_host(
    context: &Context,
    args: &CpArgs,
    source: &Path,
    name: &str,
    path: &str,
) -> Result<(), Report> {
    let meta = if args.follow_link { source.metadata() } else { source.symlink_metadata() };
    let meta = meta
        .map_err(|error| Report::new(format!("cannot read {}", source.display())).cause(error))?;
    let source = if args.follow_link {
        source.canonicalize().map_err(|error| {
            Report::new(format!("cannot read {}", source.display())).cause(error)
        })?
    } else {
        source.to_owned()
    };
    // `SOURCE/.` means what is in the directory.
    let contents_only = source.as_os_str().as_bytes().ends_with(b"/.") && meta.is_dir();
    let target = Target::of(context, name)?;
    let kind = target.kind(path)?;
    let base = source.file_name().unwrap_or(OsStr::new("."));
    let (directory, entry) = match kind {
        Found::Directory if contents_only => (path.to_owned(), PathBuf::from(".")),
        Found::Directory => (path.to_owned(), base.into()),
        Found::File if meta.is_dir() => {
            return Err(Report::new(format!(
                "{name}:{path} is a file, and {} a directory",
                source.display()
            )));
        }
        Found::File | Found::Nothing => {
            let trimmed = path.trim_end_matches('/');
            let (parent, last) = trimmed.rsplit_once('/').unwrap_or(("/", trimmed));
            if path.ends_with('/') && !meta.is_dir() {
                return Err(Report::new(format!("{name}:{path} is no directory"))
                    .hint("make it first, or leave the '/' away"));
            }
            (if parent.is_empty() { "/".to_owned() } else { parent.to_owned() }, last.into())
        }
    };
    let spool = spool::file(context)?;
    pack(&source, &entry, args.archive, &spool)?;
    spool::rewind(&spool)?;
    target.unpack(&directory, spool, args.archive)
}

/// What is at a path in a container.
enum Found {
    Directory,
    File,
    Nothing,
}

/// A host file or directory as an archive whose first entry is `entry`.
fn pack(source: &Path, entry: &Path, keep_owners: bool, writer: &File) -> Result<(), Report> {
    let parent =
        source.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (directory, path) = match source.file_name() {
        Some(name) if !source.as_os_str().as_bytes().ends_with(b"/.") => {
            (parent.to_owned(), name.as_bytes())
        }
        _ => (source.to_owned(), &b"."[..]),
    };
    let source = copy::Source { path, name: entry.as_os_str().as_bytes(), follow: false };
    let ids = if keep_owners { IdMap::identity() } else { IdMap::default() };
    let top = spool::open_directory(&directory)?;
    let writer = io::BufWriter::with_capacity(1 << 18, writer);
    let packed = copy::copy_out(&top, rootfs::Owners::default(), &ids, source, writer)?;
    for path in &packed.skipped {
        progress::note(&format!("left out: socket {}", String::from_utf8_lossy(path)));
    }
    Ok(())
}

/// A container that is written to.
struct Target<'a> {
    context: &'a Context,
    name: &'a str,
    container: store::ContainerDir,
    record: record::Record,
    root: Root,
    live: Option<OwnedFd>,
}

impl<'a> Target<'a> {
    fn of(context: &'a Context, name: &'a str) -> Result<Self, Report> {
        let container = record::find(context, name)?;
        record::is_here(&container)?;
        let record = record::read(&container)?;
        let root = root::prepare(context, context.store()?, &record, &container.path())?;
        let live = live_root(context, &container, &record)?;
        Ok(Self { context, name, container, record, root, live })
    }

    /// What is at `path`; links are followed inside the container.
    fn kind(&self, path: &str) -> Result<Found, Report> {
        let spool = spool::file(self.context)?;
        let out = Out { context: self.context, name: self.name, path, follow: true };
        // The first entry of an archive of it tells; an error means that nothing is there.
        match out.write(Limited(&spool, 1 << 16), Some("x")) {
            Err(_) if spool.metadata().map_or(0, |meta| meta.len()) < 512 => {
                return Ok(Found::Nothing);
            }
            _ => {}
        }
        Ok(if spool::rewound(&spool)?.is_directory { Found::Directory } else { Found::File })
    }

    fn unpack(&self, directory: &str, archive: impl Read, keep_owners: bool) -> Result<(), Report> {
        let settled = self.record.own.stand.driver == Some(rootfs::Driver::HardLink)
            && matches!(self.root, Root::Directory(_));
        let owner = (!keep_owners).then_some((0, 0));
        let into = copy::Into { owner, owner_xattrs: settled, ..copy::Into::default() };
        let directory = directory.trim_start_matches('/');
        let directory = if directory.is_empty() { "." } else { directory };
        let _lock = self.container.lock_shared()?;
        let work = |top: &OwnedFd| {
            let archive = io::BufReader::with_capacity(1 << 18, archive);
            let copied = copy::copy_in(top, directory.as_bytes(), archive, &into)?;
            if settled {
                return notes::add(&self.container.path(), &copied.owners);
            }
            root::add_to_side_table(&self.container.path(), &copied.owners)
        };
        let done = match (&self.live, &self.root) {
            (Some(live), _) => ids::within(self.context, &self.record.config, |_| work(live)),
            (None, Root::Directory(path)) => {
                let top = spool::open_directory(path)?;
                ids::within_record(self.context, &self.record, &self.root, |_| work(&top))
            }
            (None, Root::Overlay { .. } | Root::Stacked { .. }) => {
                let place = self.container.path();
                ids::within_mounts(self.context, &self.record.config, || {
                    let root = root::for_engine(self.root.clone());
                    let top = engine::engines::native::mounted(&root, &place)?;
                    work(&top)
                })
            }
        };
        done.map_err(|report| report.within(format!("cannot copy into {}:/{directory}", self.name)))
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
fn into(
    context: &Context,
    args: &CpArgs,
    name: &str,
    path: &str,
    mut archive: impl Read,
) -> Result<(), Report> {
    let target = Target::of(context, name)?;
    if !matches!(target.kind(path)?, Found::Directory) {
        return Err(Report::new(format!("{name}:{path} is no directory"))
            .hint("an archive is unpacked into a directory that is there"));
    }
    let mut spool = spool::file(context)?;
    io::copy(&mut archive, &mut spool)
        .map_err(|error| Report::new("cannot read the archive").cause(error))?;
    spool::rewind(&spool)?;
    target.unpack(path, spool, args.archive)
}
