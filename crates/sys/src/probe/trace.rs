//! Tracing in probe children: tests that a child can be traced and that another process's memory
//! can be read.
//!
//! See ptrace(2), `process_vm_readv`(2).
//!
//! # Safety
//! `ptrace` writes to this process only through the pointers given to it; the processes that it
//! acts on are children of a probe child.

use std::ffi::{c_long, c_void};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::{__NR_process_vm_readv, __NR_ptrace};
use linux_raw_sys::ptrace::{
    PTRACE_GETREGSET, PTRACE_O_TRACESECCOMP, PTRACE_SETOPTIONS, PTRACE_TRACEME,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{Child, Link};

/// `NT_PRSTATUS` of elf.h.
const GENERAL_REGISTERS: usize = 1;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// `struct iovec`: a buffer.
#[repr(C)]
struct Buffer {
    base: *mut c_void,
    length: usize,
}

/// A probe child changes its own copy of this, and other processes must read the changed value
/// there.
static MARK: AtomicU64 = AtomicU64::new(0);

/// A step of tracing that failed.
#[derive(Debug)]
pub struct Failure {
    /// The step.
    pub step: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

fn failed(step: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure { step, source }
}

impl Link {
    /// Lets a grandchild be traced, stops it, and reads its registers. With `seccomp_stops` also
    /// sets `PTRACE_O_TRACESECCOMP`.
    ///
    /// # Errors
    /// The step that failed.
    pub fn trace_child(&self, seccomp_stops: bool) -> Result<(), Failure> {
        let tracee = Child::spawn(|_| {
            if let Err(error) = ptrace(PTRACE_TRACEME, 0, 0, std::ptr::null_mut()) {
                return error.raw_os_error().unwrap_or(255);
            }
            let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            0
        })
        .map_err(failed("fork"))?;
        let (_, status) = waitpid(Some(tracee.pid()), WaitOptions::UNTRACED)
            .map_err(|errno| Failure { step: "waitpid", source: errno.into() })?
            .ok_or_else(|| Failure { step: "waitpid", source: io::ErrorKind::WouldBlock.into() })?;
        if let Some(code) = status.exit_status() {
            let source = io::Error::from_raw_os_error(code);
            return Err(Failure { step: "ptrace(PTRACE_TRACEME)", source });
        }
        let pid = tracee.pid().as_raw_nonzero().get();
        if seccomp_stops {
            let option = std::ptr::without_provenance_mut(PTRACE_O_TRACESECCOMP as usize);
            ptrace(PTRACE_SETOPTIONS, pid, 0, option)
                .map_err(failed("ptrace(PTRACE_SETOPTIONS, PTRACE_O_TRACESECCOMP)"))?;
        }
        let mut registers = [0_u64; 64];
        let mut buffer =
            Buffer { base: registers.as_mut_ptr().cast(), length: size_of_val(&registers) };
        ptrace(PTRACE_GETREGSET, pid, GENERAL_REGISTERS, (&raw mut buffer).cast())
            .map_err(failed("ptrace(PTRACE_GETREGSET)"))
    }

    /// `process_vm_readv` of a grandchild's memory; with `sibling` by another grandchild instead of
    /// by its parent.
    ///
    /// # Errors
    /// The step that failed.
    pub fn read_memory(&self, sibling: bool) -> Result<(), Failure> {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
        let mut owner = Child::spawn(|link| {
            MARK.store(0x5eed, Ordering::Relaxed);
            link.send(b"ready");
            i32::from(!link.wait_go())
        })
        .map_err(failed("fork"))?;
        owner.receive(deadline);
        let pid = owner.pid();
        let read = move || match read_mark(pid) {
            Ok(0x5eed) => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
            Err(error) => Err(error),
        };
        let result = if sibling {
            let reader = Child::spawn(move |_| match read() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(255),
            })
            .map_err(failed("fork"))?;
            match reader.finish(deadline).map_err(failed("waitpid"))?.ended {
                super::Ended::Exited(0) => Ok(()),
                super::Ended::Exited(code) => Err(io::Error::from_raw_os_error(code)),
                _ => Err(io::ErrorKind::Other.into()),
            }
        } else {
            read()
        };
        owner.go();
        result.map_err(failed("process_vm_readv"))
    }
}

fn ptrace(request: u32, pid: i32, address: usize, data: *mut c_void) -> io::Result<()> {
    // SAFETY: `data` is null, an integer, or points to a live buffer of the caller with the size
    // that the request expects.
    match unsafe {
        syscall(c_long::from(__NR_ptrace), c_long::from(request), c_long::from(pid), address, data)
    } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Reads the `MARK` of another process that was forked from this one, and so has it at the same
/// address.
fn read_mark(pid: Pid) -> io::Result<u64> {
    let mut value = 0_u64;
    let local = Buffer { base: (&raw mut value).cast(), length: size_of::<u64>() };
    let remote = Buffer { base: MARK.as_ptr().cast(), length: size_of::<u64>() };
    // SAFETY: `local` describes `value`, eight bytes of this function; `remote` is an address in
    // the other process, which the kernel checks.
    let result = unsafe {
        syscall(
            c_long::from(__NR_process_vm_readv),
            c_long::from(pid.as_raw_nonzero().get()),
            &raw const local,
            1 as c_long,
            &raw const remote,
            1 as c_long,
            0 as c_long,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use crate::probe::{Ended, in_child};
    use std::time::Duration;

    #[test]
    fn a_child_can_be_traced_and_read() {
        let report = in_child(Duration::from_secs(20), |link| {
            if let Err(failure) = link.trace_child(true) {
                link.send(format!("{failure:?}").as_bytes());
                return 1;
            }
            if let Err(failure) = link.read_memory(false) {
                link.send(format!("{failure:?}").as_bytes());
                return 2;
            }
            0
        })
        .unwrap();
        let output = String::from_utf8_lossy(&report.output).into_owned();
        if output.contains("PermissionDenied") {
            eprintln!("SKIP a_child_can_be_traced_and_read: tracing is refused here: {output}");
            return;
        }
        assert_eq!(report.ended, Ended::Exited(0), "{output}");
    }
}
