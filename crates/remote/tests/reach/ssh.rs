//! Nodes behind `ssh`: a real server on a high port, run by the user of the suite.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use remote::channel::{Channel, Error, Event};
use remote::launcher::{Cause, Launcher, Way, control_directory};
use remote::wire::messages::{Ended, Start};
use testkit::harness::Suite;
use testkit::skip::{Outcome, Skip, need_program};
use testkit::ssh::QUICK_EXCHANGE;

use crate::{Kit, PICKY, eventually, is_mounted, lives, open, soon, visitor};

/// A server and the files of its client.
struct Server {
    process: Child,
    port: u16,
    place: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn key(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    testkit::command::run(&mut command).ok();
}

impl Server {
    /// Starts one; `lines` are added to its configuration.
    fn start(kit: &Kit, lines: &str) -> Result<Self, Skip> {
        let sshd = need_program("sshd")?;
        need_program("ssh")?;
        need_program("ssh-keygen")?;
        let place = kit.dir("sshd");
        for name in ["host", "user", "stranger"] {
            key(&place.join(name));
        }
        std::fs::copy(place.join("user.pub"), place.join("authorized")).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let at = place.display();
        let run = kit.dir("run");
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)).unwrap();
        let text = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {at}/authorized\nStrictModes no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nKexAlgorithms {QUICK_EXCHANGE}\n\
             SetEnv XDG_RUNTIME_DIR={}\n{lines}\n",
            run.display()
        );
        std::fs::write(place.join("sshd_config"), text).unwrap();
        let log = std::fs::File::create(place.join("log")).unwrap();
        let process = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(place.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| Skip(format!("sshd does not start: {error}")))?;
        let mut server = Self { process, port, place };
        let public = std::fs::read_to_string(server.place.join("host.pub")).unwrap();
        server.know(&public);
        let up = testkit::command::until(Duration::from_secs(20), || {
            let ended = server.process.try_wait().ok().flatten().is_some();
            let address = (Ipv4Addr::LOCALHOST, port).into();
            let open = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1));
            (ended || open.is_ok()).then_some(ended)
        });
        if up != Some(false) {
            let log = std::fs::read_to_string(server.place.join("log")).unwrap_or_default();
            return Err(Skip(format!("sshd does not serve: {}", log.trim())));
        }
        Ok(server)
    }

    /// Writes the known host key.
    fn know(&self, public: &str) {
        let words: Vec<&str> = public.split_whitespace().take(2).collect();
        let line = format!("[127.0.0.1]:{} {}\n", self.port, words.join(" "));
        std::fs::write(self.place.join("known"), line).unwrap();
    }

    fn options(&self, key: &str) -> Vec<String> {
        let at = self.place.display();
        let mut text = format!(
            "-F none -p {} -o IdentityFile={at}/{key} -o IdentitiesOnly=yes -o IdentityAgent=none",
            self.port
        );
        let _ = write!(text, " -o UserKnownHostsFile={at}/known -o GlobalKnownHostsFile=/dev/null");
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn launcher(&self, kit: &Kit, key: &str, places: &[&Path]) -> Launcher {
        let way = Way::Ssh { host: "127.0.0.1".into(), options: self.options(key), control: None };
        let places = places.iter().map(|place| place.to_path_buf()).collect();
        Launcher { places, ..Launcher::new(way, Arc::clone(&kit.binary)) }
    }
}

/// The binaries that were carried to a place.
fn carried(place: &Path) -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let entries = std::fs::read_dir(place.join(format!("coracle-{uid}")));
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    // A mark beside it says that it was checked.
    files.filter(|file| file.extension().is_none_or(|end| end != "checked")).collect()
}

fn works(channel: &Channel) {
    let done = channel.start(&Start::new(["sh", "-c", "echo here; exit 5"])).unwrap();
    let done = done.output(100).unwrap();
    assert_eq!((done.ended, done.stdout.as_slice()), (Ended::Code(5), &b"here\n"[..]));
}

type Case = fn(&Kit) -> Outcome;

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    let all: &[(&str, Case)] = &[
        ("ssh::the_binary_is_carried_once", the_binary_is_carried_once),
        (
            "ssh::what_cannot_run_in_one_place_is_copied_to_the_next",
            what_cannot_run_in_one_place_is_copied_to_the_next,
        ),
        ("ssh::a_node_with_busybox_alone", a_node_with_busybox_alone),
        ("ssh::two_at_once_share_a_place", two_at_once_share_a_place),
        ("ssh::places_that_do_not_do_are_passed_over", places_that_do_not_do_are_passed_over),
        ("ssh::a_full_place_is_passed_over", a_full_place_is_passed_over),
        ("ssh::keys_of_hosts_are_checked", keys_of_hosts_are_checked),
        ("ssh::shells_that_talk", shells_that_talk),
        ("ssh::channels_share_a_connection", channels_share_a_connection),
        ("ssh::a_lost_connection_is_told", a_lost_connection_is_told),
    ];
    for &(name, case) in all {
        suite.case(name.to_owned(), move || case(kit));
    }
    for shell in ["csh", "tcsh", "fish"] {
        suite.case(format!("ssh::login_shell_{shell}"), move || {
            let word = need_program(shell)?;
            let word = word.display();
            let server = Server::start(
                kit,
                &format!("ForceCommand exec {word} -c \"$SSH_ORIGINAL_COMMAND\""),
            )?;
            let place = kit.dir("shell");
            let channel = open(&server.launcher(kit, "user", &[&place]), &visitor());
            works(&channel);
            channel.close();
            Ok(())
        });
    }
}

