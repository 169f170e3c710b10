//! Tests of unusual cases: directories without a name, names that are too long, permissions, paths
//! with several guest names.

use super::*;
use crate::identity::Credentials;
use crate::paths::reverse_by;
use crate::world::Identity;
use std::format;

#[test]
fn directories_outside_of_all_bindings() {
    let mut bench = bench();
    bench.fake.dir("/outside/in").file("/outside/f", "").link("/outside/l", "in");
    bench.fake.link("/outside/abs", "/etc/passwd").link("/outside/up", "../secret");
    bench.fake.give(5, "/outside");
    let mut found = |path: &str| {
        at(&mut bench, Dir::Guest(5), path, Intent::FOLLOW).map(|(place, found)| {
            assert_eq!(place.binding.is_none(), place.at != Dir::Root, "{path}");
            found
        })
    };
    assert_eq!(found("f").unwrap(), "f");
    assert_eq!(found("in/../f").unwrap(), "f");
    assert_eq!(found("l").unwrap(), "in");
    assert_eq!(found("abs").unwrap(), "/c/etc/passwd");
    assert_eq!(found(".."), Ok(String::new()));
    assert_eq!(found("../secret"), Err(Errno::ENOENT));
    assert_eq!(found("up"), Err(Errno::ENOENT));
    assert_eq!(found("in/../../../f").unwrap(), "f");
}

#[test]
fn bad_descriptors() {
    let mut bench = bench();
    assert_eq!(at(&mut bench, Dir::Guest(9), "x", Intent::FOLLOW), Err(Errno::EBADF));
    assert_eq!(at(&mut bench, Dir::Guest(9), "/usr", Intent::FOLLOW).unwrap().1, "/c/usr");
    bench.fake.give(3, "/c/etc/passwd");
    assert_eq!(at(&mut bench, Dir::Guest(3), "x", Intent::FOLLOW), Err(Errno::ENOTDIR));
    assert_eq!(at(&mut bench, Dir::Guest(3), "", Intent::FOLLOW), Err(Errno::ENOENT));
    let (place, found) = at(&mut bench, Dir::Guest(3), "", Intent::FOLLOW.or_empty()).unwrap();
    assert_eq!((place.at, place.last, found.as_str()), (Dir::Guest(3), Last::Empty, ""));
    assert_eq!(place.binding, Some(0));
}

#[test]
fn removed_directories() {
    let mut bench = bench();
    bench.fake.dir("/c/usr/gone").give(4, "/c/usr/gone").chdir("/c/usr/gone");
    let usr = bench.fake.at("/c/usr");
    let gone = bench.fake.at("/c/usr/gone");
    bench.fake.tree.names_mut(usr).remove(b"gone".as_slice());
    bench.fake.tree.nodes[gone].links = 0;
    bench.fake.cwd.name = Some((usr, b"gone".to_vec()));
    assert_eq!(at(&mut bench, Dir::Cwd, "x", Intent::FOLLOW), Err(Errno::ENOENT));
    let (place, found) = at(&mut bench, Dir::Cwd, ".", Intent::FOLLOW).unwrap();
    assert_eq!((place.at, found.as_str()), (Dir::Cwd, ""));
    assert_eq!(at(&mut bench, Dir::Cwd, "..", Intent::FOLLOW).unwrap().1, "/c/usr");
    assert_eq!(at(&mut bench, Dir::Cwd, "../bin/sh", Intent::FOLLOW).unwrap().1, "/c/usr/bin/sh");
    assert_eq!(
        at(&mut bench, Dir::Cwd, "../../etc/up", Intent::FOLLOW).unwrap().1,
        "/c/etc/passwd"
    );
    assert_eq!(at(&mut bench, Dir::Cwd, "/etc/up", Intent::FOLLOW).unwrap().1, "/c/etc/passwd");
    let (place, found) = at(&mut bench, Dir::Cwd, "new", Intent::NAME).unwrap();
    assert_eq!((place.at, found.as_str()), (Dir::Cwd, "new"));
}

