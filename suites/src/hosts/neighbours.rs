//! Names and ports belong to a user: another one who does the same on the same hosts, or a program
//! that has a port already, changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use testkit::command::{Finished, Input, run_with, until};
use testkit::hosts::end_there;
use testkit::person::Person;
use testkit::running::Running;
use testkit::skip::{Outcome, Skip, need_program};
use testkit::ssh::QUICK_EXCHANGE;
use testkit::users::{self, Setting};

use crate::hosts::failures::fail;
use crate::hosts::lab::{COUNT, Case, LIMIT, Lab};
use crate::hosts::small::{self, BOX};

pub(crate) const CASES: &[(&str, Case)] =
    &[("neighbours::same_file", same_file), ("neighbours::port_taken", port_taken)];

/// Where the other user's servers of SSH listen.
const PORT: u16 = 2223;
/// The home of the other user on each host.
const HOME: &str = "/tmp/neighbour";

/// A user beside the lab's, with a server of SSH on each host.
struct Neighbour<'l> {
    lab: &'l Lab,
    person: Person,
    servers: Vec<Child>,
}

impl Drop for Neighbour<'_> {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(end_there);
        // Also what a case that has failed leaves: the next one begins on clean hosts.
        let uid = self.person.user.uid;
        for host in 0..COUNT {
            self.lab.root(host, &format!("pkill -KILL -U {uid}; rm -rf {HOME} /tmp/coracle-{uid}"));
        }
    }
}

impl<'l> Neighbour<'l> {
    fn start(lab: &'l Lab) -> Result<Self, Skip> {
        let sshd = need_program("sshd")?;
        let other = users::all().into_iter().find(|user| *user != lab.people[0].user);
        let user = other.ok_or_else(|| Skip("there is one user only".to_owned()))?;
        let home = Path::new(HOME).to_owned();
        let mut own = Self {
            lab,
            person: Person { user, home, ..lab.people[0].clone() },
            servers: Vec::new(),
        };
        own.files();
        for host in 0..COUNT {
            let make = format!(
                "rm -rf {HOME}; mkdir -m 700 {HOME}; chown {}:{} {HOME}",
                own.person.user.uid, own.person.user.gid
            );
            lab.root(host, &make).ok();
            let file = lab.shared.join("neighbour-sshd").display().to_string();
            let mut server = own.command(host, &sshd, &["-D", "-e", "-f", &file]);
            server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            own.servers.push(server.spawn().expect("sshd"));
            let up = until(LIMIT, || {
                let words = ["-c", &format!("exec 3<>/dev/tcp/{}/{PORT}", lab.hosts.address(host))];
                let mut command = own.command(host, Path::new("/bin/bash"), &words);
                (run_with(&mut command, Input::Null, LIMIT).code() == 0).then_some(())
            });
            up.ok_or_else(|| Skip("sshd does not serve the other user".to_owned()))?;
        }
        Ok(own)
    }

