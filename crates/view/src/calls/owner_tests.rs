//! Tests of ids, owners, modes, devices and attributes, by calls as a program makes them.

use super::enter;
use crate::identity::Credentials;
use crate::testing::{Bench, Fake, binding, read_only};
use crate::verdict::{Call, Verdict};
use crate::world::{Binding, Identity, Kind};
use abi::calls::{Arch, Op};
use linux_raw_sys::general::{O_PATH, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFREG};
use std::vec::Vec;

const AT: u64 = -100_i64 as u64;
const TABLE: &[Binding<'static>] = &[
    binding("/", "/c", Kind::Tree),
    binding("/home", "/h", Kind::Host),
    read_only("/ro", "/r", Kind::Host),
];

/// A container with emulated root and a few files.
fn bench() -> Bench<'static> {
    let mut fake = Fake::new();
    fake.file("/c/f", "x").dir("/c/d").link("/c/l", "f").dir("/c/tmp").file("/h/mine", "x");
    fake.file("/r/f", "x").dir("/c/home").dir("/c/ro").mode("/c/tmp", 0o1777);
    for node in &mut fake.tree.nodes {
        (node.uid, node.gid) = (1000, 1000);
    }
    let mut bench = Bench::new(fake, TABLE);
    bench.fake.chdir("/c");
    bench.world.identity = Some(Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 });
    bench
}

const PATH: u64 = 0x1000;
const NAME: u64 = 0x3000;
const OUT: u64 = 0x5000;

/// Makes a call; `{path}` arguments are to be [`PATH`].
fn call_on(bench: &mut Bench<'_>, arch: Arch, op: Op, path: &str, arguments: &[u64]) -> Verdict {
    bench.fake.map_text(PATH, path).map(OUT, &[0; 300]);
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let number = op.entry().number(arch).expect("there on this architecture");
    let call = Call { arch: arch.audit(), number, arguments: all };
    loop {
        match bench.context(|context| enter(context, &call)) {
            Verdict::CopyUp => bench.context(|context| {
                let path = context.buffers.host;
                crate::Host::copy_up(context.backend, path.as_c_str()).expect("copies");
            }),
            verdict => {
                assert!(bench.fake.held.is_empty(), "{op:?} left something open");
                return verdict;
            }
        }
    }
}

fn call(bench: &mut Bench<'_>, op: Op, path: &str, arguments: &[u64]) -> i64 {
    match call_on(bench, Arch::X86_64, op, path, arguments) {
        Verdict::Done(result) => result,
        other => panic!("{op:?} {path}: {other:?}"),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    device: u64,
}

/// `lstat`.
fn seen(bench: &mut Bench<'_>, path: &str) -> Seen {
    assert_eq!(call(bench, Op::Lstat, path, &[PATH, OUT]), 0, "{path}");
    let bytes = bench.fake.peek(OUT, 144);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    Seen { mode: word(24), owner: (word(28), word(32)), links: long(16), device: long(40) }
}

fn become_user(bench: &mut Bench<'_>, id: u32) {
    bench.task.creds = Credentials::new(id, id, crate::identity::Groups::NONE);
}

const EPERM: i64 = -1;
const EBADF: i64 = -9;
const EEXIST: i64 = -17;
const EACCES: i64 = -13;
const EINVAL: i64 = -22;
const EROFS: i64 = -30;
const ENODATA: i64 = -61;
const EOPNOTSUPP: i64 = -95;

#[test]
fn an_ordinary_stat_asks_twice() {
    let mut bench = bench();
    let owner = (0, 0);
    assert_eq!(seen(&mut bench, "/f"), Seen { mode: S_IFREG | 0o644, owner, links: 1, device: 0 });
    assert_eq!(bench.fake.calls(), ["open", "statx"]);
}

#[test]
fn owners_and_modes_read_back_as_set() {
    let mut bench = bench();
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 6]), 0);
    assert_eq!(call(&mut bench, Op::Chmod, "/f", &[PATH, 0o4711]), 0);
    assert_eq!(seen(&mut bench, "/f").owner, (5, 6));
    assert_eq!(seen(&mut bench, "/f").mode, S_IFREG | 0o4711);
    assert_eq!(call(&mut bench, Op::Fchownat, "f", &[AT, PATH, u64::from(u32::MAX), 9, 0]), 0);
    // Even root's write removes the setuid bit.
    assert_eq!(seen(&mut bench, "/f").mode, S_IFREG | 0o711);
    assert_eq!(seen(&mut bench, "/f").owner, (5, 9));
    assert_eq!(call(&mut bench, Op::Lchown, "/l", &[PATH, 3, 4]), 0);
    assert_eq!(seen(&mut bench, "/l").owner, (3, 4));
    assert_eq!(seen(&mut bench, "/f").owner, (5, 9));
    let nofollow = 0x100;
    assert_eq!(call(&mut bench, Op::Fchmodat2, "/l", &[AT, PATH, 0o600, nofollow]), EOPNOTSUPP);
    assert_eq!(call(&mut bench, Op::Fchmodat2, "/l", &[AT, PATH, 0o600, 7]), EINVAL);
    assert_eq!(call(&mut bench, Op::Chmod, "/ro/f", &[PATH, 0o600]), EROFS);
}

