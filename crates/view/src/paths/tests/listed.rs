//! Tests of listings of directories with bindings that have no mount point.

use super::*;
use crate::calls::{enter, leave};
use crate::testing::tree::Body;
use crate::verdict::{After, Call, Verdict};
use std::format;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const BUFFER: u64 = 0x8000;

/// `/data` and `/etc/hosts` exist; `/extra` (a directory) and `/pipe` do not.
const HALF: [Binding<'static>; 5] = [
    binding("/", "/c", Kind::Tree),
    binding("/data", "/v", Kind::Host),
    binding("/etc/hosts", "/run/hosts", Kind::Host),
    binding("/extra", "/w", Kind::Host),
    binding("/pipe", "/run/pipe", Kind::Host),
];

fn half(position: u64) -> Bench<'static> {
    let mut fake = fake();
    fake.node("/run/pipe", Body::Fifo, 0o600);
    fake.give(3, "/c").give(4, "/c/usr").give(5, "/c/etc").give(6, "/c/etc/passwd");
    for fd in 3..7 {
        fake.file(&format!("/proc/42/fdinfo/{fd}"), &format!("pos:\t{position}\nflags:\t0\n"));
    }
    fake.map(BUFFER, &[0xee; 4096]);
    Bench::new(fake, &HALF)
}

fn call(arch: u32, number: u32, fd: u64, size: u64) -> Call {
    Call { arch, number, arguments: [fd, BUFFER, size, 0, 0, 0] }
}

/// Name, type and length of the entries of `getdents64`.
fn wide(bytes: &[u8]) -> Vec<(String, u8, usize)> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let size = usize::from(u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]));
        let name = bytes[at + 19..at + size].split(|byte| *byte == 0).next().unwrap();
        entries.push((String::from_utf8(name.to_vec()).unwrap(), bytes[at + 18], size));
        at += size;
    }
    entries
}

#[test]
fn missing_mount_points_are_listed() {
    let mut bench = half(0);
    let asked = call(X86_64, 217, 3, 4096);
    let verdict = bench.context(|context| enter(context, &asked));
    let Verdict::Instead(done, After::Listing { room }) = verdict else { panic!("{verdict:?}") };
    assert_eq!(done.arguments[1..3], [BUFFER + u64::from(room), 4096 - u64::from(room)]);
    let after = After::Listing { room };
    assert_eq!(bench.context(|context| leave(context, after, &asked, 100)), 100 + i64::from(room));
    let entries = wide(&bench.fake.peek(BUFFER, room as usize));
    assert_eq!(entries, [("extra".into(), 4, 32), ("pipe".into(), 1, 24)]);
    assert_eq!(bench.fake.peek(BUFFER + u64::from(room), 1), [0xee]);
    assert_eq!(bench.context(|context| leave(context, after, &asked, -22)), -22);
    // The inode is that of the bound file.
    let inode = u64::from_ne_bytes(bench.fake.peek(BUFFER, 8).try_into().unwrap());
    assert_eq!(inode, bench.fake.at("/w") as u64 + 1);
}

#[test]
fn old_layouts() {
    for (arch, number, word) in [(X86_64, 78, 8), (I386, 141, 4)] {
        let mut bench = half(0);
        let asked = call(arch, number, 3, 4096);
        let verdict = bench.context(|context| enter(context, &asked));
        let Verdict::Instead(_, after @ After::Listing { room }) = verdict else { panic!() };
        assert!(bench.context(|context| leave(context, after, &asked, 0)) > 0);
        let bytes = bench.fake.peek(BUFFER, room as usize);
        let size = usize::from(u16::from_ne_bytes([bytes[2 * word], bytes[2 * word + 1]]));
        assert_eq!(size % word, 0);
        assert_eq!(&bytes[2 * word + 2..2 * word + 8], b"extra\0");
        assert_eq!((bytes[size - 1], bytes[room as usize - 1]), (4, 1));
    }
}

#[test]
fn nothing_to_add() {
    let asked = |bench: &mut Bench<'_>, fd, size| {
        bench.context(|context| enter(context, &call(X86_64, 217, fd, size)))
    };
    let mut bench = half(0);
    assert_eq!(asked(&mut bench, 4, 4096), Verdict::Pass, "no bindings there");
    assert_eq!(asked(&mut bench, 5, 4096), Verdict::Pass, "it has its mount point");
    assert_eq!(asked(&mut bench, 6, 4096), Verdict::Pass, "a file");
    assert_eq!(asked(&mut bench, 9, 4096), Verdict::Pass, "nothing");
    assert_eq!(asked(&mut bench, 3, 100), Verdict::Pass, "no room");
    let verdict = asked(&mut bench, 3, 24 + 280);
    assert!(matches!(verdict, Verdict::Instead(_, After::Listing { room: 24 })), "{verdict:?}");
    assert_eq!(asked(&mut half(77), 3, 4096), Verdict::Pass, "in the middle");
    assert!(bench.fake.held.is_empty());
}
