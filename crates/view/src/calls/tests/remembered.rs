//! The cache of directories changes nothing but the number of calls: the same sequence of calls
//! gives the same results with and without it.

use super::*;
use crate::calls::{again, leave};
use crate::guest::{Dir, Host, HostFd};
use crate::identity::{Credentials, Groups};
use crate::text::Text;
use crate::verdict::After;
use linux_raw_sys::general::{O_CREAT, O_DIRECTORY, O_PATH, O_RDWR};
use proptest::prelude::*;

/// Outcome of a call: its result, the bytes that it wrote, and the inode that an open led to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    result: i64,
    written: Vec<u8>,
    node: Option<usize>,
}

/// The address that calls write to.
const OUT: u64 = 0x9_0000;

/// Does what the kernel would do with a call.
fn perform(bench: &mut Bench<'_>, call: &Call) -> i64 {
    let fake = &mut bench.fake;
    let number = |op: Op| op.entry().number(Arch::X86_64);
    let at = usize::from(Some(call.number) == number(Op::Openat));
    let path = fake.peek_text(call.arguments[at]);
    let mut text = Text::EMPTY;
    text.set(path.as_bytes()).unwrap();
    let dir = match call.arguments[0] as i32 {
        _ if path.starts_with('/') => Dir::Root,
        descriptor if at == 1 => Dir::Guest(descriptor),
        _ => Dir::Cwd,
    };
    let result = if Some(call.number) == number(Op::Chdir) {
        fake.open(dir, text.as_c_str(), O_PATH | O_DIRECTORY, 0, 0).map(|fd| {
            fake.cwd = fake.held.remove(&fd.0).expect("just opened");
            0
        })
    } else if Some(call.number) == number(Op::Readlink) {
        let mut link = Text::EMPTY;
        fake.readlink(dir, text.as_c_str(), &mut link).map(|()| {
            crate::Guest::write(fake, call.arguments[1], link.as_bytes()).expect("room");
            link.len() as i64
        })
    } else if Some(call.number) == number(Op::Truncate) {
        fake.truncate(dir, text.as_c_str(), call.arguments[1]).map(|()| 0)
    } else {
        let (flags, mode) = (call.arguments[at + 1] as u32, call.arguments[at + 2] as u32);
        fake.open(dir, text.as_c_str(), flags, mode, 0).map(|fd| {
            let open = fake.held[&fd.0].clone();
            fake.guest.insert(fd.0, open);
            i64::from(fd.0)
        })
    };
    result.unwrap_or_else(Errno::result)
}

/// The tree's descriptor.
const TREE: i32 = 9000;

/// Makes a call; `gone` says that the guest has closed the tree's descriptor.
fn outcome(bench: &mut Bench<'_>, gone: bool, op: Op, arguments: &[Arg<'_>]) -> Outcome {
    bench.fake.map(OUT, &[0; 300]);
    bench.fake.scratch = 0x10_0000;
    bench.fake.guest.clear();
    if bench.fake.tree_descriptor.is_some() && !gone {
        bench.fake.give(TREE, "/c");
    }
    let mut node = None;
    let mut result = None;
    for _ in 0..3 {
        let (call, verdict) = enter_as(bench, Arch::X86_64, op, arguments);
        let (made, after) = match verdict {
            Verdict::Done(value) => {
                result = Some(value);
                break;
            }
            Verdict::Pass => (call, After::Nothing),
            Verdict::Watch(after) => (call, after),
            Verdict::Instead(call, after) => (call, after),
            other => panic!("{op:?}: {other:?}"),
        };
        let value = perform(bench, &made);
        if bench.context(|context| again(context, after, value)) {
            bench.fake.guest.retain(|fd, _| *fd == TREE);
            assert!(bench.fake.held.is_empty(), "{op:?}: undone");
            continue;
        }
        let value = bench.context(|context| leave(context, after, &call, value));
        let opens = matches!(op, Op::Open);
        if opens && value >= 0 {
            let fd = i32::try_from(value).unwrap();
            node = bench.fake.guest.remove(&fd).map(|open| open.node);
            bench.fake.close(HostFd(fd));
        }
        result = Some(if opens { value.min(0) } else { value });
        break;
    }
    assert!(bench.fake.held.is_empty(), "{op:?}: left open");
    let result = result.expect("an end");
    // The contents of memory behind a failed call are undefined.
    let written = if result < 0 { Vec::new() } else { bench.fake.peek(OUT, 300) };
    Outcome { result, written, node }
}

