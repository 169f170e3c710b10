//! Tests of credentials, capabilities, rules and records, without any call.

use super::capabilities::{ALL, Capabilities, SECURE_NO_ROOT, SECURE_NO_SETUID_FIXUP};
use super::credentials::KEEP;
use super::*;
use crate::errno::Errno;
use crate::guest::Dir;
use crate::testing::Fake;
use crate::world::{Identity, Kind};
use linux_raw_sys::general::{
    S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG, S_ISGID, S_ISUID, S_ISVTX, UTIME_NOW, UTIME_OMIT, timespec,
};
use proptest::prelude::*;

const NOBODY: u32 = 65_534;

fn user(id: u32) -> Credentials {
    Credentials::new(id, id, Groups::NONE)
}

fn file(mode: u32, uid: u32, gid: u32) -> Truth {
    Truth { mode: S_IFREG | mode, uid, gid, ..Truth::default() }
}

fn directory(mode: u32, uid: u32, gid: u32) -> Truth {
    Truth { mode: S_IFDIR | mode, uid, gid, ..Truth::default() }
}

#[test]
fn dropped_ids_do_not_come_back() {
    let mut apt = Credentials::ROOT;
    apt.setgroups(Groups::new([NOBODY]).unwrap()).unwrap();
    apt.setresgid([NOBODY; 3]).unwrap();
    apt.setresuid([42; 3]).unwrap();
    assert_eq!((apt.uid, apt.gid), (Ids::all(42), Ids::all(NOBODY)));
    assert_eq!(apt.capabilities, Capabilities::NONE);
    assert_eq!(apt.setuid(0), Err(Errno::EPERM));
    assert_eq!(apt.setgid(0), Err(Errno::EPERM));
    assert_eq!(apt.setreuid(KEEP, 0), Err(Errno::EPERM));
    assert_eq!(apt.setresuid([0, KEEP, KEEP]), Err(Errno::EPERM));
    assert_eq!(apt.setgroups(Groups::NONE), Err(Errno::EPERM));
    assert_eq!(apt.setuid(42), Ok(()));
    assert_eq!(apt.setuid(KEEP), Err(Errno::EINVAL));
}

#[test]
fn an_effective_id_comes_back_from_the_saved_one() {
    let mut process = Credentials::ROOT;
    process.setresuid([KEEP, 1000, KEEP]).unwrap();
    assert_eq!(process.uid, Ids { real: 0, effective: 1000, saved: 0, files: 1000 });
    assert!(!process.has(Capability::CHOWN) && process.capabilities.permitted == ALL);
    assert_eq!(process.setreuid(7, KEEP), Err(Errno::EPERM));
    process.setreuid(KEEP, 0).unwrap();
    assert_eq!(process, Credentials::ROOT);
}

#[test]
fn kept_capabilities_change_groups_later() {
    // As `setpriv --reuid=33 --regid=33 --clear-groups` does it.
    let mut process = Credentials::ROOT;
    process.capabilities.set_keep(1).unwrap();
    process.setresuid([33; 3]).unwrap();
    assert!(!process.has(Capability::SETGID));
    process.capabilities.set(ALL, ALL, 0).unwrap();
    process.setresgid([33; 3]).unwrap();
    process.setgroups(Groups::NONE).unwrap();
    execute(&mut process, &file(0o755, 0, 0), false);
    assert_eq!(process.capabilities, Capabilities::NONE);
    assert_eq!(process.setuid(0), Err(Errno::EPERM));
}

#[test]
fn setreuid_moves_the_saved_id() {
    let mut process = Credentials::ROOT;
    process.setreuid(5, 6).unwrap();
    assert_eq!(process.uid, Ids { real: 5, effective: 6, saved: 6, files: 6 });
    process.setreuid(KEEP, 5).unwrap();
    // The effective id is the old real one, so the saved id stays.
    assert_eq!(process.uid, Ids { real: 5, effective: 5, saved: 6, files: 5 });
}

#[test]
fn setfsuid_returns_the_old_id_in_any_case() {
    let mut process = Credentials::ROOT;
    assert_eq!(process.setfsuid(9), 0);
    assert!(!process.overrides() && process.has(Capability::SETUID));
    assert_eq!(process.setfsuid(KEEP), 9);
    assert_eq!(process.setfsuid(0), 9);
    assert!(process.overrides());
    process.setuid(3).unwrap();
    assert_eq!(process.setfsuid(0), 3);
    assert_eq!(process.uid.files, 3);
}

