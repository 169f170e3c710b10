//! The environment of a case: a mode, a network, and containers of the Debian image in it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::fence::fenced;
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

/// One case.
pub(crate) type Case = fn(&World) -> Outcome;

/// Time limit of a script on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

const IMAGE: &str = "localhost/debian:servers";

const MODES: [&str; 3] = ["I1", "P1", "F2"];

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
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Stage {
    /// Imports the tree as one user and finds the ready modes.
    pub(crate) fn set() -> Result<Self, String> {
        let tree = testkit::trees::servers().map_err(|skip| skip.0)?;
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("servers").map_err(text)?;
        let people = everybody(&scratch, Path::new(env!("CARGO_BIN_EXE_coracle"))).map_err(text)?;
        // Ranges of ids have no part in this.
        let person = people.iter().find(|person| person.user.kind() == "plain");
        let person = person.or(people.first()).ok_or("no user")?.clone();
        let mut import = person.command(&["import", "-q", "-", IMAGE]);
        let done = run_with(import.stdin(fs::File::open(tree).map_err(text)?), Input::AsIs, LIMIT);
        if done.code() != 0 {
            return Err(format!("no image: {done:?}"));
        }
        let mut missing = Vec::new();
        let ready = person.engines(&mut missing);
        missing.retain(|(mode, _)| MODES.iter().any(|wanted| mode.starts_with(wanted)));
        let fence = fenced(&scratch, &person.program);
        let mut worlds = Vec::new();
        for mode in MODES {
            let program = match &fence {
                Some(program) if mode.starts_with('F') => program.clone(),
                None if mode.starts_with('F') => {
                    missing.push((mode.to_owned(), "no C compiler".to_owned()));
                    continue;
                }
                _ if ready.iter().any(|name| name == mode) => person.program.clone(),
                _ => continue,
            };
            worlds.push(World { person: Person { program, ..person.clone() }, mode });
        }
        Ok(Self { worlds, missing, person, scratch })
    }

    /// Checks that the cases have ended all that they have begun.
    pub(crate) fn nothing_is_left(&self) -> Outcome {
        assert_eq!(self.person.run(&["ps", "-aq"]).ok().out(), "", "containers are left");
        let networks = self.person.run(&["network", "ls", "--format", "{{.Name}}"]);
        assert_eq!(networks.ok().out(), "host\nnone\n", "networks are left");
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
    /// A new network with a number of its own.
    ///
    /// # Panics
    /// If it cannot be made.
    pub(crate) fn lab(&self) -> Lab<'_> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = format!("lab{number}");
        self.person.run(&["network", "create", &network]).ok();
        Lab { world: self, network, names: Mutex::default() }
    }
}

/// A network that is removed with its containers when the case ends in any way.
pub(crate) struct Lab<'w> {
    world: &'w World,
    pub(crate) network: String,
    names: Mutex<Vec<String>>,
}

impl Lab<'_> {
    /// A container's name in the store. In its network it has the short one, too.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.network)
    }

    fn command(&self, name: &str, options: &[&str], script: &str) -> Command {
        let whole = self.name(name);
        let mode = format!("--execmode={}", self.world.mode);
        let named = ["--network", &self.network, "--network-alias", name, "--name", &whole];
        let script = format!("{PRELUDE}{script}");
        let words = [IMAGE, "sh", "-euc", &script];
        let all = [&["run", &mode, "-e", "LC_ALL=C.UTF-8"], &named[..], options, &words].concat();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(whole.clone());
        self.world.person.command(&all)
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
        run_with(&mut self.command(name, &options, script), Input::Null, LIMIT).ok();
    }

    /// Runs a script to its end in a new container; it stops at the first failure.
    pub(crate) fn run(&self, name: &str, script: &str) -> Finished {
        self.run_with(name, &[], script)
    }

    /// Runs it with more options.
    pub(crate) fn run_with(&self, name: &str, options: &[&str], script: &str) -> Finished {
        let options = [&["--rm"], options].concat();
        run_with(&mut self.command(name, &options, script), Input::Null, LIMIT)
    }

    /// Runs a script in a container that is there.
    pub(crate) fn exec(&self, name: &str, script: &str) -> Finished {
        let (name, script) = (self.name(name), format!("{PRELUDE}{script}"));
        let mut command = self.world.person.command(&["exec", &name, "sh", "-euc", &script]);
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Writes a file in a container that is there.
    pub(crate) fn write(&self, name: &str, path: &str, bytes: Vec<u8>) {
        let (name, script) = (self.name(name), format!("cat > {path}; chmod 755 {path}"));
        let mut command = self.world.person.command(&["exec", "-i", &name, "sh", "-euc", &script]);
        run_with(&mut command, Input::Bytes(bytes), LIMIT).ok();
    }

    /// What a container has written.
    pub(crate) fn log(&self, name: &str) -> Finished {
        self.world.person.run(&["logs", &self.name(name)])
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
        self.world.person.run(&["inspect", "-f", &format, &self.name(name)]).ok().line()
    }

    /// Ends a container and removes it.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn remove(&self, name: &str) {
        self.world.person.run(&["rm", "-f", &self.name(name)]).ok();
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let names = std::mem::take(self.names.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut words = vec!["rm", "-f"];
        words.extend(names.iter().map(String::as_str));
        self.world.person.run(&words);
        self.world.person.run(&["network", "rm", &self.network]);
    }
}

/// A program's source, or a script.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    fs::read(guests().join(name)).expect("the program's source")
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/guests")
}
