//! Tests of the open family.

use super::*;
use crate::verdict::After;
use linux_raw_sys::general::{
    O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC,
    O_WRONLY,
};

fn open(bench: &mut Bench<'_>, path: &str, flags: u32) -> Verdict {
    enter(bench, Op::Openat, &[N(HERE), T(path), N(flags.into()), N(0o644)])
}

/// The record of a file of the host.
fn record(bench: &Bench<'_>, path: &str) -> String {
    let record = &bench.fake.tree.nodes[bench.fake.at(path)].attributes;
    String::from_utf8(record[&b"user.coracle.owner"[..]].clone()).unwrap()
}

#[test]
fn absolute_paths_become_host_paths() {
    for make in [plain, root, || user(7)] {
        let mut bench = make();
        let verdict = open(&mut bench, "/bin/sh", O_RDONLY);
        assert_eq!(instead(&bench, verdict, 1), "/c/usr/bin/sh");
        let verdict = open(&mut bench, "/etc/link", O_RDONLY);
        assert_eq!(instead(&bench, verdict, 1), "/c/etc/passwd");
        let verdict = open(&mut bench, "/vol/data", O_RDWR);
        assert!(matches!(verdict, Verdict::Instead(..)) == (bench.task.creds.uid.files != 7));
        assert_eq!(open(&mut bench, "/vol/none", O_RDONLY), error(Errno::ENOENT));
        assert_eq!(open(&mut bench, "/etc/passwd/x", O_RDONLY), error(Errno::ENOTDIR));
        assert_eq!(open(&mut bench, "../../../etc/none", O_RDONLY), error(Errno::ENOENT));
        let verdict = open(&mut bench, "../../../etc/passwd", O_RDONLY);
        assert_eq!(instead(&bench, verdict, 1), "/c/etc/passwd");
    }
}

#[test]
fn paths_that_mean_the_same_pass() {
    for make in [plain, root] {
        let mut bench = make();
        assert_eq!(open(&mut bench, "file", O_RDONLY), Verdict::Pass);
        assert_eq!(open(&mut bench, "file", O_WRONLY | O_TRUNC), Verdict::Pass);
        assert_eq!(open(&mut bench, "new", O_WRONLY | O_CREAT), Verdict::Pass);
        assert_eq!(open(&mut bench, "sub", O_DIRECTORY), Verdict::Pass);
        bench.fake.give(5, "/c/usr");
        let verdict = enter(&mut bench, Op::Openat, &[N(5), T("bin/sh"), N(0), N(0)]);
        assert_eq!(verdict, Verdict::Pass);
    }
}

#[test]
fn reading_a_single_name_costs_one_call() {
    let mut bench = root();
    bench.fake.calls();
    assert_eq!(open(&mut bench, "file", O_RDONLY | O_NOFOLLOW), Verdict::Pass);
    assert_eq!(bench.fake.calls(), ["statx"]);
    // A file without blocks may be in `/proc`, so everything is looked up.
    assert_eq!(open(&mut bench, "sub", O_DIRECTORY), Verdict::Pass);
    assert!(bench.fake.calls().len() > 1);
}

#[test]
fn every_form_finds_its_arguments() {
    let how = |flags: u64| {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&flags.to_le_bytes());
        bytes
    };
    for arch in Arch::ALL {
        let mut bench = root();
        let get = |bench: &mut Bench<'_>, op: Op, arguments: &[Arg<'_>], at: usize| {
            let verdict = enter_as(bench, arch, op, arguments).1;
            instead(bench, verdict, at)
        };
        if arch != Arch::Aarch64 {
            assert_eq!(get(&mut bench, Op::Open, &[T("/bin/sh"), N(0), N(0)], 0), "/c/usr/bin/sh");
            assert_eq!(get(&mut bench, Op::Creat, &[T("/bin/a"), N(0o600)], 0), "/c/usr/bin/a");
        }
        let here = HERE | (0xffff_ffff_0000_0000 * u64::from(arch != Arch::I386));
        let arguments = [N(here), T("/bin/sh"), N(0), N(0)];
        assert_eq!(get(&mut bench, Op::Openat, &arguments, 1), "/c/usr/bin/sh");
        let wanted = how(u64::from(O_RDWR));
        let arguments = [N(here), T("/bin/sh"), B(&wanted), N(24)];
        let (_, verdict) = enter_as(&mut bench, arch, Op::Openat2, &arguments);
        assert_eq!(instead(&bench, verdict, 1), "/c/usr/bin/sh");
        let Verdict::Instead(call, _) = verdict else { unreachable!() };
        assert_eq!(bench.fake.peek(call.arguments[2], 24), wanted);
        // Bits that differ between architectures.
        let no_follow = if arch == Arch::Aarch64 { 0o100_000 } else { 0o400_000 };
        let arguments = [N(here), T("/etc/link"), N(no_follow), N(0)];
        assert_eq!(get(&mut bench, Op::Openat, &arguments, 1), "/c/etc/link");
    }
}