#[test]
fn a_descriptor_that_only_names_changes_nothing() {
    let mut bench = bench();
    bench.fake.give(3, "/c/f");
    bench.fake.guest.get_mut(&3).expect("given").flags = O_PATH;
    bench.fake.map_text(NAME, "user.x");
    for (op, arguments) in [
        (Op::Fchmod, [3, 0o600, 0, 0, 0]),
        (Op::Fchown, [3, 5, 6, 0, 0]),
        (Op::Fgetxattr, [3, NAME, 0, 0, 0]),
        (Op::Fsetxattr, [3, NAME, 0, 0, 0]),
        (Op::Fremovexattr, [3, NAME, 0, 0, 0]),
        (Op::Flistxattr, [3, 0, 0, 0, 0]),
        (Op::Fchmod, [9, 0o600, 0, 0, 0]),
        (Op::Utimensat, [3, 0, 0, 0, 0]),
    ] {
        assert_eq!(call(&mut bench, op, "", &arguments), EBADF, "{op:?}");
    }
    assert_eq!(call(&mut bench, Op::Fstat, "", &[3, OUT]), 0);
    assert_eq!(call(&mut bench, Op::Fchownat, "", &[3, PATH, 5, 6, 0x1000]), 0);
    assert_eq!(seen(&mut bench, "/f").owner, (5, 6));
}

#[test]
fn all_stat_calls_agree() {
    let mut bench = bench();
    bench.fake.give(3, "/c/f");
    assert_eq!(call(&mut bench, Op::Fchown, "", &[3, 5, 6]), 0);
    assert_eq!(call(&mut bench, Op::Fchmod, "", &[3, 0o2]), 0);
    for (op, path, arguments) in [
        (Op::Stat, "/l", [PATH, OUT, 0, 0]),
        (Op::Fstat, "", [3, OUT, 0, 0]),
        (Op::Newfstatat, "", [3, PATH, OUT, 0x1000]),
        (Op::Newfstatat, "f", [AT, PATH, OUT, 0]),
    ] {
        assert_eq!(call(&mut bench, op, path, &arguments), 0, "{op:?}");
        assert_eq!(bench.fake.peek(OUT + 24, 12), [2, 128, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0], "{op:?}");
    }
    assert_eq!(call(&mut bench, Op::Statx, "/f", &[AT, PATH, 0, 0xfff, OUT]), 0);
    assert_eq!(bench.fake.peek(OUT + 20, 10), [5, 0, 0, 0, 6, 0, 0, 0, 2, 128]);
    let verdict = call_on(&mut bench, Arch::I386, Op::Stat64, "/f", &[PATH, OUT]);
    assert_eq!(verdict, Verdict::Done(0));
    assert_eq!(bench.fake.peek(OUT + 16, 16), [2, 128, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0]);
}

