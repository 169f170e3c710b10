//! Turns a process into the first guest of a tracer.
//!
//! | step | process |
//! |---|---|
//! | take the container's turn, prepare its world on disk, enter the cgroup | caller, or a child of it |
//! | fork (only for an init) | |
//! | directory, terminal, limits | the program's process |
//! | [`attach`](super::attach): from here on that process is a guest | |
//! | filter, `execve` (which the view decides, like any other of a guest) | |

use super::Mode;
use super::attach::{Guest, attach};
use super::tracer::{Settings, Tracer};
use crate::engines::Begun;
use crate::engines::interpose::emulators;
use crate::engines::interpose::host::HostCalls;
use crate::engines::interpose::prepare::{self, Files, Prepared};
use crate::engines::interpose::run::{self, Ready, Ties};
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::launch::members::Presence;
use crate::launch::program;
use crate::launch::run_files::LOADER;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;
use crate::records::Records;
use abi::boot::{LOADER_END, LOADER_START};
use abi::calls::Arch;
use abi::calls::filter::Interest;
use rustix::io::Errno;
use rustix::process::Signal;
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use view::World;

/// The file of the loader for i386 programs in the container's `run/`; its name begins as
/// [`LOADER`].
const LOADER_I386: &str = "loader-i386";

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

/// Runs the start in the calling process.
pub(super) fn here(mode: Mode, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
    run::here(&|plan, ties, ready| become_guest(mode, plan, ties, ready), plan, begun)
}

/// Starts as a child of the caller.
pub(super) fn spawn(mode: Mode, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
    // The tracer stays.
    let streams = Streams { borrows: false, ..streams };
    run::spawn(&|plan, ties, ready| become_guest(mode, plan, ties, ready), plan, streams)
}

/// Turns the process into the program.
fn become_guest(mode: Mode, plan: &Plan, ties: Ties, ready: Ready) -> Result<Infallible> {
    let Ready { program, prepared, records, turn, .. } = ready;
    let process = &plan.process;
    if crate::facts::is_served() {
        // The tracer is to see the guest's calls, and not those of an engine around it.
        sys::namespace::leave_engine().map_err(call("leave the engine around this process"))?;
    }
    run::take_directory_and_terminal(plan, &prepared, ties)?;
    let name = |path: PathBuf| CString::new(path.into_os_string().into_vec()).unwrap_or_default();
    let loader = name(prepare::place_stage(&prepared.files, LOADER, 0)?);
    let loader_i386 =
        name(prepare::place_loader(&prepared.files, LOADER_I386, blobs::LOADER_I386)?);
    let found = emulators::find();
    let interest = interest(&prepared);
    let filter = match mode {
        Mode::Filtered => Some(
            abi::calls::filter::program(&[Arch::X86_64, Arch::I386], &interest)
                .map_err(|_| call("make the system call filter")(Errno::TOOBIG))?,
        ),
        Mode::EveryCall => None,
    };
    let guest = Guest { task: run::first_task(plan, &prepared)?, filtered: filter.is_some() };
    let bindings = prepared.world.bindings();
    let emulators: Vec<view::world::Emulator<'_>> = found
        .iter()
        .map(|(machine, host)| view::world::Emulator { machine: *machine, host })
        .collect();
    let (presence, held) = (Cell::new(None), Cell::new(None));
    let this = std::process::id();
    let make = || {
        presence.set(Presence::new(&plan.place));
        // The tracer stays as long as its guests, and everything else that was open is closed in
        // it.
        held.set(Some(Records::open(&plan.place)?.hold(this)?));
        let identity = prepared.world.identity();
        let mut world = World::new(&bindings, identity, &emulators);
        world.host_name = prepared.world.host_name();
        world.image = prepared.layers.as_ref().and_then(|layers| layers.image());
        world.network = prepared.networks.as_ref().and_then(|networks| networks.network());
        let every_call = mode == Mode::EveryCall;
        let mut host = HostCalls::new(run::parts(&prepared)?);
        if let Some(root) = bindings.iter().find(|binding| binding.guest == b"/") {
            host.rooted_at(prepared.files.image_root().unwrap_or(root.host));
        }
        Ok(Tracer::new(Settings { world, interest, every_call, loader, loader_i386 }, host))
    };
    // Before anybody watches: these are ours, and not what the guest set or sees.
    let noexec = Files::noexec([&*prepared.files.run, &prepared.files.root]);
    let privileges = rustix::thread::set_no_new_privs(true);
    attach(guest, make, || clean(plan, presence.take())).inspect_err(|_| records.remove(this))?;
    // The limits are the guest's, not the tracer's.
    program::limits(process)?;
    if ties.tied {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    crate::launch::caller::give_back_signals();
    if let Some(filter) = filter {
        privileges.map_err(call("set no_new_privs"))?;
        sys::seccomp::install(&filter).map_err(call("install the system call filter"))?;
    }
    let error = program::run(&program).or_noexec(noexec);
    drop((turn, records));
    Err(error)
}

/// What has to be caught.
fn interest(prepared: &Prepared) -> Interest {
    Interest {
        identity: prepared.world.identity().is_some(),
        shared_image: prepared.layers.is_some() || prepared.files.image_inodes.exists(),
        listing: prepared.layers.is_some() || prepared.world.lacks_mount_points(),
        host_name: !prepared.world.host_name().is_empty(),
        networks: prepared.files.networks.is_some(),
        loader: Some((LOADER_START, LOADER_END)),
        in_process: false,
        namespaces: false,
    }
}

/// Tidies up when the last guest has ended, unless somebody else is in the container. Runs in the
/// tracer.
fn clean(plan: &Plan, presence: Option<Presence>) {
    // At once: a start that has the turn would take it for a guest's.
    drop(presence);
    let Some(records) = Records::existing(&plan.place) else { return };
    let Ok(_turn) = records.turn() else { return };
    if run::is_empty(&plan.place, &records) {
        prepare::clean(&plan.place);
    }
}
