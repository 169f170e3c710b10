//! Tests of the real probes, as the caller and as users without privilege, with and without user
//! namespaces.
//!
//! The test program starts itself again as another user, with the test `print_facts`. Its binary is
//! copied to a directory that everybody can read, because a build directory is often private.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::{Barrier, Caller, Context, Depth, Host, users::Directory};

const STORE: &str = "HOST_TEST_STORE";
const BEGIN: &str = "<<<facts";
const END: &str = "facts>>>";

/// Not a test: the other tests run it as another user.
#[test]
#[ignore = "started by the other tests"]
fn print_facts() {
    let store = std::env::var_os(STORE).map(PathBuf::from);
    let host = Host::thorough(&Context { store, ..Context::default() });
    println!("\n{BEGIN}{}{END}", serde_json::to_string(&host).unwrap());
}

/// A directory that any user may enter, with a copy of this program and a directory for each user.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let directory =
            tempfile::Builder::new().prefix("coracle-host-").tempdir_in("/tmp").unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), everybody.clone()).unwrap();
        let program = directory.path().join("probes");
        // Copied by another program: a child that another test forks meanwhile would hold this
        // process's copy open for writing, and it could not be executed.
        let copied =
            Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(&program, everybody).unwrap();
        Stage { directory }
    }

    /// The facts as seen by `uid`; `wrapper` goes in front of the command.
    fn facts(&self, uid: u32, wrapper: Option<&Path>) -> Host {
        let home = self.directory.path().join(format!("home-{uid}"));
        if !home.exists() {
            std::fs::create_dir(&home).unwrap();
            std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
        }
        let mut command = match wrapper {
            Some(wrapper) => {
                let mut command = Command::new(wrapper);
                command.arg("setpriv");
                command
            }
            None => Command::new("setpriv"),
        };
        let ids = uid.to_string();
        command
            .args(["--reuid", &ids, "--regid", &ids, "--clear-groups"])
            .arg(self.directory.path().join("probes"))
            .args(["--exact", "print_facts", "--ignored", "--nocapture"])
            .env(STORE, home.join("store"))
            .current_dir("/");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let facts = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let (facts, _) = facts.unwrap_or_else(|| panic!("no facts: {text} {output:?}"));
        let left: Vec<_> = std::fs::read_dir(&home).unwrap().collect();
        assert!(left.is_empty(), "probes leave nothing behind: {left:?}");
        serde_json::from_str(facts).unwrap()
    }
}

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIP {test}: needs root to become other users");
    }
    root
}

/// User namespaces work or not depending on the host; if not, the trial must have a reason.
fn namespaces_are_explained(host: &Host) {
    let namespaces = &host.namespaces;
    assert_eq!(namespaces.user.is_works(), namespaces.barrier.is_none(), "{namespaces:?}");
    if namespaces.user.is_fails() {
        assert!(namespaces.user.advice().is_some());
        eprintln!("SKIP namespaces inside: {:?}", namespaces.user.why());
    }
}

#[test]
fn as_the_caller() {
    let directory = tempfile::tempdir().unwrap();
    let before = std::fs::read_link("/proc/self/ns/user").unwrap();
    let store = Some(directory.path().join("store"));
    let host = Host::thorough(&Context { store, ..Context::default() });
    assert_eq!(host.depth, Depth::Thorough);
    assert_eq!(host.caller.uid, rustix::process::geteuid().as_raw());
    assert!(host.store.as_ref().is_some_and(|disk| disk.writable.is_works()));
    assert_eq!(std::fs::read_link("/proc/self/ns/user").unwrap(), before, "we were not changed");
    namespaces_are_explained(&host);
    for finding in host.findings() {
        assert!(!finding.value.is_empty() || finding.name == "helpers", "{finding:?}");
    }
}

#[test]
fn as_a_user_without_subordinate_ids() {
    if !is_root("as_a_user_without_subordinate_ids") {
        return;
    }
    // No user database has this number.
    let host = Stage::new().facts(54321, None);
    assert_eq!((host.caller.uid, host.caller.gid), (54321, 54321));
    assert_eq!(host.caller.name, None);
    assert_eq!(host.security.capabilities, 0);
    assert!(host.subordinate.mapping.is_fails());
    namespaces_are_explained(&host);
    if host.namespaces.user.is_works() {
        let advice = host.subordinate.mapping.advice();
        assert!(advice.is_some_and(|advice| advice.contains("usermod")), "{advice:?}");
        let overlay = &host.overlay.kernel;
        assert!(overlay.is_works() || overlay.errno().is_some(), "{overlay:?}");
    }
    assert!(host.seccomp.filter.is_works(), "{:?}", host.seccomp.filter);
}

