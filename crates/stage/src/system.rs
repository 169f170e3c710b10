//! System calls, each an instruction of this image (the filter lets them pass by address); and the memory that others write.

use core::arch::asm;
use core::cell::UnsafeCell;
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::{PR_SET_MM, PR_SET_MM_MAP, PR_SET_NAME, prctl_mm_map};
use view::Errno;

/// Something did not work, and there is nobody to tell what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed;

/// Static memory that is written from outside this program's text: by the backend before the first instruction, or by the kernel.
#[repr(C, align(64))]
pub(crate) struct Written<T>(UnsafeCell<T>);

// SAFETY: the loader has one thread.
unsafe impl<T> Sync for Written<T> {}

impl<T> Written<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The contents. Volatile in spirit: the pointer goes through the assembler, so that no constant is folded from the initial zeros.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the pointer is this static's own; it is not written while the reference lives (`get_mut` is called elsewhere only for a
        // different static, by one function that ends before the next call of it).
        unsafe { &*opaque(self.0.get()) }
    }

    /// For one writer at a time.
    ///
    /// # Safety
    /// No other reference to the contents is alive.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is one writer")]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: as the caller says.
        unsafe { &mut *opaque(self.0.get()) }
    }
}

fn opaque<T>(pointer: *mut T) -> *mut T {
    let mut pointer = pointer;
    // SAFETY: no instruction; the compiler only forgets what it knows about memory.
    unsafe { asm!("/* {0} */", inout(reg) pointer, options(nostack, preserves_flags)) };
    pointer
}

/// Where the image starts: at one of the places of [`abi::boot::start`], known from where this runs.
#[inline]
pub(crate) fn base() -> u64 {
    let here: u64;
    // SAFETY: an address, nothing else.
    unsafe { asm!("lea {}, [rip]", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here & !(abi::boot::BASE_STEP - 1)
}

/// What the filter of this container says of calls that are ours.
pub(crate) fn mark() -> u16 {
    abi::calls::filter::mark(base())
}

/// Any system call.
///
/// # Safety
/// As the call itself: pointers and mappings among the arguments must be right.
#[inline]
pub(crate) unsafe fn call(number: u32, arguments: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel changes rax, rcx and r11 and what the arguments point to; the caller answers for those.
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

/// Any system call, its error as an [`Errno`].
///
/// # Safety
/// As [`call`].
#[inline]
pub(crate) unsafe fn checked(number: u32, arguments: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: as the caller says.
    checked_result(unsafe { call(number, arguments) })
}

/// A result of the kernel's, taken apart.
#[inline]
pub(crate) fn checked_result(result: i64) -> Result<u64, Errno> {
    if is_error(result) { Err(Errno(result.unsigned_abs() as u16)) } else { Ok(result as u64) }
}

/// Whether a result is a negative error number.
#[inline]
pub(crate) const fn is_error(result: i64) -> bool {
    result < 0 && result > -4096
}

fn value(result: i64) -> Result<u64, Failed> {
    if is_error(result) { Err(Failed) } else { Ok(result as u64) }
}

/// Opens a file for reading; `path` lies in the boot block, where a NUL follows it.
pub(crate) fn open(path: &[u8]) -> Result<u64, Failed> {
    let flags = u64::from(raw::O_RDONLY | raw::O_CLOEXEC);
    let at = i64::from(raw::AT_FDCWD) as u64;
    // SAFETY: the kernel reads the path.
    value(unsafe { call(raw::__NR_openat, [at, path.as_ptr() as u64, flags, 0, 0, 0]) })
}

/// Opens a file to be mapped shared.
pub(crate) fn open_shared(path: &core::ffi::CStr) -> Result<u64, Failed> {
    let flags = raw::O_RDWR | raw::O_CLOEXEC;
    let file = crate::kernel::calls::openat(crate::kernel::calls::CWD, path, flags, 0);
    file.map(|file| file as u64).map_err(|_| Failed)
}

/// Length of a file.
pub(crate) fn size(fd: u64) -> Result<u64, Failed> {
    // SAFETY: moves a descriptor of ours.
    value(unsafe { call(raw::__NR_lseek, [fd, 0, u64::from(raw::SEEK_END), 0, 0, 0]) })
}

/// Maps a file, shared, to be read and written, where nothing of the guest's is. What is touched comes into memory, and nothing around it.
pub(crate) fn map_shared(at: u64, length: u64, fd: u64) -> Result<(), Failed> {
    let flags = u64::from(raw::MAP_SHARED | raw::MAP_FIXED);
    // SAFETY: the place belongs to the stage, and it has nothing there yet.
    value(unsafe { call(raw::__NR_mmap, [at, length, 3, flags, fd, 0]) })?;
    let advice = u64::from(raw::MADV_RANDOM);
    // SAFETY: changes nothing but what the kernel expects.
    unsafe { call(raw::__NR_madvise, [at, length, advice, 0, 0, 0]) };
    Ok(())
}

/// A number's sixteen hexadecimal digits.
pub(crate) fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15])
}

