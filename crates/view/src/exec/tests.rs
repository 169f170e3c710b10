//! Plans of `execve`, with a host in memory.

use super::*;
use crate::testing::tree::Body;
use crate::testing::{Bench, Fake, binding, string};
use crate::world::{Binding, Emulator, Identity, Kind};
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use std::string::String;
use std::vec;
use std::vec::Vec;

const PATH: u64 = 0x1000;
const ARGV: u64 = 0x3000;
const ENVP: u64 = 0x4000;

/// A small ELF file: header, `PT_INTERP` and its text.
fn elf_file(machine: u16, interpreter: Option<&str>) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[16] = 3;
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[32] = 64;
    file[54] = 56;
    file[56] = 2;
    let text = interpreter.map_or_else(Vec::new, |name| [name.as_bytes(), b"\0"].concat());
    let kinds = [if interpreter.is_some() { 3_u32 } else { 6 }, 1];
    for kind in kinds {
        let mut entry = vec![0; 56];
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        entry[8..16].copy_from_slice(&176_u64.to_le_bytes());
        entry[32..40].copy_from_slice(&(text.len() as u64).to_le_bytes());
        entry[40..48].copy_from_slice(&(text.len() as u64).to_le_bytes());
        file.extend(entry);
    }
    file.extend(text);
    file.resize(600, 0);
    file
}

