//! Adapts the stack of a new program: arguments, environment and auxiliary vector (getauxval(3)).
//! The kernel made them for the loader; they must describe the guest's program.

use abi::boot::Boot;
use linux_raw_sys::auxvec as at;
use linux_raw_sys::prctl::prctl_mm_map;

use crate::load::Image;
use crate::system::{self, Failed, Place};

/// End of the stack if addresses are not randomised.
const STACK_END: u64 = 0x7fff_ffff_f000;
const PAGE: u64 = abi::elf::PAGE;

/// The stack, as the kernel left it.
pub(crate) struct Stack {
    /// `argc`, `argv`, `envp`, auxiliary vector: the vectors end with a null pointer, the last with
    /// `AT_NULL`.
    pointer: *mut u64,
    /// The first pointer of the environment.
    environment: *mut u64,
    /// The first pair of the auxiliary vector.
    vector: *mut [u64; 2],
    /// Number of pairs, including `AT_NULL`.
    pairs: usize,
    /// Where the environment's strings end: at first the address of the loader's name, which the
    /// kernel put behind them.
    strings_end: u64,
    /// Address of the loader's name.
    name: u64,
}

impl Stack {
    /// # Safety
    ///
    /// `pointer` is the stack pointer at a program's first instruction, and no other reference to
    /// that memory exists.
    pub(crate) unsafe fn new(pointer: *mut u64) -> Self {
        // SAFETY: the kernel guarantees the layout (System V ABI, "Process Initialization"): each
        // loop ends at the null that is there.
        unsafe {
            let arguments = *pointer as usize;
            let environment = pointer.add(1 + arguments + 1);
            let mut end = environment;
            while *end != 0 {
                end = end.add(1);
            }
            let vector = end.add(1).cast::<[u64; 2]>();
            let mut pairs = 1;
            let mut strings_end = 0;
            let mut pair = vector;
            while (*pair)[0] != 0 {
                if (*pair)[0] == u64::from(at::AT_EXECFN) {
                    strings_end = (*pair)[1];
                }
                pairs += 1;
                pair = pair.add(1);
            }
            Self { pointer, environment, vector, pairs, strings_end, name: strings_end }
        }
    }

