//! This process's access to the file that all processes of a container map ([`abi::shared`]), and
//! the world that it has read from it.

use crate::system::{self, Failed, Written};
use abi::boot;
use abi::index::Index;
use abi::network::{Slot, Table};
use abi::shared::{Shared, Switches};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use view::image::Image;
use view::sockets::inet::Network;
use view::stored::{BINDINGS_MAX, EMULATORS_MAX, Places, Start};
use view::world::{Binding, Emulator, Kind};
use view::{Errno, World, stored};

/// The order of the members in memory matters: of the tables only the beginning is used.
#[repr(C)]
struct State {
    shared: Shared<'static>,
    number: u32,
    start: Start<'static>,
    world: World<'static>,
    bindings: [Binding<'static>; BINDINGS_MAX],
    emulators: [Emulator<'static>; EMULATORS_MAX],
}

static STATE: Written<MaybeUninit<State>> = Written::new(MaybeUninit::uninit());

/// The switches that are on: those of the start, and those that this process has turned on.
static SWITCHES: AtomicU64 = AtomicU64::new(0);

/// Takes over the file, which is mapped at `start` (and stays mapped), and reads the world with
/// this number.
///
/// # Safety
///
/// The memory is mapped shared, readable and writable, for the rest of the program, and the file is
/// not truncated. No other function of this module has been called yet, and there is one thread.
pub(crate) unsafe fn attach(start: u64, length: usize, number: u32) -> Result<(), Failed> {
    // SAFETY: the caller guarantees that the memory is mapped for good; its words are only accessed
    // atomically.
    let words = unsafe {
        core::slice::from_raw_parts(start as *const AtomicU64, length / size_of::<AtomicU64>())
    };
    let (at, shared) = (start, Shared::open(words).ok_or(Failed)?);
    let range = shared.records().find(number).ok_or(Failed)?;
    // SAFETY: the record lies in the mapping, and records never change.
    let bytes: &'static [u8] = unsafe {
        core::slice::from_raw_parts((start as usize + range.start) as *const u8, range.len())
    };
    let (start, tables) = stored::read(bytes).ok_or(Failed)?;
    // SAFETY: the caller guarantees that nothing has used this module, so no reference to the state
    // exists.
    let state = unsafe { STATE.get_mut() }.as_mut_ptr();
    let nowhere = Binding { guest: b"", host: b"", read_only: false, kind: Kind::Mask };
    if tables.bindings > BINDINGS_MAX || tables.emulators > EMULATORS_MAX {
        return Err(Failed);
    }
    // SAFETY: each member is written before a reference to it is made; the tables are used only as
    // far as they are written.
    unsafe {
        (&raw mut (*state).shared).write(shared);
        (&raw mut (*state).number).write(number);
        (&raw mut (*state).start).write(start);
        let bindings = (&raw mut (*state).bindings).cast::<Binding<'static>>();
        let emulators = (&raw mut (*state).emulators).cast::<Emulator<'static>>();
        for index in 0..tables.bindings {
            bindings.add(index).write(nowhere);
        }
        for index in 0..tables.emulators {
            emulators.add(index).write(Emulator { machine: 0, host: b"" });
        }
        let bindings = core::slice::from_raw_parts_mut(bindings, tables.bindings);
        let emulators = core::slice::from_raw_parts_mut(emulators, tables.emulators);
        tables.fill(bindings, emulators).ok_or(Failed)?;
        let namespaces = start.switches.has(Switches::NAMESPACES);
        let mut world = World::new(bindings, start.identity, emulators).in_namespaces(namespaces);
        world.host_name = start.host_name;
        let mut end = at + length as u64;
        world.image = image(&shared, &start.places, &mut end)?;
        world.network = network(&start, &mut end)?;
        (&raw mut (*state).world).write(world);
    }
    switch_on(start.switches);
    Ok(())
}

/// Maps the index of the image behind what ends at `end`; `None` if the container's tree has one
/// layer.
#[inline(never)]
fn image(
    shared: &Shared<'static>,
    places: &Places<'static>,
    end: &mut u64,
) -> Result<Option<Image<'static>>, Failed> {
    if places.index.is_empty() {
        return Ok(None);
    }
    let opened = crate::kernel::open(places.index, false).map_err(|_| Failed)? as u64;
    let (at, length) = behind(end, opened, system::map_index)?;
    // SAFETY: the file has just been mapped for good. It was checked and does not change.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, length as usize) };
    Ok(Some(Image {
        index: Index::open(bytes).ok_or(Failed)?,
        changes: shared.changes(),
        lower: places.lower,
        upper: places.tree,
        device: shared.tree_device().ok_or(Failed)?,
        owner: shared.tree_owner(),
    }))
}

