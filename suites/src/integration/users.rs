//! Tests of users and groups, time and language, shared memory, agents and buses.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use testkit::command::{Input, find_program, run_with, until};
use testkit::person::LIMIT;
use testkit::skip::{Outcome, need_program};

use crate::integration::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("callers_name", callers_name),
    ("users_of_a_directory", users_of_a_directory),
    ("home_and_devices", home_and_devices),
    ("time_and_language", time_and_language),
    ("shared_memory", shared_memory),
    ("ssh_agent", ssh_agent),
    ("session_bus", session_bus),
];

/// A daemon of the user that is ended with the case.
pub(crate) struct Daemon(pub(crate) Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The host's users are known inside, and the caller is one of them.
fn callers_name(w: &World) -> Outcome {
    let name = &w.person.user.name;
    let user = format!("--user={name}");
    let done = w.sh(&[], &["--hostauth", &user], "id -un; id -u; id -gn; getent passwd \"$(id -u)\" | cut -d: -f1; touch /tmp/f; stat -c %U /tmp/f; rm /tmp/f");
    let uid = w.person.user.uid;
    assert_eq!(done.ok().out(), format!("{name}\n{uid}\n{name}\n{name}\n{name}\n"), "{done:?}");
    let done = w.sh(
        &[],
        &["--hostauth"],
        "id -un; getent passwd NAME >/dev/null && echo known".replace("NAME", name).as_str(),
    );
    assert_eq!(done.ok().out(), "root\nknown\n", "{done:?}");
    Ok(())
}

/// A user in no file of the host is looked up by its `getent`.
fn users_of_a_directory(w: &World) -> Outcome {
    let dir = w.dir("ldap");
    let uid = w.person.user.uid;
    let gid = w.person.user.gid;
    let script = format!(
        "#!/bin/sh
        case \"$1:$2\" in
        passwd:ada) echo 'ada:*:{uid}:{gid}:Ada L:/home/ada:/bin/sh';;
        passwd:*) exec /usr/bin/getent \"$@\";;
        group:*) /usr/bin/getent \"$@\"; echo 'analysts:*:70007:ada';;
        esac\n"
    );
    let helper = dir.join("getent");
    w.file(&helper, script);
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).expect("its mode");
    let path = format!("{}:/usr/bin:/bin", dir.display());
    let flags = ["--hostauth", "--user=ada", "-w", "/"];
    let done = w.sh(&[("PATH", &path)], &flags, "getent passwd ada; id -u; echo $HOME; head -c5 /etc/passwd; tail -c1 /etc/passwd | od -An -c");
    let expected =
        format!("ada:x:{uid}:{gid}:Ada L:/home/ada:/bin/sh\n{uid}\n/home/ada\nroot:  \\n\n");
    assert_eq!(done.ok().out(), expected, "{done:?}");
    let done = w.sh(&[], &["--hostauth", "--user=nobody-knows"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.err().contains("nobody-knows"), "{done:?}");
    Ok(())
}

fn home_and_devices(w: &World) -> Outcome {
    let home = w.person.home.display().to_string();
    let file = w.file(&w.person.home.join(w.unique("of-home")), "mine\n");
    let done = w.sh(
        &[],
        &["--bindhome", "--hostenv", "--device=/dev/null"],
        &format!("cat {file}; [ -c /dev/null ] && echo node; echo $USER"),
    );
    let out = done.ok().out();
    assert!(out.starts_with("mine\nnode\n"), "{home}: {done:?}");
    if !Path::new("/dev/dri").exists() {
        let done = w.sh(&[], &["--dri"], "true");
        assert_eq!(done.code(), 125, "{done:?}");
        assert!(done.err().contains("no graphics devices"), "{done:?}");
    }
    Ok(())
}

