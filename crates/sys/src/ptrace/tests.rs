use super::*;
use crate::fork::{exit_now, fork_unseen};

#[test]
fn statuses_are_told_apart() {
    let stop = |status| match decode(7, status) {
        Event::Stopped(stopped, stop) => {
            assert_eq!(stopped.id(), 7);
            stop
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(stop(0x057f | 7 << 16), Stop::Seccomp);
    assert_eq!(stop(0x857f), Stop::Syscall);
    assert_eq!(stop(0x057f), Stop::Signal(5));
    assert_eq!(stop(0x137f), Stop::Signal(19));
    assert_eq!(stop(0x137f | 128 << 16), Stop::Group(19));
    assert_eq!(stop(0x057f | 128 << 16), Stop::Trap);
    assert_eq!(stop(0x057f | 2 << 16), Stop::Child);
    assert!(matches!(decode(7, 0x0300), Event::Exited(7, 3)));
    assert!(matches!(decode(7, 0x8b), Event::Killed(7, 0xb)));
}

/// A process is seized, stops, is read and written, skips a call, and ends.
#[test]
fn a_tracee_from_seize_to_exit() {
    // Another process traces: the other threads of a test program would interfere with `wait`.
    let report = crate::probe::in_child(std::time::Duration::from_secs(20), |_| match trace() {
        Ok(code) => code,
        Err(errno) => errno.raw_os_error(),
    })
    .unwrap();
    assert_eq!(report.ended, crate::probe::Ended::Exited(0));
}

fn trace() -> Result<i32, Errno> {
    let mut mark = 7_u64;
    let (reader, writer) = rustix::pipe::pipe()?;
    let Some(child) = fork_unseen()? else {
        let _ = rustix::io::read(&reader, &mut [0_u8; 1][..]);
        // The tracer sets the result.
        let answer = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        // SAFETY: a volatile read of a live local, which the other process changes.
        let mark = unsafe { std::ptr::read_volatile(&raw const mark) };
        exit_now(if answer == 4242 && mark == 8 { 3 } else { 4 });
    };
    let running = seize(child.as_raw_nonzero().get() as u32, false)?;
    running.interrupt()?;
    let id = running.id();
    let next = || match wait(Whom::One(id), false)? {
        Some(event) => Ok(event),
        None => Err(Errno::AGAIN),
    };
    let Event::Stopped(stopped, Stop::Trap) = next()? else { return Ok(10) };
    let memory = stopped.memory();
    let at = &raw mut mark as u64;
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes)?;
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    memory.write(at, &8_u64.to_ne_bytes())?;
    assert_eq!(memory.read(8, &mut bytes), Err(Errno::FAULT));
    let below = stopped.registers()?.rsp - 400_000;
    memory.write_stack(below & !7, b"deep")?;
    stopped.go(Go::ToSyscall, 0)?;
    rustix::io::write(&writer, b"x")?;
    loop {
        match next()? {
            Event::Exited(_, 3) => return Ok(0),
            Event::Stopped(stopped, Stop::Syscall) => {
                let registers = stopped.registers()?;
                if registers.number() == numbers::__NR_getppid {
                    assert_eq!(registers.gate(), Gate::Native);
                    let entry = stopped.entry()?;
                    assert_eq!(entry.number, numbers::__NR_getppid);
                    assert_eq!((entry.instruction, entry.stack), (registers.rip, registers.rsp));
                    stopped.skip(4242)?;
                    assert_eq!(stopped.result()?, 4242);
                }
                stopped.go(Go::ToSyscall, 0)?;
            }
            Event::Stopped(stopped, _) => {
                stopped.go(Go::ToSyscall, 0)?;
            }
            _ => return Ok(11),
        }
    }
}
