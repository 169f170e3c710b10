//! Tests of the native engine, as unprivileged users, on real kernels.
//!
//! Each test runs the static example `native` as a user: the one who runs the tests, or, if that is
//! root, uid 1000 (no subordinate ids) and every user named in `CORACLE_TEST_UIDS`. The guest is
//! the same program as `/bin/guest` in a tree made here, so no image is needed. If user namespaces
//! are forbidden the tests print that and pass.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::command::copy_program;

/// A container for one user, with a tree of its own.
struct Container {
    uid: Option<u32>,
    directory: PathBuf,
    program: PathBuf,
}

fn users() -> Vec<Option<u32>> {
    if !rustix::process::geteuid().is_root() {
        return vec![None];
    }
    let more = std::env::var("CORACLE_TEST_UIDS").unwrap_or_else(|_| "1000,1001".into());
    more.split(',').filter_map(|uid| uid.parse().ok()).map(Some).collect()
}

impl Container {
    fn new(name: &str, uid: Option<u32>) -> Option<Self> {
        let who = uid.map_or_else(|| "self".into(), |uid| uid.to_string());
        let directory = std::env::temp_dir()
            .join(format!("coracle-native-{}-{name}-{who}", std::process::id()));
        let mut built = std::env::current_exe().ok()?;
        built.pop();
        built.pop();
        let built = built.join("examples/native");
        for part in ["lower/bin", "lower/etc", "lower/data", "upper", "work", "host"] {
            std::fs::create_dir_all(directory.join(part)).unwrap();
        }
        let program = directory.join("native");
        copy_program(&built, &program);
        copy_program(&built, &directory.join("lower/bin/guest"));
        let passwd = "root:x:0:0::/root:/bin/sh\nana:x:1000:100::/home/ana:/bin/sh\n";
        std::fs::write(directory.join("lower/etc/passwd"), passwd).unwrap();
        std::fs::write(directory.join("lower/etc/group"), "users:x:100:\n").unwrap();
        std::fs::write(directory.join("host/file"), "from the host").unwrap();
        // As in a hostile image: the mount point of a volume leads out of the tree.
        std::os::unix::fs::symlink("/data", directory.join("lower/link")).unwrap();
        let container = Self { uid, directory, program };
        if let Some(uid) = uid {
            let status = Command::new("chown")
                .arg("-R")
                .arg(format!("{uid}:{uid}"))
                .arg(&container.directory)
                .status();
            assert!(status.unwrap().success());
        }
        let allowed = container.command(&["unshare", "-r", "true"]).output().unwrap();
        if !allowed.status.success() {
            eprintln!("SKIP {name}: user namespaces are not available to {who}");
            return None;
        }
        Some(container)
    }