    /// Removes the last string of the environment if it begins with `mark`. The string stays in
    /// place, between the environment's other strings and the loader's name. The stack pointer
    /// keeps its value (and its alignment); the auxiliary vector moves down by a word.
    pub(crate) fn take_last_variable(&mut self, mark: &[u8]) -> Option<&'static mut [u8]> {
        let end = self.vector.cast::<u64>();
        // SAFETY: the vectors are the kernel's. Behind the environment's pointers there is a null
        // pointer, then the auxiliary vector of `pairs` pairs. Strings end with a NUL, and nothing
        // else refers to them yet.
        unsafe {
            let last = end.sub(2);
            if last < self.environment {
                return None;
            }
            let start = *last as *mut u8;
            let length = core::ffi::CStr::from_ptr(start.cast()).count_bytes();
            let string = core::slice::from_raw_parts_mut(start, length);
            if !string.starts_with(mark) {
                return None;
            }
            *last = 0;
            core::ptr::copy(end, end.sub(1), self.pairs * 2);
            self.vector = end.sub(1).cast();
            self.strings_end = start as u64;
            Some(string)
        }
    }

    /// The value of a kind in the auxiliary vector.
    fn value(&self, kind: u32) -> Option<u64> {
        // SAFETY: `new` has counted `pairs` pairs from `vector` on, and nothing writes to them
        // meanwhile.
        let vector = unsafe { core::slice::from_raw_parts(self.vector, self.pairs) };
        vector.iter().find(|[here, _]| *here == u64::from(kind)).map(|[_, value]| *value)
    }

    /// Returns true if programs may read the base of fs by an instruction (`HWCAP2_FSGSBASE`).
    pub(crate) fn has_fsgsbase(&self) -> bool {
        self.value(at::AT_HWCAP2).is_some_and(|value| value & 2 != 0)
    }

    /// Puts a page behind the kernel's library (`[vdso]`) if it lies below the stack.
    ///
    /// New kernels map it as any library, and the guest's libraries come below it, so the stack is
    /// the next line of `/proc/self/maps`. Programs were written for kernels that have it above:
    /// `PMIx` (in Open MPI 5) passes over the line that follows such a name, misses the stack, and
    /// takes what is beyond for free memory.
    pub(crate) fn part_from_vdso(&self) {
        let Some(start) = self.value(at::AT_SYSINFO_EHDR) else { return };
        if start > self.pointer as u64 {
            return;
        }
        let field = |at: u64| {
            // SAFETY: the kernel has mapped an ELF file there (elf(5)), at least a page, and the
            // fields of its header lie at multiples of their size.
            unsafe { *((start + at) as *const u16) }
        };
        // SAFETY: as above.
        let sections = unsafe { *((start + 40) as *const u64) };
        let end = start + sections + u64::from(field(58)) * u64::from(field(60));
        // If it is longer, nothing happens.
        let _ = system::map(Place::Free(end.next_multiple_of(PAGE)), PAGE, 0, None);
    }

    /// End of the stack's last page: behind the loader's name there are only a null word and the
    /// end of the stack.
    fn end(&self) -> u64 {
        let mut end = self.name;
        // SAFETY: the name is a string on the stack, put there by the kernel, so every byte up to
        // its NUL is readable.
        while unsafe { *(end as *const u8) } != 0 {
            end += 1;
        }
        (end + 1).next_multiple_of(PAGE)
    }

    /// A random number if the kernel randomises this process's addresses. The kernel does not say
    /// if it does (a personality or a system-wide setting forbids it), but a stack that ends at the
    /// end of the address space was not moved.
    pub(crate) fn randomness(&self) -> Option<u64> {
        (self.end() != STACK_END).then(system::random)
    }

    /// Makes the whole stack executable, including its later growth.
    pub(crate) fn make_executable(&self) -> Result<(), Failed> {
        const PROT_GROWSDOWN: u32 = 0x0100_0000;
        let start = self.pointer as u64 & !(PAGE - 1);
        system::protect(start, self.end() - start, 7 | PROT_GROWSDOWN)
    }

    /// Makes the auxiliary vector describe the guest's program.
    pub(crate) fn describe(
        &mut self,
        boot: &Boot<'_>,
        program: &Image,
        interpreter: Option<&Image>,
    ) {
        // SAFETY: `new` has counted `pairs` pairs from `vector` on, and this is the only reference
        // to them.
        let vector = unsafe { core::slice::from_raw_parts_mut(self.vector, self.pairs) };
        for [kind, value] in vector {
            let new = match *kind as u32 {
                at::AT_PHDR => program.extent.table.wrapping_add(program.bias),
                at::AT_PHNUM => u64::from(program.entries),
                at::AT_ENTRY => program.entry,
                at::AT_BASE => interpreter.map_or(0, |image| image.bias),
                at::AT_EXECFN => boot.name.as_ptr() as u64,
                at::AT_SECURE => u64::from(boot.secure),
                at::AT_UID | at::AT_EUID | at::AT_GID | at::AT_EGID => match boot.ids {
                    Some(ids) => u64::from(match *kind as u32 {
                        at::AT_UID => ids.uid,
                        at::AT_EUID => ids.euid,
                        at::AT_GID => ids.gid,
                        _ => ids.egid,
                    }),
                    None => continue,
                },
                _ => continue,
            };
            *value = new;
        }
    }

    /// Makes the kernel show the program's memory, auxiliary vector and heap as if it had loaded
    /// the program itself. Returns false if the kernel refuses.
    pub(crate) fn tell_kernel(&self, program: &Image, heap: u64) -> bool {
        let there = |address: u64| address.wrapping_add(program.bias);
        // SAFETY: `argv[0]` and `envp[0]` are within the vectors; an empty vector has its null
        // pointer there.
        let (first_argument, first_variable) = unsafe { (*self.pointer.add(1), *self.environment) };
        // The strings lie one behind the other: arguments, environment, the loader's name.
        let environment = if first_variable == 0 { self.strings_end } else { first_variable };
        let arguments = if first_argument == 0 { environment } else { first_argument };
        system::set_memory_map(&prctl_mm_map {
            start_code: there(program.extent.code.0),
            end_code: there(program.extent.code.1),
            start_data: there(program.extent.data.0),
            end_data: there(program.extent.data.1),
            start_brk: heap,
            brk: heap,
            start_stack: self.pointer as u64,
            arg_start: arguments,
            arg_end: environment,
            env_start: environment,
            env_end: self.strings_end,
            auxv: self.vector.cast(),
            auxv_size: (self.pairs * size_of::<[u64; 2]>()) as u32,
            exe_fd: u32::MAX,
        })
    }
}