#[test]
fn capabilities_follow_capset() {
    let mut sets = Capabilities::ROOT;
    sets.set(1, 3, 2).unwrap();
    assert_eq!(sets.set(4, 4, 0), Err(Errno::EPERM));
    assert_eq!(sets.set(3, 1, 0), Err(Errno::EPERM));
    assert_eq!(sets.set(0, 0, 4), Err(Errno::EPERM));
    assert_eq!(sets.ambient(2, 1), Ok(0));
    assert_eq!(sets.ambient(1, 1), Ok(1));
    assert_eq!(sets.ambient(2, 0), Err(Errno::EPERM));
    assert_eq!(sets.ambient(4, 0), Ok(0));
    assert_eq!(sets.ambient(1, 1), Ok(0));
    assert_eq!(sets.drop_bound(3), Err(Errno::EPERM));
    let mut root = Capabilities::ROOT;
    root.drop_bound(3).unwrap();
    assert_eq!(
        (root.bounds(3), root.bounds(4), root.bounds(77)),
        (Ok(false), Ok(true), Err(Errno::EINVAL))
    );
    root.set_secure(u64::from(SECURE_NO_SETUID_FIXUP)).unwrap();
    let before = root;
    root.user_changed([0; 3], [7; 3]);
    assert_eq!(root, before);
}

#[test]
fn programs_give_ids() {
    let mut who = user(1000);
    let told = execute(&mut who, &file(S_ISUID | 0o755, 0, 0), false);
    assert!(told.secure);
    assert_eq!(who.uid, Ids { real: 1000, effective: 0, saved: 0, files: 0 });
    assert!(who.overrides());
    // A program that it executes in turn stays root.
    assert!(execute(&mut who, &file(0o755, 0, 0), false).secure);
    assert_eq!(who.uid.effective, 0);

    let mut who = user(1000);
    assert!(execute(&mut who, &file(S_ISGID | 0o755, 0, 42), false).secure);
    assert_eq!(who.gid, Ids { real: 1000, effective: 42, saved: 42, files: 42 });
    // Without execute permission for the group, the bit has another meaning.
    let mut who = user(1000);
    assert!(!execute(&mut who, &file(S_ISGID | 0o745, 0, 42), false).secure);
    assert_eq!(who, user(1000));

    let mut who = user(1000);
    who.no_new_privileges = true;
    assert!(!execute(&mut who, &file(S_ISUID | 0o755, 0, 0), false).secure);
    assert_eq!(who.uid, Ids::all(1000));

    // Root gets back what it has dropped, unless it may gain nothing.
    for (privileges, expected) in [(false, Capabilities::ROOT.permitted), (true, 1)] {
        let mut root = Credentials::ROOT;
        (root.capabilities.permitted, root.capabilities.effective) = (1, 1);
        root.no_new_privileges = privileges;
        execute(&mut root, &file(0o755, 0, 0), false);
        assert_eq!(root.capabilities.permitted, expected);
        assert_eq!(root.capabilities.effective, expected);
    }

    let mut root = Credentials::ROOT;
    root.capabilities.secure = SECURE_NO_ROOT;
    execute(&mut root, &file(0o755, 0, 0), false);
    assert_eq!(root.capabilities.effective, 0);
}

#[test]
fn modes_are_judged_by_the_first_class_that_fits() {
    let owner_less = file(0o077, 5, 5);
    assert_eq!(may(&user(5), &owner_less, Want::READ), Err(Errno::EACCES));
    assert_eq!(may(&user(6), &owner_less, Want::READ), Ok(()));
    let grouped = Credentials::new(6, 6, Groups::new([9, 5]).unwrap());
    assert_eq!(may(&grouped, &file(0o604, 5, 5), Want::READ), Err(Errno::EACCES));
    assert_eq!(may(&Credentials::ROOT, &file(0, 5, 5), Want(6)), Ok(()));
    assert_eq!(may(&Credentials::ROOT, &file(0o666, 5, 5), Want::EXECUTE), Err(Errno::EACCES));
    assert_eq!(may(&Credentials::ROOT, &file(0o001, 5, 5), Want::EXECUTE), Ok(()));
    assert_eq!(may(&Credentials::ROOT, &directory(0, 5, 5), Want(7)), Ok(()));
    let mut reader = user(6);
    reader.capabilities.effective = 1 << Capability::DAC_READ_SEARCH.0;
    assert_eq!(may(&reader, &directory(0, 5, 5), Want(5)), Ok(()));
    assert_eq!(may(&reader, &file(0, 5, 5), Want(5)), Err(Errno::EACCES));
}

