//! From a plan to a container that a runtime starts.
//!
//! | step | process |
//! |---|---|
//! | files in `/etc`, cgroup, `unshare` of user and mount namespace, id maps | starter |
//! | memory file system for the bundle; root mounted; `config.json` written | starter |
//! | `runc run --detach`: the other namespaces, mounts, the new root | the runtime, a child of the starter |
//! | takes streams and instructions, waits | first process of the container |
//! | the runtime and what it leaves behind have ended: record the process, connect its network, open the gate | starter |
//! | terminal, limits, ids, filters, `execve` | first process of the container |
//!
//! The starter ends then, and the container's first process is a child of whoever forked the starter, which [`adopt`] made a subreaper.

use super::Mode;
use super::bundle::{Config, Terms};
use super::inside::{EXPECTED, Instructions, WORD};
use crate::choose::{Child, Ended};
use crate::engines::launch::{files, report};
use crate::engines::native::assistant::{Assistant, map_error, maps};
use crate::engines::native::terminal::{Terminal, has_own_devices};
use crate::engines::native::{cgroup, enter, members, program, start as native, tree};
use crate::engines::write_file;
use crate::error::{Error, Result};
use crate::plan::{IdRange, Ids, Mount, Network, Plan, Root};
use crate::records::Records;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, MemfdFlags, Mode as Permissions, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{Gid, Pid, PidfdFlags, Uid, WaitOptions};
use rustix::thread::CapabilitySet;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::event::{ForkResult, MaskGuard};
use sys::namespace::Kinds;
use sys::process::FIRST;

/// How the first process finds its program.
pub(in crate::engines) const LAUNCHER: &str = "/proc/self/fd/3";
/// Where a starter mounts the memory of its bundle, in the container's `run/`.
const BUNDLE: &str = "bundle";
/// How much of a runtime's complaint is repeated.
const COMPLAINT: u64 = 4000;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

/// Makes the caller the parent of what a runtime leaves behind.
pub(in crate::engines) fn adopt() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(call("become the parent of orphans"))
}

/// Starts a program as a child and waits for it. Signals are passed on to it, those that come meanwhile too.
///
/// `place`: the directory of the container that it is a run of.
pub(in crate::engines) fn attend(
    place: Option<&Path>,
    spawn: impl FnOnce() -> Result<Child>,
) -> Result<Ended> {
    let failed =
        |error: std::io::Error| Error::Call { doing: "block signals".into(), errno: error.into() };
    let mask = MaskGuard::block(crate::supervise::watched()).map_err(failed)?;
    let child = mask.suspended(spawn).map_err(failed)??;
    let records = place.and_then(Records::existing);
    let held = records.as_ref().and_then(|records| records.hold(child.pid).ok());
    let pid = Pid::from_raw(child.pid as i32);
    let code = pid.map_or(125, crate::supervise::run_init);
    records.inspect(|records| records.remove(child.pid));
    drop(held);
    Ok(Ended::Code(code))
}

/// Who runs in the container.
pub(in crate::engines) struct Guest<'a> {
    /// The container that the runtime makes.
    pub(in crate::engines) plan: &'a Plan,
    /// What its first process is to do.
    pub(in crate::engines) inside: &'a Plan,
    pub(in crate::engines) mode: Mode,
    /// Who starts it is to be ended, and it tells its own number.
    pub(in crate::engines) reports: bool,
    /// It dies with its parent.
    pub(in crate::engines) tied: bool,
    pub(in crate::engines) terminal: Terminal,
}