#[test]
fn structures_of_openat2_are_checked() {
    let mut bench = root();
    let mut try_how = |words: [u64; 4], size: u64| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        enter(&mut bench, Op::Openat2, &[N(HERE), T("/bin/sh"), B(&bytes), N(size)])
    };
    assert_eq!(try_how([0; 4], 23), error(Errno::EINVAL));
    assert_eq!(try_how([0; 4], 5000), error(Errno::E2BIG));
    assert!(matches!(try_how([0; 4], 32), Verdict::Instead(..)));
    assert_eq!(try_how([0, 0, 0, 1], 32), error(Errno::E2BIG));
    assert_eq!(try_how([0, 0o644, 0, 0], 24), error(Errno::EINVAL));
    assert_eq!(try_how([1 << 40, 0, 0, 0], 24), error(Errno::EINVAL));
    assert_eq!(try_how([0, 0, 24, 0], 24), error(Errno::EINVAL));
    assert_eq!(try_how([u64::from(O_PATH | O_RDWR), 0, 0, 0], 24), error(Errno::EINVAL));
    assert_eq!(try_how([0, 0, 4, 0], 24), error(Errno::ELOOP));
    let unmapped = enter(&mut bench, Op::Openat2, &[N(HERE), T("/bin/sh"), N(8), N(24)]);
    assert_eq!(unmapped, error(Errno::EFAULT));
    bench.fake.openat2 = false;
    let verdict = enter(&mut bench, Op::Openat2, &[N(HERE), T("/bin/sh"), B(&[0; 24]), N(24)]);
    assert_eq!(verdict, error(Errno::ENOSYS));
}

#[test]
fn ends_of_names_when_a_file_is_made() {
    for make in [plain, root] {
        let mut bench = make();
        let make = O_CREAT | O_WRONLY;
        let verdict = open(&mut bench, "/tmp/new", make);
        assert_eq!(instead(&bench, verdict, 1), "/c/tmp/new");
        let verdict = open(&mut bench, "/loose", make);
        assert_eq!(instead(&bench, verdict, 1), "/c/nowhere");
        assert_eq!(open(&mut bench, "/tmp/new/", make), error(Errno::EISDIR));
        // Without emulated ids, the kernel reports it.
        let verdict = open(&mut bench, "/tmp/none/new", make);
        let left_to_the_kernel = bench.world.identity.is_none();
        assert_eq!(verdict == error(Errno::ENOENT), !left_to_the_kernel);
        let verdict = open(&mut bench, "/loose", make | O_EXCL);
        assert_eq!(instead(&bench, verdict, 1), "/c/loose", "the kernel says EEXIST");
        assert_eq!(open(&mut bench, "/", make | O_EXCL), error(Errno::EEXIST));
        assert_eq!(open(&mut bench, "/vol", make | O_EXCL), error(Errno::EEXIST));
        assert_eq!(open(&mut bench, "/tmp/x", O_CREAT | O_DIRECTORY), error(Errno::EINVAL));
    }
}