fn the_binary_is_carried_once(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let place = kit.dir("carried");
    let launcher = server.launcher(kit, "user", &[&place]);
    let first = open(&launcher, &visitor());
    works(&first);
    let files = carried(&place);
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(first.facts().executable, files[0]);
    assert!(files[0].ends_with(format!("coracle-{}", kit.binary.digest)));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&files[0]), mode(files[0].parent().unwrap())), (0o700, 0o700));
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let before = inode(&files[0]);
    let second = open(&launcher, &visitor());
    works(&second);
    assert_eq!((inode(&files[0]), carried(&place).len()), (before, 1));
    // No secret and nothing long where everybody reads.
    let agent = first.facts().pid;
    let line = std::fs::read(format!("/proc/{agent}/cmdline")).unwrap();
    assert!(line.ends_with(b"\0cluster\0agent\0") && line.len() < 300);
    first.close();
    second.close();
    eventually("the agent has ended", 20, || !lives(agent));
    // A tampered one, as long as the right one, is not executed but replaced.
    let mut bytes = b"#!/bin/sh\ntouch \"$0.executed\"\nexit 0\n".to_vec();
    bytes.resize(usize::try_from(kit.binary.size).unwrap(), b'\n');
    std::fs::write(&files[0], bytes).unwrap();
    let third = open(&launcher, &visitor());
    works(&third);
    let left = carried(&place);
    assert_eq!((left.len(), left[0].metadata().unwrap().len()), (1, kit.binary.size), "{left:?}");
    third.close();
    // One that is told is used where it is.
    let empty = kit.dir("given");
    let mut launcher = server.launcher(kit, "user", &[&empty]);
    launcher.given = Some(files[0].clone());
    let fourth = open(&launcher, &visitor());
    assert_eq!(fourth.facts().executable, files[0]);
    fourth.close();
    assert!(carried(&empty).is_empty());
    Ok(())
}

fn what_cannot_run_in_one_place_is_copied_to_the_next(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let (picky, last) = (kit.dir(PICKY), kit.dir("next"));
    let channel = open(&server.launcher(kit, "user", &[&picky, &last]), &visitor());
    works(&channel);
    channel.close();
    assert_eq!((carried(&picky).len(), carried(&last).len()), (0, 1));
    let error =
        Channel::open("node1", &server.launcher(kit, "user", &[&picky]), &visitor(), soon());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("what was received cannot be executed"), "{text}");
    assert!(carried(&picky).is_empty());
    Ok(())
}

fn a_node_with_busybox_alone(kit: &Kit) -> Outcome {
    let busybox = need_program("busybox")?;
    let tools = kit.dir("busybox");
    let names = "sh id head tail ls df mkdir cat mv cp rm chmod wc sha256sum uname".split(' ');
    for name in names {
        std::os::unix::fs::symlink(&busybox, tools.join(name)).unwrap();
    }
    let at = tools.display();
    let command = format!("ForceCommand PATH={at} exec {at}/sh -c \"$SSH_ORIGINAL_COMMAND\"");
    let server = Server::start(kit, &command)?;
    let place = kit.dir("small");
    let launcher = server.launcher(kit, "user", &[&place]);
    for _ in 0..2 {
        let channel = open(&launcher, &visitor());
        works(&channel);
        channel.close();
    }
    assert_eq!(carried(&place).len(), 1);
    Ok(())
}

fn two_at_once_share_a_place(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let place = kit.dir("both");
    let launcher = server.launcher(kit, "user", &[&place]);
    std::thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| open(&launcher, &visitor()))).collect();
        for thread in both {
            let channel = thread.join().unwrap();
            works(&channel);
            channel.close();
        }
    });
    assert_eq!(carried(&place).len(), 1);
    Ok(())
}