    /// A command as the container's user.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = match self.uid {
            None => Command::new(words[0]),
            Some(uid) => {
                let mut command = Command::new("setpriv");
                let uid = uid.to_string();
                command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", words[0]]);
                command
            }
        };
        command.args(&words[1..]).current_dir("/");
        command
    }

    fn setup(&self, config: &serde_json::Value) -> String {
        let at = |part: &str| self.directory.join(part);
        let mut config = config.clone();
        config["id"] = "0123456789abcdef".repeat(4).into();
        let setup = serde_json::json!({
            "place": self.directory,
            "root": {"overlay": {
                "lowers": [at("lower")], "upper": at("upper"), "work": at("work"), "volatile": true
            }},
            "config": config,
        });
        let file = at(&format!("config-{:x}.json", config.to_string().len()));
        std::fs::write(&file, setup.to_string()).unwrap();
        file.display().to_string()
    }

    fn run(&self, config: &serde_json::Value, guest: &[&str]) -> Output {
        self.verb("run", config, guest)
    }

    fn verb(&self, verb: &str, config: &serde_json::Value, guest: &[&str]) -> Output {
        let file = self.setup(config);
        let program = self.program.display().to_string();
        let mut words = vec![program.as_str(), verb, &file];
        words.extend(guest);
        self.command(&words).output().unwrap()
    }

    /// The output of the guest, which must succeed.
    fn says(&self, config: &serde_json::Value, guest: &[&str]) -> String {
        let output = self.run(config, guest);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{guest:?} as {:?}: {errors}", self.uid);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may have files of subordinate ids and directories of mode 000; the tests run as root
        // or own all of it.
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(&self.directory).output();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn each(name: &str, test: impl Fn(&Container)) {
    for uid in users() {
        if let Some(container) = Container::new(name, uid) {
            test(&container);
        }
    }
}

fn plain() -> serde_json::Value {
    serde_json::json!({})
}

fn isolated() -> serde_json::Value {
    serde_json::json!({"security": {"isolate": true}, "network": {"mode": "none"}})
}

#[test]
fn exit_codes_and_signals_are_the_programs_own() {
    each("exit", |container| {
        for config in [plain(), isolated()] {
            for verb in ["run", "spawn"] {
                let code = |guest: &[&str]| container.verb(verb, &config, guest).status.code();
                assert_eq!(code(&["guest", "exit", "7"]), Some(7), "{verb} {config}");
                assert_eq!(code(&["/nothing"]), Some(127), "{verb} {config}");
                assert_eq!(code(&["nothing"]), Some(127), "{verb} {config}");
                assert_eq!(code(&["/etc/passwd"]), Some(126), "{verb} {config}");
            }
        }
        // The caller became the program, so the signal killed the caller.
        let output = container.run(&plain(), &["guest", "die"]);
        assert_eq!(output.status.signal(), Some(15), "{output:?}");
    });
}

#[test]
fn root_is_root_and_others_are_others() {
    each("id", |container| {
        assert!(container.says(&plain(), &["guest", "id"]).starts_with("0 0 "));
        let ana = serde_json::json!({"user": "ana"});
        assert!(container.says(&ana, &["guest", "id"]).starts_with("1000 100 "));
        assert!(container.says(&ana, &["guest", "env"]).contains("HOME=/home/ana"));
        assert_eq!(container.says(&isolated(), &["guest", "id"]), "0 0 1\n");
        let keep = serde_json::json!({"namespaces": {"user": "keep-id"}});
        let uid = container.uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
        assert!(container.says(&keep, &["guest", "id"]).starts_with(&format!("{uid} {uid} ")));
    });
}

#[test]
fn what_is_written_stays_in_the_upper_directory() {
    each("write", |container| {
        for _ in 0..3 {
            container.says(&plain(), &["guest", "write", "/new"]);
        }
        assert_eq!(container.says(&plain(), &["guest", "read", "/new"]), "x");
        assert!(container.directory.join("upper/new").exists());
        assert!(!container.directory.join("lower/new").exists());
        let read_only = serde_json::json!({"read_only": true});
        let output = container.run(&read_only, &["guest", "write", "/other"]);
        assert_eq!(output.status.code(), Some(99));
    });
}

fn bind(container: &Container, target: &str, read_only: bool) -> serde_json::Value {
    let source = container.directory.join("host");
    serde_json::json!({"mounts": [
        {"kind": "bind", "source": source, "target": target, "read_only": read_only}
    ]})
}

#[test]
fn mounts_land_inside_whatever_links_the_image_has() {
    each("bind", |container| {
        for target in ["/deep/er/point", "/data", "/link"] {
            let config = bind(container, target, false);
            let file = format!("{target}/file");
            assert_eq!(container.says(&config, &["guest", "read", &file]), "from the host");
        }
        assert!(!Path::new("/data/file").exists());
        let config = bind(container, "/data", true);
        assert_eq!(
            container.run(&config, &["guest", "write", "/data/file"]).status.code(),
            Some(99)
        );
        container.says(&bind(container, "/data", false), &["guest", "write", "/data/made"]);
        assert!(container.directory.join("host/made").exists());
        let tmpfs = serde_json::json!({"mounts": [
            {"kind": "tmpfs", "target": "/scratch", "options": ["size=1m"]}
        ]});
        container.says(&tmpfs, &["guest", "write", "/scratch/file"]);
        assert!(!container.directory.join("upper/scratch/file").exists());
    });
}

#[test]
fn runs_at_the_same_time_share_one_world() {
    each("join", |container| {
        let file = container.setup(&plain());
        let program = container.program.display().to_string();
        let mut first = container
            .command(&[&program, "run", &file, "guest", "sleep", "3000"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(first.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let pid = line.trim();
        let namespace = |who: &str| {
            container.says(&plain(), &["guest", "link", &format!("/proc/{who}/ns/mnt")])
        };
        assert_eq!(namespace("self"), namespace(pid));
        let entered = container
            .command(&[&program, "exec", pid, &file, "guest", "link", "/proc/self/ns/user"])
            .output()
            .unwrap();
        let theirs = container.says(&plain(), &["guest", "link", &format!("/proc/{pid}/ns/user")]);
        assert_eq!(String::from_utf8(entered.stdout).unwrap(), theirs);
        first.wait().unwrap();
        container.says(&plain(), &["guest", "id"]);
    });
}

#[test]
fn roots_calls_succeed_and_are_shown_with_one_id() {
    each("emulate", |container| {
        let single = serde_json::json!({"namespaces": {"user": "single"}});
        container.says(&single, &["guest", "write", "/owned"]);
        container.says(&single, &["guest", "chown", "/owned", "33", "44"]);
        let shown = container.says(&single, &["guest", "owner", "/owned"]);
        assert_eq!(shown, "33:44:644\n");
        // 2541 is 04755.
        container.says(&single, &["guest", "chmod", "/owned", "2541"]);
        let shown = container.says(&single, &["guest", "owner", "/owned"]);
        assert_eq!(shown, "33:44:4755\n");
        let dropped = container.says(&single, &["guest", "drop", "42"]);
        assert_eq!(
            dropped,
            "42 Err(Os { code: 1, kind: PermissionDenied, message: \"Operation not permitted\" }) 1\n"
        );
    });
}

#[test]
fn isolation_hides_the_host() {
    each("isolate", |container| {
        let status = container.says(&isolated(), &["guest", "read", "/proc/self/status"]);
        assert!(status.contains("CapBnd:\t00000000a80425fb"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert!(status.contains("Seccomp:\t2"), "{status}");
        let devices = container.says(&isolated(), &["guest", "list", "/dev"]);
        assert!(devices.lines().any(|name| name == "null"));
        assert!(!devices.lines().any(|name| name.starts_with("vd") || name == "mem"));
        let network = container.says(&isolated(), &["guest", "read", "/proc/net/dev"]);
        assert_eq!(network.lines().count(), 3, "{network}");
        let name = container.says(&isolated(), &["guest", "read", "/etc/hostname"]);
        assert_eq!(name, "0123456789ab\n");
    });
}
