//! Memory that a guest maps for its tracer.
//!
//! | for | because |
//! |---|---|
//! | 32-bit calls of 64-bit programs (`int 0x80`) | what they point to has to lie below 4 GiB, where such a program has neither its stack nor its loader |
//! | the arguments of a script, if there are very many | the vector is made anew, and may be as long as the kernel allows |
//!
//! The thread's call becomes an `mmap` instead; by the same gate, so a 32-bit call gives memory
//! that 32-bit calls reach. Then the program makes its own call again: the instruction, of two
//! bytes, is right behind it.

use super::backend::TracerHost;
use super::scratch::Room;
use super::tracee::{Held, Mapping, Phase, Want};
use super::tracer::Tracer;
use abi::boot::BOOT_ROOM;
use abi::calls::{Arch, Op};
use abi::syscalls::ARCH_I386;
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use sys::ptrace::{Id, Registers, Stopped};
use view::Errno;

/// The instructions that make calls: `syscall`, and `int 0x80`.
const CALLS: [[u8; 2]; 2] = [[0x0f, 0x05], [0xcd, 0x80]];
/// Room for many arguments (bytes): the kernel takes no more than 6 MiB of them.
const MANY: u64 = 8 << 20;

impl<H: TracerHost> Tracer<'_, H> {
    /// Gives the call back if it can be decided; else the thread maps memory first.
    pub(super) fn with_low_room(&mut self, held: Held) -> Option<Held> {
        if held.call.arch != ARCH_I386 {
            return Some(held);
        }
        let Some(tracee) = self.tracees.get(&held.stopped.id()) else { return Some(held) };
        let Some(program) = self.programs.get_mut(&tracee.process) else { return Some(held) };
        if program.low.is_some() || !program.room.is_high() {
            return Some(held);
        }
        // Whatever comes of it, it is not tried again.
        program.low = Some(Room::default());
        self.map(held, Want::Low).err()
    }

    /// Has a thread map room for a call that needs more than there is, after which it makes the
    /// call again. The call comes back where it was tried already, or cannot be.
    pub(super) fn map_many(&mut self, held: Held) -> Result<(), Held> {
        let id = held.stopped.id();
        let tracee = self.tracees.get(&id);
        let program = tracee.and_then(|tracee| self.programs.get_mut(&tracee.process));
        match program {
            Some(program) if program.many.is_none_or(|(thread, _)| thread != id) => {
                program.many = Some((id, 0));
                self.map(held, Want::Many)
            }
            _ => Err(held),
        }
    }

    /// Room that a thread has mapped for its calls: from, to.
    pub(super) fn many(&self, id: Id) -> (u64, u64) {
        let program = self.tracees.get(&id).and_then(|tracee| self.programs.get(&tracee.process));
        match program.and_then(|program| program.many) {
            Some((thread, at)) if thread == id && at != 0 => (at, at + MANY),
            _ => (0, 0),
        }
    }

    fn map(&mut self, held: Held, want: Want) -> Result<(), Held> {
        let narrow = held.call.arch == ARCH_I386;
        let (arch, op) = if narrow { (Arch::I386, Op::Mmap2) } else { (Arch::X86_64, Op::Mmap) };
        let (Ok(registers), Some(number)) = (held.stopped.registers(), op.entry().number(arch))
        else {
            return Err(held);
        };
        let mut code = [0; 2];
        let at = registers.rip.wrapping_sub(code.len() as u64);
        let read = held.stopped.memory().read(at, &mut code);
        if read.is_err() || code != CALLS[usize::from(narrow)] {
            return Err(held);
        }
        let (length, flags) = match want {
            Want::Low => (BOOT_ROOM as u64, MAP_PRIVATE | MAP_ANONYMOUS),
            Want::Many => (MANY, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE),
        };
        let no_file = if narrow { u64::from(u32::MAX) } else { u64::MAX };
        let protection = u64::from(PROT_READ | PROT_WRITE);
        let arguments = [0, length, protection, u64::from(flags), no_file, 0];
        let mut mapping = registers;
        mapping.orig_rax = number.into();
        let places = if narrow {
            let Registers { rbx, rcx, rdx, rsi, rdi, rbp, .. } = &mut mapping;
            [rbx, rcx, rdx, rsi, rdi, rbp]
        } else {
            let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = &mut mapping;
            [rdi, rsi, rdx, r10, r8, r9]
        };
        for (place, argument) in places.into_iter().zip(arguments) {
            *place = argument;
        }
        if held.stopped.set_registers(&mapping).is_err() {
            return Err(held);
        }
        let Held { stopped, call, .. } = held;
        let mut registers = Box::new(registers);
        registers.rip = at;
        registers.rax = call.number.into();
        self.set_phase(stopped.id(), Phase::Mapping(Mapping { registers, want }));
        self.go_on(stopped, 0);
        Ok(())
    }

    /// The memory is there, or not; the thread makes its call again.
    pub(super) fn mapped(&mut self, stopped: Stopped, mapping: Mapping) {
        let Ok(result) = stopped.result() else { return };
        if self.entry_after_filter && result == Errno::ENOSYS.result() {
            self.set_phase(stopped.id(), Phase::Mapping(mapping));
            return self.go_on(stopped, 0);
        }
        let id = stopped.id();
        if let (Ok(at), Some(tracee)) = (u64::try_from(result), self.tracees.get(&id))
            && let Some(program) = self.programs.get_mut(&tracee.process)
        {
            match mapping.want {
                Want::Low if at < 1 << 32 => program.low = Some(Room::behind(at, 0)),
                Want::Low => {}
                Want::Many => program.many = Some((id, at)),
            }
        }
        let _ = stopped.set_registers(&mapping.registers);
        self.go_on(stopped, 0);
    }
}
