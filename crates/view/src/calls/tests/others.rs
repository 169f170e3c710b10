//! Tests of times, lengths, working directories, link targets, file systems.

use super::*;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, UTIME_NOW, UTIME_OMIT};

#[test]
fn working_directories() {
    for make in [plain, root] {
        let mut bench = make();
        let verdict = enter(&mut bench, Op::Chdir, &[T("/bin")]);
        assert_eq!(instead(&bench, verdict, 0), "/c/usr/bin");
        assert_eq!(enter(&mut bench, Op::Chdir, &[T("sub")]), Verdict::Pass);
        let verdict = enter(&mut bench, Op::Chdir, &[T("..")]);
        assert_eq!(instead(&bench, verdict, 0), "/c");
        assert_eq!(enter(&mut bench, Op::Chdir, &[T("/none")]), error(Errno::ENOENT));
        let verdict = enter(&mut bench, Op::Chdir, &[T("/../../vol")]);
        assert_eq!(instead(&bench, verdict, 0), "/vol");
    }
    let mut bench = user(7);
    bench.fake.mode("/c/tmp", 0o700);
    assert_eq!(enter(&mut bench, Op::Chdir, &[T("/tmp")]), error(Errno::EACCES));
    bench.fake.give(3, "/c/tmp").give(4, "/c/usr");
    assert_eq!(enter(&mut bench, Op::Fchdir, &[N(3)]), error(Errno::EACCES));
    assert_eq!(enter(&mut bench, Op::Fchdir, &[N(4)]), Verdict::Pass);
    assert_eq!(enter(&mut bench, Op::Fchdir, &[N(77)]), error(Errno::EBADF));
}

#[test]
fn getcwd_returns_guest_paths() {
    for make in [plain, root] {
        let mut bench = make();
        let buffer = [0xff; 64];
        let get = |bench: &mut Bench<'_>, size| enter(bench, Op::Getcwd, &[B(&buffer), N(size)]);
        assert_eq!(get(&mut bench, 64), Verdict::Done(6));
        assert_eq!(bench.fake.peek_text(TEXTS), "/work");
        assert_eq!(get(&mut bench, 5), error(Errno::ERANGE));
        assert_eq!(get(&mut bench, 6), Verdict::Done(6));
        assert_eq!(enter(&mut bench, Op::Getcwd, &[N(8), N(64)]), error(Errno::EFAULT));
        bench.fake.chdir("/c");
        assert_eq!(get(&mut bench, 64), Verdict::Done(2));
        bench.fake.chdir("/vol");
        get(&mut bench, 64);
        assert_eq!(bench.fake.peek_text(TEXTS), "/vol");
        bench.fake.dir("/host/secret").chdir("/host/secret");
        get(&mut bench, 64);
        assert_eq!(bench.fake.peek_text(TEXTS), "(unreachable)/");
        bench.fake.chdir("/c/work/sub");
        assert_eq!(enter(&mut bench, Op::Rmdir, &[T("/work/sub")]), DONE);
        assert_eq!(get(&mut bench, 64), error(Errno::ENOENT));
        bench.fake.dir("/c/x (deleted)").chdir("/c/x (deleted)");
        get(&mut bench, 64);
        assert_eq!(bench.fake.peek_text(TEXTS), "/x (deleted)");
    }
}

#[test]
fn link_targets() {
    for make in [plain, root] {
        let mut bench = make();
        let buffer = [0xff_u8; 32];
        let read = [T("/etc/link"), B(&buffer), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlink, &read), Verdict::Done(11));
        assert_eq!(bench.fake.peek(TEXTS + 0x2000, 12), *b"/etc/passwd\xff");
        let short = [T("/etc/link"), B(&buffer), N(4)];
        assert_eq!(enter(&mut bench, Op::Readlink, &short), Verdict::Done(4));
        let none = [T("/etc/link"), B(&buffer), N(0)];
        assert_eq!(enter(&mut bench, Op::Readlink, &none), error(Errno::EINVAL));
        let file = [T("/etc/passwd"), B(&buffer), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlink, &file), error(Errno::EINVAL));
        let bad = [T("/etc/link"), N(8), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlink, &bad), error(Errno::EFAULT));
        let at = [N(HERE), T("/bin"), B(&buffer), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlinkat, &at), Verdict::Done(7));
        // The guest's own descriptor of a link, and its own relative name: the kernel's answer is
        // right.
        bench.fake.give(3, "/c/etc/link").give(4, "/c/etc");
        let empty = [N(3), T(""), B(&buffer), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlinkat, &empty), Verdict::Pass);
        let relative = [N(4), T("link"), B(&buffer), N(32)];
        assert_eq!(enter(&mut bench, Op::Readlinkat, &relative), Verdict::Pass);
        assert_eq!(cost(&mut bench, Op::Readlink, &read), ["open", "readlink"]);
    }
}