#[test]
fn users_change_only_their_own_files() {
    let mut bench = bench();
    assert_eq!(call(&mut bench, Op::Chown, "/d", &[PATH, 5, 5]), 0);
    become_user(&mut bench, 5);
    assert_eq!(call(&mut bench, Op::Chmod, "/f", &[PATH, 0o777]), EPERM);
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 5]), EPERM);
    assert_eq!(call(&mut bench, Op::Chmod, "/d", &[PATH, 0o2700]), 0);
    assert_eq!(seen(&mut bench, "/d").mode, S_IFDIR | 0o2700);
    assert_eq!(call(&mut bench, Op::Access, "/f", &[PATH, 4]), 0);
    assert_eq!(call(&mut bench, Op::Access, "/f", &[PATH, 2]), EACCES);
    assert_eq!(call(&mut bench, Op::Access, "/d", &[PATH, 7]), 0);
    become_user(&mut bench, 6);
    assert_eq!(call(&mut bench, Op::Lstat, "/d/x", &[PATH, OUT]), EACCES);
    assert_eq!(call(&mut bench, Op::Mknod, "/x", &[PATH, 0o644, 0]), EACCES);
    assert_eq!(call(&mut bench, Op::Mknod, "/f", &[PATH, 0o644, 0]), EEXIST);
    assert_eq!(call(&mut bench, Op::Mknod, "/tmp/x", &[PATH, 0o666, 0]), 0);
    assert_eq!(seen(&mut bench, "/tmp/x").owner, (6, 6));
    assert_eq!(seen(&mut bench, "/tmp/x").mode, S_IFREG | 0o644);
}

#[test]
fn access_checks_the_real_user() {
    let mut bench = bench();
    assert_eq!(call(&mut bench, Op::Setresuid, "", &[5, 0, 0]), 0);
    assert_eq!(call(&mut bench, Op::Access, "/f", &[PATH, 2]), EACCES);
    assert_eq!(call(&mut bench, Op::Faccessat2, "/f", &[AT, PATH, 2, 0x200]), 0);
    assert_eq!(call(&mut bench, Op::Faccessat2, "/f", &[AT, PATH, 1, 0x200]), EACCES);
    assert_eq!(call(&mut bench, Op::Access, "/ro/f", &[PATH, 4]), 0);
    assert_eq!(call(&mut bench, Op::Faccessat2, "/ro/f", &[AT, PATH, 2, 0x200]), EROFS);
    assert_eq!(call(&mut bench, Op::Access, "/f", &[PATH, 8]), EINVAL);
}

#[test]
fn devices_are_placeholders() {
    let mut bench = bench();
    let mode = u64::from(S_IFBLK | 0o660);
    assert_eq!(call(&mut bench, Op::Mknod, "/sda", &[PATH, mode, 0x803]), 0);
    let disk = Seen { mode: S_IFBLK | 0o640, owner: (0, 0), links: 1, device: 0x803 };
    assert_eq!(seen(&mut bench, "/sda"), disk);
    assert_eq!(call(&mut bench, Op::Mknod, "/p", &[PATH, u64::from(S_IFIFO | 0o600), 0]), 0);
    assert_eq!(call(&mut bench, Op::Chown, "/p", &[PATH, 5, 5]), 0);
    assert_eq!(seen(&mut bench, "/p").owner, (5, 5));
    assert_eq!(call(&mut bench, Op::Mknod, "/x", &[PATH, u64::from(S_IFDIR), 0]), EPERM);
    become_user(&mut bench, 5);
    assert_eq!(call(&mut bench, Op::Mknod, "/tmp/n", &[PATH, u64::from(S_IFCHR), 0x103]), EPERM);
}

#[test]
fn files_of_the_image_are_copied_before_they_change() {
    let mut bench = bench();
    let id = bench.fake.at("/c/f");
    bench.fake.tree.nodes[id].links = 3;
    bench.fake.image.insert(id as u64 + 1, 1);
    assert_eq!(seen(&mut bench, "/f").links, 1);
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 0, 0]), 0);
    assert!(bench.fake.copied.is_empty());
    bench.fake.give(3, "/c/f");
    assert_eq!(call(&mut bench, Op::Fchmod, "", &[3, 0o600]), 0);
    assert_eq!(bench.fake.copied, ["/c/f"]);
    assert_eq!(bench.fake.tree.nodes[id].mode, 0o644);
    assert_eq!(seen(&mut bench, "/f").mode, S_IFREG | 0o600);
}

