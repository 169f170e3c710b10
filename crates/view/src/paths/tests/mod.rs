//! Tests of path resolution: one property of `path_resolution(7)` at a time, then many random paths
//! against a model.

mod kernel;
mod listed;
mod model;
mod odd;

use super::*;
use crate::guest::Dir;
use crate::testing::{Bench, Fake, binding, string};
use crate::world::{Binding, Kind};
use crate::{Errno, HostFd};
use linux_raw_sys::general as raw;
use std::string::String;
use std::vec::Vec;

/// A root in `/c`, a volume in `/v`, and a file bound over another.
const TABLE: [Binding<'static>; 5] = [
    binding("/", "/c", Kind::Tree),
    binding("/data", "/v", Kind::Host),
    binding("/data/deep", "/w/x", Kind::Host),
    binding("/etc/hosts", "/run/hosts", Kind::Host),
    binding("/proc", "/proc", Kind::Proc),
];

fn fake() -> Fake {
    let mut fake = Fake::new();
    fake.dir("/c/usr/bin").file("/c/usr/bin/sh", "sh").dir("/c/data").dir("/c/proc");
    fake.link("/c/bin", "usr/bin").file("/c/etc/hosts", "hidden").file("/c/etc/passwd", "root");
    fake.link("/c/etc/abs", "/usr/bin/sh").link("/c/etc/up", "../../../etc/passwd");
    fake.link("/c/loop", "loop").link("/c/dangling", "usr/none").link("/c/dir", "usr/");
    fake.link("/c/file-slash", "etc/passwd/").link("/c/out", "/secret");
    fake.file("/secret", "host").file("/run/hosts", "mine").dir("/v/sub/subsub").file("/v/f", "f");
    fake.dir("/v/deep")
        .dir("/w/x/y")
        .link("/v/back", "../bin/sh")
        .link("/w/x/y/up3", "../../../etc");
    fake.dir("/proc/42/fd").dir("/proc/7").link("/proc/self", "7");
    fake.chdir("/c/usr");
    fake
}

fn bench() -> Bench<'static> {
    Bench::new(fake(), &TABLE)
}

/// Resolves, closes, and returns `base:host path`.
fn at(
    bench: &mut Bench<'_>,
    from: Dir,
    path: &str,
    intent: Intent,
) -> Result<(Place, String), Errno> {
    bench.buffers.named[0].set(path.as_bytes()).unwrap();
    let held = bench.fake.held.len();
    let result = bench.context(|context| resolve(context, from, 0, intent));
    let result = result.map(|place| {
        bench.context(|context| place.close(context.backend));
        (place, string(&bench.buffers.found[0]))
    });
    assert_eq!(bench.fake.held.len(), held, "{path}: something stayed open");
    assert_eq!(string(&bench.buffers.named[0]), path, "the guest's path stays");
    result
}

fn host(path: &str, intent: Intent) -> Result<String, Errno> {
    at(&mut bench(), Dir::Cwd, path, intent).map(|(_, found)| found)
}

fn follow(path: &str) -> Result<String, Errno> {
    host(path, Intent::FOLLOW)
}

