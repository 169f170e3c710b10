use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{mount, unmount};
use super::{Removal, VolumeRequest, create, describe, get};
use crate::config::Settings;
use crate::dialect::Dialect;
use crate::events::Silent;
use crate::session::{Cancel, Foreign, Session, Surroundings};

/// A session with a store of its own, and a driver that is this script.
fn session(directory: &Path, script: &str) -> Session {
    let program = directory.join("coracle-volume-x");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let environment = [(OsString::from("PATH"), OsString::from(path))].into();
    let surroundings = Surroundings { environment, ..Surroundings::default() };
    let settings = Settings { store_dir: Some(directory.join("store")), ..Settings::default() };
    let manners = (Dialect::default(), Foreign::default());
    Session::new(Arc::new(surroundings), settings, manners, Arc::new(Silent))
}

fn request(name: &str, driver: Option<&str>, options: &[(&str, &str)]) -> VolumeRequest {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    VolumeRequest {
        name: Some(name.to_owned()),
        driver: driver.map(str::to_owned),
        options: options.iter().map(owned).collect(),
        labels: BTreeMap::new(),
    }
}

#[test]
fn a_volume_has_one_driver_with_its_options() {
    let directory = tempfile::tempdir().unwrap();
    let session = session(directory.path(), "exit 0");
    let make = |driver, options: &[_]| create(&session, request("v", driver, options));
    make(Some("x"), &[("a", "1")]).unwrap();
    make(Some("x"), &[("a", "1")]).unwrap();
    // Who names no driver takes what is there.
    make(None, &[]).unwrap();
    for (driver, options) in [("x", &[("a", "2")][..]), ("x", &[]), ("local", &[])] {
        let error = make(Some(driver), options).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Conflict, "{error}");
    }
    let seen = describe(&get(&session, "v").unwrap()).unwrap();
    assert_eq!((&seen["Driver"], &seen["Options"]["a"]), (&"x".into(), &"1".into()));
    assert_eq!(seen["Status"]["Mounted"], false);
    for (driver, options) in
        [("nothing", &[][..]), ("a/b", &[]), ("", &[]), ("local", &[("a", "")])]
    {
        let error = create(&session, request("w", Some(driver), options)).err();
        let refused = error.as_ref().is_some_and(|error| error.hint().is_some());
        assert_eq!(refused, !driver.is_empty(), "{driver}: {error:?}");
    }
}

#[test]
fn a_driver_that_fails_is_quoted_and_one_that_mounts_nothing_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo \"$@\" >>$(dirname $0)/calls; [ $4 = a=1 ] || exit 0; seq 9 >&2; exit 3";
    let session = session(directory.path(), script);
    let mounted = |name: &str, option: &str| {
        create(&session, request(name, Some("x"), &[("a", option)])).unwrap();
        mount(&session, &get(&session, name).unwrap()).unwrap_err()
    };
    assert_eq!(mounted("bad", "1").causes(), ["5\n6\n7\n8\n9"]);
    assert!(mounted("empty", "b c").to_string().contains("has mounted nothing at"));
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    let data = get(&session, "empty").unwrap().data();
    assert_eq!(calls.lines().last(), Some(&*format!("mount empty {} a=b c", data.display())));
    // What is not mounted is not unmounted, and goes.
    assert!(!unmount(&session, &get(&session, "bad").unwrap()).unwrap());
    assert!(Removal::new(&session).unwrap().remove("bad").unwrap());
    assert_eq!(std::fs::read_to_string(directory.path().join("calls")).unwrap(), calls);
}

#[test]
fn a_driver_that_hangs_ends_with_the_operation() {
    let directory = tempfile::tempdir().unwrap();
    let session = session(directory.path(), "exec sleep 1000");
    create(&session, request("v", Some("x"), &[])).unwrap();
    let cancel = Cancel::default();
    let session = session.with(Arc::new(Silent), cancel.clone());
    let volume = get(&session, "v").unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        cancel.cancel();
    });
    let error = mount(&session, &volume).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Cancelled, "{error}");
}
