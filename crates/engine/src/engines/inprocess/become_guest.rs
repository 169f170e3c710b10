//! Turns a process into the first guest of the backend inside processes.
//!
//! | step | process |
//! |---|---|
//! | take the container's turn, prepare its world on disk, enter the cgroup | caller, or a child of it |
//! | fork (only for an init) | |
//! | directory, terminal | the program's process |
//! | the shared file, with this world and its filter in it | |
//! | the view decides about the program's `execve`; errors are told | |
//! | limits, `execve` of the stage, which loads the program | |

use super::Mode;
use super::first_exec::{Caller, Program};
use super::shared::Shared;
use super::stage_file::{self, StageFile};
use crate::engines::interpose::emulators;
use crate::engines::interpose::host::HostCalls;
use crate::engines::interpose::prepare::{Files, Prepared};
use crate::engines::interpose::run::{self, Ready, Ties};
use crate::engines::interpose::world::{Bound, Compiled};
use crate::engines::{Begun, Engine as _};
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::launch::program::{self, Try};
use crate::launch::streams::{Child, Streams};
use crate::plan::{Mount, Plan, Process};
use abi::shared::Switches;
use rustix::io::Errno;
use rustix::process::Signal;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::process::Strings;
use view::exec::Machine;
use view::handover::{Handover, LONGEST};
use view::world::{Emulator, Identity, Kind};
use view::{Task, World};

/// Runs the start in the calling process.
pub(super) fn here(mode: Mode, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
    run::here(&|plan, ties, ready| become_guest(mode, plan, ties, ready), plan, begun)
}

/// Starts as a child of the caller.
pub(super) fn spawn(mode: Mode, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
    run::spawn(&|plan, ties, ready| become_guest(mode, plan, ties, ready), plan, streams)
}

/// The signals that the program inherits as ignored, of those whose handlers the stage installs:
/// bits as in a mask. The kernel passes on all others.
fn ignored() -> u64 {
    let kept = [Signal::SEGV, Signal::BUS, Signal::SYS, Signal::ILL].map(Signal::as_raw);
    let ignored =
        kept.into_iter().filter(|&number| sys::event::is_ignored(number).unwrap_or(false));
    ignored.fold(0, |bits, number| bits | 1 << (number - 1))
}

/// Turns the process into the program.
fn become_guest(mode: Mode, plan: &Plan, ties: Ties, ready: Ready) -> Result<Infallible> {
    let Ready { program, prepared, records, fresh, turn } = ready;
    run::take_directory_and_terminal(plan, &prepared, ties)?;
    let task = run::first_task(plan, &prepared)?;
    let (switches, process) = (plan.switches, &plan.process);
    let entry = Entry { mode, switches, process, prepared: &prepared, task, fresh };
    let error = entry.execute(&program, || {
        records.add(std::process::id())?;
        program::limits(process)?;
        if ties.tied {
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        }
        Ok(())
    })?;
    records.remove(std::process::id());
    drop((turn, records));
    Err(error)
}

/// Where a mount shows files of the host whose owners and modes differ from those of the tree: for
/// another user than root all of them, as theirs is the container's user; for root those that the
/// program may change, because there it changes the host's own.
fn files_of_the_host<'p>(plan: &Plan, mount: &'p Mount) -> Option<&'p Path> {
    let Mount::Bind { source, target, flags, .. } = mount else { return None };
    let engines = ["/dev", "/sys"].iter().any(|above| target.starts_with(above))
        || source.starts_with(&plan.place)
        || flags.read_only;
    let concerns = plan.user != (0, 0) || !engines;
    (concerns && !target.starts_with("/proc")).then_some(target)
}

/// Turns a process that is in the container's own namespaces into the program, whose ids and owners
/// the view shows. `point` is where [`Files`] of the container are mounted there, `fresh` says that
/// no process lives in the container. Returns why that was not possible: [`Error::Vanished`], with
/// the reason if there is one to tell, for a program that the kernel can execute all the same.
pub(in crate::engines) fn in_namespaces(
    plan: &Plan,
    program: &program::Ready,
    point: &Path,
    fresh: bool,
) -> Result<Error> {
    let bound = |path: &str, kind| {
        let (guest, host) = (path.as_bytes().to_vec(), path.as_bytes().to_vec());
        Bound { guest, host, read_only: false, kind }
    };
    let mut all = vec![bound("/", Kind::Tree), bound("/proc", Kind::Proc)];
    let (uid, gid) = plan.user;
    // The kernel made them where these paths lead.
    let places = plan
        .mounts
        .iter()
        .filter_map(|mount| files_of_the_host(plan, mount))
        .filter_map(|place| place.canonicalize().ok()?.into_os_string().into_string().ok());
    all.extend(places.map(|place| bound(&place, Kind::Host)));
    // The kernel shows the caller as root here.
    let identity = Identity { host_uid: 0, host_gid: 0, uid, gid };
    let texts = point.join(TEXTS);
    let files = Files {
        root: "/".into(),
        image_inodes: point.join(hostfs::layout::IMAGE_INODES),
        notes: point.join(hostfs::layout::INODE_LOG),
        run: point.into(),
        beside_image: texts.exists().then_some(texts),
        layers: None,
        networks: None,
    };
    let world = Compiled::new(all, Some(identity));
    let entered = world.binding_of(plan.process.cwd.as_os_str().as_bytes());
    let cwd = plan.process.cwd.clone();
    let prepared = Prepared { world, files, cwd, entered, layers: None, networks: None };
    let mut task = run::first_task(plan, &prepared)?;
    if let Some(sets) = plan.process.capabilities {
        let own = if plan.process.uid == 0 { sets.bounding } else { sets.ambient };
        let known = &mut task.creds.capabilities;
        (known.permitted, known.effective) = (own, own);
        (known.bounding, known.ambient) = (sets.bounding, sets.ambient);
        known.inheritable = sets.ambient;
    }
    let switches = plan.switches | Switches::NAMESPACES.0;
    let process = &plan.process;
    let mode = Mode::Texts;
    let entry = Entry { mode, switches, process, prepared: &prepared, task, fresh };
    entry.execute(program, || program::limits(process))
}