/// Writes a line to standard error, as far as that goes.
pub(crate) fn tell(line: &[u8]) {
    // SAFETY: the kernel reads the line.
    unsafe { call(raw::__NR_write, [2, line.as_ptr() as u64, line.len() as u64, 0, 0, 0]) };
}

pub(crate) fn close(fd: u64) {
    // SAFETY: a descriptor of ours.
    unsafe { call(raw::__NR_close, [fd, 0, 0, 0, 0, 0]) };
}

/// Fills `into` from the file, as far as the file goes.
pub(crate) fn read(fd: u64, into: &mut [u8], offset: u64) -> Result<usize, Failed> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let arguments =
            [fd, rest.as_mut_ptr() as u64, rest.len() as u64, offset + done as u64, 0, 0];
        // SAFETY: the kernel writes into `rest`.
        match value(unsafe { call(raw::__NR_pread64, arguments) })? {
            0 => break,
            count => done += count as usize,
        }
    }
    Ok(done)
}

/// Where a mapping goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever the kernel likes, near this (0: nowhere in particular).
    Near(u64),
    /// Here, and nothing may be there.
    Free(u64),
    /// Here, over what is there: only within what this loader has mapped itself.
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
    // SAFETY: only `Over` can replace memory, and its users name memory of the image they are loading.
    let got = value(unsafe { call(raw::__NR_mmap, arguments) })?;
    // Before Linux 4.17 MAP_FIXED_NOREPLACE was not known, and the address a mere hint.
    let insists = !matches!(place, Place::Near(_));
    if insists && got != address { Err(Failed) } else { Ok(got) }
}

/// What makes the kernel take an address or none.
fn place_flag() -> u32 {
    let hint = crate::shared::switches().has(abi::shared::Switches::NO_FIXED_NOREPLACE);
    if hint { 0 } else { raw::MAP_FIXED_NOREPLACE }
}

pub(crate) fn unmap(start: u64, length: u64) {
    if length != 0 {
        // SAFETY: pages that this loader reserved and did not use.
        unsafe { call(raw::__NR_munmap, [start, length, 0, 0, 0, 0]) };
    }
}

pub(crate) fn protect(start: u64, length: u64, protection: u32) -> Result<(), Failed> {
    // SAFETY: used for the stack alone, whose pages become executable as the program asks.
    value(unsafe { call(raw::__NR_mprotect, [start, length, u64::from(protection), 0, 0, 0]) })
        .map(|_| ())
}

/// A random number; 0 where the kernel has none to give.
pub(crate) fn random() -> u64 {
    let mut number = 0_u64;
    let arguments = [&raw mut number as u64, 8, u64::from(raw::GRND_NONBLOCK), 0, 0, 0];
    // SAFETY: the kernel writes 8 bytes into `number`.
    unsafe { call(raw::__NR_getrandom, arguments) };
    number
}

pub(crate) fn set_name(name: &[u8; 16]) {
    // SAFETY: the kernel reads 16 bytes.
    unsafe { call(raw::__NR_prctl, [u64::from(PR_SET_NAME), name.as_ptr() as u64, 0, 0, 0, 0]) };
}

/// Tells the kernel what it believes about this process's memory. Kernels without the call, or that forbid it, keep what they know:
/// false.
pub(crate) fn set_memory_map(map: &prctl_mm_map) -> bool {
    let size = size_of::<prctl_mm_map>() as u64;
    let arguments =
        [u64::from(PR_SET_MM), u64::from(PR_SET_MM_MAP), &raw const *map as u64, size, 0, 0];
    // SAFETY: the kernel reads the structure and the vector it points to.
    unsafe { call(raw::__NR_prctl, arguments) == 0 }
}

/// `getpid`.
pub(crate) fn process() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(raw::__NR_getpid, [0; 6]) as u32 }
}

/// `gettid`.
pub(crate) fn thread() -> u32 {
    // SAFETY: takes nothing.
    unsafe { call(raw::__NR_gettid, [0; 6]) as u32 }
}

/// Lets other threads go on.
pub(crate) fn pause() {
    // SAFETY: takes nothing.
    unsafe { call(raw::__NR_sched_yield, [0; 6]) };
}

/// The base of `fs`, which tells threads apart.
///
/// # Safety
/// The kernel has said that programs may use the instruction (`HWCAP2_FSGSBASE`).
#[inline]
pub(crate) unsafe fn thread_pointer() -> u64 {
    let base: u64;
    // SAFETY: as the caller says; nothing but the register changes.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Ends the process as the kernel ends one whose `execve` failed too late.
pub(crate) fn die() -> ! {
    const SIGSEGV: u64 = 11;
    // struct kernel_sigaction: the default handler, no flags.
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

/// There is no memory to allocate. `abi` has functions for programs with a heap, so the compiler wants an allocator named; none of them is
/// reached from here, and the linker leaves this out.
struct NoHeap;

#[global_allocator]
static HEAP: NoHeap = NoHeap;

// SAFETY: handing out nothing is always right.
unsafe impl core::alloc::GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