#[test]
fn a_volume_belongs_to_the_containers_user() {
    let mut bench = bench();
    bench.world.identity = Some(Identity { host_uid: 1000, host_gid: 1000, uid: 7, gid: 8 });
    assert_eq!(seen(&mut bench, "/home/mine").owner, (7, 8));
    assert_eq!(seen(&mut bench, "/f").owner, (0, 0));
    bench.fake.give(3, "/h/mine");
    assert_eq!(call(&mut bench, Op::Fstat, "", &[3, OUT]), 0);
    assert_eq!(bench.fake.peek(OUT + 28, 8), [7, 0, 0, 0, 8, 0, 0, 0]);
}

#[test]
fn attributes_of_root_are_kept_under_another_name() {
    let mut bench = bench();
    bench.fake.map_text(NAME, "security.capability").map(OUT, b"");
    bench.fake.map(0x7000, b"value");
    let set = [PATH, NAME, 0x7000, 5, 0];
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), 0);
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 5]), 0);
    let id = bench.fake.at("/c/f");
    let names: Vec<_> = bench.fake.tree.nodes[id].attributes.keys().cloned().collect();
    assert_eq!(names, [&b"user.coracle.owner"[..], b"user.coracle.x.security.capability"]);
    assert_eq!(call(&mut bench, Op::Getxattr, "/l", &[PATH, NAME, OUT, 100]), 5);
    assert_eq!(bench.fake.peek(OUT, 5), b"value");
    assert_eq!(call(&mut bench, Op::Listxattr, "/f", &[PATH, OUT, 100]), 20);
    assert_eq!(bench.fake.peek(OUT, 20), b"security.capability\0");
    become_user(&mut bench, 5);
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), EPERM);
    bench.fake.map_text(NAME, "user.coracle.owner");
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &[PATH, NAME, OUT, 100]), ENODATA);
    assert_eq!(call(&mut bench, Op::Removexattr, "/f", &[PATH, NAME]), ENODATA);
    bench.fake.map_text(NAME, "user.mine");
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), 0);
    become_user(&mut bench, 6);
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), EACCES);
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &[PATH, NAME, OUT, 100]), 5);
}

#[test]
fn the_mark_stands_for_attributes_of_root() {
    let mut bench = bench();
    bench.fake.map_text(NAME, "trusted.foo").map(OUT, b"");
    bench.fake.map(0x7000, b"value");
    let get = [PATH, NAME, OUT, 100];
    let id = bench.fake.at("/c/f");
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &get), ENODATA);
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &[PATH, NAME, 0x7000, 5, 0]), 0);
    assert_eq!(bench.fake.tree.nodes[id].mode & 0o1000, 0o1000);
    assert_eq!(seen(&mut bench, "/f").mode, S_IFREG | 0o644);
    // A file that would need no record otherwise keeps it.
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 5]), 0);
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 0, 0]), 0);
    assert_eq!(call(&mut bench, Op::Chmod, "/f", &[PATH, 0o600]), 0);
    assert_eq!(seen(&mut bench, "/f").mode, S_IFREG | 0o600);
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &get), 5);
    assert_eq!(call(&mut bench, Op::Removexattr, "/f", &[PATH, NAME]), 0);
    assert_eq!(call(&mut bench, Op::Chmod, "/f", &[PATH, 0o640]), 0);
    assert_eq!(bench.fake.tree.nodes[id].mode & 0o7777, 0o640);
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &get), ENODATA);
}

#[test]
fn a_container_in_the_container_can_record_owners() {
    let mut bench = bench();
    bench.fake.map_text(NAME, "user.coracle.owner").map(OUT, b"");
    bench.fake.map(0x7000, b"inner");
    let set = [PATH, NAME, 0x7000, 5, 0];
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 5]), 0);
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), 0);
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &[PATH, NAME, OUT, 100]), 5);
    assert_eq!(bench.fake.peek(OUT, 5), b"inner");
    assert_eq!(seen(&mut bench, "/f").owner, (5, 5));
    assert_eq!(call(&mut bench, Op::Removexattr, "/f", &[PATH, NAME]), 0);
    assert_eq!(call(&mut bench, Op::Getxattr, "/f", &[PATH, NAME, OUT, 100]), ENODATA);
    assert_eq!(seen(&mut bench, "/f").owner, (5, 5));
    bench.world.identity = None;
    assert_eq!(call(&mut bench, Op::Setxattr, "/f", &set), EOPNOTSUPP);
}

