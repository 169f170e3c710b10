//! The hosts, with a server of SSH on each, and the commands on them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::hosts::{Hosts, lives_there};
use testkit::person::Person;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip, need_program};
use testkit::ssh::QUICK_EXCHANGE;
use testkit::users::Setting;

use crate::hosts::registry::Registry;

pub(crate) type Case = fn(&Lab) -> Outcome;

/// Time limit of one command.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);
/// The image of all clusters.
pub(crate) const IMAGE: &str = "lab/debian:1";
pub(crate) const COUNT: usize = 3;
pub(crate) const PORT: u16 = 2222;
/// The home of the user on each host.
pub(crate) const HOME: &str = "/tmp/home";
/// The host of the registry, besides the three.
pub(crate) const REGISTRY: usize = COUNT;

/// Three hosts.
pub(crate) struct Lab {
    pub(crate) hosts: Hosts,
    /// The user, with the home of each host, which is in its own `/tmp`.
    pub(crate) people: Vec<Person>,
    /// The user with a home that all hosts see.
    pub(crate) site: Person,
    /// A directory that all hosts see.
    pub(crate) shared: PathBuf,
    servers: Mutex<Vec<(usize, Child)>>,
    registry: OnceLock<Result<Registry, Skip>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for (_, server) in self.servers.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Lab {
    pub(crate) fn start(scratch: &Scratch, person: &Person) -> Result<Self, Skip> {
        let owner = Some((person.user.uid, person.user.gid));
        let shared = scratch.dir("shared", owner, 0o755).expect("a directory");
        let hosts = Hosts::start(COUNT + 1, scratch.path())?;
        let site = person.at(&scratch.dir("home", owner, 0o700).expect("a home"));
        // It travels to the hosts.
        if let Ok(strip) = need_program("strip") {
            let mut command = Command::new(strip);
            run_with(command.arg(&person.program), Input::Null, LIMIT).ok();
        }
        let people = vec![person.at(Path::new(HOME)); COUNT];
        let (servers, registry) = (Mutex::default(), OnceLock::new());
        let lab = Self { hosts, people, site, shared, servers, registry };
        lab.keys();
        for host in 0..COUNT {
            let words = ["-m", "700", "-o", &person.user.name, "-d", HOME];
            let mut make = Command::new("install");
            run_with(&mut lab.hosts.command(host, make.args(words)), Input::Null, LIMIT).ok();
        }
        for host in 0..COUNT {
            lab.serve(host)?;
        }
        lab.import(&lab.people[0])?;
        Ok(lab)
    }

    /// The registry, which runs from its first use on.
    pub(crate) fn registry(&self) -> Result<&Registry, Skip> {
        self.registry.get_or_init(|| Registry::start(self)).as_ref().map_err(Clone::clone)
    }

    /// Puts the image into a home, on the first host.
    pub(crate) fn import(&self, person: &Person) -> Outcome {
        let tar = testkit::debian::tar()?.display().to_string();
        // A host does not see the directory of the tar.
        let own = self.shared.join("image.tar");
        if !own.exists() {
            fs::copy(tar, &own).expect("a copy");
        }
        let words = ["import".to_owned(), own.display().to_string(), IMAGE.to_owned()];
        let mut command = person.user.command(&person.program, &person.home);
        command.args(words);
        run_with(&mut self.hosts.command(0, &command), Input::Null, LIMIT).ok();
        Ok(())
    }

    /// Keys of the hosts and of the user, and the configuration of `ssh`.
    fn keys(&self) {
        need_program("ssh-keygen").expect("ssh-keygen");
        let mut config = String::new();
        let mut known = String::new();
        let at = self.shared.display();
        for name in ["user", "other", "host"] {
            let path = self.shared.join(name);
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path);
            run_with(&mut command, Input::Null, LIMIT).ok();
            self.people[0].give(&path);
        }
        let public = fs::read_to_string(self.shared.join("host.pub")).expect("a key");
        let public = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        for host in 0..COUNT {
            let address = self.hosts.address(host);
            let _ = writeln!(known, "[{address}]:{PORT} {public}");
            let _ = write!(config, "Host host{0} again{0}\n HostName {address}\n", host + 1);
        }
        let _ = write!(
            config,
            "Host *\n Port {PORT}\n IdentityFile {at}/user\n IdentitiesOnly yes\n \
             UserKnownHostsFile {at}/known\n GlobalKnownHostsFile /dev/null\n"
        );
        let write = |name: &str, text: &str| {
            fs::write(self.shared.join(name), text).expect("a file");
            self.people[0].give(&self.shared.join(name));
        };
        write("known", &known);
        write("config", &config);
        // One that no server knows, and servers that the user does not know. A connection that is
        // there already would be used: this address is another one.
        let loopback = "Host host1\n HostName 127.0.0.1\n";
        let stranger = config.replace("/user\n", "/other\n");
        write(
            "stranger",
            &format!(
                "{loopback} StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n{stranger}"
            ),
        );
        let unknown = config.replace("/known\n", "/nobody\n");
        write("unknown", &format!("{loopback}{unknown}"));
        // `ssh` reads no other file, so that nothing of this machine matters.
        let authorized = fs::read_to_string(self.shared.join("user.pub")).expect("a key");
        write("authorized", &authorized);
    }

