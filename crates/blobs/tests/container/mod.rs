//! A container of one process and what comes of it, started without an engine.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::boot::{self, RANGE};
use abi::calls::filter::{self, Interest};
use abi::elf::{self, Header};
use abi::shared::{Shared, Switches};
use rustix::io::FdFlags;
use testkit::command::{copy_program, output};
use view::handover::{self, Handover};
use view::identity::Credentials;
use view::stored::{Places, Start};
use view::world::{Binding, Identity, Kind};
use view::{Task, World};

/// A container's files.
pub(crate) struct Container {
    dir: tempfile::TempDir,
}

impl Container {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inside")).unwrap();
        fs::write(dir.path().join("inside/file"), "text").unwrap();
        Self { dir }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How the stage's links to its directory of links begin.
    fn aliases(&self) -> String {
        let hash = abi::shared::hash(bytes(self.dir.path()), 0);
        format!("/tmp/.cor-{:07x}", hash % (1 << 28))
    }

    /// Such a link.
    pub(crate) fn alias(&self, digit: u32) -> PathBuf {
        format!("{}{digit:x}", self.aliases()).into()
    }

    /// Compiles a guest; `None`, said on standard error, where there is no compiler that can.
    pub(crate) fn compile(&self, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let out = self.file(&source.replace(".c", ""));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(source);
        let status =
            Command::new("cc").arg("-w").args(flags).arg("-o").arg(&out).arg(source).status();
        if status.is_ok_and(|status| status.success()) {
            return Some(out);
        }
        eprintln!("no compiler: skipped");
        None
    }