#[test]
fn as_a_user_with_subordinate_ids() {
    if !is_root("as_a_user_with_subordinate_ids") {
        return;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let subuid = std::fs::read_to_string("/etc/subuid").unwrap_or_default();
    let user = host::users::parse_users(&passwd).find(|user| {
        user.uid != 0 && subuid.lines().any(|line| line.split(':').next() == Some(&user.name))
    });
    let Some(user) = user else {
        eprintln!("SKIP as_a_user_with_subordinate_ids: /etc/subuid names no user");
        return;
    };
    let host = Stage::new().facts(user.uid, None);
    assert_eq!(host.caller.name.as_deref(), Some(user.name.as_str()));
    assert_eq!(host.caller.home.as_deref(), Some(user.home.as_path()));
    assert!(!host.subordinate.uids.is_empty());
    if host.subordinate.newuidmap.is_none() {
        eprintln!("SKIP mapping a range: newuidmap is not installed");
    } else if host.namespaces.user.is_works() {
        assert!(host.subordinate.mapping.is_works(), "{:?}", host.subordinate);
    }
}

#[test]
fn where_user_namespaces_are_forbidden() {
    let wrapper = match testkit::users::no_namespaces() {
        Ok(wrapper) => wrapper,
        Err(why) => return eprintln!("SKIP where_user_namespaces_are_forbidden: {why}"),
    };
    let host = Stage::new().facts(54321, Some(wrapper));
    assert_eq!(host.namespaces.barrier, Some(Barrier::Limit), "{:?}", host.namespaces);
    assert_eq!(host.namespaces.user.errno(), Some(28), "ENOSPC");
    assert!(host.overlay.kernel.is_fails());
    assert!(host.namespaces.pid.is_fails());
    assert!(host.seccomp.trap.is_works(), "the in-process engine still has what it needs");
}

#[test]
fn a_quick_look_tries_nothing() {
    let host = Host::quick(&Context::default());
    assert_eq!(host.depth, Depth::Quick);
    assert_eq!(host.namespaces.user, host::Trial::Untried);
    assert!(!host.kernel.boot_id.is_empty());
    assert!(host.programs.find("sh").is_some());
    assert_eq!(host.cache_key(), Host::quick(&Context::default()).cache_key());
}

#[test]
fn users_without_nss() {
    let directory = tempfile::tempdir().unwrap();
    let (passwd, group) = (directory.path().join("passwd"), directory.path().join("group"));
    std::fs::write(
        &passwd,
        b"# comment\nroot:x:0:0:root:/root:/bin/sh\n+nis::::::\nbroken:x\n\nada:x:1000:100:Ada \xff,,,:/home/ada:\n77:x:5:5::/:\n",
    )
    .unwrap();
    std::fs::write(&group, "users:x:100:ada, bob\nwheel:x:10:\n").unwrap();
    let users = Directory::at(&passwd, &group);
    let ada = users.user("ada").unwrap();
    assert_eq!((ada.uid, ada.gid, ada.home.to_str()), (1000, 100, Some("/home/ada")));
    assert_eq!(users.user("1000").unwrap(), ada);
    assert_eq!(users.user("77").unwrap().uid, 5, "a name made of digits comes first");
    assert_eq!(users.user_by_id(4242).unwrap(), None);
    assert_eq!(users.group("users").unwrap().members, ["ada", "bob"]);
    assert_eq!(users.group("10").unwrap().name, "wheel");
    assert_eq!(users.group_names(&[10, 11]), [(10, "wheel".to_owned())].into());
    let error = users.user("nobody-here").unwrap_err();
    assert!(error.to_string().contains("nobody-here"));
    assert!(error.hint().is_some_and(|hint| hint.contains("getent")));
    let none = Directory::at(Path::new("/nonexistent"), Path::new("/nonexistent"));
    assert!(none.user("ada").is_err(), "a missing file is an empty one");
}

#[test]
fn getent_is_asked_for_what_the_files_do_not_hold() {
    let directory = tempfile::tempdir().unwrap();
    let getent = directory.path().join("getent");
    let script = "#!/bin/sh\n[ \"$1 $2\" = 'passwd ldapuser' ] && echo 'ldapuser:*:70001:70001:L:/home/l:/bin/bash'\n";
    std::fs::write(&getent, script).unwrap();
    std::fs::set_permissions(&getent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let programs = host::Programs::known([("getent", getent)]);
    let users = Directory::host(&programs, std::time::Duration::from_secs(20));
    assert_eq!(users.user("ldapuser").unwrap().uid, 70001);
    assert!(users.user("somebody-else").is_err());
    assert!(users.user("--help").is_err(), "never reaches the helper as an option");
    assert_eq!(users.failure(), None, "an unknown name is an answer");
}

#[test]
fn a_silent_directory_is_asked_once() {
    let directory = tempfile::tempdir().unwrap();
    let (getent, asked) = (directory.path().join("getent"), directory.path().join("asked"));
    let script = format!("#!/bin/sh\necho \"$*\" >>{}\nexec sleep 60\n", asked.display());
    std::fs::write(&getent, script).unwrap();
    std::fs::set_permissions(&getent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let programs = host::Programs::known([("getent", getent)]);
    let users = Directory::host(&programs, std::time::Duration::from_secs(1));
    assert_eq!(users.user_by_id(70001).unwrap(), None);
    assert!(users.user("ldapuser").is_err());
    assert!(users.group_names(&[70001]).is_empty());
    assert!(users.failure().is_some_and(|why| why.contains("did not answer within")));
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "passwd 70001\n");
}

#[test]
fn the_caller_is_known() {
    let caller = Caller::from_files();
    assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
    assert!(caller.groups.is_sorted());
}
