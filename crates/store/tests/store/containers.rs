use store::Error;

use crate::fixture::{fixture, names, syncs_at_once};

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Config {
    id: String,
    name: String,
}

fn make(store: &store::Store, name: Option<&str>) -> store::Result<store::ContainerDir> {
    store.containers().create(name, |id, name| Config { id: id.into(), name: name.into() })
}

#[test]
fn is_found_by_name_id_and_prefix() {
    let fixture = fixture();
    let web = make(&fixture.store, Some("web")).unwrap();
    let other = make(&fixture.store, None).unwrap();
    let containers = fixture.store.containers();
    for name in ["web", web.id(), web.short_id(), &web.id()[..6]] {
        assert_eq!(containers.find(name).unwrap().id(), web.id());
    }
    let config: Config = containers.find("web").unwrap().read().unwrap();
    assert_eq!(config, Config { id: web.id().into(), name: "web".into() });
    assert_eq!(containers.find("web").unwrap().names().unwrap(), ["web"]);
    for unknown in ["we", "", "../oci", "xyz", &"0".repeat(64)] {
        assert!(matches!(containers.find(unknown), Err(Error::NoContainer { .. })), "{unknown:?}");
    }
    let mut ids = [web.id(), other.id()];
    ids.sort_unstable();
    let all = containers.list().unwrap();
    assert_eq!(all.iter().map(store::ContainerDir::id).collect::<Vec<_>>(), ids);
    assert!(all.iter().all(|container| container.names().unwrap().len() == 1));
    assert_eq!(containers.map(|container| container.id().to_owned()).unwrap(), ids);
}

#[test]
fn an_ambiguous_prefix_lists_its_matches() {
    let fixture = fixture();
    let all: Vec<_> = (0..17).map(|_| make(&fixture.store, None).unwrap()).collect();
    let first = |container: &store::ContainerDir| container.id()[..1].to_owned();
    let twice = all
        .iter()
        .map(first)
        .find(|digit| all.iter().map(first).filter(|d| d == digit).count() > 1);
    let error = fixture.store.containers().find(&twice.unwrap()).unwrap_err();
    assert!(matches!(&error, Error::AmbiguousContainer { candidates, .. } if candidates.len() > 1));
}

#[test]
fn a_name_belongs_to_one_container() {
    let fixture = fixture();
    let mut web = make(&fixture.store, Some("web")).unwrap();
    let error = make(&fixture.store, Some("web")).unwrap_err();
    assert!(matches!(&error, Error::NameInUse { id, .. } if id == web.id()), "{error}");
    assert!(matches!(make(&fixture.store, Some("a/b")), Err(Error::BadName { .. })));
    assert!(names(&fixture.store.path().join("tmp")).iter().all(|name| !name.starts_with("new")));
    web.add_name("www").unwrap();
    web.add_name("www").unwrap();
    assert_eq!(web.names().unwrap(), ["web", "www"]);
    web.rename(Some("web"), "httpd").unwrap();
    assert_eq!(
        fixture.store.containers().find("httpd").unwrap().names().unwrap(),
        ["httpd", "www"]
    );
    make(&fixture.store, Some("web")).unwrap();
    assert!(matches!(web.rename(None, "web"), Err(Error::NameInUse { .. })));
    web.rename(None, "one").unwrap();
    assert_eq!(web.names().unwrap(), ["one"]);
    assert!(web.remove_name("one").unwrap());
    assert!(!web.remove_name("one").unwrap());
    assert!(web.names().unwrap().is_empty());
    assert!(fixture.store.containers().find(web.id()).is_ok());
}

#[test]
fn a_leftover_name_is_free() {
    let fixture = fixture();
    let link = fixture.store.path().join("containers/web");
    std::os::unix::fs::symlink("0".repeat(64), &link).unwrap();
    assert!(matches!(fixture.store.containers().find("web"), Err(Error::NoContainer { .. })));
    let web = make(&fixture.store, Some("web")).unwrap();
    assert_eq!(std::fs::read_link(&link).unwrap().to_str(), Some(web.id()));
}

#[test]
fn is_removed_with_its_names() {
    let fixture = fixture();
    let mut web = make(&fixture.store, Some("web")).unwrap();
    web.add_name("www").unwrap();
    let root = web.join("ROOT");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    let mut mode = std::fs::metadata(root.join("a")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0);
    std::fs::set_permissions(root.join("a"), mode).unwrap();
    let lock = web.try_lock_exclusive().unwrap().unwrap();
    web.clone().remove().unwrap();
    drop(lock);
    assert!(names(&fixture.store.path().join("containers")).is_empty());
    // On NFS the lock's file stays until it is closed.
    fixture.store.sweep(&store::remove_owned).unwrap();
    assert!(names(&fixture.store.path().join("trash")).is_empty());
    assert!(matches!(web.lock_shared(), Err(Error::NoContainer { .. })));
    assert!(matches!(web.write_file("state.json", &1), Err(Error::NoContainer { .. })));
    assert!(matches!(web.remove(), Err(Error::NoContainer { .. })));
}

#[test]
fn what_cannot_be_deleted_is_swept_later() {
    let fixture = fixture();
    let web = make(&fixture.store, Some("web")).unwrap();
    let error = web.remove_with(&|_| Err("not mine".into())).unwrap_err();
    assert!(matches!(error, Error::Removal { .. }));
    assert!(matches!(fixture.store.containers().find("web"), Err(Error::NoContainer { .. })));
    assert_eq!(names(&fixture.store.path().join("trash")).len(), 1);
    fixture.store.sweep(&store::remove_owned).unwrap();
    assert!(names(&fixture.store.path().join("trash")).is_empty());
}

