//! System calls, each an instruction of this image (the filter allows them by their address), and
//! static memory that is written from outside.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::{PR_SET_MM, PR_SET_MM_MAP, PR_SET_NAME, prctl_mm_map};
use view::Errno;

/// An error that cannot be reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed;

/// Static memory that is written by other code than this program's: by the backend before the first
/// instruction, or by the kernel.
#[repr(C, align(64))]
pub(crate) struct Written<T>(UnsafeCell<T>);

// SAFETY: users of a value make sure that it is not written while another thread uses it
// (`get_mut`); the loader has one thread.
unsafe impl<T> Sync for Written<T> {}

impl<T> Written<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The contents. The pointer goes through the assembler, so that the compiler folds no constant
    /// from the initial zeros.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the pointer is this static's own. It is not written while the reference lives:
        // callers of `get_mut` guarantee that.
        unsafe { &*opaque(self.0.get()) }
    }

    /// The contents, for one writer at a time.
    ///
    /// # Safety
    ///
    /// No other reference to the contents is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is one writer")]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: the caller guarantees that no other reference is in use.
        unsafe { &mut *opaque(self.0.get()) }
    }
}

fn opaque<T>(pointer: *mut T) -> *mut T {
    let mut pointer = pointer;
    // SAFETY: there is no instruction; the compiler only has to assume that the pointer is unknown.
    unsafe { asm!("/* {0} */", inout(reg) pointer, options(nostack, preserves_flags)) };
    pointer
}

/// Start of the image: one of the places of [`abi::boot::start`], computed from the address of this
/// code.
#[inline]
pub(crate) fn base() -> u64 {
    let here: u64;
    // SAFETY: reads the instruction pointer and touches nothing else.
    unsafe { asm!("lea {}, [rip]", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here & !(abi::boot::BASE_STEP - 1)
}

/// The mark of this container's filter.
pub(crate) fn mark() -> u16 {
    abi::calls::filter::mark(base())
}

/// Makes any system call.
///
/// # Safety
///
/// As for the call itself: pointers and mappings among the arguments must be right.
#[inline]
pub(crate) unsafe fn call(number: u32, arguments: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel changes rax, rcx and r11 and the memory that the arguments point to; the
    // caller answers for that.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") i64::from(number) => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes any system call; an error becomes an [`Errno`].
///
/// # Safety
///
/// As for [`call`].
#[inline]
pub(crate) unsafe fn checked(number: u32, arguments: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller answers for the arguments as `call` requires.
    checked_result(unsafe { call(number, arguments) })
}

/// Splits a result of the kernel into value and error.
#[inline]
pub(crate) fn checked_result(result: i64) -> Result<u64, Errno> {
    if is_error(result) { Err(Errno(result.unsigned_abs() as u16)) } else { Ok(result as u64) }
}

/// Returns true if a result is a negative error number.
#[inline]
pub(crate) const fn is_error(result: i64) -> bool {
    result < 0 && result > -4096
}

fn value(result: i64) -> Result<u64, Failed> {
    if is_error(result) { Err(Failed) } else { Ok(result as u64) }
}

/// Opens a file for reading; a NUL ends `path`, or follows it (in the boot block).
pub(crate) fn open(path: &[u8]) -> Result<u64, Failed> {
    let flags = u64::from(raw::O_RDONLY | raw::O_CLOEXEC);
    let at = i64::from(raw::AT_FDCWD) as u64;
    // SAFETY: the kernel reads the path up to the NUL.
    value(unsafe { call(raw::__NR_openat, [at, path.as_ptr() as u64, flags, 0, 0, 0]) })
}

/// Opens a file for a shared mapping.
pub(crate) fn open_shared(path: &core::ffi::CStr) -> Result<u64, Failed> {
    let flags = raw::O_RDWR | raw::O_CLOEXEC;
    let file = crate::kernel::calls::openat(crate::kernel::calls::CWD, path, flags, 0);
    file.map(|file| file as u64).map_err(|_| Failed)
}

/// Length of a file.
pub(crate) fn size(fd: u64) -> Result<u64, Failed> {
    // SAFETY: changes only the position of a descriptor that the stage has opened.
    value(unsafe { call(raw::__NR_lseek, [fd, 0, u64::from(raw::SEEK_END), 0, 0, 0]) })
}

/// Maps a file shared, readable and writable, where the guest has nothing. Only pages that are
/// touched come into memory, without those around them.
pub(crate) fn map_shared(at: u64, length: u64, fd: u64) -> Result<(), Failed> {
    let flags = u64::from(raw::MAP_SHARED | raw::MAP_FIXED);
    // SAFETY: the place is in the stage's range, and nothing is mapped there yet.
    value(unsafe { call(raw::__NR_mmap, [at, length, 3, flags, fd, 0]) })?;
    let advice = u64::from(raw::MADV_RANDOM);
    // SAFETY: the advice changes only how the kernel reads ahead.
    unsafe { call(raw::__NR_madvise, [at, length, advice, 0, 0, 0]) };
    Ok(())
}

/// Maps a file shared to be read, where the guest has nothing.
pub(crate) fn map_index(at: u64, length: u64, fd: u64) -> Result<(), Failed> {
    let flags = u64::from(raw::MAP_SHARED | raw::MAP_FIXED);
    // SAFETY: the place is in the stage's range, and nothing is mapped there yet.
    value(unsafe { call(raw::__NR_mmap, [at, length, 1, flags, fd, 0]) }).map(drop)
}

/// The sixteen hexadecimal digits of a number.
pub(crate) fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15])
}