#[test]
fn read_only_bindings() {
    for make in [plain, root] {
        let mut bench = make();
        let verdict = open(&mut bench, "/ro/f", O_RDONLY);
        assert_eq!(instead(&bench, verdict, 1), "/ro/f");
        for flags in [O_WRONLY, O_RDWR, O_TRUNC, O_WRONLY | O_CREAT] {
            assert_eq!(open(&mut bench, "/ro/f", flags), error(Errno::EROFS), "{flags:o}");
        }
        assert_eq!(open(&mut bench, "/ro/new", O_CREAT | O_WRONLY), error(Errno::EROFS));
        assert_eq!(open(&mut bench, "/ro/f", O_CREAT | O_EXCL), error(Errno::EEXIST));
        let verdict = open(&mut bench, "/ro/f", O_CREAT);
        assert_eq!(instead(&bench, verdict, 1), "/ro/f");
    }
}

#[test]
fn a_user_is_refused_by_the_true_mode() {
    let mut bench = user(7);
    bench.fake.mode("/c/etc/passwd", 0o600);
    assert_eq!(open(&mut bench, "/etc/passwd", O_RDONLY), error(Errno::EACCES));
    assert_eq!(open(&mut bench, "/usr/bin/sh", O_RDWR), error(Errno::EACCES));
    assert_eq!(open(&mut bench, "/etc/new", O_CREAT | O_WRONLY), error(Errno::EACCES));
    assert_eq!(open(&mut bench, "/etc/passwd", O_CREAT | O_EXCL), error(Errno::EEXIST));
    assert!(matches!(open(&mut bench, "/etc/passwd", O_PATH), Verdict::Instead(..)));
    bench.fake.mode("/c/etc", 0o700);
    assert_eq!(open(&mut bench, "/etc/passwd", O_PATH), error(Errno::EACCES));
}

#[test]
fn a_users_new_file_gets_a_record() {
    let mut bench = user(7);
    let verdict = open(&mut bench, "/tmp/mine", O_CREAT | O_EXCL | O_WRONLY);
    let Verdict::Instead(made, After::Made) = verdict else { panic!("{verdict:?}") };
    assert_eq!(made.arguments[2], u64::from(O_WRONLY), "it exists");
    assert_eq!(record(&bench, "/c/tmp/mine"), "7:7:644:f:0:0");
    assert_eq!(bench.fake.tree.nodes[bench.fake.at("/c/tmp/mine")].mode, 0o1644);
    let call = prepare(&mut bench, Arch::X86_64, Op::Openat, &[N(HERE), T("/tmp/mine")]);
    let mut leave = |result: i64| {
        bench.context(|context| crate::calls::leave(context, After::Made, &call, result));
        bench.fake.tree.get("/c/tmp/mine").is_some()
    };
    assert!(leave(9));
    assert!(!leave(Errno::EMFILE.result()), "an open without a free descriptor makes no file");
    // Root's own file in the container needs no record.
    let mut bench = root();
    let verdict = open(&mut bench, "/tmp/roots", O_CREAT | O_WRONLY);
    assert!(matches!(verdict, Verdict::Instead(_, After::Nothing)));
    // A directory that passes its group on.
    let mut bench = user(7);
    bench.fake.mode("/c/tmp", 0o2777);
    let id = bench.fake.at("/c/tmp");
    let owner = b"0:50:2777:d:0:0".to_vec();
    bench.fake.tree.nodes[id].attributes.insert(b"user.coracle.owner".to_vec(), owner);
    bench.fake.mode("/c/tmp", 0o1777);
    open(&mut bench, "/tmp/shared", O_CREAT | O_WRONLY);
    assert_eq!(record(&bench, "/c/tmp/shared"), "7:50:644:f:0:0");
}