#[test]
fn a_directory_really_called_deleted() {
    let mut bench = bench();
    bench.fake.file("/c/odd (deleted)/f", "").chdir("/c/odd (deleted)");
    let found = at(&mut bench, Dir::Cwd, "f", Intent::FOLLOW).unwrap().1;
    assert_eq!(found, "/c/odd (deleted)/f");
    assert_eq!(at(&mut bench, Dir::Cwd, "../etc/up", Intent::FOLLOW).unwrap().1, "/c/etc/passwd");
}

#[test]
fn magic_links_that_jump() {
    let mut bench = bench();
    bench.fake.magic("/proc/42/fd/3", "/c/etc/passwd").magic("/proc/42/fd/4", "/v/sub");
    bench.fake.link("/proc/42/fd/5", "pipe:[7]").magic("/proc/42/cwd", "/c/usr");
    let mut found = |path: &str| at(&mut bench, Dir::Cwd, path, Intent::FOLLOW);
    let (place, path) = found("/proc/self/fd/3").unwrap();
    assert_eq!((path.as_str(), place.last, place.binding), ("/c/etc/passwd", Last::Name, Some(0)));
    assert!(!place.directory && !place.magic);
    assert_eq!(found("/proc/self/fd/3/"), Err(Errno::ENOTDIR));
    assert_eq!(found("/proc/self/fd/3/x"), Err(Errno::ENOTDIR));
    assert_eq!(found("/proc/self/fd/4/").unwrap().1, "/v/sub");
    assert_eq!(found("/proc/self/fd/4/subsub/../..").unwrap().1, "/v");
    assert_eq!(found("/proc/self/cwd/bin/sh").unwrap().1, "/c/usr/bin/sh");
    let (place, path) = found("/proc/self/fd/5").unwrap();
    assert!(place.magic && path == "/proc/42/fd/5");
    let flags = Intent { resolve: u64::from(raw::RESOLVE_NO_MAGICLINKS), ..Intent::FOLLOW };
    assert_eq!(at(&mut bench, Dir::Cwd, "/proc/self/cwd", flags), Err(Errno::ELOOP));
    let flags = Intent { resolve: u64::from(raw::RESOLVE_IN_ROOT), ..Intent::FOLLOW };
    bench.fake.chdir("/proc/42");
    assert_eq!(at(&mut bench, Dir::Cwd, "cwd", flags), Err(Errno::EXDEV));
}

/// A path that is short enough for the guest becomes too long with the host's prefix.
#[test]
fn paths_that_fit_the_guest_only() {
    let prefix = format!("/{}", "p".repeat(200));
    let table = [binding("/", &prefix, Kind::Tree)];
    let mut fake = Fake::new();
    let part = "d".repeat(250);
    let deep = format!("/{part}").repeat(16);
    assert!(deep.len() < 4090);
    fake.file(&format!("{prefix}{deep}/f"), "x");
    fake.link(&format!("{prefix}{deep}/l"), "f");
    fake.link(&format!("{prefix}{deep}/abs"), "/top").file(&format!("{prefix}/top"), "");
    fake.link(&format!("{prefix}/short"), &deep[1..]);
    let node = fake.at(&format!("{prefix}{deep}/f"));
    let mut bench = Bench::new(fake, &table);
    for path in [format!("{deep}/f"), format!("{deep}/l"), "/short/f".into(), "/short/../".into()] {
        bench.buffers.named[0].set(path.as_bytes()).unwrap();
        let place = bench.context(|context| resolve(context, Dir::Cwd, 0, Intent::FOLLOW.held()));
        let place = place.unwrap();
        if path.ends_with(['f', 'l']) {
            assert_eq!(bench.fake.held[&place.held.unwrap().0].node, node, "{}", &path[..9]);
            let Dir::Held(_) = place.at else { panic!("relative to a directory") };
        }
        bench.context(|context| place.close(context.backend));
        assert!(bench.fake.held.is_empty());
    }
    let top = at(&mut bench, Dir::Cwd, &format!("{deep}/abs"), Intent::FOLLOW).unwrap().1;
    assert_eq!(top, format!("{prefix}/top"));
    let (place, found) = at(&mut bench, Dir::Cwd, &format!("{deep}/new"), Intent::NAME).unwrap();
    assert!(matches!(place.at, Dir::Held(_)) && found.ends_with("/new"));
    let up = at(&mut bench, Dir::Cwd, &format!("{deep}/../.."), Intent::FOLLOW).unwrap();
    assert!(!up.0.mount_point);
    let gone = at(&mut bench, Dir::Cwd, &format!("{deep}/none"), Intent::FOLLOW);
    assert_eq!(gone, Err(Errno::ENOENT));
}