/// Has a runtime start the container; returns the number of its program. The caller is a process that was forked for this.
pub(in crate::engines) fn run(
    runtime: &Path,
    guest: Guest<'_>,
    records: Option<&Records>,
) -> Result<u32> {
    let plan = guest.plan;
    plan.files.iter().try_for_each(write_file)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let assistant = Assistant::needed(plan).then(|| Assistant::start(plan)).transpose()?;
    let program = open(Path::new("/proc/self/exe"), OFlags::RDONLY)?;
    let directory = plan.place.join("run").join(BUNDLE);
    make(&directory)?;
    leave(plan, assistant.as_ref())?;
    let bundle = Bundle::make(runtime, plan, &guest, directory)?;
    let (gate, mut opener) = pipe()?;
    let (told, mut hearer) = report::pipe()?;
    let told = OwnedFd::from(told);
    let said = memory("said", &[])?;
    let handed = Handed::new(program, told, gate, guest)?;
    let pid = bundle.start(runtime, &handed, &said)?;
    drop(handed);
    let pidfd = Pid::from_raw(pid as i32)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    members::note(&plan.place, pid, members::Owner::Caller);
    let recorded = records.map_or(Ok(()), |records| records.add(pid));
    let connected = recorded.and_then(|()| match &assistant {
        Some(assistant) if matches!(plan.network, Network::Helper { .. }) => assistant.connect(pid),
        _ => Ok(()),
    });
    if connected.is_ok() {
        await_adoption(pid);
        let _ = opener.write_all(&[1]);
    }
    drop((opener, assistant));
    let outcome = connected.and_then(|()| hearer.outcome().map(|_| pid));
    if outcome.is_err() {
        records.inspect(|records| records.remove(pid));
        // What it still does in the container's directory is in nobody's way then.
        if let Some(pidfd) = pidfd {
            let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
            let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
            let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, Some(&patience)));
        }
    }
    outcome
}

/// How long what a runtime has left behind is waited for, and how often it is looked at.
const ADOPTION: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(300);

/// Waits until the caller's parent has adopted a process. A runtime that goes to the background
/// (crun) ends before the process with which it made the container. Until that one ends, it is the
/// parent of the program, and a program that dies with its parent would die with it.
pub(in crate::engines) fn await_adoption(pid: u32) {
    let reaper = rustix::process::getppid();
    let deadline = Instant::now() + ADOPTION;
    while parent_of(pid).is_some_and(|parent| Some(parent) != reaper) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

/// The parent of a process that is there.
fn parent_of(pid: u32) -> Option<Pid> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

/// What the first process finds open.
pub(in crate::engines) struct Handed {
    /// Those that it expects, in the order of their numbers.
    expected: [OwnedFd; EXPECTED],
    /// Those that the caller lets a program inherit.
    inherited: Vec<(u32, OwnedFd)>,
}

impl Handed {
    /// `program` is this very program; what comes of the start is `told`; at the `gate` it waits.
    pub(in crate::engines) fn new(
        program: OwnedFd,
        told: OwnedFd,
        gate: OwnedFd,
        guest: Guest<'_>,
    ) -> Result<Self> {
        let Guest { inside, mode, reports, tied, terminal, .. } = guest;
        let copied = call("duplicate a descriptor");
        let copy = |descriptor: BorrowedFd<'_>| {
            rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST as i32).map_err(&copied)
        };
        let (terminal, socket) = match terminal {
            Terminal::Inherited => (None, copy(gate.as_fd())?),
            Terminal::Given => (Some(false), copy(gate.as_fd())?),
            Terminal::Own(socket) => (Some(true), socket),
        };
        // What the caller has open does not pass a boundary.
        let mut inherited = if inside.isolate {
            Vec::new()
        } else {
            sys::process::inherited().map_err(call("list the descriptors"))?
        };
        // One that was opened before its number was beyond the limit could be given that number by nobody.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        inherited.retain(|(number, _)| limit.is_none_or(|limit| u64::from(*number) < limit));
        let umask = rustix::process::umask(Permissions::empty());
        rustix::process::umask(umask);
        let instructions = Instructions {
            mode,
            reports,
            tied,
            terminal,
            inherited: inherited.iter().map(|(number, _)| *number).collect(),
            umask: umask.bits(),
            file_limit: files::callers(),
            plan: nested(inside),
        };
        let text = serde_json::to_vec(&instructions).map_err(|error| Error::Invalid {
            what: "plan".into(),
            value: inside.container.clone(),
            why: error.to_string(),
        })?;
        let instructions = memory("plan", &text)?;
        let stdin = copy(rustix::stdio::stdin())?;
        let stdout = copy(rustix::stdio::stdout())?;
        let stderr = copy(rustix::stdio::stderr())?;
        let expected = [program, told, instructions, gate, stdin, stdout, stderr, socket];
        Ok(Self { expected, inherited })
    }

    /// With the numbers under which the first process finds them.
    pub(in crate::engines) fn numbered(&self) -> Vec<(u32, BorrowedFd<'_>)> {
        let inherited = self.inherited.iter().map(|(_, descriptor)| descriptor);
        let all = self.expected.iter().chain(inherited).map(AsFd::as_fd);
        (FIRST..).zip(all).collect()
    }
}