#[test]
fn state_and_locks() {
    let fixture = fixture();
    let web = make(&fixture.store, Some("web")).unwrap();
    assert_eq!(web.read_file::<u32>("state.json").unwrap(), None);
    web.write_file("state.json", &7).unwrap();
    assert_eq!(web.read_file::<u32>("state.json").unwrap(), Some(7));
    let one = web.lock_shared().unwrap();
    let two = web.lock_shared().unwrap();
    assert!(web.try_lock_exclusive().unwrap().is_none());
    drop((one, two));
    assert!(web.try_lock_exclusive().unwrap().is_some());
}

#[test]
fn volumes_outlive_them() {
    let fixture = fixture();
    let info = store::VolumeInfo { created: "2026-01-02T03:04:05Z".into(), ..Default::default() };
    let (data, new) = fixture.store.volumes().create("data", &info).unwrap();
    assert!(new);
    std::fs::write(data.data().join("x"), "1").unwrap();
    let (same, new) = fixture.store.volumes().create("data", &info).unwrap();
    assert!(!new && same.data() == data.data());
    assert_eq!(fixture.store.volumes().get("data").unwrap().unwrap().info().unwrap(), info);
    assert_eq!(fixture.store.volumes().list().unwrap().len(), 1);
    assert!(fixture.store.volume_size("data").unwrap() > 0);
    assert!(matches!(fixture.store.volumes().create("a/b", &info), Err(Error::BadName { .. })));
    data.remove().unwrap();
    assert!(fixture.store.volumes().get("data").unwrap().is_none());
    assert!(matches!(same.remove(), Err(Error::NoVolume { .. })));
}

/// A power failure can leave a container's files empty, or full of zeros.
#[test]
fn a_container_that_never_reached_the_disk_is_removed() {
    let fixture = fixture();
    if syncs_at_once(&fixture, "a_container_that_never_reached_the_disk_is_removed") {
        return;
    }
    for (number, lost) in ["", "\0\0\0"].into_iter().enumerate() {
        let web = make(&fixture.store, Some("web")).unwrap();
        web.write_file("state.json", &7).unwrap();
        std::fs::write(web.join("state.json"), lost).unwrap();
        assert_eq!(web.read_file::<u32>("state.json").unwrap(), None);
        std::fs::write(web.join("state.json"), "{").unwrap();
        assert!(matches!(web.read_file::<u32>("state.json"), Err(Error::BadJson { .. })));
        std::fs::write(web.join("container.json"), lost).unwrap();
        if number == 0 {
            // The command that reads the record removes the container.
            assert!(matches!(web.read::<Config>(), Err(Error::NoContainer { .. })));
        } else {
            let found = fixture.store.verify(&store::VerifyOptions::default()).unwrap();
            assert!(found.is_empty(), "{found:?}");
        }
        assert!(names(&fixture.store.path().join("containers")).is_empty());
        assert!(names(&fixture.store.path().join("trash")).is_empty());
    }
    // A container that was on the disk is damaged, not lost, and stays as it is.
    let web = make(&fixture.store, Some("web")).unwrap();
    web.sync().unwrap();
    std::fs::write(web.join("container.json"), "").unwrap();
    assert!(matches!(web.read::<Config>(), Err(Error::NoContainer { .. })));
    assert_eq!(fixture.store.verify(&store::VerifyOptions::default()).unwrap().len(), 1);
    assert!(web.exists().unwrap());
}

/// The list of names reaches the disk later than the names.
#[test]
fn names_are_found_without_their_list() {
    let fixture = fixture();
    let web = make(&fixture.store, Some("web")).unwrap();
    std::fs::write(web.join("names"), "").unwrap();
    assert_eq!(fixture.store.containers().find("web").unwrap().names().unwrap(), ["web"]);
    web.remove().unwrap();
    assert!(names(&fixture.store.path().join("containers")).is_empty());
}

#[test]
fn listing_removes_dangling_names() {
    let fixture = fixture();
    let web = make(&fixture.store, Some("web")).unwrap();
    let place = fixture.store.path().join("containers");
    std::os::unix::fs::symlink("0".repeat(64), place.join("ghost")).unwrap();
    assert_eq!(fixture.store.containers().list().unwrap().len(), 1);
    let mut left = names(&place);
    left.sort_unstable();
    let mut wanted = [web.id().to_owned(), "web".to_owned()];
    wanted.sort_unstable();
    assert_eq!(left, wanted);
}

/// A directory whose record never reached the disk is not a volume, unless it holds something.
#[test]
fn a_volume_without_its_record() {
    let fixture = fixture();
    let volumes = fixture.store.volumes();
    let info = store::VolumeInfo { created: "2026-01-02T03:04:05Z".into(), ..Default::default() };
    let (lost, _) = volumes.create("data", &info).unwrap();
    let record = fixture.store.path().join("volumes/data/volume.json");
    std::fs::write(&record, "").unwrap();
    std::fs::write(lost.data().join("x"), "1").unwrap();
    assert_eq!(volumes.get("data").unwrap().unwrap().info().unwrap(), store::VolumeInfo::default());
    std::fs::remove_file(lost.data().join("x")).unwrap();
    assert!(volumes.list().unwrap().is_empty());
    let (_, new) = volumes.create("data", &info).unwrap();
    assert!(new);
    assert_eq!(volumes.get("data").unwrap().unwrap().info().unwrap(), info);
}