/// A working directory deeper than the longest path.
#[test]
fn deeper_than_a_path() {
    let mut fake = Fake::new();
    let part = "d".repeat(250);
    let deep = format!("/{part}").repeat(20);
    fake.dir(&format!("/c{deep}")).file(&format!("/c{deep}/f"), "").file("/c/etc/x", "");
    fake.link(&format!("/c{deep}/l"), "../../l2/f").file(&format!("/c/{part}/g"), "");
    let up2 = format!("/{part}").repeat(18);
    fake.file(&format!("/c{up2}/l2/f"), "");
    fake.chdir(&format!("/c{deep}"));
    let table = [binding("/", "/c", Kind::Tree)];
    let mut bench = Bench::new(fake, &table);
    let mut node = |path: &str| {
        bench.buffers.named[0].set(path.as_bytes()).unwrap();
        let place =
            bench.context(|context| resolve(context, Dir::Cwd, 0, Intent::FOLLOW.held())).unwrap();
        let node = bench.fake.held[&place.held.unwrap().0].node;
        bench.context(|context| place.close(context.backend));
        assert!(bench.fake.held.is_empty());
        (node, bench.fake.clone())
    };
    let (id, fake) = node("f");
    assert_eq!(id, fake.at(&format!("/c{deep}/f")));
    assert_eq!(node("../../l2/f").0, fake.at(&format!("/c{up2}/l2/f")));
    assert_eq!(node("l").0, fake.at(&format!("/c{up2}/l2/f")));
    assert_eq!(node(&format!("{}g", "../".repeat(19))).0, fake.at(&format!("/c/{part}/g")));
    assert_eq!(node(&format!("{}etc/x", "../".repeat(30))).0, fake.at("/c/etc/x"));
}

#[test]
fn search_permission_of_the_host() {
    let mut bench = bench();
    bench.fake.mode("/v/sub", 0o600);
    let mut found = |path: &str| at(&mut bench, Dir::Cwd, path, Intent::FOLLOW).map(|got| got.1);
    assert_eq!(found("/data/sub"), Ok("/v/sub".into()));
    assert_eq!(found("/data/sub/"), Ok("/v/sub".into()));
    assert_eq!(found("/data/sub/."), Err(Errno::EACCES));
    assert_eq!(found("/data/sub/.."), Err(Errno::EACCES));
    assert_eq!(found("/data/sub/none"), Err(Errno::EACCES));
}

/// A process may use its working directory even if the directories above it may not be searched
/// (any more).
#[test]
fn a_working_directory_out_of_reach() {
    let mut bench = bench();
    bench.fake.file("/v/sub/subsub/f", "").link("/v/sub/subsub/l", "f").chdir("/v/sub/subsub");
    bench.fake.mode("/v/sub", 0o600);
    let (place, found) = at(&mut bench, Dir::Cwd, "f", Intent::FOLLOW).unwrap();
    assert_eq!((place.at, found.as_str(), place.binding), (Dir::Cwd, "f", Some(1)));
    assert_eq!(at(&mut bench, Dir::Cwd, "l", Intent::FOLLOW).unwrap().1, "f");
    assert_eq!(at(&mut bench, Dir::Cwd, "../x", Intent::FOLLOW), Err(Errno::EACCES));
    assert_eq!(at(&mut bench, Dir::Cwd, "..", Intent::FOLLOW).unwrap().0.binding, Some(1));
    assert_eq!(at(&mut bench, Dir::Cwd, "/data/sub/subsub/f", Intent::FOLLOW), Err(Errno::EACCES));
}

