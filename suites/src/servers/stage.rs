//! The environment of a case: a mode, a network, and containers of the Debian image in it.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::fence::fenced;
use testkit::hosts::Hosts;
use testkit::person::{Person, borrowed, everybody, usable};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::users::{Setting, no_namespaces};

/// One case.
pub(crate) type Case = fn(&World) -> Outcome;

/// Time limit of a script on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

const IMAGE: &str = "localhost/debian:servers";

/// The worlds: how cases of each are called, the mode, and the kind of devices where there are any.
const WORLDS: [(&str, &str, Option<&str>); 6] = [
    ("I1", "I1", None),
    ("P1", "P1", None),
    ("F2", "F2", None),
    ("N1-veth", "N1", Some("veth")),
    ("N1-tap", "N1", Some("tap")),
    ("R1", "R1", None),
];

/// What every script begins with: `wait_for COMMAND...` repeats it until it succeeds, and
/// `quietly COMMAND...` shows what it says only where it fails.
const PRELUDE: &str = r#"
wait_for() {
    n=0; until "$@" >/tmp/said 2>&1; do
        n=$((n+1)); test $n -lt 200 || { echo "$* never succeeded: $(cat /tmp/said)"; exit 1; }; sleep 0.1
    done
}
quietly() { "$@" >/tmp/said 2>&1 || { echo "$* failed: $(cat /tmp/said)"; exit 1; }; }
"#;

/// Everything that lives as long as the suite.
pub(crate) struct Stage {
    pub(crate) worlds: Vec<World>,
    /// Modes that could not be set up, with the reasons.
    pub(crate) missing: Vec<(String, String)>,
    person: Person,
    scratch: Scratch,
}

/// One mode.
pub(crate) struct World {
    pub(crate) person: Person,
    pub(crate) mode: &'static str,
    /// What its cases are called by.
    pub(crate) label: &'static str,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Stage {
    /// Imports the tree as one user and finds the ready modes.
    pub(crate) fn set() -> Result<Self, String> {
        let tree = testkit::trees::servers().map_err(|skip| skip.0)?;
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("servers").map_err(text)?;
        let people = everybody(&scratch, crate::program::coracle()).map_err(text)?;
        // Ranges of ids have no part in this.
        let person = people.iter().find(|person| person.user.kind() == "plain");
        let person = person.or(people.first()).ok_or("no user")?.clone();
        let mut import = person.command(&["import", "-q", "-", IMAGE]);
        let done = run_with(import.stdin(fs::File::open(tree).map_err(text)?), Input::AsIs, LIMIT);
        if done.code() != 0 {
            return Err(format!("no image: {done:?}"));
        }
        let mut missing = Vec::new();
        let worlds = World::all(&scratch, &person, &mut missing).map_err(text)?;
        Ok(Self { worlds, missing, person, scratch })
    }

    /// Checks that the cases have ended all that they have begun.
    pub(crate) fn nothing_is_left(&self) -> Outcome {
        assert_eq!(self.person.run(&["ps", "-aq"]).ok().out(), "", "containers are left");
        let made = ["network", "ls", "--filter=type=custom", "--format", "{{.Name}}"];
        assert_eq!(self.person.run(&made).ok().out(), "", "networks are left");
        // The agent waits for a moment whether another container comes.
        let gone = || processes(self.scratch.path()).is_empty().then_some(());
        let gone = until(Duration::from_secs(20), gone);
        assert!(gone.is_some(), "processes are left: {:#?}", processes(self.scratch.path()));
        Ok(())
    }
}

/// The processes that name a directory in their command line, or have mapped a file below it.
fn processes(place: &Path) -> Vec<String> {
    let place = place.as_os_str().as_bytes();
    let names = |text: &[u8]| text.windows(place.len()).any(|window| window == place);
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let numbers =
        all.filter(|path| path.file_name().is_some_and(|name| name.as_bytes()[0].is_ascii_digit()));
    numbers
        .filter_map(|path| {
            let read = |name: &str| fs::read(path.join(name)).unwrap_or_default();
            let words = read("cmdline");
            let is_its = names(&words) || names(&read("maps"));
            is_its.then(|| format!("{} {}", path.display(), String::from_utf8_lossy(&words)))
        })
        .collect()
}