fn time_and_language(w: &World) -> Outcome {
    let variables = [("TZ", "Asia/Kathmandu"), ("LANG", "C.UTF-8")];
    let script = "date -d @0 +%H:%M; printf 'caf\\303\\251' | wc -m; echo $LANG";
    let flags = ["--hostenv", "-v", "/usr/share/zoneinfo:/usr/share/zoneinfo:ro"];
    let done = w.sh(&variables, &flags, script);
    assert_eq!(done.ok().out(), "05:30\n4\nC.UTF-8\n", "{done:?}");
    let zone = "/usr/share/zoneinfo/Asia/Kathmandu";
    if !Path::new(zone).exists() {
        testkit::skip!("this machine has no time zones");
    }
    let done = w.sh(&[], &["-v", &format!("{zone}:/etc/localtime:ro")], "date -d @0 +%H:%M");
    assert_eq!(done.ok().out(), "05:30\n", "{done:?}");
    Ok(())
}

fn shared_memory(w: &World) -> Outcome {
    let script = "python3 -c 'import multiprocessing as m
lock = m.Lock()
with lock: print(\"locked\")
'";
    assert_eq!(w.sh(&[], &[], script).ok().out(), "locked\n");
    Ok(())
}

fn ssh_agent(w: &World) -> Outcome {
    need_program("ssh-agent")?;
    let dir = w.dir("agent");
    let socket = dir.join("socket").display().to_string();
    let mut start = w.person.user.command("ssh-agent", &w.person.home);
    start.args(["-D", "-a", &socket]).stdin(Stdio::null()).stdout(Stdio::null());
    let _agent = Daemon(start.spawn().expect("an agent"));
    until(LIMIT, || Path::new(&socket).exists().then_some(())).expect("its socket");
    let script = "ssh-keygen -q -t ed25519 -N '' -C of-the-case -f /tmp/key; ssh-add -q /tmp/key; ssh-add -l; rm /tmp/key*";
    let bind = format!("{socket}:{socket}");
    let flags = ["-v", &bind, "-e", "SSH_AUTH_SOCK"];
    let done = w.sh(&[("SSH_AUTH_SOCK", &socket)], &flags, script);
    assert!(done.ok().out().contains(" of-the-case (ED25519)"), "{done:?}");
    // A key that was added inside is there outside.
    let mut list = w.person.user.command("ssh-add", &w.person.home);
    let listed = run_with(list.arg("-l").env("SSH_AUTH_SOCK", &socket), Input::Null, LIMIT);
    assert!(listed.ok().out().contains(" of-the-case (ED25519)"), "{listed:?}");
    Ok(())
}

/// The kernel tells a bus the caller's id, so the id inside has to be the caller's own.
fn session_bus(w: &World) -> Outcome {
    if find_program("dbus-daemon").is_none() {
        testkit::skip!("dbus-daemon is not installed");
    }
    let dir = w.dir("bus");
    let address = format!("unix:path={}/bus", dir.display());
    let mut start = w.person.user.command("dbus-daemon", &w.person.home);
    start.args(["--session", "--nofork", "--nopidfile", "--print-address", "--address", &address]);
    let mut daemon =
        Daemon(start.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a bus"));
    let mut told = [0; 5];
    daemon.0.stdout.as_mut().expect("its output").read_exact(&mut told).expect("its address");
    let bind = format!("{0}:{0}", dir.display());
    let ask = "dbus-send --session --print-reply=literal --dest=org.freedesktop.DBus / org.freedesktop.DBus.GetConnectionUnixUser string:org.freedesktop.DBus";
    let user = format!("--user={}", w.person.user.name);
    for flags in [&["--userns=host"][..], &["--hostauth", &user]] {
        // The mapping of ids is decided when a container is made.
        if flags.len() == 1 && w.engine != "N1" {
            continue;
        }
        let all = [&["-v", &bind, "-e", "DBUS_SESSION_BUS_ADDRESS"][..], flags].concat();
        let done = w.sh(&[("DBUS_SESSION_BUS_ADDRESS", &address)], &all, ask);
        let expected = format!("uint32 {}", w.person.user.uid);
        assert_eq!(done.ok().out().trim(), expected, "{flags:?}: {done:?}");
    }
    Ok(())
}