/// Writes a line to standard error; errors are ignored.
pub(crate) fn tell(line: &[u8]) {
    // SAFETY: the kernel only reads the line.
    unsafe { call(raw::__NR_write, [2, line.as_ptr() as u64, line.len() as u64, 0, 0, 0]) };
}

pub(crate) fn close(fd: u64) {
    // SAFETY: the caller passes a descriptor that the stage has opened.
    unsafe { call(raw::__NR_close, [fd, 0, 0, 0, 0, 0]) };
}

/// Reads from an offset of the file until `into` is full or the file ends.
pub(crate) fn read(fd: u64, into: &mut [u8], offset: u64) -> Result<usize, Failed> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let arguments =
            [fd, rest.as_mut_ptr() as u64, rest.len() as u64, offset + done as u64, 0, 0];
        // SAFETY: the kernel writes at most `rest.len()` bytes into `rest`.
        match value(unsafe { call(raw::__NR_pread64, arguments) })? {
            0 => break,
            count => done += count as usize,
        }
    }
    Ok(done)
}

/// The place of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address that the kernel chooses, near this one (0: anywhere).
    Near(u64),
    /// This address, where nothing may be mapped.
    Free(u64),
    /// This address, replacing existing mappings: only within memory that the loader has mapped
    /// itself.
    Over(u64),
}

/// `mmap` of a private mapping, of a file or (`None`) of zeros.
pub(crate) fn map(
    place: Place,
    length: u64,
    protection: u32,
    file: Option<(u64, u64)>,
) -> Result<u64, Failed> {
    let (address, fixed) = match place {
        Place::Near(address) => (address, 0),
        Place::Free(address) => (address, place_flag()),
        Place::Over(address) => (address, raw::MAP_FIXED),
    };
    let (fd, offset, anonymous) = match file {
        Some((fd, offset)) => (fd, offset, 0),
        None => (u64::MAX, 0, raw::MAP_ANONYMOUS),
    };
    let flags = u64::from(raw::MAP_PRIVATE | fixed | anonymous);
    let arguments = [address, length, u64::from(protection), flags, fd, offset];
    // SAFETY: only `Over` can replace memory, and its users name memory of the image that they are
    // loading.
    let got = value(unsafe { call(raw::__NR_mmap, arguments) })?;
    // Before Linux 4.17 MAP_FIXED_NOREPLACE is not known, and the address is only a hint.
    let insists = !matches!(place, Place::Near(_));
    if insists && got != address { Err(Failed) } else { Ok(got) }
}

/// The flag with which the kernel takes this address or none.
fn place_flag() -> u32 {
    let hint = crate::shared::switches().has(abi::shared::Switches::NO_FIXED_NOREPLACE);
    if hint { 0 } else { raw::MAP_FIXED_NOREPLACE }
}

pub(crate) fn unmap(start: u64, length: u64) {
    if length != 0 {
        // SAFETY: the caller passes pages that it has mapped and no longer uses.
        unsafe { call(raw::__NR_munmap, [start, length, 0, 0, 0, 0]) };
    }
}

pub(crate) fn protect(start: u64, length: u64, protection: u32) -> Result<(), Failed> {
    // SAFETY: the caller passes the stack, or code pages that the stage maps or patches as the
    // guest asks, and no reference relies on their old protection.
    value(unsafe { call(raw::__NR_mprotect, [start, length, u64::from(protection), 0, 0, 0]) })
        .map(|_| ())
}

/// A random number; 0 if the kernel has none to give.
pub(crate) fn random() -> u64 {
    let mut number = 0_u64;
    let arguments = [&raw mut number as u64, 8, u64::from(raw::GRND_NONBLOCK), 0, 0, 0];
    // SAFETY: the kernel writes 8 bytes into `number`.
    unsafe { call(raw::__NR_getrandom, arguments) };
    number
}

pub(crate) fn set_name(name: &[u8; 16]) {
    // SAFETY: the kernel reads at most 16 bytes, and `name` has 16.
    unsafe { call(raw::__NR_prctl, [u64::from(PR_SET_NAME), name.as_ptr() as u64, 0, 0, 0, 0]) };
}