#[test]
fn lengths() {
    for make in [plain, root] {
        let mut bench = make();
        let truncate = |bench: &mut Bench<'_>, path, length: i64| {
            enter(bench, Op::Truncate, &[T(path), N(length as u64)])
        };
        assert_eq!(truncate(&mut bench, "/etc/link", 2), DONE);
        // The kernel checks the guest's limit if the file becomes longer.
        let longer = truncate(&mut bench, "/etc/link", 77);
        assert_eq!(instead(&bench, longer, 0), "/c/etc/passwd");
        assert_eq!(truncate(&mut bench, "/etc/passwd", -1), error(Errno::EINVAL));
        assert_eq!(truncate(&mut bench, "/etc", 0), error(Errno::EISDIR));
        assert_eq!(truncate(&mut bench, "/ro/f", 0), error(Errno::EROFS));
        assert_eq!(truncate(&mut bench, "/none", 0), error(Errno::ENOENT));
        let mut run = |op, arguments: &[Arg<'_>]| enter_as(&mut bench, Arch::I386, op, arguments).1;
        assert_eq!(run(Op::Truncate64, &[T("/work/file"), N(3), N(0)]), DONE);
        assert_eq!(run(Op::Truncate, &[T("file"), N(0xffff_ffff)]), error(Errno::EINVAL));
        let huge = run(Op::Truncate64, &[T("/work/file"), N(0), N(0x8000_0000)]);
        assert_eq!(huge, error(Errno::EINVAL));
    }
    let mut bench = user(7);
    let refused = enter(&mut bench, Op::Truncate, &[T("/etc/passwd"), N(0)]);
    assert_eq!(refused, error(Errno::EACCES));
    let mut bench = root();
    bench.fake.mode("/vol/data", 0o400);
    assert_eq!(enter(&mut bench, Op::Truncate, &[T("/vol/data"), N(0)]), DONE);
    assert_eq!(bench.fake.tree.nodes[bench.fake.at("/vol/data")].mode, 0o400);
}