#[test]
fn sticky_directories_protect_names() {
    let tmp = directory(S_ISVTX | 0o777, 0, 0);
    assert_eq!(may_delete(&user(5), &tmp, &file(0o666, 6, 6)), Err(Errno::EPERM));
    assert_eq!(may_delete(&user(5), &tmp, &file(0, 5, 6)), Ok(()));
    let own = directory(S_ISVTX | 0o777, 5, 5);
    assert_eq!(may_delete(&user(5), &own, &file(0o666, 6, 6)), Ok(()));
    assert_eq!(may_delete(&Credentials::ROOT, &tmp, &file(0, 6, 6)), Ok(()));
    assert_eq!(may_delete(&user(5), &directory(0o755, 0, 0), &file(0, 5, 5)), Err(Errno::EACCES));
    assert_eq!(may_create(&user(5), &tmp), Ok(()));
}

#[test]
fn owners_may_give_to_their_groups_only() {
    let who = Credentials::new(3, 4, Groups::new([7]).unwrap());
    assert_eq!(may_chown(&who, &file(0, 3, 4), KEEP, 7), Ok(()));
    assert_eq!(may_chown(&who, &file(0, 3, 4), 3, 4), Ok(()));
    assert_eq!(may_chown(&who, &file(0, 3, 4), KEEP, 8), Err(Errno::EPERM));
    assert_eq!(may_chown(&who, &file(0, 3, 4), 9, KEEP), Err(Errno::EPERM));
    assert_eq!(may_chown(&who, &file(0, 0, 0), KEEP, KEEP), Ok(()));
    assert_eq!(may_chown(&Credentials::ROOT, &file(0, 3, 4), 5, 5), Ok(()));
}

#[test]
fn times_need_an_owner_or_only_a_writer() {
    let time = |nanoseconds: u32| timespec { tv_sec: 1, tv_nsec: i64::from(nanoseconds) };
    let shared = file(0o666, 5, 5);
    let who = user(6);
    assert_eq!(may_set_times(&who, &shared, None), Ok(()));
    assert_eq!(may_set_times(&who, &shared, Some(&[time(UTIME_NOW); 2])), Ok(()));
    assert_eq!(may_set_times(&who, &shared, Some(&[time(UTIME_OMIT); 2])), Ok(()));
    assert_eq!(may_set_times(&who, &shared, Some(&[time(7); 2])), Err(Errno::EPERM));
    assert_eq!(
        may_set_times(&who, &shared, Some(&[time(UTIME_NOW), time(UTIME_OMIT)])),
        Err(Errno::EPERM)
    );
    assert_eq!(may_set_times(&who, &file(0o644, 5, 5), None), Err(Errno::EACCES));
    assert_eq!(may_set_times(&user(5), &shared, Some(&[time(7); 2])), Ok(()));
}

fn unlisted(mode: u32) -> (u32, Lists) {
    (mode, Lists::NONE)
}

#[test]
fn new_files_take_the_group_of_a_setgid_directory() {
    let parent = directory(S_ISGID | 0o2775, 0, 50);
    let made = new_file(&user(5), &parent, unlisted(S_IFDIR | 0o755), (0, 0));
    assert_eq!(made, directory(S_ISGID | 0o755, 5, 50));
    let made = new_file(&user(5), &parent, unlisted(S_IFREG | S_ISGID | 0o755), (0, 0));
    assert_eq!(made, file(0o755, 5, 50));
    let made = new_file(&Credentials::ROOT, &parent, unlisted(S_IFREG | S_ISGID | 0o755), (0, 0));
    assert_eq!(made, file(S_ISGID | 0o755, 0, 50));
    let made = new_file(&user(5), &directory(0o755, 0, 50), unlisted(S_IFREG | 0o644), (0, 0));
    assert_eq!(made, file(0o644, 5, 5));
}