/// Maps the table of networks likewise; `None` if the container is in none.
#[inline(never)]
fn network(start: &Start<'static>, end: &mut u64) -> Result<Option<Network<'static>>, Failed> {
    if start.places.networks.is_empty() {
        return Ok(None);
    }
    let opened = crate::kernel::open(start.places.networks, true).map_err(|_| Failed)? as u64;
    let (at, length) = behind(end, opened, system::map_shared)?;
    // SAFETY: the file has just been mapped for good; its words are only accessed atomically.
    let words = unsafe {
        core::slice::from_raw_parts(at as *const AtomicU64, length as usize / size_of::<u64>())
    };
    let slot = u16::try_from(start.slot).ok().and_then(Slot::new);
    Ok(Some(Network {
        table: Table::open(words).ok_or(Failed)?,
        slot: slot.ok_or(Failed)?,
        uid: crate::kernel::calls::geteuid(),
    }))
}

/// Maps a file at the next page behind what is mapped, and closes it; returns its place and length.
fn behind(
    end: &mut u64,
    opened: u64,
    map: impl Fn(u64, u64, u64) -> Result<(), Failed>,
) -> Result<(u64, u64), Failed> {
    const PAGE: u64 = 4096;
    let at = end.next_multiple_of(PAGE);
    let room = system::base() + boot::SLOTS - at;
    let mapped = system::size(opened).and_then(|length| {
        if length > room {
            return Err(Failed);
        }
        map(at, length, opened).map(|()| length)
    });
    system::close(opened);
    let length = mapped?;
    *end = at + length;
    Ok((at, length))
}

fn state() -> &'static State {
    // SAFETY: `attach` has initialised the state before any call is caught, and calls come only
    // afterwards.
    unsafe { STATE.get().assume_init_ref() }
}

/// The container.
pub(crate) fn world() -> &'static World<'static> {
    &state().world
}

/// Number of the record that holds the world.
pub(crate) fn world_number() -> u32 {
    state().number
}

/// Paths on the host that the stage needs.
pub(crate) fn places() -> &'static Places<'static> {
    &state().start.places
}

/// The file.
pub(crate) fn shared() -> &'static Shared<'static> {
    &state().shared
}

/// Features that must not be used.
pub(crate) fn switches() -> Switches {
    Switches(SWITCHES.load(Ordering::Relaxed))
}

/// Returns true if calls are caught by patched code (modes F), and not by a filter.
#[inline]
pub(crate) fn is_mode_f() -> bool {
    switches().has(Switches::TEXTS)
}

/// The container's filter, in the form for the kernel.
pub(crate) fn filter() -> Option<&'static [abi::bpf::Instruction]> {
    let range = shared().records().find(state().start.filter)?;
    let at = crate::system::base() as usize + abi::boot::SHARED as usize + range.start;
    // SAFETY: the record lies in the mapping, at a multiple of eight, and records never change. An
    // instruction has eight bytes, and any bytes are valid.
    Some(unsafe {
        core::slice::from_raw_parts(
            at as *const abi::bpf::Instruction,
            range.len() / size_of::<abi::bpf::Instruction>(),
        )
    })
}

/// Turns switches on, here and in the programs that this one executes.
pub(crate) fn switch_on(found: Switches) {
    if !switches().has(found) {
        SWITCHES.fetch_or(found.0, Ordering::Relaxed);
    }
}

/// The error for reading the tree's label, asked of the kernel once; 0 if it is not known yet, 1
/// (`EPERM`) if the tree may have a label.
static LABEL_REFUSAL: AtomicU16 = AtomicU16::new(0);

/// The error with which no file of the tree has a label (`security.selinux`): a kernel that labels
/// files labels the tree's directory too.
pub(crate) fn label_refusal() -> Option<Errno> {
    let mut known = LABEL_REFUSAL.load(Ordering::Relaxed);
    if known == 0 {
        known = match crate::kernel::label_of(places().tree) {
            Err(errno @ (Errno::ENODATA | Errno::EOPNOTSUPP)) => errno.0,
            _ => Errno::EPERM.0,
        };
        LABEL_REFUSAL.store(known, Ordering::Relaxed);
    }
    (known != Errno::EPERM.0).then_some(Errno(known))
}

/// Device (major, minor) of the container's tree, which one process asks the kernel for on behalf
/// of all; `None` if there is no tree.
pub(crate) fn tree_device() -> Option<(u32, u32)> {
    let tree = places().tree;
    if tree.is_empty() {
        return None;
    }
    shared().tree_device().or_else(|| {
        let device = crate::kernel::device_of(tree)?;
        shared().set_tree_device(device);
        Some(device)
    })
}