/// Becomes the first process of a further program in the container of a process that was started so. No runtime gave it pids of its own.
pub(super) fn enter(
    pid: u32,
    guest: Guest<'_>,
    told: &report::Teller,
) -> Result<std::convert::Infallible> {
    let program = open(Path::new("/proc/self/exe"), OFlags::RDONLY)?;
    let words = [LAUNCHER, WORD];
    let failed = call("start the program in the container");
    let arguments = sys::process::Strings::new(&words).ok_or_else(|| failed(Errno::INVAL))?;
    let environment =
        sys::process::Strings::new::<&str>(&[]).ok_or_else(|| failed(Errno::INVAL))?;
    let (gate, mut opener) = pipe()?;
    let _ = opener.write_all(&[1]);
    let told = rustix::io::fcntl_dupfd_cloexec(told, FIRST as i32).map_err(&failed)?;
    let handed = Handed::new(program, told, gate, guest)?;
    enter::enter(pid)?;
    program::bound(0)?;
    // A program of its own, which may be traced: this one was another user's before it entered.
    sys::process::hand_over(&handed.numbered()).map_err(&failed)?;
    Err(failed(sys::process::exec(c"/proc/self/fd/3", &arguments, &environment)))
}

/// Leaves the host's user and mount namespaces, as root of one's own.
fn leave(plan: &Plan, assistant: Option<&Assistant>) -> Result<()> {
    if let Some(pid) = plan.namespaces.user_of {
        enter::kinds(pid, Kinds::USER)?;
        native::unshare(Kinds::MOUNT)?;
    } else {
        native::unshare(Kinds::MOUNT.with(Kinds::USER))?;
        match assistant {
            Some(assistant) if matches!(plan.ids, Ids::Range { .. }) => {
                assistant.write_maps(std::process::id())?;
            }
            _ => {
                let ids = with_root(&plan.ids);
                maps(&ids).write_own().map_err(|error| map_error(&ids, error))?;
            }
        }
    }
    // A runtime asks for root; where the caller keeps another number, there is a subordinate id under that one.
    if !rustix::process::geteuid().is_root() {
        let failed = call("become root of the user namespace");
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).map_err(&failed)?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).map_err(&failed)?;
    }
    Ok(())
}

/// The map of one id under which a runtime can work: whoever the program will be, the runtime is root.
fn with_root(ids: &Ids) -> Ids {
    match ids {
        Ids::Single { uid, gid } => {
            Ids::Single { uid: IdRange { inside: 0, ..*uid }, gid: IdRange { inside: 0, ..*gid } }
        }
        Ids::Range { .. } => ids.clone(),
    }
}

/// A plan as it is to be read in the container: there the only id is 0, and the host's files have been used.
fn nested(plan: &Plan) -> Plan {
    let mut plan = Plan { files: Vec::new(), cgroup: None, wrapper: None, ..plan.clone() };
    if let Ids::Single { uid, gid } = &mut plan.ids {
        (uid.outside, gid.outside) = (0, 0);
    }
    plan
}

/// A bundle in memory.
struct Bundle {
    directory: PathBuf,
    id: String,
}

impl Bundle {
    fn make(runtime: &Path, plan: &Plan, guest: &Guest<'_>, directory: PathBuf) -> Result<Self> {
        let failed = |errno: Errno| Error::Mount {
            what: "memory for the bundle".into(),
            target: directory.clone(),
            errno: errno.into(),
        };
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", &directory, "tmpfs", flags, Some(c"mode=700"))
            .map_err(failed)?;
        let root = match &plan.root {
            Root::Overlay { lowers, upper, work, volatile } => {
                let root = directory.join("rootfs");
                make(&root)?;
                tree::mount_overlay(&root, lowers, upper, work, *volatile)?;
                root
            }
            // The tree of R2 and R3 has only places to mount on.
            Root::Directory { .. } if guest.mode != Mode::Plain => {
                let root = directory.join("rootfs");
                make(&root)?;
                if plan.mounts.iter().any(is_whole) {
                    let flags = MountFlags::BIND | MountFlags::REC;
                    rustix::mount::mount("/", &root, c"", flags, None)
                        .map_err(call("show the whole host"))?;
                }
                root
            }
            Root::Directory { path } => path.clone(),
        };
        if guest.mode == Mode::Plain {
            readable_accounts(&root)?;
        }
        let present = Plan { mounts: present(plan, &root)?, ..plan.clone() };
        let mut args = vec![LAUNCHER.to_owned(), WORD.to_owned()];
        args.extend(plan.process.argv.iter().cloned());
        let capabilities = match guest.mode {
            Mode::Plain => known_capabilities(),
            // The tracer needs none, and its guests must not have what the view knows nothing of.
            _ if guest.inside.emulate_root => 0,
            // For another map of the root here (`verify_root_map` in the kernel).
            _ => 1 << CapabilitySet::SETFCAP.bits().trailing_zeros(),
        };
        let kernel = sys::mount::has_set_attributes();
        // crun 1.8 opens what is to be changed so as a directory.
        let recursive = |source: &Path| kernel && (!is_crun(runtime) || source.is_dir());
        let terms = Terms { root: &root, args, capabilities, recursive: &recursive };
        let text = Config::of(&present, terms).to_json()?;
        let path = directory.join("config.json");
        std::fs::write(&path, text).map_err(|error| Error::File {
            doing: "write".into(),
            path,
            errno: error.into(),
        })?;
        let short = plan.container.get(..12).unwrap_or("container");
        Ok(Self { id: format!("coracle-{short}-{}", std::process::id()), directory })
    }