    /// Makes a tree with files that are an image's, and one program, which is not.
    pub(crate) fn grow(&self, program: &Path) -> PathBuf {
        let root = self.file("ROOT");
        for name in ["etc", "tmp", "dev", "proc", "bin", "usr/lib64", "usr/share"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("usr/lib64", root.join("lib64")).unwrap();
        fs::create_dir(self.file("image")).unwrap();
        let mut inodes = Vec::new();
        for (name, length) in [("small", 10), ("many", 100), ("short", 1000), ("large", 4 << 20)] {
            let image = self.file("image").join(name);
            fs::write(&image, vec![b'x'; length]).unwrap();
            fs::hard_link(&image, root.join("etc").join(name)).unwrap();
            inodes.push(inode(&File::open(image).unwrap()).2);
        }
        inodes.sort_unstable();
        let entries =
            inodes.iter().flat_map(|inode| [&inode.to_le_bytes()[..], &[1, 0, 0, 0]].concat());
        fs::write(self.file("inodes"), entries.collect::<Vec<u8>>()).unwrap();
        let guest = root.join("bin/guest");
        copy_program(program, &guest);
        guest
    }

    /// Writes the files that a container's first program needs. Returns the numbers of the world
    /// and of the filter.
    fn prepare(&self, way: &Way) -> (u32, u32) {
        let Way { base, switches, in_memory, tree } = *way;
        let stage = self.file("stage");
        if !in_memory {
            fs::write(&stage, blobs::stage(base)).unwrap();
            fs::set_permissions(&stage, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let start = boot::start(base);
        let interest = Interest {
            loader: Some((start, start + RANGE)),
            in_process: true,
            identity: tree,
            shared_image: tree,
            ..Interest::default()
        };
        let arches = [abi::calls::Arch::X86_64, abi::calls::Arch::I386];
        let program: Vec<u8> = filter::program(&arches, &interest)
            .unwrap()
            .iter()
            .flat_map(|one| {
                let mut bytes = one.code.to_le_bytes().to_vec();
                bytes.extend([one.jt, one.jf]);
                bytes.extend(one.k.to_le_bytes());
                bytes
            })
            .collect();
        let inodes = fs::read(self.file("inodes")).unwrap_or_default();
        let size = Shared::size(abi::shared::image::count(inodes.len()));
        let words: Vec<AtomicU64> = (0..size / 8).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared::create(&words, &inodes).unwrap();
        let filter = shared.records().add(&program).unwrap();
        let (inside, root) = (self.file("inside"), self.file("ROOT"));
        let bind = |guest, host, kind| Binding { guest, host, read_only: false, kind };
        let (second, proc) =
            (bind(b"/inside", bytes(&inside), Kind::Host), bind(b"/proc", b"/proc", Kind::Proc));
        let bindings = if tree {
            [bind(b"/", bytes(&root), Kind::Tree), bind(b"/dev", b"/dev", Kind::Host), proc]
        } else {
            [bind(b"/", b"/", Kind::Host), second, proc]
        };
        let identity = tree.then(|| Identity {
            host_uid: rustix::process::getuid().as_raw(),
            host_gid: rustix::process::getgid().as_raw(),
            uid: 0,
            gid: 0,
        });
        let aliases = self.aliases();
        let (shared_path, notes, run) = (self.file("shared"), self.file("notes"), self.file(""));
        let places = Places {
            tree: if tree { bytes(&root) } else { b"" },
            stage: bytes(&stage),
            shared: bytes(&shared_path),
            notes: bytes(&notes),
            copy_dir: bytes(&run),
            run: bytes(&run),
            aliases: aliases.as_bytes(),
            texts: b"",
            ..Places::default()
        };
        let mut buffer = vec![0; 65536];
        let begin = Start { identity, switches, filter, places, host_name: b"", slot: 0 };
        let world = World::new(&bindings, identity, &[]);
        let length = view::stored::write(&begin, &world, &mut buffer).unwrap();
        let world = shared.records().add(&buffer[..length]).unwrap();
        let file: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        fs::write(shared_path, file).unwrap();
        (world, filter)
    }

    /// Runs a program as the first of the container.
    pub(crate) fn run(&self, start: &Way, program: &Path, arguments: &[&str]) -> Output {
        let (world, filter) = self.prepare(start);
        let _alone = alone();
        let keep = |path: &Path| {
            let file = File::open(path).unwrap();
            rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
            file
        };
        let file = keep(program);
        let interpreter = interpreter(program).map(|path| keep(&path));
        let shared = self.file("shared");
        let root = self.file("ROOT");
        let name = match program.strip_prefix(&root) {
            Ok(name) => [b"/", bytes(name)].concat(),
            Err(_) => bytes(program).to_vec(),
        };
        let mut comm = [0; 16];
        comm[..5].copy_from_slice(b"guest");
        let handover = Handover {
            program: file.as_raw_fd(),
            interpreter: interpreter.as_ref().map(AsRawFd::as_raw_fd),
            name: &name,
            path: &name,
            inode: inode(&file),
            comm,
            secure: false,
            ids: None,
            shared: bytes(&shared),
            world,
            filter: Some(filter),
            switches: start.switches,
            ignored: 0,
            blocked: 0,
            filters: &[],
        };
        let mut string = vec![0; handover::LONGEST];
        let task = Task::new(Credentials::ROOT, 0o22);
        let length = handover.write(&task, &mut string).unwrap();
        string.truncate(length);
        let split = string.iter().position(|byte| *byte == b'=').unwrap();
        let memory = start.in_memory.then(|| in_memory(start.base));
        let stage = memory.as_ref().map_or(self.file("stage"), |file| {
            format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
        });
        // Variables are sorted: this one comes before.
        let mut command = Command::new(stage);
        command
            .arg0(arguments[0])
            .args(&arguments[1..])
            .env_clear()
            .env("A", "1")
            .env(OsStr::from_bytes(&string[..split]), OsStr::from_bytes(&string[split + 1..]));
        output(&mut command).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        for digit in 0..16 {
            let _ = fs::remove_file(self.alias(digit));
        }
    }
}

/// Holds back other tests of this process that start a container, whose descriptors without
/// `O_CLOEXEC` a program that is started now would inherit.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static STARTING: Mutex<()> = Mutex::new(());
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a container is started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Way {
    /// Which of the stage's places.
    pub(crate) base: u64,
    /// What is not to be used.
    pub(crate) switches: Switches,
    /// The stage is no file.
    pub(crate) in_memory: bool,
    /// The root is a tree of the container's own ([`Container::grow`]), and ids are emulated.
    pub(crate) tree: bool,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn inode(file: &File) -> (u32, u32, u64) {
    let stat = rustix::fs::fstat(file).unwrap();
    (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev), stat.st_ino)
}

fn in_memory(base: u64) -> File {
    use std::io::Write;
    let file = rustix::fs::memfd_create("stage", rustix::fs::MemfdFlags::empty()).unwrap();
    let mut file = File::from(file);
    file.write_all(&blobs::stage(base)).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // Nobody may have it open for writing when it is executed.
    let read = File::open(path).unwrap();
    rustix::io::fcntl_setfd(&read, FdFlags::empty()).unwrap();
    read
}

fn interpreter(program: &Path) -> Option<PathBuf> {
    let bytes = fs::read(program).unwrap();
    let header = Header::read(&bytes)?;
    let start = header.table as usize;
    let table = &bytes[start..start + header.table_length()?];
    let found = elf::segments(header.class, table).find(|one| one.kind == elf::INTERPRETER)?;
    let name = &bytes[found.offset as usize..(found.offset + found.file_size) as usize - 1];
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

pub(crate) fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    let mut text = String::from_utf8_lossy(&both).into_owned();
    if !output.status.success() {
        let _ = writeln!(text, "{:?} {:?}", output.status.code(), output.status.signal());
    }
    text
}