#[test]
fn the_mode_on_disk_has_the_owners_bits_and_no_set_id_bits() {
    assert_eq!(file(S_ISUID | S_ISGID | S_ISVTX | 0o055, 0, 0).disk_bits(), 0o655);
    assert_eq!(directory(0, 0, 0).disk_bits(), 0o700);
    assert!(!file(0o644, 0, 0).needs_record());
    assert!(!directory(S_ISVTX | 0o777, 0, 0).needs_record());
    assert!(file(0o444, 0, 0).needs_record() && file(S_ISUID | 0o755, 0, 0).needs_record());
    assert!(Truth { mode: S_IFCHR | 0o600, ..file(0, 0, 0) }.needs_record());
}

const IDENTITY: Identity = Identity { host_uid: 1000, host_gid: 1000, uid: 7, gid: 8 };

/// A world with one file, which belongs to the caller.
fn one_file() -> Fake {
    let mut fake = Fake::new();
    fake.file("/c/f", "x").dir("/c/d").link("/c/l", "f");
    for node in &mut fake.tree.nodes {
        (node.uid, node.gid) = (1000, 1000);
    }
    fake
}

fn seen(fake: &mut Fake, kind: Kind, path: &core::ffi::CStr) -> Found {
    look(fake, &IDENTITY, None, kind, Dir::Root, path).unwrap()
}

fn change(fake: &mut Fake, path: &core::ffi::CStr, new: &Truth) {
    let found = seen(fake, Kind::Tree, path);
    set_truth(fake, &IDENTITY, Kind::Tree, (Dir::Root, path), &found, new).unwrap();
}

#[test]
fn an_ordinary_file_costs_one_call() {
    let mut fake = one_file();
    assert_eq!(seen(&mut fake, Kind::Tree, c"/c/f").truth, file(0o644, 0, 0));
    assert_eq!(fake.calls(), ["statx"]);
    assert_eq!(seen(&mut fake, Kind::Host, c"/c/f").truth, file(0o644, 7, 8));
    let id = fake.at("/c/f");
    fake.tree.nodes[id].uid = 33;
    assert_eq!(seen(&mut fake, Kind::Tree, c"/c/f").truth, file(0o644, 33, 0));
}

#[test]
fn records_come_and_go_with_the_mark() {
    let mut fake = one_file();
    let new = file(S_ISUID | 0o411, 5, 6);
    change(&mut fake, c"/c/f", &new);
    let id = fake.at("/c/f");
    assert_eq!(fake.tree.nodes[id].mode, S_ISVTX | 0o611);
    assert_eq!(fake.tree.nodes[id].attributes[&b"user.coracle.owner"[..]], b"5:6:4411:f:0:0");
    let found = seen(&mut fake, Kind::Tree, c"/c/f");
    assert!(found.recorded && found.truth == new);
    change(&mut fake, c"/c/f", &file(0o640, 0, 0));
    assert_eq!(fake.tree.nodes[id].mode, 0o640);
    assert!(fake.tree.nodes[id].attributes.is_empty());
    // The sticky bit alone needs no record.
    change(&mut fake, c"/c/d", &directory(S_ISVTX | 0o777, 0, 0));
    assert!(fake.tree.nodes[fake.at("/c/d")].attributes.is_empty());
    let found = seen(&mut fake, Kind::Tree, c"/c/d");
    assert!(!found.recorded && found.truth == directory(S_ISVTX | 0o777, 0, 0));
}

/// Makes a file of the host's be `new`, and returns its mode and group on disk, and whether it has
/// a record.
fn on_host(fake: &mut Fake, path: &core::ffi::CStr, new: &Truth) -> (u32, u32, bool) {
    let found = seen(fake, Kind::Host, path);
    set_truth(fake, &IDENTITY, Kind::Host, (Dir::Root, path), &found, new).unwrap();
    let found = seen(fake, Kind::Host, path);
    assert_eq!(found.truth, *new);
    let node = &fake.tree.nodes[fake.at(path.to_str().unwrap())];
    (node.mode, node.gid, found.recorded)
}

