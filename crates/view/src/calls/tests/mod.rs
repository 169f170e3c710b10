//! Tests of the rules for calls on files, with a host in memory: the guest's result, the calls of
//! the host, and the path that the kernel gets instead of the guest's.

mod moved;
mod names;
mod opening;
mod others;
mod remembered;
mod shared;

use crate::testing::{Bench, Fake, binding, read_only};
use crate::world::{Binding, Identity, Kind};
use crate::{Call, Errno, Verdict};
use abi::calls::{Arch, Op};
use std::string::String;
use std::vec::Vec;

/// Address of the first string of a call; the next ones follow.
const TEXTS: u64 = 0x1000;

/// `AT_FDCWD`.
const HERE: u64 = -100_i32 as u32 as u64;

/// The host's files of a small container: a tree with links, a volume, a read-only one.
fn fake() -> Fake {
    let mut fake = Fake::new();
    fake.dir("/c/usr/bin").dir("/c/tmp").dir("/c/work/sub").dir("/c/mnt").dir("/vol").dir("/ro/d");
    fake.file("/c/usr/bin/sh", "#!").file("/c/etc/passwd", "root").file("/ro/f", "r");
    fake.file("/vol/data", "1").file("/c/work/file", "text");
    fake.link("/c/bin", "usr/bin").link("/c/etc/link", "/etc/passwd").link("/c/loose", "nowhere");
    fake.mode("/c/tmp", 0o777);
    fake.chdir("/c/work");
    fake
}

const TABLE: &[Binding<'static>] = &[
    binding("/", "/c", Kind::Tree),
    read_only("/ro", "/ro", Kind::Host),
    binding("/vol", "/vol", Kind::Host),
];

const IDENTITY: Identity = Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 };

/// Without emulated ids.
fn plain() -> Bench<'static> {
    Bench::new(fake(), TABLE)
}

/// As emulated root.
fn root() -> Bench<'static> {
    let mut bench = plain();
    bench.world.identity = Some(IDENTITY);
    bench
}

/// As an emulated user.
fn user(uid: u32) -> Bench<'static> {
    let mut bench = root();
    bench.task.creds = crate::identity::Credentials::new(uid, uid, crate::identity::Groups::NONE);
    bench
}

/// An argument of a call.
#[derive(Clone, Copy)]
enum Arg<'a> {
    N(u64),
    T(&'a str),
    /// Bytes in memory.
    B(&'a [u8]),
}
use Arg::{B, N, T};

/// The call, with its strings put into the guest's memory.
fn prepare(bench: &mut Bench<'_>, arch: Arch, op: Op, arguments: &[Arg<'_>]) -> Call {
    let mut call = Call {
        arch: arch.audit(),
        number: op.entry().number(arch).expect("a call of this architecture"),
        arguments: [0xdead_beef_dead_beef; 6],
    };
    for (index, argument) in arguments.iter().enumerate() {
        let at = TEXTS + 0x2000 * index as u64;
        call.arguments[index] = match argument {
            N(number) => *number,
            T(text) => {
                bench.fake.map_text(at, text);
                at
            }
            B(bytes) => {
                bench.fake.map(at, bytes);
                at
            }
        };
    }
    call
}

/// Makes a call as the backend does: copies a file up if that is asked for. Checks that no
/// descriptor stays open.
fn enter_as(bench: &mut Bench<'_>, arch: Arch, op: Op, arguments: &[Arg<'_>]) -> (Call, Verdict) {
    let call = prepare(bench, arch, op, arguments);
    for _ in 0..3 {
        let verdict = bench.context(|context| super::enter(context, &call));
        if verdict != Verdict::CopyUp {
            return (call, verdict);
        }
        assert!(bench.fake.held.is_empty(), "{}: left open", op.name());
        let path = bench.buffers.host;
        crate::Host::copy_up(&mut bench.fake, path.as_c_str()).expect("a file to copy");
    }
    panic!("{}: copied again and again", op.name());
}

fn enter(bench: &mut Bench<'_>, op: Op, arguments: &[Arg<'_>]) -> Verdict {
    let verdict = enter_as(bench, Arch::X86_64, op, arguments).1;
    assert!(bench.fake.held.is_empty(), "{}: left open", op.name());
    verdict
}

/// The host path that the kernel gets instead of the path at `index`.
fn instead(bench: &Bench<'_>, verdict: Verdict, index: usize) -> String {
    match verdict {
        Verdict::Instead(call, _) => bench.fake.peek_text(call.arguments[index]),
        other => panic!("not instead: {other:?}"),
    }
}

const DONE: Verdict = Verdict::Done(0);

const fn error(errno: Errno) -> Verdict {
    Verdict::Done(errno.result())
}

/// The host calls for one call of the guest.
fn cost(bench: &mut Bench<'_>, op: Op, arguments: &[Arg<'_>]) -> Vec<&'static str> {
    bench.fake.calls();
    enter(bench, op, arguments);
    bench.fake.calls()
}