#[test]
fn a_new_file_is_waited_for() {
    fn record_it(fake: &mut Fake) {
        let id = fake.at("/c/tmp/new");
        let node = &mut fake.tree.nodes[id];
        node.attributes.insert(b"user.coracle.owner".to_vec(), b"7:7:600:f:0:0".to_vec());
        node.mode = 0o1600;
    }
    let unfinished = |mut bench: Bench<'static>| {
        bench.fake.file("/c/tmp/new", "").mode("/c/tmp/new", 0o1600);
        bench
    };
    let mut bench = unfinished(user(7));
    bench.fake.others = Vec::from([record_it as fn(&mut Fake), |_| {}]);
    assert!(matches!(open(&mut bench, "/tmp/new", O_RDWR), Verdict::Instead(..)));
    assert_eq!(bench.fake.others.len(), 0);
    let mut bench = unfinished(user(8));
    bench.fake.others.push(record_it);
    assert_eq!(open(&mut bench, "/tmp/new", O_RDWR), error(Errno::EACCES));
    // Its maker was killed.
    let mut bench = unfinished(root());
    assert!(matches!(open(&mut bench, "/tmp/new", O_RDWR), Verdict::Instead(..)));
    // What root makes with the same mode is known by a record.
    for path in ["/tmp/sticky", "/tmp/sticky-directory"] {
        let is_file = path.ends_with("sticky");
        let mode = if is_file { 0o1600 } else { 0o1700 };
        let words = [T(path), N(mode), N(0)];
        let op = if is_file { Op::Mknod } else { Op::Mkdir };
        assert_eq!(enter(&mut bench, op, &words), Verdict::Done(0));
        assert!(
            record(&bench, &std::format!("/c{path}")).starts_with(&std::format!("0:0:{mode:o}:"))
        );
    }
}

#[test]
fn the_mode_on_disk_does_not_refuse_root() {
    let mut bench = root();
    bench.fake.mode("/c/etc/passwd", 0o444);
    assert!(matches!(open(&mut bench, "/etc/passwd", O_RDONLY), Verdict::Instead(..)));
    assert_eq!(bench.fake.tree.nodes[bench.fake.at("/c/etc/passwd")].mode, 0o444);
    assert!(matches!(open(&mut bench, "/etc/passwd", O_RDWR), Verdict::Instead(..)));
    let node = &bench.fake.tree.nodes[bench.fake.at("/c/etc/passwd")];
    assert_eq!((node.mode, node.attributes.len()), (0o1644, 1), "the true mode is recorded");
    // In a directory of the host the mode is changed only for the call.
    bench.fake.mode("/vol/data", 0o400);
    let arguments = [N(HERE), T("/vol/data"), N(O_RDWR.into()), N(0)];
    let (call, verdict) = enter_as(&mut bench, Arch::X86_64, Op::Openat, &arguments);
    let Verdict::Instead(_, after @ After::Restore(..)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(bench.fake.tree.nodes[bench.fake.at("/vol/data")].mode, 0o600);
    bench.context(|context| crate::calls::leave(context, after, &call, 3));
    assert_eq!(bench.fake.tree.nodes[bench.fake.at("/vol/data")].mode, 0o400);
    assert!(bench.fake.held.is_empty());
}

#[test]
fn placeholders_of_devices() {
    let mut bench = root();
    let place = |bench: &mut Bench<'_>, name: &str, record: &str| {
        bench.fake.file(name, "").mode(name, 0o1600);
        let id = bench.fake.at(name);
        let record = record.as_bytes().to_vec();
        bench.fake.tree.nodes[id].attributes.insert(b"user.coracle.owner".to_vec(), record);
    };
    place(&mut bench, "/c/work/null", "0:0:666:c:1:3");
    place(&mut bench, "/c/work/disk", "0:0:660:b:8:0");
    let verdict = open(&mut bench, "null", O_RDWR);
    assert_eq!(instead(&bench, verdict, 1), "/dev/null");
    assert_eq!(open(&mut bench, "disk", O_RDONLY), error(Errno::ENXIO));
}

#[test]
fn programs_that_run_are_not_written_to() {
    for make in [plain, root] {
        let mut bench = make();
        let id = bench.fake.at("/c/usr/bin/sh");
        bench.fake.mode("/c/usr/bin/sh", 0o755);
        bench.fake.executed = [id as u64 + 1].to_vec();
        bench.fake.image.insert(id as u64 + 1, 1);
        for flags in [O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC] {
            assert_eq!(open(&mut bench, "/bin/sh", flags), error(Errno::ETXTBSY));
        }
        assert!(matches!(open(&mut bench, "/bin/sh", O_RDONLY), Verdict::Instead(..)));
        let verdict = enter(&mut bench, Op::Truncate, &[T("/bin/sh"), N(0)]);
        assert_eq!(verdict, error(Errno::ETXTBSY));
        bench.fake.executed.clear();
        assert!(bench.fake.copied.is_empty());
        assert!(matches!(open(&mut bench, "/bin/sh", O_WRONLY), Verdict::Instead(..)));
        assert_eq!(bench.fake.copied, ["/c/usr/bin/sh"]);
    }
    let mut bench = user(7);
    let id = bench.fake.at("/c/usr/bin/sh");
    bench.fake.executed = [id as u64 + 1].to_vec();
    assert_eq!(open(&mut bench, "/bin/sh", O_WRONLY), error(Errno::EACCES));
}