    /// Starts the server of a host, which the user runs.
    fn serve(&self, host: usize) -> Result<(), Skip> {
        let sshd = need_program("sshd")?;
        let (at, home) = (self.shared.display(), self.people[host].home.display());
        let text = format!(
            "Port {PORT}\nHostKey {at}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
             KexAlgorithms {QUICK_EXCHANGE}\n\
             AuthorizedKeysFile {at}/authorized\nPasswordAuthentication yes\n\
             KbdInteractiveAuthentication no\nSetEnv HOME={home}\n"
        );
        let file = self.shared.join(format!("sshd{host}"));
        fs::write(&file, text).expect("a file");
        let log = self.shared.join(format!("sshd{host}.log"));
        let log = fs::File::options().append(true).create(true).open(log).expect("a file");
        let mut command = self.command(host, &sshd, &["-D", "-e", "-f"]);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = command.spawn().expect("sshd");
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).push((host, server));
        let up = until(Duration::from_secs(20), || {
            let words = ["-c", &format!("exec 3<>/dev/tcp/{}/{PORT}", self.hosts.address(host))];
            let mut command = self.command(host, Path::new("/bin/bash"), &words);
            (run_with(&mut command, Input::Null, LIMIT).code() == 0).then_some(())
        });
        let why = || fs::read_to_string(self.shared.join(format!("sshd{host}.log")));
        up.ok_or_else(|| Skip(format!("sshd does not serve: {}", why().unwrap_or_default())))
    }

    /// Starts the servers again that somebody has ended.
    pub(crate) fn mend_servers(&self) -> Result<(), Skip> {
        let mut ended = Vec::new();
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain_mut(|(host, server)| {
            let lives = lives_there(server);
            if !lives {
                let _ = server.kill();
                let _ = server.wait();
                ended.push(*host);
            }
            lives
        });
        drop(servers);
        ended.into_iter().try_for_each(|host| self.serve(host))
    }

    /// A program on a host, as the user, who may not make namespaces.
    pub(crate) fn command(&self, host: usize, program: &Path, words: &[&str]) -> Command {
        let person = &self.people[host];
        let setting = Setting { no_namespaces: true, ..Setting::default() };
        let mut command = person.user.command_in(program, &person.home, &setting);
        command.args(words);
        self.hosts.command(host, &command)
    }

    /// A command of Coracle on a host.
    pub(crate) fn run(&self, host: usize, words: &[&str]) -> Finished {
        let mut command = self.command(host, &self.people[host].program, words);
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Writes a file that all hosts see; returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        self.site.file(&self.shared.join(name), text)
    }

    /// The backend of all hosts behind `ssh`, as a line of a cluster file.
    pub(crate) fn ssh(&self, hosts: &[&str]) -> String {
        self.ssh_as("config", hosts)
    }

    /// The same with another configuration of `ssh`.
    pub(crate) fn ssh_as(&self, config: &str, hosts: &[&str]) -> String {
        let config = self.shared.join(config);
        let hosts: Vec<String> = hosts.iter().map(|host| format!("{host:?}")).collect();
        format!(
            "backend = [{{ kind = \"ssh\", hosts = [{}], options = [\"-F\", \"{}\"] }}]\n",
            hosts.join(", "),
            config.display()
        )
    }

    /// A shell of root on a host.
    pub(crate) fn root(&self, host: usize, script: &str) -> Finished {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        run_with(&mut self.hosts.command(host, &command), Input::Null, LIMIT)
    }

    /// A case begins on clean hosts, whatever an earlier one has left.
    pub(crate) fn begin(&self) {
        for host in 0..COUNT {
            self.hosts.cut(host, false);
        }
        self.mend_servers().expect("servers of SSH");
        for host in 0..COUNT {
            let script = format!(
                "for path in {HOME}/.local/share/coracle/clusters/*; do \
                 [ ! -e $path ] || {} cluster down ${{path##*/}} || rm -rf $path; done",
                self.site.program.display()
            );
            let mut command = self.command(host, Path::new("/bin/sh"), &["-c", &script]);
            run_with(&mut command, Input::Null, LIMIT);
        }
    }

    /// No container, no network, no directory of a cluster, no store of its own, on any host.
    pub(crate) fn nothing_is_left(&self) {
        for host in 0..COUNT {
            let left = until(Duration::from_secs(20), || {
                let left = self.left(host);
                left.is_empty().then_some(())
            });
            assert!(left.is_some(), "left on host{}: {}", host + 1, self.left(host));
        }
    }

    /// What is left of clusters on a host.
    pub(crate) fn left(&self, host: usize) -> String {
        let containers = self.run(host, &["ps", "-aq"]).ok().out();
        let made = ["network", "ls", "--filter=type=custom", "--format", "{{.Name}}"];
        let networks = self.run(host, &made).ok().out();
        let networks = networks.lines();
        let uid = self.people[host].user.uid;
        let script = format!(
            "ls -d {HOME}/.local/share/coracle/clusters/* /tmp/coracle-{uid}/cluster-*/ \
             {site}/.local/share/coracle/clusters/* 2> /dev/null; \
             ps -eo pid,args | grep '[c]luster agent'",
            site = self.site.home.display()
        );
        let mut command = self.command(host, Path::new("/bin/sh"), &["-c", &script]);
        let files = run_with(&mut command, Input::Null, LIMIT).out();
        let networks: Vec<&str> = networks.collect();
        format!("{containers}{}{files}", networks.join(" "))
    }
}