/// In the directory that is mounted in a container with namespaces: where text that was changed is
/// kept for all containers of the image.
pub(in crate::engines) const TEXTS: &str = "texts";

/// A process that is about to become a program.
pub(super) struct Entry<'a> {
    pub(super) mode: Mode,
    /// Features that are switched off: [`abi::shared::Switches`] as a number.
    pub(super) switches: u64,
    pub(super) process: &'a Process,
    pub(super) prepared: &'a Prepared,
    /// The thread, as the guest is to see it.
    pub(super) task: Task,
    /// No process lives in the container.
    pub(super) fresh: bool,
}

impl Entry<'_> {
    /// Executes the program; returns why that was not possible. `last` is done when everything is
    /// ready.
    pub(super) fn execute(
        &self,
        program: &program::Ready,
        last: impl FnOnce() -> Result<()>,
    ) -> Result<Error> {
        let prepared = self.prepared;
        let namespaces = Switches(self.switches).has(Switches::NAMESPACES);
        // The host's programs cannot be reached from there.
        let found = if namespaces { Vec::new() } else { emulators::find() };
        let emulators: Vec<Emulator<'_>> =
            found.iter().map(|(machine, host)| Emulator { machine: *machine, host }).collect();
        let bindings = prepared.world.bindings();
        let mut world =
            World::new(&bindings, prepared.world.identity(), &emulators).in_namespaces(namespaces);
        world.host_name = prepared.world.host_name();
        world.image = prepared.layers.as_ref().and_then(|layers| layers.image());
        let stage = stage_file::place(&prepared.files)?;
        let shared = Shared::new(self.mode, self.switches, prepared, &world, &stage, self.fresh)?;
        let mut host = HostCalls::new(run::parts(prepared)?);
        if let Some(root) = bindings.iter().find(|binding| binding.guest == b"/") {
            host.rooted_at(prepared.files.image_root().unwrap_or(root.host));
        }
        let mut caller = Caller::new(host);
        last()?;
        crate::launch::caller::give_back_signals();
        let error = program::search(
            program,
            &mut caller,
            |path, caller| match caller.plan(&world, &self.task, path, &self.process.argv) {
                Err(errno) => Try::Refused(Errno::from_raw_os_error(i32::from(errno.0))),
                Ok(mut first) => {
                    let tried = self.run((&first, caller.host()), &shared, &stage);
                    first.plan.release(caller.host());
                    tried
                }
            },
            |path, caller| caller.exists(&world, &self.task, path),
        );
        Ok(error.or_noexec(Files::noexec([&*prepared.files.root])))
    }

    /// Executes the stage, which becomes the program.
    fn run(
        &self,
        (first, host): (&Program, &HostCalls),
        shared: &Shared,
        stage: &StageFile,
    ) -> Try {
        let namespaces = shared.switches.has(Switches::NAMESPACES);
        if first.plan.machine != Machine::X86_64 && namespaces {
            return Try::Failed(Error::Vanished(String::new()));
        }
        if first.plan.machine != Machine::X86_64 {
            let program = self.process.argv.first().cloned().unwrap_or_default();
            return Try::Failed(Error::Narrow { program, engine: self.mode.name().into() });
        }
        let Some(file) = first.plan.program else { return Try::Refused(Errno::NOEXEC) };
        for held in [Some(file), first.plan.interpreter].into_iter().flatten() {
            if let Err(errno) = host.hand_on(held) {
                return Try::Refused(Errno::from_raw_os_error(i32::from(errno.0)));
            }
        }
        let handover = Handover {
            program: file.0,
            interpreter: first.plan.interpreter.map(|file| file.0),
            name: first.plan.name.as_bytes(),
            path: first.plan.program_guest.as_bytes(),
            inode: first.plan.inode,
            comm: first.plan.comm,
            secure: first.plan.secure,
            ids: first.plan.ids,
            shared: shared.path.as_os_str().as_bytes(),
            world: shared.world,
            filter: Some(shared.filter),
            switches: shared.switches,
            ignored: ignored(),
            blocked: 0,
            filters: &[],
        };
        let mut string = vec![0; LONGEST];
        let Some(length) = handover.write(&first.task, &mut string) else {
            return Try::Refused(Errno::TOOBIG);
        };
        // It stays in the memory that the caller may have lent.
        string.truncate(length);
        string.shrink_to_fit();
        let environment: Vec<&[u8]> =
            self.process.env.iter().map(String::as_bytes).chain([&string[..]]).collect();
        let arguments: Vec<&[u8]> = first.arguments.iter().map(|word| word.to_bytes()).collect();
        let (Some(arguments), Some(environment)) =
            (Strings::new(&arguments), Strings::new(&environment))
        else {
            return Try::Refused(Errno::INVAL);
        };
        match sys::process::exec(&stage.path, &arguments, &environment) {
            // The program is there: it is the stage that may not be executed.
            errno @ (Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOEXEC) if namespaces => {
                let error = Error::call("execute the stage", errno);
                Try::Failed(Error::Vanished(error.to_string()))
            }
            errno => Try::Refused(errno),
        }
    }
}
