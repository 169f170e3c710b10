//! The filter that keeps a program from typing on the caller's terminal.
//!
//! A program without a terminal of its own (`-t`) may have the caller's, as its standard streams or
//! as `/dev/tty`. `TIOCSTI` puts bytes into the terminal's input as if they had been typed, and the
//! caller's shell would read them when the program has ended; `TIOCLINUX` pastes the selection of a
//! virtual console. Both are refused with `EPERM` in every ABI of the processor. See `ioctl_tty(2)`
//! and `ioctl_console(2)`.
//!
//! The kernel takes 32 bits of a request, so only those are compared. The filter stands beside the
//! container's own: neither the user's profile nor `seccomp=unconfined` nor `exec
//! --privileged` lifts it. The session stays the caller's, so that job control works.

use abi::bpf::{self, Assembler, Compare, Instruction};
use abi::syscalls::{ARCH_I386, ARCH_X86_64, X32_BIT};

/// `ioctl` by its numbers in x86-64, i386 and x32.
const X86_64: u32 = 16;
const I386: u32 = 54;
const X32: u32 = X32_BIT | 0x202;

/// `TIOCSTI` and `TIOCLINUX`.
const REQUESTS: [u64; 2] = [0x5412, 0x541c];
const REQUEST_BITS: u64 = 0xffff_ffff;
const EPERM: u32 = 1;

/// The program.
pub(super) fn program() -> Vec<Instruction> {
    let mut program = Assembler::new();
    let (other, pass) = (program.label(), program.label());
    program.load_architecture();
    program.unless_equal(ARCH_X86_64, other);
    program.load_number();
    for number in [X86_64, X32, X32_BIT | X86_64] {
        refuse(&mut program, number);
    }
    program.ret(bpf::ALLOW);
    program.place(other);
    program.unless_equal(ARCH_I386, pass);
    program.load_number();
    refuse(&mut program, I386);
    program.place(pass);
    program.ret(bpf::ALLOW);
    // The program is the same every time, and a test builds it.
    program.finish().unwrap_or_default()
}

/// Refuses the requests of a call with this number; the number is loaded before and after.
fn refuse(program: &mut Assembler, number: u32) {
    let next = program.label();
    program.unless_equal(number, next);
    for request in REQUESTS {
        let other = program.label();
        program.argument(1, Compare::Masked(REQUEST_BITS), request, other);
        program.ret(bpf::ERRNO | EPERM);
        program.place(other);
    }
    program.ret(bpf::ALLOW);
    program.place(next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::bpf::{Data, run};

    fn ask(number: u32, architecture: u32, request: u64) -> u32 {
        let arguments = [0, request, 0, 0, 0, 0];
        run(&program(), &Data { number, architecture, arguments, ..Data::default() }).unwrap()
    }

    #[test]
    fn typing_is_refused_in_every_abi_and_nothing_else_is() {
        for (number, architecture) in [(X86_64, ARCH_X86_64), (X32, ARCH_X86_64), (I386, ARCH_I386)]
        {
            for request in [0x5412, 0x541c, 0x1_0000_5412, 0xffff_ffff_0000_541c] {
                let answer = ask(number, architecture, request);
                assert_eq!(answer, bpf::ERRNO | EPERM, "{number:x} {request:x}");
            }
            // TCGETS, TIOCGWINSZ, TIOCSPGRP, FIONREAD.
            for request in [0x5401, 0x5413, 0x5410, 0x541b] {
                assert_eq!(ask(number, architecture, request), bpf::ALLOW, "{request:x}");
            }
        }
        assert_eq!(ask(I386, ARCH_X86_64, 0x5412), bpf::ALLOW);
        assert_eq!(ask(X86_64, ARCH_I386, 0x5412), bpf::ALLOW);
    }
}