#[test]
fn attributes_of_root_on_links_are_kept_in_the_log() {
    let mut bench = bench();
    bench.fake.map_text(NAME, "trusted.foo").map(OUT, b"");
    bench.fake.map(0x7000, b"value");
    let set = [PATH, NAME, 0x7000, 5, 0];
    assert_eq!(call(&mut bench, Op::Lsetxattr, "/l", &set), 0);
    assert_eq!(call(&mut bench, Op::Lgetxattr, "/l", &[PATH, NAME, OUT, 100]), 5);
    assert_eq!(bench.fake.peek(OUT, 5), b"value");
    assert_eq!(call(&mut bench, Op::Getxattr, "/l", &[PATH, NAME, OUT, 100]), ENODATA);
    assert_eq!(call(&mut bench, Op::Lchown, "/l", &[PATH, 5, 5]), 0);
    assert_eq!(call(&mut bench, Op::Llistxattr, "/l", &[PATH, OUT, 100]), 12);
    assert_eq!(bench.fake.peek(OUT, 12), b"trusted.foo\0");
    assert_eq!(call(&mut bench, Op::Lremovexattr, "/l", &[PATH, NAME]), 0);
    assert_eq!(call(&mut bench, Op::Lremovexattr, "/l", &[PATH, NAME]), ENODATA);
    assert_eq!(call(&mut bench, Op::Llistxattr, "/l", &[PATH, OUT, 100]), 0);
    bench.fake.map_text(NAME, "user.foo");
    assert_eq!(call(&mut bench, Op::Lsetxattr, "/l", &set), EPERM);
    become_user(&mut bench, 5);
    bench.fake.map_text(NAME, "trusted.foo");
    assert_eq!(call(&mut bench, Op::Lsetxattr, "/l", &set), EPERM);
}

#[test]
fn groups_and_ids_are_read_back() {
    let mut bench = bench();
    bench.fake.map(0x7000, &[7, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(call(&mut bench, Op::Setgroups, "", &[2, 0x7000]), 0);
    assert_eq!(call(&mut bench, Op::Getgroups, "", &[0, 0]), 2);
    assert_eq!(call(&mut bench, Op::Getgroups, "", &[1, OUT]), EINVAL);
    assert_eq!(call(&mut bench, Op::Getgroups, "", &[9, OUT]), 2);
    assert_eq!(bench.fake.peek(OUT, 8), [3, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(call(&mut bench, Op::Setresgid, "", &[70_000, 4, 5]), 0);
    // Sixteen bits in i386's oldest calls.
    let verdict = call_on(&mut bench, Arch::I386, Op::Getgid, "", &[]);
    assert_eq!(verdict, Verdict::Done(65_534));
    let verdict = call_on(&mut bench, Arch::I386, Op::Setreuid, "", &[0xffff, 9]);
    assert_eq!(verdict, Verdict::Done(0));
    assert_eq!(call(&mut bench, Op::Getuid, "", &[]), 0);
    assert_eq!(call(&mut bench, Op::Geteuid, "", &[]), 9);
    assert_eq!(call(&mut bench, Op::Setgroups, "", &[0, 0]), EPERM);
}

#[test]
fn capget_returns_the_emulated_sets() {
    let mut bench = bench();
    let header = [0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0];
    bench.fake.map(0x7000, &header);
    assert_eq!(call(&mut bench, Op::Capget, "", &[0x7000, OUT]), 0);
    let root = bench.fake.peek(OUT, 24);
    assert_eq!(root[..12], [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0]);
    assert_eq!(root[12..], [255, 1, 0, 0, 255, 1, 0, 0, 0, 0, 0, 0]);
    bench.fake.map(0x7100, &[0; 24]);
    assert_eq!(call(&mut bench, Op::Capset, "", &[0x7000, 0x7100]), 0);
    assert_eq!(call(&mut bench, Op::Chown, "/f", &[PATH, 5, 5]), EPERM);
    bench.fake.map(0x7000, &[0; 8]);
    assert_eq!(call(&mut bench, Op::Capget, "", &[0x7000, 0]), 0);
    assert_eq!(bench.fake.peek(0x7000, 4), header[..4]);
}