fn places_that_do_not_do_are_passed_over(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let noexec = kit.place.join("noexec");
    let (foreign, last) = (kit.dir("foreign"), kit.dir("last"));
    let uid = rustix::process::getuid().as_raw();
    // Somebody else's directory would be refused in the same way as one that others may enter.
    let open_to_all = foreign.join(format!("coracle-{uid}"));
    std::fs::create_dir(&open_to_all).unwrap();
    std::fs::set_permissions(&open_to_all, std::fs::Permissions::from_mode(0o777)).unwrap();
    let none = kit.place.join("no-such-place");
    let bad = [none.as_path(), &foreign, &noexec];
    let error = Channel::open("node1", &server.launcher(kit, "user", &bad), &visitor(), soon());
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Place { .. }) && error.hint().is_some(), "{text}");
    assert!(text.contains("no-such-place: it does not exist"), "{text}");
    assert!(text.contains("others may enter"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let is_mounted = is_mounted(&noexec);
    if is_mounted {
        assert!(text.contains("noexec: programs there cannot be executed"), "{text}");
    }
    let places = [bad[0], bad[1], bad[2], &last];
    let channel = open(&server.launcher(kit, "user", &places), &visitor());
    works(&channel);
    channel.close();
    assert_eq!(carried(&last).len(), 1);
    if !is_mounted {
        testkit::skip!("only root mounts a place without programs");
    }
    Ok(())
}

fn a_full_place_is_passed_over(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let full = kit.place.join("full");
    if !is_mounted(&full) {
        testkit::skip!("only root mounts a small place");
    }
    let last = kit.dir("room");
    let channel = open(&server.launcher(kit, "user", &[&full, &last]), &visitor());
    channel.close();
    assert_eq!(carried(&last).len(), 1);
    Ok(())
}

fn keys_of_hosts_are_checked(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let place = kit.dir("keys");
    let try_open = |key: &str| {
        let launcher = server.launcher(kit, key, &[&place]);
        Channel::open("node1", &launcher, &visitor(), soon()).map(Channel::close)
    };
    let cause = |error: Error| match error {
        Error::Launch { cause, .. } => {
            assert!(cause.hint("node1").is_some());
            cause
        }
        other => panic!("{other}"),
    };
    let stranger = std::fs::read_to_string(server.place.join("stranger.pub")).unwrap();
    server.know(&stranger);
    assert_eq!(cause(try_open("user").unwrap_err()), Cause::ChangedKey);
    std::fs::write(server.place.join("known"), "").unwrap();
    assert_eq!(cause(try_open("user").unwrap_err()), Cause::UnknownKey);
    let host = std::fs::read_to_string(server.place.join("host.pub")).unwrap();
    server.know(&host);
    assert_eq!(cause(try_open("stranger").unwrap_err()), Cause::Login);
    assert!(carried(&place).is_empty());
    try_open("user").unwrap();
    let port = server.port;
    drop(server);
    let way = Way::Ssh {
        host: "127.0.0.1".into(),
        options: vec!["-F".into(), "none".into(), "-p".into(), port.to_string()],
        control: None,
    };
    let launcher = Launcher::new(way, Arc::clone(&kit.binary));
    let error = Channel::open("node1", &launcher, &visitor(), soon()).unwrap_err();
    assert_eq!(cause(error), Cause::Unreachable);
    Ok(())
}

fn shells_that_talk(kit: &Kit) -> Outcome {
    let banner = "ForceCommand echo Welcome to this node; seq 500; eval \"$SSH_ORIGINAL_COMMAND\"";
    let server = Server::start(kit, banner)?;
    let place = kit.dir("banner");
    let channel = open(&server.launcher(kit, "user", &[&place]), &visitor());
    works(&channel);
    channel.close();
    Ok(())
}

fn channels_share_a_connection(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let place = kit.dir("shared");
    let short = tempfile::Builder::new().prefix("c").tempdir_in("/tmp").unwrap();
    let control = control_directory(&[short.path().to_owned()]).unwrap();
    let mut launcher = server.launcher(kit, "user", &[&place]);
    if let Way::Ssh { control: directory, .. } = &mut launcher.way {
        *directory = Some(control.clone());
    }
    let first = open(&launcher, &visitor());
    let sockets = || std::fs::read_dir(&control).unwrap().count();
    assert_eq!(sockets(), 1);
    let second = open(&launcher, &visitor());
    let log = || std::fs::read_to_string(server.place.join("log")).unwrap();
    assert_eq!(log().matches("Accepted publickey").count(), 1, "{}", log());
    drop(first);
    works(&second);
    second.close();
    eventually("the connection has ended", 20, || sockets() == 0);
    Ok(())
}

fn a_lost_connection_is_told(kit: &Kit) -> Outcome {
    let server = Server::start(kit, "")?;
    let place = kit.dir("lost");
    let channel = open(&server.launcher(kit, "user", &[&place]), &visitor());
    let sleep = channel.start(&Start::new(["sleep", "1000"])).unwrap();
    let agent = channel.facts().pid;
    // The process of the server that has this connection.
    let mut pid = agent;
    while !std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("sshd") {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        pid = line.trim().parse().unwrap();
    }
    assert_ne!(pid, server.process.id());
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let Some(Event::Lost(why)) = sleep.event() else { panic!("not lost") };
    let text = why.to_string();
    assert!(text.contains("node1") && text.contains("ssh has ended with code 255"), "{text}");
    assert!(text.contains("onnect"), "ssh's words are missing: {text}");
    assert!(channel.start(&Start::new(["true"])).is_err());
    eventually("the agent has ended", 20, || !lives(agent));
    Ok(())
}