#[test]
fn search_permission_of_emulated_users() {
    let mut bench = bench();
    bench.world.identity = Some(Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 });
    bench.fake.mode("/c/usr", 0o700);
    let mut found = |path: &str| at(&mut bench, Dir::Cwd, path, Intent::FOLLOW).map(|got| got.1);
    assert!(found("/bin/sh").is_ok(), "root may pass");
    bench.task.creds = Credentials::new(5, 5, crate::identity::Groups::NONE);
    let mut found = |path: &str| at(&mut bench, Dir::Root, path, Intent::FOLLOW).map(|got| got.1);
    assert_eq!(found("/usr/bin/sh"), Err(Errno::EACCES));
    assert_eq!(found("/bin/sh"), Err(Errno::EACCES));
    assert_eq!(found("/usr/none/x"), Err(Errno::EACCES));
    assert_eq!(found("/usr"), Ok("/c/usr".into()));
    assert_eq!(found("/usr/"), Ok("/c/usr".into()));
    assert_eq!(found("/usr/."), Err(Errno::EACCES));
    assert_eq!(found("/usr/.."), Err(Errno::EACCES));
    assert_eq!(found("/none"), Err(Errno::ENOENT));
    assert_eq!(found("/etc/passwd"), Ok("/c/etc/passwd".into()));
    assert_eq!(found("/etc/hosts"), Ok("/run/hosts".into()));
    for path in ["/usr/new", "/usr/bin/new", "/bin/new"] {
        assert_eq!(at(&mut bench, Dir::Cwd, path, Intent::NAME), Err(Errno::EACCES), "{path}");
    }
    assert_eq!(at(&mut bench, Dir::Cwd, "/usr", Intent::NAME).unwrap().1, "/c/usr");
    assert_eq!(at(&mut bench, Dir::Cwd, "/usr/new", Intent::CREATE), Err(Errno::EACCES));
    assert!(at(&mut bench, Dir::Cwd, "/etc/new", Intent::CREATE).unwrap().0.missing);
}

#[test]
fn reverse_names() {
    let bench = bench();
    let reversed = |host: &str| {
        let mut into = crate::Text::EMPTY;
        let origin = reverse(&bench.world, host.as_bytes(), &mut into).unwrap();
        (origin, string(&into))
    };
    assert_eq!(reversed("/c"), (Origin::Inside(0), "/".into()));
    assert_eq!(reversed("/c/usr/bin"), (Origin::Inside(0), "/usr/bin".into()));
    assert_eq!(reversed("/c2/usr"), (Origin::Outside, String::new()));
    assert_eq!(reversed("/v"), (Origin::Inside(1), "/data".into()));
    assert_eq!(reversed("/w/x/y (deleted)"), (Origin::Inside(2), "/data/deep/y (deleted)".into()));
    assert_eq!(
        reversed("/run/hosts (deleted)"),
        (Origin::Inside(3), "/etc/hosts (deleted)".into())
    );
    assert_eq!(reversed("pipe:[3]"), (Origin::Unnamed, String::new()));
    assert_eq!(reversed("/memfd:x (deleted)"), (Origin::Unnamed, String::new()));
    // Hidden by bindings.
    assert_eq!(reversed("/v/deep/z"), (Origin::Outside, String::new()));
    assert_eq!(reversed("/c/etc/hosts"), (Origin::Outside, String::new()));
    assert_eq!(reversed("/"), (Origin::Outside, String::new()));
}