#[test]
fn the_setgid_bit_of_a_foreign_group_is_not_recorded() {
    let made = |bench: &mut Bench<'_>, mode: u64| {
        bench.fake.mode("/c/tmp", 0o1777);
        let id = bench.fake.at("/c/tmp");
        let owner = b"0:50:2777:d:0:0".to_vec();
        bench.fake.tree.nodes[id].attributes.insert(b"user.coracle.owner".to_vec(), owner);
        let arguments = [N(HERE), T("/tmp/new"), N((O_CREAT | O_WRONLY).into()), N(mode)];
        enter(bench, Op::Openat, &arguments);
        record(bench, "/c/tmp/new")
    };
    assert_eq!(made(&mut user(7), 0o6755), "7:50:4755:f:0:0");
    assert_eq!(made(&mut user(7), 0o6745), "7:50:6745:f:0:0", "for locks");
    assert_eq!(made(&mut user(50), 0o6755), "50:50:6755:f:0:0");
    assert_eq!(made(&mut root(), 0o6755), "0:50:6755:f:0:0");
}

#[test]
fn nameless_files() {
    let wanted = O_TMPFILE | O_RDWR;
    let mut bench = root();
    let verdict = open(&mut bench, "/tmp", wanted);
    assert_eq!(instead(&bench, verdict, 1), "/c/tmp");
    assert_eq!(open(&mut bench, "/ro/d", wanted), error(Errno::EROFS));
    assert_eq!(open(&mut bench, "/tmp", O_TMPFILE), error(Errno::EINVAL));
    let mut bench = user(7);
    assert_eq!(open(&mut bench, "/etc", wanted), error(Errno::EACCES));
    let verdict = open(&mut bench, "/tmp", wanted);
    assert!(matches!(verdict, Verdict::Instead(_, After::Created { gid: 7, .. })));
}

#[test]
fn bad_addresses() {
    let mut bench = root();
    for address in [0, 8, u64::MAX, 0xffff_8000_0000_0000] {
        let verdict = enter(&mut bench, Op::Openat, &[N(HERE), N(address), N(0), N(0)]);
        assert_eq!(verdict, error(Errno::EFAULT));
    }
    // A string that ends with the page, without a NUL.
    bench.fake.map(0x9000, b"/bin");
    assert_eq!(enter(&mut bench, Op::Open, &[N(0x9000), N(0), N(0)]), error(Errno::EFAULT));
    let long = "x".repeat(5000);
    assert_eq!(open(&mut bench, &long, 0), error(Errno::ENAMETOOLONG));
    assert_eq!(open(&mut bench, "", 0), error(Errno::ENOENT));
}

#[test]
fn links_at_the_end() {
    let mut bench = root();
    let verdict = open(&mut bench, "/etc/link", O_NOFOLLOW);
    assert_eq!(instead(&bench, verdict, 1), "/c/etc/link", "the kernel says ELOOP");
    let verdict = open(&mut bench, "/etc/link", O_NOFOLLOW | O_PATH);
    assert_eq!(instead(&bench, verdict, 1), "/c/etc/link");
    let verdict = open(&mut bench, "/etc/link", O_PATH);
    assert_eq!(instead(&bench, verdict, 1), "/c/etc/passwd");
}

#[test]
fn number_of_calls_for_opening() {
    let mut bench = plain();
    let read = [N(HERE), T("/usr/bin/sh"), N(0), N(0)];
    assert_eq!(cost(&mut bench, Op::Openat, &read), ["open"]);
    let mut bench = root();
    assert_eq!(cost(&mut bench, Op::Openat, &read), ["open", "statx"]);
    let create = [N(HERE), T("/tmp/x"), N((O_CREAT | O_WRONLY).into()), N(0o644)];
    assert_eq!(cost(&mut bench, Op::Openat, &create), ["open", "statx"]);
}