    /// Runs the runtime to its end. Its own words go to `said`.
    fn start(&self, runtime: &Path, handed: &Handed, said: &OwnedFd) -> Result<u32> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let program = runtime.display().to_string();
        let mut words = vec![program];
        if is_crun(runtime) {
            // It would look for a controller that an ordinary user has; and refuses hosts that have both versions of them.
            words.push("--cgroup-manager=disabled".into());
            let unified = Path::new("/sys/fs/cgroup/unified");
            if unified.is_dir() {
                let flags = MountFlags::BIND | MountFlags::REC;
                let _ = rustix::mount::mount(unified, "/sys/fs/cgroup", c"", flags, None);
            }
        }
        words.extend(["--root".into(), path("state"), "run".into(), "--detach".into()]);
        words.extend(["--bundle".into(), self.directory.display().to_string()]);
        words.extend(["--pid-file".into(), path("pid")]);
        let handed = handed.numbered();
        words.extend([format!("--preserve-fds={}", handed.len()), self.id.clone()]);
        let status = execute(runtime, &words, &handed, said)?;
        let failed = |output: String| Error::Helper {
            program: runtime.into(),
            status: format!("status {status}"),
            output,
        };
        if status != 0 {
            return Err(failed(complaint(said)));
        }
        let text = std::fs::read_to_string(self.directory.join("pid")).unwrap_or_default();
        text.trim().parse().map_err(|_| failed(": it does not tell the process".into()))
    }
}