    /// Keys and configurations, which are those of the lab's user but for their owner and the port.
    fn files(&self) {
        let shared = &self.lab.shared;
        for name in ["user", "host"] {
            let path = shared.join(format!("neighbour-{name}"));
            fs::copy(shared.join(name), &path).expect("a key");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("rights");
            self.person.give(&path);
        }
        let at = shared.display();
        let server = format!(
            "Port {PORT}\nHostKey {at}/neighbour-host\nPidFile none\nUsePAM no\nStrictModes no\n\
             KexAlgorithms {QUICK_EXCHANGE}\nAuthorizedKeysFile {at}/authorized\n\
             SetEnv HOME={HOME}\n"
        );
        self.person.file(&shared.join("neighbour-sshd"), server);
        let config = fs::read_to_string(shared.join("config")).expect("the configuration");
        let config = config.replace("/user\n", "/neighbour-user\n");
        let own = format!(
            "Host *\n Port {PORT}\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        );
        self.person.file(&shared.join("neighbour-config"), own + &config);
    }

    /// A program on a host, as this user, who may not make namespaces either.
    fn command(&self, host: usize, program: &Path, words: &[&str]) -> Command {
        let setting = Setting { no_namespaces: true, ..Setting::default() };
        let mut command = self.person.user.command_in(program, &self.person.home, &setting);
        command.args(words);
        self.lab.hosts.command(host, &command)
    }

    fn run(&self, host: usize, words: &[&str]) -> Finished {
        let mut command = self.command(host, &self.person.program, words);
        run_with(&mut command, Input::Null, LIMIT)
    }
}

/// A cluster of this name, with a service on each host.
fn text(lab: &Lab, name: &str, config: &str) -> String {
    format!(
        "name = {name:?}\nimage = {BOX:?}\n{}\
         [service.web]\ncommand = [\"httpd\", \"-f\", \"-p\", \"8080\", \"-h\", \"/www\"]\n\
         replicas = 3\nready = {{ tcp = 8080 }}\n",
        lab.ssh_as(config, &["host1", "host2", "host3"])
    )
}

/// Two users start the same cluster on the same hosts at the same time. Each has its own.
fn same_file(lab: &Lab) -> Outcome {
    let neighbour = Neighbour::start(lab)?;
    small::load(lab, &lab.people[0])?;
    small::load(lab, &neighbour.person)?;
    let file = lab.file("twins.toml", &text(lab, "twins", "config"));
    let path = lab.shared.join("neighbour-twins.toml");
    let theirs = neighbour.person.file(&path, text(lab, "twins", "neighbour-config"));
    let first: &(dyn Fn(&[&str]) -> Finished + Sync) = &|words| lab.run(0, words);
    let second: &(dyn Fn(&[&str]) -> Finished + Sync) = &|words| neighbour.run(0, words);
    let both = [(first, &*file), (second, &*theirs)];
    thread::scope(|scope| {
        let started =
            both.map(|(run, file)| scope.spawn(move || run(&["cluster", "up", "-d", "-f", file])));
        for one in started {
            one.join().expect("a driver").ok();
        }
    });
    for (run, _) in both {
        for name in ["web-1", "web-2", "web-3"] {
            let url = format!("http://{name}:8080/");
            let page = run(&["cluster", "exec", "twins", "web-2", "wget", "-qO-", &url]);
            assert_eq!(page.ok().out(), "page\n", "{name}");
        }
    }
    // The end of one is not that of the other.
    first(&["cluster", "down", "twins"]).ok();
    let there = second(&["cluster", "status", "twins", "--format", "{{.Name}} {{.State}}"]);
    let expected = "twins-web-1 running\ntwins-web-2 running\ntwins-web-3 running\n";
    assert_eq!(there.ok().out(), expected);
    second(&["cluster", "down", "twins"]).ok();
    for host in 0..COUNT {
        assert_eq!(neighbour.run(host, &["ps", "-aq"]).ok().out(), "");
    }
    Ok(())
}

/// A program takes the port of a host's agent while that is away. `up` gives the host another one.
fn port_taken(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    let file = lab.file("ports.toml", &text(lab, "ports", "config"));
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let port = || {
        let words = ["network", "inspect", "--format", "{{.Cluster.Port}}", "ports"];
        lab.run(2, &words).ok().out().trim().to_owned()
    };
    let before = port();
    fail(lab, 2);
    let script = format!(
        "import socket, time; s = socket.socket(); \
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); \
         s.bind(('', {before})); s.listen(); \
         print('it listens', flush=True); time.sleep(600)"
    );
    let mut stranger = Command::new("/usr/bin/python3");
    let stranger = Running::start(&mut lab.hosts.command(2, stranger.args(["-c", &script])));
    stranger.expect_within("it listens", LIMIT);
    lab.mend_servers()?;
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    assert_ne!(port(), before);
    for (from, to) in [("web-1", "web-3"), ("web-3", "web-1")] {
        let url = format!("http://{to}:8080/");
        let page = lab.run(0, &["cluster", "exec", "ports", from, "wget", "-qO-", &url]);
        assert_eq!(page.ok().out(), "page\n", "from {from}");
    }
    lab.run(0, &["cluster", "down", "ports"]).ok();
    let all = lab.hosts.processes(2).into_iter();
    all.filter(|process| process.words.contains("it listens")).for_each(|process| process.kill());
    Ok(())
}