/// One host directory twice, and a binding of the host's root.
#[test]
fn reverse_of_overlapping_bindings() {
    let table = [
        binding("/", "/c", Kind::Tree),
        binding("/a", "/same", Kind::Host),
        binding("/b", "/same", Kind::Host),
        binding("/host", "/", Kind::Host),
        binding("/host/c", "/elsewhere", Kind::Host),
    ];
    let bench = Bench::new(Fake::new(), &table);
    let reversed = |host: &str| {
        let mut into = crate::Text::EMPTY;
        let origin = reverse(&bench.world, host.as_bytes(), &mut into).unwrap();
        (origin, string(&into))
    };
    assert_eq!(reversed("/same/x"), (Origin::Inside(1), "/a/x".into()));
    assert_eq!(reversed("/"), (Origin::Inside(3), "/host".into()));
    assert_eq!(reversed("/etc"), (Origin::Inside(3), "/host/etc".into()));
    assert_eq!(reversed("/c/x"), (Origin::Inside(0), "/x".into()));
    assert!(bench.world.overlaps);
    // The name by which the directory was entered, if it still leads there.
    let entered = |host: &str, by: usize| {
        let mut into = crate::Text::EMPTY;
        let origin = reverse_by(&bench.world, host.as_bytes(), || Some(by), &mut into).unwrap();
        (origin, string(&into))
    };
    assert_eq!(entered("/same/x", 1), (Origin::Inside(1), "/a/x".into()));
    assert_eq!(entered("/same/x", 2), (Origin::Inside(2), "/b/x".into()));
    assert_eq!(entered("/same", 2), (Origin::Inside(2), "/b".into()));
    assert_eq!(entered("/same/x", 3), (Origin::Inside(3), "/host/same/x".into()));
    assert_eq!(entered("/c/x", 3), (Origin::Inside(0), "/x".into()), "hidden by another");
    assert_eq!(entered("/same/x", 0), (Origin::Inside(1), "/a/x".into()), "not in there");
    assert_eq!(entered("/same/x", 77), (Origin::Inside(1), "/a/x".into()));
    let mut path = crate::testing::text("/srv/www/x");
    assert!(seen_from(&crate::testing::text("/srv"), &mut path).unwrap());
    assert_eq!(string(&path), "/www/x");
    assert!(!seen_from(&crate::testing::text("/w"), &mut path).unwrap());
    assert!(seen_from(&crate::testing::text("/www/x"), &mut path).unwrap());
    assert_eq!(string(&path), "/");
}

/// Bindings that lie within another on the host.
#[test]
fn which_bindings_overlap() {
    let overlaps = |pairs: &[(&'static str, &'static str)]| {
        let table: Vec<_> =
            pairs.iter().map(|(guest, host)| binding(guest, host, Kind::Host)).collect();
        crate::World::new(&table, None, &[]).overlaps
    };
    assert!(!overlaps(&[("/", "/c"), ("/a", "/v"), ("/b", "/vw"), ("/d", "/w/v")]));
    assert!(overlaps(&[("/", "/c"), ("/a", "/v"), ("/b", "/v")]));
    assert!(overlaps(&[("/", "/c"), ("/a", "/v/w"), ("/b", "/v")]));
    assert!(overlaps(&[("/", "/c"), ("/a", "/c/usr")]));
    assert!(overlaps(&[("/", "/c"), ("/a", "/"), ("/b", "/v")]));
    // The same place for the guest.
    assert!(!overlaps(&[("/", "/c"), ("/home/me", "/home/me"), ("/home/me/w", "/home/me/w")]));
    assert!(!overlaps(&[("/", "/"), ("/home", "/home")]));
    assert!(!overlaps(&[("/", "/c"), ("/etc", "/c/etc")]));
    assert!(overlaps(&[("/", "/c"), ("/a", "/v"), ("/a/x", "/v/y")]));
}