impl World {
    /// Those that this host can have; adds the others to `missing`, with the reasons.
    fn all(
        scratch: &Scratch,
        person: &Person,
        missing: &mut Vec<(String, String)>,
    ) -> io::Result<Vec<Self>> {
        let doctor = person.run(&["doctor", "--format", "json"]);
        let mut others = Vec::new();
        let mut ready = usable(&doctor, person.user.kind(), &mut others);
        others.retain(|(mode, _)| WORLDS.iter().any(|(_, wanted, _)| mode.starts_with(wanted)));
        missing.append(&mut others);
        let external = borrowed(&doctor);
        if !external.iter().any(|mode| mode == "R1") {
            missing.push(("R1".to_owned(), "no runtime that works for this user".to_owned()));
        }
        ready.extend(external);
        let fence = fenced(scratch, &person.program);
        if fence.is_none() {
            missing.push(("F2".to_owned(), "no C compiler".to_owned()));
        }
        let mut worlds = Vec::new();
        for (label, mode, devices) in WORLDS {
            let person = match (&fence, devices) {
                (Some(program), _) if mode == "F2" => {
                    Person { program: program.clone(), ..person.clone() }
                }
                _ if !ready.iter().any(|name| name == mode) => continue,
                (_, Some("tap")) if let Some(why) = person.no_tun() => {
                    missing.push((label.to_owned(), why));
                    continue;
                }
                (_, Some(kind)) => person.with_devices(scratch, kind)?,
                _ => person.clone(),
            };
            worlds.push(Self { person, mode, label });
        }
        Ok(worlds)
    }

    /// Whether its containers have network namespaces.
    pub(crate) fn has_packets(&self) -> bool {
        matches!(self.mode, "N1" | "R1")
    }

    /// Whether its containers are led out by the switch, because no helper can run.
    pub(crate) fn is_led_by_switch(&self) -> bool {
        self.has_packets() && self.person.no_tun().is_some()
    }

    /// A new network with a number of its own.
    ///
    /// # Panics
    /// If it cannot be made.
    pub(crate) fn lab(&self) -> Lab<'_> {
        let lab = self.lab_on(None);
        lab.at(0, &["network", "create", &lab.network]).ok();
        lab
    }

    /// The same for members of several hosts, which share the store: each has its own key.
    ///
    /// # Panics
    /// If it cannot be made.
    pub(crate) fn lab_of<'w>(&'w self, hosts: &'w Hosts) -> Lab<'w> {
        self.lab_with(hosts, &[])
    }

    /// The same with more options of `network create`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub(crate) fn lab_with<'w>(&'w self, hosts: &'w Hosts, options: &[&str]) -> Lab<'w> {
        let lab = self.lab_on(Some(hosts));
        let (network, file) =
            (&lab.network, self.person.home.join(format!("{}.toml", lab.network)));
        let mut list = String::new();
        for host in 0..hosts.count() {
            let address = hosts.address(host).to_string();
            let file = self.person.file(&file, &list);
            let words = match host {
                0 => [&["create", "--scope", "cluster"], options].concat(),
                _ => vec!["join", "--member", &file],
            };
            let words = [&["network"], &words[..], &["--address", &address, network]].concat();
            lab.at(host, &words).ok();
            list += &lab.at(host, &["network", "invite", network]).ok().out();
        }
        let file = self.person.file(&file, &list);
        for host in 0..hosts.count() {
            lab.at(host, &["network", "join", network, "--member", &file]).ok();
        }
        lab
    }

    fn lab_on<'w>(&'w self, hosts: Option<&'w Hosts>) -> Lab<'w> {
        let network = format!("lab{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Lab { world: self, network, hosts, names: Mutex::default() }
    }
}

/// A network that is removed with its containers when the case ends in any way.
pub(crate) struct Lab<'w> {
    world: &'w World,
    pub(crate) network: String,
    /// Those that the containers are on, if not on this one.
    hosts: Option<&'w Hosts>,
    /// Containers, and the numbers of their hosts.
    names: Mutex<Vec<(String, usize)>>,
}