/// A step of a sequence.
#[derive(Debug, Clone)]
struct Step {
    user: bool,
    op: Op,
    path: String,
    other: String,
    number: u64,
}

const DEVICE: u64 = 0x103;

fn step(bench: &mut Bench<'_>, step: &Step) -> Outcome {
    let id = if step.user { 7 } else { 0 };
    if bench.task.creds.uid.files != id {
        bench.task.creds = Credentials::new(id, id, Groups::NONE);
    }
    let (path, other) = (T(&step.path), T(&step.other));
    let modes = [0o755, 0o700, 0o644, 0o711, 0][step.number as usize % 5];
    let arguments: &[Arg<'_>] = match step.op {
        Op::Mkdir | Op::Chmod => &[path, N(modes)],
        Op::Rename | Op::Link | Op::Symlink => &[path, other],
        Op::Renameat2 => &[N(HERE), path, N(HERE), other, N(step.number % 3)],
        Op::Stat | Op::Lstat => &[path, N(OUT)],
        Op::Statx => &[N(HERE), path, N(step.number % 2 * 0x100), N(0x7ff), N(OUT)],
        Op::Access => &[path, N(step.number % 8)],
        Op::Open => {
            let flags = [0, 0, u64::from(O_RDWR), u64::from(O_CREAT | O_RDWR), 0o400_000];
            &[path, N(flags[step.number as usize % 5]), N(0o644)]
        }
        Op::Readlink => &[path, N(OUT), N(300)],
        Op::Mknod => &[path, N(0o20_666), N(DEVICE)],
        Op::Chown => &[path, N(step.number % 2 * 7), N(0)],
        Op::Truncate => &[path, N(3)],
        _ => &[path],
    };
    outcome(bench, step.number.is_multiple_of(7), step.op, arguments)
}

fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => proptest::sample::select(&["a", "b", "usr", "bin"][..]),
        1 => proptest::sample::select(&[".", "..", "", "vol", "missing", ".hidden"][..]),
    ];
    (proptest::collection::vec(name, 1..5), 0..8_u8).prop_map(|(names, form)| {
        let mut path = names.join("/");
        if form != 0 && !path.starts_with('/') {
            path.insert(0, '/');
        }
        if form == 1 {
            path.push('/');
        }
        if path.is_empty() { String::from("a") } else { path }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    const OPS: &[Op] = &[
        Op::Mkdir,
        Op::Mkdir,
        Op::Mkdir,
        Op::Rmdir,
        Op::Unlink,
        Op::Rename,
        Op::Rename,
        Op::Renameat2,
        Op::Link,
        Op::Symlink,
        Op::Symlink,
        Op::Chmod,
        Op::Chown,
        Op::Stat,
        Op::Stat,
        Op::Stat,
        Op::Statx,
        Op::Lstat,
        Op::Access,
        Op::Open,
        Op::Open,
        Op::Open,
        Op::Open,
        Op::Readlink,
        Op::Chdir,
        Op::Mknod,
        Op::Truncate,
    ];
    let one = (0..4_u8, proptest::sample::select(OPS), path(), path(), any::<u64>());
    let one = one.prop_map(|(user, op, path, other, number)| {
        // Links mostly lead to short names.
        let path =
            if op == Op::Symlink && number % 2 == 0 { String::from("usr/bin") } else { path };
        Step { user: user == 0, op, path, other, number }
    });
    proptest::collection::vec(one, 1..60)
}

fn container() -> Fake {
    let mut fake = Fake::new();
    fake.dir("/c/usr/bin").dir("/c/a/b").file("/c/a/b/a", "1").file("/c/usr/bin/b", "2");
    fake.link("/c/bin", "usr/bin")
        .dir("/c/b")
        .link("/c/b/a", "../a/b")
        .dir("/vol")
        .file("/vol/a", "3");
    fake.dir("/c/vol").mode("/c/b", 0o777).mode("/c/a", 0o777).mode("/c/a/b", 0o777).chdir("/c/a");
    for node in &mut fake.tree.nodes {
        (node.uid, node.gid) = (1000, 1000);
    }
    fake
}

fn benches(emulated: bool, openat2: bool) -> [Bench<'static>; 2] {
    [false, true].map(|remembers| {
        let mut bench = Bench::new(container(), TABLE);
        bench.world.identity = emulated.then_some(IDENTITY);
        bench.fake.remembers = remembers;
        bench.fake.tree_descriptor = remembers.then_some(TREE);
        bench.fake.openat2 = openat2;
        bench
    })
}

const TABLE: &[Binding<'static>] =
    &[binding("/", "/c", Kind::Tree), binding("/vol", "/vol", Kind::Host)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn the_cache_changes_no_result(steps in steps(), emulated in any::<bool>(), openat2 in any::<bool>()) {
        let [mut without, mut with] = benches(emulated, openat2);
        for (index, one) in steps.iter().enumerate() {
            let one = Step { user: one.user && emulated, ..one.clone() };
            let (slow, quick) = (step(&mut without, &one), step(&mut with, &one));
            prop_assert_eq!(&slow, &quick, "step {}: {:?}", index, one);
        }
    }
}

fn quick() -> Bench<'static> {
    let [_, mut bench] = benches(true, true);
    for path in ["/a/b/a", "/usr/bin/b", "/bin/b"] {
        enter(&mut bench, Op::Stat, &[T(path), N(OUT)]);
    }
    bench.fake.map(OUT, &[0; 300]);
    bench.fake.give(TREE, "/c");
    bench
}

#[test]
fn frequent_calls_cost_one_call() {
    let mut bench = quick();
    assert_eq!(cost(&mut bench, Op::Stat, &[T("/a/b/a"), N(OUT)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Stat, &[T("b/a"), N(OUT)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Stat, &[T("/a/b/../b/a"), N(OUT)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Stat, &[T("/bin/b"), N(OUT)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Stat, &[T("/a/b/none"), N(OUT)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Access, &[T("/a/b/a"), N(4)]), ["statx"]);
    assert_eq!(cost(&mut bench, Op::Readlink, &[T("/a/b/a"), N(OUT), N(9)]), ["readlink"]);
    assert_eq!(cost(&mut bench, Op::Open, &[T("/a/b/a"), N(0)]), [""; 0]);
    assert_eq!(cost(&mut bench, Op::Mkdir, &[T("/a/b/new"), N(0o755)]), ["statx", "mkdir"]);
    enter(&mut bench, Op::Chdir, &[T("/a/b")]);
    assert_eq!(cost(&mut bench, Op::Chdir, &[T("/a/b")]), ["statx"]);
}

#[test]
fn a_path_through_the_root_stays_in_the_tree() {
    for emulated in [false, true] {
        let [_, mut bench] = benches(emulated, true);
        outcome(&mut bench, false, Op::Mkdir, &[T("/a/../a/../"), N(0o755)]);
        for path in ["../a/b", "/a/../a/b", "/usr/../a/../a/b", "//a/b"] {
            for op in [Op::Open, Op::Stat, Op::Open] {
                let arguments: &[Arg<'_>] =
                    if op == Op::Open { &[T(path), N(0), N(0)] } else { &[T(path), N(OUT)] };
                assert_eq!(outcome(&mut bench, false, op, arguments).result, 0, "{op:?} {path}");
            }
        }
    }
}

#[test]
fn dot_dot_fails_in_a_directory_without_search_permission() {
    let [_, mut bench] = benches(false, true);
    outcome(&mut bench, false, Op::Mkdir, &[T("/b/b"), N(0o644)]);
    outcome(&mut bench, false, Op::Mkdir, &[T("/b/../"), N(0o755)]);
    let done = outcome(&mut bench, false, Op::Mkdir, &[T("/b/b/../a/"), N(0o755)]);
    assert_eq!(done.result, Errno::EACCES.result());
}

#[test]
fn a_link_is_found_again_in_a_directory_of_links() {
    let mut bench = quick();
    bench.fake.dir("/c/usr/links").link("/c/usr/links/b", "../bin/b");
    let stat = [T("/usr/links/b"), N(OUT)];
    assert_eq!(enter(&mut bench, Op::Stat, &stat), DONE);
    assert_eq!(cost(&mut bench, Op::Stat, &stat), ["statx", "statx", "readlink", "statx"]);
    // The target of a link is always read again.
    enter(&mut bench, Op::Unlink, &[T("/usr/links/b")]);
    enter(&mut bench, Op::Symlink, &[T("nowhere"), T("/usr/links/b")]);
    assert_eq!(enter(&mut bench, Op::Stat, &stat), error(Errno::ENOENT));
}

#[test]
fn a_replaced_directory_is_noticed() {
    for take_away in [Op::Rmdir, Op::Rename] {
        let mut bench = quick();
        enter(&mut bench, Op::Mkdir, &[T("/a/x"), N(0o755)]);
        let stat = [T("/a/x/b"), N(OUT)];
        assert_eq!(enter(&mut bench, Op::Stat, &stat), error(Errno::ENOENT));
        assert_eq!(cost(&mut bench, Op::Stat, &stat), ["statx"]);
        let away = [T("/a/x"), T("/a/y")];
        assert_eq!(enter(&mut bench, take_away, &away), DONE);
        // If a call followed this link, it would lead into the host's own root.
        enter(&mut bench, Op::Symlink, &[T("/usr/bin"), T("/a/x")]);
        bench.fake.map(OUT, &[0; 300]);
        assert_eq!(enter(&mut bench, Op::Stat, &stat), DONE);
    }
}

#[test]
fn a_removed_search_permission_takes_effect_at_once() {
    let mut bench = quick();
    let stat = [T("/a/b/a"), N(OUT)];
    bench.task.creds = Credentials::new(7, 7, Groups::NONE);
    assert_eq!(enter(&mut bench, Op::Stat, &stat), DONE);
    assert_eq!(cost(&mut bench, Op::Stat, &stat), ["statx"]);
    bench.task.creds = Credentials::ROOT;
    assert_eq!(enter(&mut bench, Op::Chmod, &[T("/a"), N(0o700)]), DONE);
    bench.task.creds = Credentials::new(7, 7, Groups::NONE);
    bench.fake.map(OUT, &[0; 300]);
    assert_eq!(enter(&mut bench, Op::Stat, &stat), error(Errno::EACCES));
}

#[test]
fn an_opened_placeholder_of_a_device_is_closed_again() {
    let mut bench = quick();
    assert_eq!(enter(&mut bench, Op::Mknod, &[T("/a/b/null"), N(0o20_666), N(DEVICE)]), DONE);
    enter(&mut bench, Op::Stat, &[T("/a/b/a"), N(OUT)]);
    bench.fake.node("/dev/null", crate::testing::tree::Body::Device, 0o666);
    let null = bench.fake.at("/dev/null");
    let outcome = outcome(&mut bench, false, Op::Open, &[T("/a/b/null"), N(0), N(0)]);
    assert_eq!(outcome.node, Some(null));
}