#[test]
fn plain_and_linked() {
    assert_eq!(follow("/usr/bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("//usr/./bin//sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("/bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("/etc/abs").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("/etc/up").unwrap(), "/c/etc/passwd");
    assert_eq!(follow("/out"), Err(Errno::ENOENT));
    assert_eq!(follow("/loop"), Err(Errno::ELOOP));
    assert_eq!(follow("/loop/x"), Err(Errno::ELOOP));
    assert_eq!(follow("/").unwrap(), "/c");
    assert_eq!(follow("///").unwrap(), "/c");
    assert_eq!(follow("/.").unwrap(), "/c");
    assert_eq!(follow("/..").unwrap(), "/c");
    assert_eq!(follow("bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("../bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow(".").unwrap(), "/c/usr");
    assert_eq!(follow("..").unwrap(), "/c");
    assert_eq!(follow("../../../..").unwrap(), "/c");
}

#[test]
fn dot_dot_leaves_what_links_lead_to() {
    assert_eq!(follow("/bin/../lib"), Err(Errno::ENOENT));
    assert_eq!(follow("/bin/..").unwrap(), "/c/usr");
    assert_eq!(follow("/bin/../bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("/data/sub/subsub/../..").unwrap(), "/v");
    assert_eq!(follow("/data/deep/../..").unwrap(), "/c");
    assert_eq!(follow("/data/deep/y/up3/passwd").unwrap(), "/c/etc/passwd");
    assert_eq!(follow("/data/back").unwrap(), "/c/usr/bin/sh");
    assert_eq!(follow("/usr/bin/sh/.."), Err(Errno::ENOTDIR));
    assert_eq!(follow("/none/.."), Err(Errno::ENOENT));
}

#[test]
fn ends() {
    assert_eq!(follow(""), Err(Errno::ENOENT));
    assert_eq!(follow("/etc/passwd/"), Err(Errno::ENOTDIR));
    assert_eq!(follow("/etc/passwd/."), Err(Errno::ENOTDIR));
    assert_eq!(follow("/etc/passwd/x"), Err(Errno::ENOTDIR));
    assert_eq!(follow("/etc/"), Ok("/c/etc".into()));
    assert_eq!(follow("/file-slash"), Err(Errno::ENOTDIR));
    assert_eq!(follow("/dir").unwrap(), "/c/usr");
    assert_eq!(follow("/dangling"), Err(Errno::ENOENT));
    assert_eq!(host("/dir", Intent::NO_FOLLOW).unwrap(), "/c/dir");
    assert_eq!(host("/dir/", Intent::NO_FOLLOW).unwrap(), "/c/usr");
    assert_eq!(host("/dir/.", Intent::NO_FOLLOW).unwrap(), "/c/usr");
    assert_eq!(host("/dangling", Intent::NO_FOLLOW).unwrap(), "/c/dangling");
    assert_eq!(host("/dangling/", Intent::NO_FOLLOW), Err(Errno::ENOENT));
    let long = "x".repeat(256);
    assert_eq!(follow(&long), Err(Errno::ENAMETOOLONG));
    assert_eq!(follow(&std::format!("/{long}/x")), Err(Errno::ENAMETOOLONG));
    assert_eq!(follow(&std::format!("/none/{long}")), Err(Errno::ENOENT));
}

#[test]
fn new_files() {
    let mut bench = bench();
    let mut create = |path: &str| at(&mut bench, Dir::Cwd, path, Intent::CREATE);
    let (place, found) = create("/dangling").unwrap();
    assert!(place.missing);
    assert_eq!(found, "/c/usr/none");
    assert_eq!(create("/etc/new").unwrap().1, "/c/etc/new");
    assert_eq!(create("/etc/new/").unwrap().1, "/c/etc/new/");
    assert!(!create("/etc/abs").unwrap().0.missing);
    assert_eq!(create("/loop"), Err(Errno::ELOOP));
    assert_eq!(create("/etc/passwd/new"), Err(Errno::ENOTDIR));
    assert_eq!(create("/data/deep/new").unwrap().1, "/w/x/new");
}

#[test]
fn names_keep_their_end() {
    let name = |path| host(path, Intent::NAME);
    assert_eq!(name("/etc/x").unwrap(), "/c/etc/x");
    assert_eq!(name("/etc/x/").unwrap(), "/c/etc/x/");
    assert_eq!(name("/etc/x//").unwrap(), "/c/etc/x/");
    assert_eq!(name("/bin/x").unwrap(), "/c/usr/bin/x");
    assert_eq!(name("/bin").unwrap(), "/c/bin");
    assert_eq!(name("/bin/").unwrap(), "/c/bin/");
    assert_eq!(name("/bin/.").unwrap(), "/c/usr/bin/.");
    assert_eq!(name("/bin/..").unwrap(), "/c/usr/bin/..");
    assert_eq!(name("/").unwrap(), "/");
    assert_eq!(name("/etc/passwd/x"), Err(Errno::ENOTDIR));
    assert_eq!(name("/none/x"), Err(Errno::ENOENT));
    assert_eq!(name("/loop/x"), Err(Errno::ELOOP));
    assert_eq!(name("/loop").unwrap(), "/c/loop");
}

#[test]
fn bindings_and_what_places_tell() {
    let mut bench = bench();
    let (place, found) = at(&mut bench, Dir::Cwd, "/etc/hosts", Intent::FOLLOW).unwrap();
    assert_eq!((found.as_str(), place.binding, place.mount_point), ("/run/hosts", Some(3), true));
    let (place, _) = at(&mut bench, Dir::Cwd, "/etc/hosts/", Intent::NAME).unwrap();
    assert!(place.mount_point && place.directory && !place.holds_mounts);
    let (place, _) = at(&mut bench, Dir::Cwd, "/data/deep/y", Intent::FOLLOW).unwrap();
    assert_eq!((place.binding, place.kind, place.mount_point), (Some(2), Kind::Host, false));
    assert_eq!(string(&bench.buffers.position), "/data/deep/y");
    let (place, _) = at(&mut bench, Dir::Cwd, "/etc", Intent::NAME).unwrap();
    assert!(place.holds_mounts && !place.mount_point);
    assert_eq!(at(&mut bench, Dir::Cwd, "/etc/hosts/x", Intent::FOLLOW), Err(Errno::ENOTDIR));
    // A name that begins like a binding's.
    assert_eq!(at(&mut bench, Dir::Cwd, "/data2", Intent::FOLLOW), Err(Errno::ENOENT));
}

/// The number of calls is part of the interface.
#[test]
fn cost() {
    let mut bench = bench();
    let mut cost = |path: &str, intent: Intent| -> Vec<&'static str> {
        let _ = at(&mut bench, Dir::Cwd, path, intent);
        bench.fake.calls()
    };
    assert_eq!(cost("/usr/bin/sh", Intent::FOLLOW), ["open"]);
    assert_eq!(cost("/usr/bin/sh", Intent::NO_FOLLOW), ["open"]);
    assert_eq!(cost("/usr/bin/none", Intent::FOLLOW), ["open"]);
    assert_eq!(cost("/data/deep/y", Intent::FOLLOW.held()), ["open"]);
    assert_eq!(cost("/usr/bin/new", Intent::NAME), ["open"]);
    assert_eq!(cost("/usr/bin/new", Intent::CREATE), ["open"]);
    assert_eq!(cost("/new", Intent::NAME), [""; 0]);
    assert_eq!(cost("/", Intent::FOLLOW), [""; 0]);
    assert_eq!(cost("/bin/sh", Intent::FOLLOW), ["open", "readlink", "open"]);
    assert_eq!(cost("bin/sh", Intent::FOLLOW), ["path_of", "open"]);
    assert_eq!(cost("bin/sh", Intent::FOLLOW.lightly()), ["open"]);
    assert_eq!(cost("bin", Intent::NO_FOLLOW.lightly()), [""; 0]);
    assert_eq!(cost("x", Intent::NAME.lightly()), [""; 0]);
    assert_eq!(cost(".", Intent::FOLLOW.lightly()), [""; 0]);
    assert_eq!(cost("/proc/self", Intent::FOLLOW), ["open"]);
    // A name that also occurs in the path of a binding is looked at.
    assert_eq!(cost("hosts", Intent::NO_FOLLOW.lightly()), ["path_of", "open"]);
    assert_eq!(cost("../bin", Intent::NO_FOLLOW.lightly()), ["path_of", "open", "open"]);
}

#[test]
fn held_files_are_the_callers() {
    let mut bench = bench();
    bench.buffers.named[0].set(b"/bin/sh").unwrap();
    let place =
        bench.context(|context| resolve(context, Dir::Cwd, 0, Intent::FOLLOW.held())).unwrap();
    let fd: HostFd = place.held.unwrap();
    let node = bench.fake.at("/c/usr/bin/sh");
    assert_eq!(bench.fake.held[&fd.0].node, node);
    bench.context(|context| place.close(context.backend));
    assert!(bench.fake.held.is_empty());
}

#[test]
fn own_links_of_proc() {
    assert_eq!(follow("/proc/self/fd").unwrap(), "/proc/42/fd");
    assert_eq!(follow("/proc/self").unwrap(), "/proc/42");
    assert_eq!(follow("/proc/self/../self/fd/..").unwrap(), "/proc/42");
    assert_eq!(host("/proc/self", Intent::NO_FOLLOW).unwrap(), "/proc/self");
    assert_eq!(host("/proc/self/", Intent::NO_FOLLOW).unwrap(), "/proc/42");
    assert_eq!(follow("/data/self"), Err(Errno::ENOENT));
    let mut bench = bench();
    bench.fake.chdir("/proc");
    assert_eq!(at(&mut bench, Dir::Cwd, "self/fd", Intent::FOLLOW).unwrap().1, "/proc/42/fd");
    let no_links = Intent { resolve: u64::from(raw::RESOLVE_NO_SYMLINKS), ..Intent::FOLLOW };
    assert_eq!(at(&mut bench, Dir::Cwd, "/proc/self/fd", no_links), Err(Errno::ELOOP));
}

#[test]
fn openat2_flags() {
    let with =
        |path: &str, flags: u32| host(path, Intent { resolve: u64::from(flags), ..Intent::FOLLOW });
    let beneath = |path| with(path, raw::RESOLVE_BENEATH);
    assert_eq!(beneath("bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(beneath("bin/../bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(beneath("/usr"), Err(Errno::EXDEV));
    assert_eq!(beneath("../usr"), Err(Errno::EXDEV));
    assert_eq!(beneath("bin/../../usr"), Err(Errno::EXDEV));
    let in_root = |path| with(path, raw::RESOLVE_IN_ROOT);
    assert_eq!(in_root("/bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(in_root("/../../bin/sh").unwrap(), "/c/usr/bin/sh");
    assert_eq!(in_root("/etc/passwd"), Err(Errno::ENOENT));
    assert_eq!(with("/bin/sh", raw::RESOLVE_NO_SYMLINKS), Err(Errno::ELOOP));
    assert_eq!(with("/data/deep", raw::RESOLVE_NO_XDEV), Err(Errno::EXDEV));
    assert_eq!(with("/usr/bin", raw::RESOLVE_NO_XDEV).unwrap(), "/c/usr/bin");
    assert_eq!(with("bin", raw::RESOLVE_CACHED), Err(Errno::EAGAIN));
    assert_eq!(with("bin", 1 << 20), Err(Errno::EINVAL));
    assert_eq!(with("bin", raw::RESOLVE_BENEATH | raw::RESOLVE_IN_ROOT), Err(Errno::EINVAL));
    let mut bench = bench();
    bench.fake.link("/c/usr/abs", "/bin/sh").link("/c/usr/rel", "../etc");
    let mut scoped = |path: &str, flags: u32| {
        let intent = Intent { resolve: u64::from(flags), ..Intent::FOLLOW };
        at(&mut bench, Dir::Cwd, path, intent).map(|(_, found)| found)
    };
    assert_eq!(scoped("abs", raw::RESOLVE_BENEATH), Err(Errno::EXDEV));
    assert_eq!(scoped("rel", raw::RESOLVE_BENEATH), Err(Errno::EXDEV));
    assert_eq!(scoped("abs", raw::RESOLVE_IN_ROOT).unwrap(), "/c/usr/bin/sh");
    assert_eq!(scoped("bin/../rel", raw::RESOLVE_IN_ROOT), Err(Errno::ENOENT));
}

#[test]
fn forty_links_and_no_more() {
    let mut fake = fake();
    fake.link("/c/l0", "usr");
    for i in 1..=40 {
        fake.link(&std::format!("/c/l{i}"), &std::format!("l{}", i - 1));
    }
    let mut bench = Bench::new(fake, &TABLE);
    assert_eq!(at(&mut bench, Dir::Cwd, "/l39", Intent::FOLLOW).unwrap().1, "/c/usr");
    assert_eq!(at(&mut bench, Dir::Cwd, "/l40", Intent::FOLLOW), Err(Errno::ELOOP));
    assert_eq!(at(&mut bench, Dir::Cwd, "/l40", Intent::NO_FOLLOW).unwrap().1, "/c/l40");
}

#[test]
fn inside_chroot() {
    let mut bench = bench();
    bench.task.root.set(b"/data").unwrap();
    let mut found = |path: &str| at(&mut bench, Dir::Cwd, path, Intent::FOLLOW).map(|got| got.1);
    assert_eq!(found("/f").unwrap(), "/v/f");
    assert_eq!(found("/../../f").unwrap(), "/v/f");
    assert_eq!(found("/deep/../f").unwrap(), "/v/f");
    assert_eq!(found("/deep/y/up3"), Err(Errno::ENOENT));
    // The working directory is still outside: there `..` leads on to the true root.
    assert_eq!(found("../etc/passwd").unwrap(), "/c/etc/passwd");
}