impl Lab<'_> {
    /// A container's name in the store. In its network it has the short one, too.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.network)
    }

    /// The number of the last host.
    pub(crate) fn last_host(&self) -> usize {
        self.hosts.map_or(0, |hosts| hosts.count() - 1)
    }

    /// A command of the program on a host.
    fn command_at(&self, host: usize, words: &[&str]) -> Command {
        let person = &self.world.person;
        let Some(hosts) = self.hosts else { return person.command(words) };
        let no_namespaces = !self.world.has_packets() && no_namespaces().is_ok();
        let setting = Setting { no_namespaces, ..Setting::default() };
        let mut command = person.user.command_in(&person.program, &person.home, &setting);
        hosts.command(host, command.args(words))
    }

    fn at(&self, host: usize, words: &[&str]) -> Finished {
        run_with(&mut self.command_at(host, words), Input::Null, LIMIT)
    }

    /// The same on the host of a container.
    fn command_for(&self, name: &str, words: &[&str]) -> Command {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = self.name(name);
        let host = names.iter().find(|(one, _)| *one == whole).map_or(0, |(_, host)| *host);
        self.command_at(host, words)
    }

    /// A command that makes a container.
    fn container(&self, (name, host): (&str, usize), options: &[&str], script: &str) -> Command {
        let whole = self.name(name);
        let mode = format!("--execmode={}", self.world.mode);
        let named = ["--network", &self.network, "--network-alias", name, "--name", &whole];
        let script = format!("{PRELUDE}{script}");
        let words = [IMAGE, "sh", "-euc", &script];
        let all = [&["run", &mode, "-e", "LC_ALL=C.UTF-8"], &named[..], options, &words].concat();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push((whole.clone(), host));
        self.command_at(host, &all)
    }

    /// Starts a container that runs a script in the background.
    ///
    /// # Panics
    /// If it cannot be started.
    pub(crate) fn serve(&self, name: &str, script: &str) {
        self.serve_with(name, &[], script);
    }

    /// Starts it with more options.
    ///
    /// # Panics
    /// If it cannot be started.
    pub(crate) fn serve_with(&self, name: &str, options: &[&str], script: &str) {
        let options = [&["-d"], options].concat();
        run_with(&mut self.container((name, 0), &options, script), Input::Null, LIMIT).ok();
    }

    /// Starts it on a host.
    ///
    /// # Panics
    /// If it cannot be started.
    pub(crate) fn serve_on(&self, name: &str, host: usize, script: &str) {
        run_with(&mut self.container((name, host), &["-d"], script), Input::Null, LIMIT).ok();
    }

    /// Runs a script to its end in a new container; it stops at the first failure.
    pub(crate) fn run(&self, name: &str, script: &str) -> Finished {
        self.run_with(name, &[], script)
    }

    /// Runs it with more options.
    pub(crate) fn run_with(&self, name: &str, options: &[&str], script: &str) -> Finished {
        let options = [&["--rm"], options].concat();
        run_with(&mut self.container((name, 0), &options, script), Input::Null, LIMIT)
    }

    /// Runs a script in a container that is there.
    pub(crate) fn exec(&self, name: &str, script: &str) -> Finished {
        let (whole, script) = (self.name(name), format!("{PRELUDE}{script}"));
        let mut command = self.command_for(name, &["exec", &whole, "sh", "-euc", &script]);
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Writes a file in a container that is there.
    pub(crate) fn write(&self, name: &str, path: &str, bytes: Vec<u8>) {
        let (whole, script) = (self.name(name), format!("cat > {path}; chmod 755 {path}"));
        let mut command = self.command_for(name, &["exec", "-i", &whole, "sh", "-euc", &script]);
        run_with(&mut command, Input::Bytes(bytes), LIMIT).ok();
    }

    /// What a container has written.
    pub(crate) fn log(&self, name: &str) -> Finished {
        run_with(&mut self.command_for(name, &["logs", &self.name(name)]), Input::Null, LIMIT)
    }

    /// Waits until a container has written a text.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn expect(&self, name: &str, text: &str) {
        let said = || {
            let log = self.log(name);
            (log.out() + &log.err()).contains(text).then_some(())
        };
        let said = until(Duration::from_secs(30), said);
        assert!(said.is_some(), "{name} never said {text:?} but: {:?}", self.log(name));
    }

    /// A container's address in the network.
    pub(crate) fn address(&self, name: &str) -> String {
        let format = format!("{{{{.NetworkSettings.Networks.{}.IPAddress}}}}", self.network);
        let mut command = self.command_for(name, &["inspect", "-f", &format, &self.name(name)]);
        run_with(&mut command, Input::Null, LIMIT).ok().line()
    }

    /// The address of the way out.
    pub(crate) fn gateway(&self) -> String {
        let format = "{{(index .IPAM.Config 0).Gateway}}";
        self.at(0, &["network", "inspect", "-f", format, &self.network]).ok().line()
    }

    /// Ends a container and removes it.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn remove(&self, name: &str) {
        let mut command = self.command_for(name, &["rm", "-f", &self.name(name)]);
        run_with(&mut command, Input::Null, LIMIT).ok();
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let names = std::mem::take(self.names.get_mut().unwrap_or_else(PoisonError::into_inner));
        for host in 0..=self.last_host() {
            let own = names.iter().filter(|(_, place)| *place == host);
            let own: Vec<&str> = own.map(|(name, _)| name.as_str()).collect();
            self.at(host, &[&["rm", "-f"], &own[..]].concat());
        }
        self.at(0, &["network", "rm", &self.network]);
    }
}

/// A program's source, or a script.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    fs::read(guests().join(name)).expect("the program's source")
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/servers/guests")
}