const BINDINGS: &[Binding<'static>] =
    &[binding("/", "/c/root", Kind::Tree), binding("/mnt", "/home/u", Kind::Host)];

fn fake() -> Fake {
    let mut fake = Fake::new();
    fake.dir("/c/root/tmp").dir("/home/u");
    let program = |fake: &mut Fake, path: &str, body: Vec<u8>| {
        fake.node(path, Body::File(body), 0o755);
    };
    program(&mut fake, "/c/root/lib/ld.so", elf_file(62, None));
    program(&mut fake, "/c/root/bin/true", elf_file(62, Some("/lib/ld.so")));
    program(&mut fake, "/c/root/bin/static", elf_file(62, None));
    program(&mut fake, "/c/root/bin/arm", elf_file(183, Some("/lib/ld-arm.so")));
    program(&mut fake, "/c/root/bin/lost", elf_file(62, Some("/lib/none.so")));
    program(&mut fake, "/c/root/bin/mixed", elf_file(62, Some("/bin/arm")));
    program(&mut fake, "/c/root/bin/odd", elf_file(62, Some("/tmp/text")));
    program(
        &mut fake,
        "/c/root/tmp/text",
        b"hello, not ELF, but long enough to be read as a header of one....".to_vec(),
    );
    program(&mut fake, "/c/root/tmp/empty", Vec::new());
    program(&mut fake, "/c/root/tmp/s1", b"#!/bin/static -x  y \nrest".to_vec());
    for depth in 2..8 {
        let line = std::format!("#!/tmp/s{} a{depth}\n", depth - 1);
        program(&mut fake, &std::format!("/c/root/tmp/s{depth}"), line.into_bytes());
    }
    program(&mut fake, "/c/root/tmp/lost", b"#!/nowhere\n".to_vec());
    fake.file("/c/root/tmp/plain", "no permission");
    fake.link("/c/root/tmp/link", "../bin/true");
    fake.chdir("/c/root/tmp");
    fake.map_text(PATH + 0x800, "zero").map_text(PATH + 0x900, "one");
    let argv: Vec<u8> =
        [PATH + 0x800, PATH + 0x900, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    fake.map(ARGV, &argv);
    fake
}

fn bench() -> Bench<'static> {
    Bench::new(fake(), BINDINGS)
}

fn call(number: u32, arguments: [u64; 6]) -> Call {
    Call { arch: ARCH_X86_64, number, arguments }
}

fn run(bench: &mut Bench<'_>, path: &str) -> Verdict {
    bench.fake.map_text(PATH, path);
    bench.context(|context| plan(context, &call(59, [PATH, ARGV, ENVP, 0, 0, 0])))
}

fn fails(path: &str) -> Errno {
    let mut bench = bench();
    let Verdict::Done(result) = run(&mut bench, path) else { panic!("{path} can be executed") };
    assert!(bench.fake.held.is_empty(), "{path} leaves something open");
    Errno(u16::try_from(-result).unwrap())
}

fn arguments(bench: &Bench<'_>) -> Vec<String> {
    let at = bench.buffers.exec.arguments;
    (0..100)
        .map(|index| u64::from_le_bytes(bench.fake.peek(at + 8 * index, 8).try_into().unwrap()))
        .take_while(|word| *word != 0)
        .map(|word| bench.fake.peek_text(word))
        .collect()
}

#[test]
fn a_dynamic_program() {
    let mut bench = bench();
    assert_eq!(run(&mut bench, "link"), Verdict::Exec);
    let plan = bench.buffers.exec.clone();
    assert_eq!(string(&plan.program_host), "/c/root/bin/true");
    assert_eq!(string(&plan.program_guest), "/bin/true");
    assert_eq!(string(&plan.interpreter_host), "/c/root/lib/ld.so");
    assert_eq!(string(&plan.name), "link");
    assert_eq!(&plan.comm[..5], b"link\0");
    assert_eq!((plan.arguments, plan.environment), (ARGV, ENVP));
    assert_eq!((plan.machine, plan.secure, plan.ids), (Machine::X86_64, false, None));
    assert_eq!(bench.fake.held.len(), 2);
    bench.buffers.exec.release(&mut bench.fake);
    assert!(bench.fake.held.is_empty());
}

#[test]
fn errors_are_those_of_the_kernel() {
    assert_eq!(fails("nothing"), Errno::ENOENT);
    assert_eq!(fails(""), Errno::ENOENT);
    assert_eq!(fails("/bin"), Errno::EACCES);
    assert_eq!(fails("plain"), Errno::EACCES);
    assert_eq!(fails("plain/x"), Errno::ENOTDIR);
    assert_eq!(fails("text"), Errno::ENOEXEC);
    assert_eq!(fails("empty"), Errno::ENOEXEC);
    assert_eq!(fails("/bin/arm"), Errno::ENOEXEC);
    assert_eq!(fails("/bin/lost"), Errno::ENOENT);
    assert_eq!(fails("/bin/mixed"), Errno::ELIBBAD);
    assert_eq!(fails("/bin/odd"), Errno::ELIBBAD);
    assert_eq!(fails("lost"), Errno::ENOENT);
}

#[test]
fn scripts() {
    let mut bench = bench();
    assert_eq!(run(&mut bench, "./s1"), Verdict::Exec);
    assert_eq!(arguments(&bench), ["/bin/static", "-x  y", "./s1", "one"]);
    assert_eq!(string(&bench.buffers.exec.name), "./s1");
    assert_eq!(&bench.buffers.exec.comm[..3], b"s1\0");
    assert_eq!(string(&bench.buffers.exec.program_guest), "/bin/static");
    assert_eq!(bench.fake.held.len(), 1);
}

#[test]
fn scripts_of_scripts() {
    let mut bench = bench();
    assert_eq!(run(&mut bench, "/tmp/s5"), Verdict::Exec);
    let expected = [
        "/bin/static",
        "-x  y",
        "/tmp/s1",
        "a2",
        "/tmp/s2",
        "a3",
        "/tmp/s3",
        "a4",
        "/tmp/s4",
        "a5",
        "/tmp/s5",
        "one",
    ];
    assert_eq!(arguments(&bench), expected);
    assert_eq!(fails("/tmp/s6"), Errno::ELOOP);
    assert_eq!(fails("/tmp/s7"), Errno::ELOOP);
}

#[test]
fn a_file_that_is_open_for_writing_is_not_executed() {
    for written in ["bin/true", "lib/ld.so", "tmp/s1"] {
        let mut bench = bench();
        bench.fake.give(5, &std::format!("/c/root/{written}"));
        bench.fake.guest.get_mut(&5).expect("given").flags = 1;
        let path = if written == "tmp/s1" { "/tmp/s1" } else { "/bin/true" };
        assert_eq!(run(&mut bench, path), Verdict::Done(Errno::ETXTBSY.result()), "{written}");
        assert!(bench.fake.held.is_empty());
    }
    let mut bench = bench();
    assert_eq!(run(&mut bench, "/bin/true"), Verdict::Exec);
    let id = bench.fake.at("/c/root/bin/true");
    assert_eq!(bench.buffers.exec.inode, (8, 1, id as u64 + 1));
}

#[test]
fn by_descriptor() {
    let at = |fd: i64, path: &str, flags: u32| {
        let mut bench = bench();
        bench.fake.give(5, "/c/root/bin/static").give(6, "/c/root/bin").map_text(PATH, path);
        let arguments = [fd as u64, PATH, ARGV, ENVP, u64::from(flags), 0];
        let verdict = bench.context(|context| plan(context, &call(322, arguments)));
        (verdict, string(&bench.buffers.exec.name), bench.buffers.exec.comm)
    };
    let (verdict, name, comm) = at(5, "", AT_EMPTY_PATH);
    assert_eq!(
        (verdict, name.as_str(), &comm[..7]),
        (Verdict::Exec, "/dev/fd/5", &b"static\0"[..])
    );
    let (verdict, name, comm) = at(6, "true", 0);
    assert_eq!(
        (verdict, name.as_str(), &comm[..5]),
        (Verdict::Exec, "/dev/fd/6/true", &b"true\0"[..])
    );
    let (verdict, name, _) = at(99, "/bin/true", 0);
    assert_eq!((verdict, name.as_str()), (Verdict::Exec, "/bin/true"));
    let errno = |errno: Errno| Verdict::Done(errno.result());
    assert_eq!(at(5, "", 0).0, errno(Errno::ENOENT));
    assert_eq!(at(9, "x", 0).0, errno(Errno::EBADF));
    assert_eq!(at(5, "x", 1 << 30).0, errno(Errno::EINVAL));
    assert_eq!(at(-100, "link", AT_SYMLINK_NOFOLLOW).0, errno(Errno::ELOOP));
    assert_eq!(at(-100, "link", AT_EXECVE_CHECK).0, Verdict::Done(0));
}

#[test]
fn foreign_programs_run_by_an_emulator() {
    let mut bench = bench();
    bench.fake.node("/usr/bin/qemu-aarch64-static", Body::File(elf_file(62, None)), 0o755);
    let emulators = [Emulator { machine: 183, host: b"/usr/bin/qemu-aarch64-static" }];
    bench.world.emulators = &emulators;
    assert_eq!(run(&mut bench, "/bin/arm"), Verdict::Exec);
    let expected = ["/usr/bin/qemu-aarch64-static", "-0", "zero", "/bin/arm", "one"];
    assert_eq!(arguments(&bench), expected);
    assert_eq!(string(&bench.buffers.exec.program_host), "/usr/bin/qemu-aarch64-static");
    assert_eq!(string(&bench.buffers.exec.program_guest), "/bin/arm");
    assert_eq!(&bench.buffers.exec.comm[..4], b"arm\0");
    assert_eq!(bench.fake.held.len(), 1);
}

#[test]
fn emulated_owners_and_modes_decide() {
    let mut bench = bench();
    bench.world.identity = Some(Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 });
    bench.fake.mode("/c/root/bin/static", 0o4755);
    bench.task.creds.uid.real = 7;
    bench.task.creds.uid.effective = 7;
    bench.task.creds.uid.files = 7;
    assert_eq!(run(&mut bench, "/bin/static"), Verdict::Exec);
    assert!(bench.buffers.exec.ids.is_some_and(|ids| ids.uid == 7));
}

#[test]
fn programs_of_32_bits_ask_with_pointers_of_32_bits() {
    let mut bench = bench();
    bench.fake.map_text(PATH, "./s1");
    let argv: Vec<u8> = [PATH + 0x800, PATH + 0x900, 0]
        .iter()
        .flat_map(|word| (*word as u32).to_le_bytes())
        .collect();
    bench.fake.map(0x5000, &argv);
    let call = Call { arch: ARCH_I386, number: 11, arguments: [PATH, 0x5000, ENVP, 0, 0, 0] };
    assert_eq!(bench.context(|context| plan(context, &call)), Verdict::Exec);
    let at = bench.buffers.exec.arguments;
    let word =
        |index: u64| u32::from_le_bytes(bench.fake.peek(at + 4 * index, 4).try_into().unwrap());
    assert_eq!(bench.fake.peek_text(u64::from(word(2))), "./s1");
    assert_eq!((u64::from(word(3)), word(4)), (PATH + 0x900, 0));
}