/// Sets the kernel's idea of this process's memory. Returns false on kernels that do not have the
/// call or forbid it.
pub(crate) fn set_memory_map(map: &prctl_mm_map) -> bool {
    let size = size_of::<prctl_mm_map>() as u64;
    let arguments =
        [u64::from(PR_SET_MM), u64::from(PR_SET_MM_MAP), &raw const *map as u64, size, 0, 0];
    // SAFETY: the kernel reads the structure and the auxiliary vector that it points to.
    unsafe { call(raw::__NR_prctl, arguments) == 0 }
}

/// `getpid`.
pub(crate) fn process() -> u32 {
    // SAFETY: the call has no arguments and touches no memory.
    unsafe { call(raw::__NR_getpid, [0; 6]) as u32 }
}

/// `gettid`.
pub(crate) fn thread() -> u32 {
    // SAFETY: the call has no arguments and touches no memory.
    unsafe { call(raw::__NR_gettid, [0; 6]) as u32 }
}

/// Takes a turn that threads, or processes, have one after the other; `busy` is set while somebody
/// has it, and is to be cleared afterwards. `waits` is called once if that takes long.
///
/// Who is killed in his turn never gives it back. So it is taken after [`PATIENCE`]: not after a
/// number of tries, because on a busy machine the other may not run for longer than many of them
/// take.
pub(crate) fn take_turn(busy: &AtomicBool, waits: impl FnOnce()) {
    #[cold]
    fn wait(busy: &AtomicBool, waits: impl FnOnce()) {
        const LONG: u32 = 100;
        let since = now();
        let (mut tries, mut waits) = (0_u32, Some(waits));
        while busy.swap(true, Ordering::Acquire) {
            pause();
            tries += 1;
            if tries.is_multiple_of(LONG) {
                if let Some(waits) = waits.take() {
                    waits();
                }
                if now().saturating_sub(since) >= PATIENCE {
                    return;
                }
            }
        }
    }
    if busy.swap(true, Ordering::Acquire) {
        wait(busy, waits);
    }
}

/// How long a turn can take, in seconds.
const PATIENCE: u64 = 2;

/// The time in seconds, from any moment on.
fn now() -> u64 {
    clock(raw::CLOCK_MONOTONIC)
}

/// The time in seconds since 1970.
pub(crate) fn date() -> i64 {
    clock(raw::CLOCK_REALTIME) as i64
}

/// The seconds of a clock of the kernel's.
fn clock(which: u32) -> u64 {
    let mut time = [0_u64; 2];
    let arguments = [u64::from(which), time.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes a `struct timespec`, for which `time` has room.
    unsafe { call(raw::__NR_clock_gettime, arguments) };
    time[0]
}

/// Sleeps for about 100 microseconds, half of which are the kernel's own slack.
pub(crate) fn sleep() {
    let time = [0_u64, 50_000];
    // SAFETY: the kernel reads a `struct timespec`.
    unsafe { call(raw::__NR_nanosleep, [time.as_ptr() as u64, 0, 0, 0, 0, 0]) };
}

/// Lets other threads run.
pub(crate) fn pause() {
    // SAFETY: the call has no arguments and touches no memory.
    unsafe { call(raw::__NR_sched_yield, [0; 6]) };
}

/// The base of `fs`, which distinguishes threads.
///
/// # Safety
///
/// The kernel has said that programs may use the instruction (`HWCAP2_FSGSBASE`).
#[inline]
pub(crate) unsafe fn thread_pointer() -> u64 {
    let base: u64;
    // SAFETY: the caller guarantees that the instruction exists; it changes only the output
    // register.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Ends the process as the kernel does if an `execve` fails too late.
pub(crate) fn die() -> ! {
    const SIGSEGV: u64 = 11;
    // struct kernel_sigaction: the default action, no flags.
    let default = [0_u64; 4];
    let unblock = 1_u64 << (SIGSEGV - 1);
    // SAFETY: the structures live until the calls have returned; after the signal nothing runs.
    unsafe {
        call(raw::__NR_rt_sigaction, [SIGSEGV, default.as_ptr() as u64, 0, 8, 0, 0]);
        call(
            raw::__NR_rt_sigprocmask,
            [u64::from(raw::SIG_UNBLOCK), &raw const unblock as u64, 0, 8, 0, 0],
        );
        let process = call(raw::__NR_getpid, [0; 6]) as u64;
        call(raw::__NR_kill, [process, SIGSEGV, 0, 0, 0, 0]);
        loop {
            call(raw::__NR_exit_group, [139, 0, 0, 0, 0, 0]);
        }
    }
}

/// An allocator that never allocates. `abi` has functions for programs with a heap, so the compiler
/// requires an allocator; none of these functions is used here, and the linker leaves it out.
struct NoHeap;

#[global_allocator]
static HEAP: NoHeap = NoHeap;

// SAFETY: returning null is always allowed.
unsafe impl core::alloc::GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