#[test]
fn files_of_the_host_really_change() {
    let mut fake = one_file();
    for mode in [0o640, 0o400, 0o777] {
        assert_eq!(on_host(&mut fake, c"/c/f", &file(mode, 7, 8)), (mode, 1000, false));
    }
    for mode in [S_ISGID | 0o770, S_ISVTX | 0o777, 0o555] {
        assert_eq!(on_host(&mut fake, c"/c/d", &directory(mode, 7, 8)), (mode, 1000, false));
    }
    // A group of the caller's.
    assert_eq!(on_host(&mut fake, c"/c/d", &directory(0o770, 7, 50)), (0o770, 50, false));
    // What the caller could not do is recorded, and the sticky bit is the guest's alone.
    let other = directory(S_ISGID | 0o775, 33, 33);
    assert_eq!(on_host(&mut fake, c"/c/d", &other), (S_ISUID | S_ISGID | 0o775, 50, true));
    let sticky = directory(S_ISVTX | 0o777, 33, 8);
    assert_eq!(on_host(&mut fake, c"/c/d", &sticky), (S_ISUID | S_ISVTX | 0o777, 1000, true));
    assert_eq!(on_host(&mut fake, c"/c/d", &directory(0o755, 7, 8)), (0o755, 1000, false));
    // No program of the caller's id is left on the host, and its owner can search a directory.
    let program = file(S_ISUID | 0o755, 7, 8);
    assert_eq!(on_host(&mut fake, c"/c/f", &program), (S_ISVTX | 0o755, 1000, true));
    assert_eq!(on_host(&mut fake, c"/c/d", &directory(0o200, 7, 8)).0, S_ISUID | 0o700);
}

#[test]
fn a_link_or_pipe_has_its_record_in_the_log() {
    let mut fake = one_file();
    let new = Truth { mode: S_IFLNK | 0o777, uid: 5, gid: 6, ..Truth::default() };
    change(&mut fake, c"/c/l", &new);
    assert_eq!(fake.notes.len(), 1);
    assert_eq!(seen(&mut fake, Kind::Tree, c"/c/l").truth, new);
    change(&mut fake, c"/c/l", &Truth { uid: 0, gid: 0, ..new });
    assert!(fake.notes.is_empty());
}

#[test]
fn a_placeholder_is_a_device() {
    let mut fake = one_file();
    let device = Truth { mode: S_IFCHR | 0o666, device: (1, 3), ..Truth::default() };
    let id = fake.at("/c/f");
    fake.tree.nodes[id].mode = 0o600;
    created(&mut fake, &IDENTITY, Kind::Tree, (Dir::Root, c"/c/f"), &device).unwrap();
    assert_eq!(seen(&mut fake, Kind::Tree, c"/c/f").truth, device);
    assert_eq!(fake.tree.nodes[fake.at("/c/f")].mode, S_ISVTX | 0o600);
    // A record cannot turn a directory into a device.
    change(&mut fake, c"/c/d", &directory(0o755, 5, 5));
    let id = fake.at("/c/d");
    fake.tree.nodes[id]
        .attributes
        .insert(b"user.coracle.owner".to_vec(), b"5:5:666:c:1:3".to_vec());
    assert_eq!(seen(&mut fake, Kind::Tree, c"/c/d").truth, directory(0o666, 5, 5));
}

#[test]
fn writers_lose_set_id_bits_unless_they_may_keep_them() {
    let mut fake = one_file();
    change(&mut fake, c"/c/f", &file(S_ISUID | S_ISGID | 0o777, 5, 5));
    let at = (Dir::Root, c"/c/f");
    let found = seen(&mut fake, Kind::Tree, at.1);
    written(&mut fake, &IDENTITY, &Credentials::ROOT, Kind::Tree, at, &found).unwrap();
    assert_eq!(seen(&mut fake, Kind::Tree, at.1).truth, found.truth);
    written(&mut fake, &IDENTITY, &user(6), Kind::Tree, at, &found).unwrap();
    assert_eq!(seen(&mut fake, Kind::Tree, at.1).truth, file(0o777, 5, 5));
}

proptest! {
    #[test]
    fn records_are_read_as_written(
        kind in prop::sample::select(std::vec![S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR]),
        bits in 0_u32..0o10000, uid: u32, gid: u32, device: (u32, u32), access: bool, default: bool,
    ) {
        let lists = Lists { access, default, granted: None };
        let truth = Truth { mode: kind | bits, uid, gid, device, lists };
        prop_assert_eq!(Truth::from_text(truth.to_text().as_bytes()), Some(truth));
    }

    #[test]
    fn no_record_text_panics(text: std::vec::Vec<u8>) {
        let _ = Truth::from_text(&text);
    }
}
