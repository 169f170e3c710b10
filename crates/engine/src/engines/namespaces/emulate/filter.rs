//! The filter: which calls are held back.

use abi::bpf::{self, Assembler, Compare, Instruction};
use abi::syscalls::{self, ARCH_X86_64};

/// Change owners or ids. Without a listener they "succeed".
pub(super) const CHANGES: [&str; 20] = [
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "setfsgid",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
];

/// Read ids. Without a listener the kernel answers.
pub(super) const READS: [&str; 7] =
    ["getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups"];

/// Make device nodes; the argument that holds the mode.
const NODES: [(&str, u8); 2] = [("mknod", 1), ("mknodat", 2)];

/// `PR_SET_KEEPCAPS`, see prctl(2).
const KEEP_CAPABILITIES: u64 = 8;

const TYPE_MASK: u64 = 0o170_000;
const CHARACTER: u64 = 0o020_000;
const BLOCK: u64 = 0o060_000;

/// The program; `action` is [`bpf::USER_NOTIF`], or [`bpf::ERRNO`] (with 0: success) where there
/// are no listeners.
pub(super) fn program(action: u32) -> Vec<Instruction> {
    let mut program = Assembler::new();
    let pass = program.label();
    program.load_architecture();
    program.unless_equal(ARCH_X86_64, pass);
    program.load_number();
    let reads: &[&str] = if action == bpf::USER_NOTIF { &READS } else { &[] };
    // Attributes and modes are the kernel's affair where nobody looks at them first.
    let changes = if action == bpf::USER_NOTIF { &CHANGES[..] } else { &CHANGES[..13] };
    for name in reads.iter().chain(changes) {
        if let Some(number) = syscalls::x86_64(name) {
            program.ret_if(number, action);
        }
    }
    for (name, argument) in NODES {
        let Some(number) = syscalls::x86_64(name) else { continue };
        let next = program.label();
        program.unless_equal(number, next);
        for kind in [CHARACTER, BLOCK] {
            let other = program.label();
            program.argument(argument, Compare::Masked(TYPE_MASK), kind, other);
            program.ret(action);
            program.place(other);
        }
        program.ret(bpf::ALLOW);
        program.place(next);
    }
    if let Some(number) = syscalls::x86_64("prctl").filter(|_| action == bpf::USER_NOTIF) {
        let next = program.label();
        program.unless_equal(number, next);
        let other = program.label();
        program.argument(0, Compare::Equal, KEEP_CAPABILITIES, other);
        program.ret(action);
        program.place(other);
        program.ret(bpf::ALLOW);
        program.place(next);
    }
    program.place(pass);
    program.ret(bpf::ALLOW);
    // The program is the same every time, and a test builds it.
    program.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::bpf::{Data, run};

    fn ask(program: &[Instruction], name: &str, arguments: [u64; 6]) -> u32 {
        let number = syscalls::x86_64(name).unwrap();
        run(program, &Data { number, architecture: ARCH_X86_64, arguments, ..Data::default() })
            .unwrap()
    }

    #[test]
    fn only_roots_calls_are_held_back() {
        let program = program(bpf::USER_NOTIF);
        for name in CHANGES.iter().chain(&READS) {
            assert_eq!(ask(&program, name, [0; 6]), bpf::USER_NOTIF, "{name}");
        }
        for name in ["read", "openat", "stat", "mkdir", "execve", "sendmsg", "capset"] {
            assert_eq!(ask(&program, name, [0; 6]), bpf::ALLOW, "{name}");
        }
        assert_eq!(ask(&program, "mknod", [0, 0o020_600, 0, 0, 0, 0]), bpf::USER_NOTIF);
        assert_eq!(ask(&program, "mknodat", [0, 0, 0o060_600, 0, 0, 0]), bpf::USER_NOTIF);
        assert_eq!(ask(&program, "prctl", [8, 1, 0, 0, 0, 0]), bpf::USER_NOTIF);
        assert_eq!(ask(&program, "prctl", [38, 1, 0, 0, 0, 0]), bpf::ALLOW);
        assert_eq!(ask(&program, "mknod", [0, 0o010_600, 0, 0, 0, 0]), bpf::ALLOW);
        assert_eq!(ask(&program, "mknod", [0, 0o140_600, 0, 0, 0, 0]), bpf::ALLOW);
    }

    #[test]
    fn without_a_listener_changes_succeed() {
        let program = program(bpf::ERRNO);
        assert_eq!(ask(&program, "chown", [0; 6]), bpf::ERRNO);
        assert_eq!(ask(&program, "setgroups", [0; 6]), bpf::ERRNO);
        assert_eq!(ask(&program, "getuid", [0; 6]), bpf::ALLOW);
        assert_eq!(ask(&program, "setxattr", [0; 6]), bpf::ALLOW);
        assert_eq!(ask(&program, "chmod", [0; 6]), bpf::ALLOW);
    }
}