fn bytes(words: &[i64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn narrow(words: &[i32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn times_in_every_layout() {
    let cases: &[(Arch, Op, Vec<u8>)] = &[
        (Arch::X86_64, Op::Utime, bytes(&[5, 6])),
        (Arch::X86_64, Op::Utimes, bytes(&[5, 1, 6, 1])),
        (Arch::I386, Op::Utime, narrow(&[5, 6])),
        (Arch::I386, Op::Utimes, narrow(&[5, 1, 6, 1])),
    ];
    for (arch, op, times) in cases {
        let mut bench = root();
        assert_eq!(enter_as(&mut bench, *arch, *op, &[T("/etc/link"), B(times)]).1, DONE);
        assert_eq!(bench.fake.tree.nodes[bench.fake.at("/c/etc/passwd")].times, [5, 6]);
    }
    let cases: &[(Arch, Op, Vec<u8>)] = &[
        (Arch::X86_64, Op::Futimesat, bytes(&[5, 1, 6, 1])),
        (Arch::X86_64, Op::Utimensat, bytes(&[5, 1, 6, 1])),
        (Arch::Aarch64, Op::Utimensat, bytes(&[5, 1, 6, 1])),
        (Arch::I386, Op::Utimensat, narrow(&[5, 1, 6, 1])),
        (Arch::I386, Op::UtimensatTime64, bytes(&[5, 0x7700_0000_0000_0001, 6, 1])),
    ];
    for (arch, op, times) in cases {
        let mut bench = root();
        let arguments = [N(HERE), T("/work/file"), B(times), N(0)];
        assert_eq!(enter_as(&mut bench, *arch, *op, &arguments).1, DONE);
        assert_eq!(bench.fake.tree.nodes[bench.fake.at("/c/work/file")].times, [5, 6]);
    }
}

#[test]
fn times_that_are_refused() {
    let mut bench = root();
    let mut set = |path, times: &[i64], flags: u32| {
        let times = bytes(times);
        enter(&mut bench, Op::Utimensat, &[N(HERE), T(path), B(&times), N(flags.into())])
    };
    assert_eq!(set("/etc/passwd", &[0, 1_000_000_000, 0, 0], 0), error(Errno::EINVAL));
    assert_eq!(set("/etc/passwd", &[0, 0, 0, 0], 1), error(Errno::EINVAL));
    assert_eq!(set("/ro/f", &[0, 0, 0, 0], 0), error(Errno::EROFS));
    let omit = i64::from(UTIME_OMIT);
    assert_eq!(set("/none", &[0, omit, 0, omit], 0), DONE);
    assert_eq!(set("/loose", &[4, 0, 4, 0], AT_SYMLINK_NOFOLLOW), DONE);
    assert_eq!(set("/loose", &[4, 0, 4, 0], 0), error(Errno::ENOENT));
    bench.fake.give(3, "/ro/f");
    let open = |flags: u32| [N(3), N(0), N(0), N(flags.into())];
    assert_eq!(enter(&mut bench, Op::Utimensat, &open(0)), error(Errno::EROFS));
    assert_eq!(enter(&mut bench, Op::Utimensat, &open(AT_EMPTY_PATH)), error(Errno::EINVAL));
    let nowhere = [N(HERE), N(0), N(0), N(0)];
    assert_eq!(enter(&mut bench, Op::Utimensat, &nowhere), error(Errno::EFAULT));
    let mut bench = user(7);
    let mut set = |path, times: &[i64]| {
        let times = bytes(times);
        enter(&mut bench, Op::Utimensat, &[N(HERE), T(path), B(&times), N(0)])
    };
    let now = i64::from(UTIME_NOW);
    assert_eq!(set("/etc/passwd", &[1, 0, 1, 0]), error(Errno::EPERM));
    assert_eq!(set("/etc/passwd", &[0, now, 0, now]), error(Errno::EACCES));
}

#[test]
fn file_systems() {
    let magic = 0xef53_u64.to_le_bytes();
    let mut bench = root();
    let buffer = [0xff_u8; 128];
    assert_eq!(enter(&mut bench, Op::Statfs, &[T("/etc/link"), B(&buffer)]), DONE);
    assert_eq!(bench.fake.peek(TEXTS + 0x2000, 8), magic);
    assert_eq!(bench.fake.peek(TEXTS + 0x2000 + 120, 8), [0xff; 8]);
    assert_eq!(enter(&mut bench, Op::Statfs, &[T("/ro"), B(&buffer)]), DONE);
    assert_eq!(bench.fake.peek(TEXTS + 0x2000 + 80, 1), [1], "read-only");
    assert_eq!(enter(&mut bench, Op::Statfs, &[T("/ro"), N(8)]), error(Errno::EFAULT));
    let mut run = |op, arguments: &[Arg<'_>]| enter_as(&mut bench, Arch::I386, op, arguments).1;
    assert_eq!(run(Op::Statfs64, &[T("/"), N(84), B(&buffer)]), DONE);
    assert_eq!(run(Op::Statfs64, &[T("/"), N(88), B(&buffer)]), error(Errno::EINVAL));
    assert_eq!(run(Op::Statfs, &[T("/"), B(&buffer)]), DONE);
    assert_eq!(bench.fake.peek(TEXTS + 0x2000 + 64, 1), [0xff], "no more than 64 bytes");
}

#[test]
fn handles_and_what_is_unknown() {
    let mut bench = root();
    let handle = [N(HERE), T("/etc/link"), N(0), N(0), N(0)];
    let verdict = enter(&mut bench, Op::NameToHandleAt, &handle);
    assert_eq!(instead(&bench, verdict, 1), "/c/etc/link");
    let attributes = [N(HERE), T("/etc"), N(0), N(0), N(0)];
    assert_eq!(enter(&mut bench, Op::FileGetattr, &attributes), error(Errno::ENOSYS));
    for (arch, number) in [
        (Arch::X86_64.audit(), 500),
        (Arch::X86_64.audit(), 0x4000_0002),
        (Arch::I386.audit(), 9999),
        (7, 2),
    ] {
        let call = Call { arch, number, arguments: [0; 6] };
        let verdict = bench.context(|context| crate::calls::enter(context, &call));
        assert_eq!(verdict, error(Errno::ENOSYS));
    }
}

/// No call that takes a path passes unchanged with an absolute path of the guest.
#[test]
fn no_absolute_path_passes_unchanged() {
    for arch in Arch::ALL {
        for entry in abi::calls::CALLS.iter().filter(|entry| entry.takes_path()) {
            let Some(number) = entry.number(arch) else { continue };
            let mut bench = root();
            bench.fake.file("/host-only", "").map_text(TEXTS, "/host-only");
            let mut call = Call { arch: arch.audit(), number, arguments: [0; 6] };
            for (index, role) in entry.roles.iter().enumerate() {
                call.arguments[index] = match role {
                    role if role.is_path() => TEXTS,
                    abi::calls::Role::Dir => HERE,
                    _ => 0,
                };
            }
            let verdict = bench.context(|context| crate::calls::enter(context, &call));
            match verdict {
                Verdict::Done(_) => {}
                Verdict::Instead(instead, _) => {
                    for (index, role) in entry.roles.iter().enumerate() {
                        assert!(
                            !role.is_path() || instead.arguments[index] != TEXTS,
                            "{}",
                            entry.name
                        );
                    }
                }
                other => panic!("{}: {other:?}", entry.name),
            }
            assert!(bench.fake.tree.get("/host-only").is_some(), "{}", entry.name);
        }
    }
}

/// Host calls for the most frequent calls of programs, without `close`.
#[test]
fn frequent_calls() {
    let stat = [0_u8; 144];
    for make in [plain, root] {
        let mut bench = make();
        let mut cost = |op, arguments: &[Arg<'_>]| cost(&mut bench, op, arguments).join(" ");
        assert_eq!(cost(Op::Stat, &[T("/usr/bin/sh"), B(&stat)]), "open statx");
        assert_eq!(cost(Op::Lstat, &[T("/usr/bin/sh"), B(&stat)]), "open statx");
        assert_eq!(cost(Op::Stat, &[T("/usr/bin/none"), B(&stat)]), "open");
        let at = [N(HERE), T("sub"), B(&stat), N(0)];
        assert_eq!(cost(Op::Newfstatat, &at), "statx");
        assert_eq!(cost(Op::Access, &[T("/usr/bin/none"), N(4)]), "open");
        assert!(cost(Op::Access, &[T("/usr/bin/sh"), N(4)]).len() <= "open access".len());
        assert_eq!(cost(Op::Getcwd, &[B(&stat), N(100)]), "path_of");
        // One link on the way: the components before it are looked at once.
        assert_eq!(cost(Op::Stat, &[T("/bin/sh"), B(&stat)]), "open readlink open statx");
    }
}

#[test]
fn watches_are_set_on_the_host_file() {
    let watch = |bench: &mut Bench<'_>, path: &str, mask: u64| {
        enter(bench, Op::InotifyAddWatch, &[N(3), T(path), N(mask)])
    };
    for make in [plain, root] {
        let mut bench = make();
        let verdict = watch(&mut bench, "/etc/link", 2);
        assert_eq!(instead(&bench, verdict, 1), "/c/etc/passwd");
        let verdict = watch(&mut bench, "/etc/link", 0x0200_0002);
        assert_eq!(instead(&bench, verdict, 1), "/c/etc/link");
        assert_eq!(watch(&mut bench, "file", 2), Verdict::Pass);
        assert_eq!(watch(&mut bench, "/etc/none", 2), error(Errno::ENOENT));
    }
    let mut bench = user(7);
    bench.fake.mode("/c/etc/passwd", 0o600);
    assert_eq!(watch(&mut bench, "/etc/passwd", 2), error(Errno::EACCES));
}