/// Runs a program with descriptors from 3 on, and with its own words going to a file; its exit status, 128 + signal.
fn execute(
    program: &Path,
    words: &[String],
    handed: &[(u32, BorrowedFd<'_>)],
    said: &OwnedFd,
) -> Result<i32> {
    begin(program, words, handed, said).and_then(end)
}

/// Starts a program so.
pub(in crate::engines) fn begin(
    program: &Path,
    words: &[String],
    handed: &[(u32, BorrowedFd<'_>)],
    said: &OwnedFd,
) -> Result<Pid> {
    let zero = || call("start the runtime")(Errno::INVAL);
    let arguments = sys::process::Strings::new(words).ok_or_else(zero)?;
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).map_err(|_| zero())?;
    let environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
    let environment = sys::process::Strings::new(&environment).ok_or_else(zero)?;
    let null = open(Path::new("/dev/null"), OFlags::RDWR)?;
    let forked = sys::process::fork_single().map_err(call("fork"))?;
    match forked {
        ForkResult::Parent(child) => Ok(child),
        ForkResult::Child => {
            let connected = rustix::io::fcntl_dupfd_cloexec(said, 64).and_then(|said| {
                sys::process::hand_over(handed)?;
                rustix::stdio::dup2_stdin(&null)?;
                rustix::stdio::dup2_stdout(&said)?;
                rustix::stdio::dup2_stderr(&said)
            });
            let _ = sys::event::set_ignored(rustix::process::Signal::PIPE.as_raw(), false);
            if connected.is_ok() {
                let errno = sys::process::exec(&path, &arguments, &environment);
                let text = format!("cannot execute it: {errno}\n");
                let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
            }
            sys::process::exit_now(127);
        }
    }
}

/// Waits for its end.
pub(in crate::engines) fn end(child: Pid) -> Result<i32> {
    let status =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))
            .map_err(call("wait for the runtime"))?;
    let status = status.map(|(_, status)| status);
    Ok(status.map_or(125, |status| {
        let signal = status.terminating_signal().map(|signal| 128 + signal);
        status.exit_status().or(signal).unwrap_or(125)
    }))
}

/// What a runtime has written, as the end of a message.
pub(in crate::engines) fn complaint(said: &OwnedFd) -> String {
    let mut text = Vec::new();
    if let Ok(file) = said.try_clone() {
        let mut file = std::fs::File::from(file);
        let _ = file.rewind().and_then(|()| file.take(COMPLAINT).read_to_end(&mut text));
    }
    let text = String::from_utf8_lossy(&text);
    // Warnings come first, and then what it is about.
    let last = text.trim().lines().last().unwrap_or_default();
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

/// A runtime reads the container's accounts even where it is told numbers, and waits for ever for a
/// pipe without a writer.
fn readable_accounts(root: &Path) -> Result<()> {
    let top = open(root, OFlags::PATH | OFlags::DIRECTORY)?;
    for name in ["etc/passwd", "etc/group"] {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let none = rustix::fs::ResolveFlags::empty();
        let Ok(file) = sys::fs::resolve::open_in_root(&top, name, flags, none) else { continue };
        let kind = rustix::fs::fstat(&file).map_err(call("look at the container's accounts"))?;
        let kind = FileType::from_raw_mode(kind.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Error::Invalid {
                what: "image".into(),
                value: format!("/{name}"),
                why: "it is not a regular file, and the host's runtime would read it".into(),
            });
        }
    }
    Ok(())
}

/// Whether a mount is the host's root in its own place: then it is the tree, as it is.
fn is_whole(mount: &Mount) -> bool {
    matches!(mount, Mount::Bind { target, .. } if target == Path::new("/"))
}

/// The mounts of a plan that can be made: optional ones need their source, and a place in a tree that is not the container's own.
fn present(plan: &Plan, root: &Path) -> Result<Vec<Mount>> {
    let foreign = matches!(plan.root, Root::Directory { .. });
    let top = open(root, OFlags::PATH | OFlags::DIRECTORY)?;
    let mut all = Vec::new();
    for mount in plan.mounts.iter().filter(|mount| !is_whole(mount)) {
        if let Mount::Bind { source, target, optional, .. } = mount {
            match rustix::fs::stat(source) {
                Ok(_) => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => continue,
                Err(errno) => {
                    return Err(Error::MountSource {
                        path: source.clone(),
                        target: target.clone(),
                        errno: errno.into(),
                    });
                }
            }
            if *optional && foreign && !has(&top, target) {
                continue;
            }
        }
        // The host's `/dev` may have no place for it, and message queues work without.
        let unneeded = |target: &Path| !has_own_devices(plan) && !target.exists();
        match mount {
            Mount::Kernel { kind, target, .. } if kind == "mqueue" && unneeded(target) => {}
            mount => all.push(mount.clone()),
        }
    }
    Ok(all)
}

fn is_crun(runtime: &Path) -> bool {
    runtime.file_name().is_some_and(|name| name.as_bytes().starts_with(b"crun"))
}

/// Whether a tree has a path.
fn has(top: &OwnedFd, path: &Path) -> bool {
    let path = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    sys::fs::resolve::open_in_root(top, path, flags, rustix::fs::ResolveFlags::empty()).is_ok()
}

/// All capabilities that kernel and this program know.
fn known_capabilities() -> u64 {
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    let last: u32 = last.trim().parse().unwrap_or(31);
    u64::MAX >> (63 - last.min(63))
}

pub(in crate::engines) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Permissions::empty()).map_err(|errno| {
        Error::File { doing: "open".into(), path: path.into(), errno: errno.into() }
    })
}

fn make(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Error::File {
        doing: "make".into(),
        path: directory.into(),
        errno: error.into(),
    })
}

pub(in crate::engines) fn memory(name: &str, text: &[u8]) -> Result<OwnedFd> {
    let failed = call("make a file in memory");
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(&failed)?;
    let mut file = std::fs::File::from(file);
    file.write_all(text)
        .and_then(|()| file.rewind())
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(file.into())
}

pub(in crate::engines) fn pipe() -> Result<(OwnedFd, std::fs::File)> {
    let (reader, writer) = report::raw_pipe()?;
    Ok((reader, writer.into()))
}
