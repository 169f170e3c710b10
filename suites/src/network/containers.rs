//! Containers of a network in one mode, and the programs in them.
//!
//! Each mode has a home, and so a store and networks, of its own. The networks of all have the same
//! addresses, which must not matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::person::Person;
use testkit::scratch::Scratch;
use testkit::skip::Skip;
use testkit::trees;

use crate::network::programs::{self, Program};

const IMAGE: &str = "localhost/network:1";
const DEBIAN: &str = "localhost/network:debian";
/// The network of every case.
const NETWORK: &str = "lab";
pub(crate) const SUBNET: &str = "100.80.0.0/24";

/// One case at a time in the home with the Debian image.
static PYTHON: Mutex<()> = Mutex::new(());

/// How long a container may take until it is ready.
const SOON: Duration = Duration::from_secs(20);

/// One mode.
pub(crate) struct World {
    pub(crate) person: Person,
    pub(crate) mode: &'static str,
    /// What the cases of this mode are called by: the mode, and what its devices are.
    pub(crate) label: &'static str,
    bin: PathBuf,
    /// The result of loading the image, once.
    loaded: OnceLock<Result<(), String>>,
    /// One case at a time: the first container of a new network has the first address.
    turn: Mutex<()>,
    count: AtomicU32,
}

impl World {
    pub(crate) fn new(
        scratch: &Scratch,
        person: &Person,
        (mode, label): (&'static str, &'static str),
        bin: &Path,
    ) -> Result<Self, String> {
        let owner = Some((person.user.uid, person.user.gid));
        let home = scratch.dir(&format!("home-{label}"), owner, 0o755);
        let home = home.map_err(|error| error.to_string())?;
        Ok(Self {
            person: person.at(&home),
            mode,
            label,
            bin: bin.to_owned(),
            loaded: OnceLock::new(),
            turn: Mutex::new(()),
            count: AtomicU32::new(0),
        })
    }

    fn load(&self) -> Result<(), String> {
        let layout = self.person.home.join("layout");
        let image = programs::image(&self.bin)?;
        image.write_layout(&layout, IMAGE).map_err(|error| error.to_string())?;
        let done = self.person.run(&["load", "-q", "-i", &layout.display().to_string()]);
        if done.code() == 0 { Ok(()) } else { Err(format!("no test image: {done:?}")) }
    }

    /// A new network, and an empty directory where its containers meet.
    ///
    /// # Panics
    /// If they cannot be made.
    pub(crate) fn lab(&self) -> Lab<'_> {
        self.lab_with(&[])
    }

    /// The same with a network that has no way out, as the oracle's.
    pub(crate) fn like_the_oracle(&self) -> Lab<'_> {
        if self.has_packets() { self.lab_with(&["--internal"]) } else { self.lab() }
    }

    /// The same with a network that is made with more options.
    pub(crate) fn lab_with(&self, options: &[&str]) -> Lab<'_> {
        if let Err(error) = self.loaded.get_or_init(|| self.load()) {
            panic!("{error}");
        }
        let place = (IMAGE, &*self.next());
        Lab::new(&self.turn, self.person.clone(), self.mode, place, options)
    }

    /// Whether its containers have network namespaces.
    pub(crate) fn has_packets(&self) -> bool {
        self.mode == "N1"
    }

    fn next(&self) -> String {
        format!("meetings-{}", self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// The output of a program in one or two containers.
    pub(crate) fn run(&self, program: &Program) -> Finished {
        let lab = self.like_the_oracle();
        let path = format!("/bin/{}", program.name);
        let is_less = program.is_plain && self.has_packets();
        let options: &[&str] = if is_less { &["--cap-drop=ALL"] } else { &[] };
        if program.is_pair { lab.pair(&[&path]) } else { lab.run_with("one", options, &[&path]) }
    }

    /// A home with the Debian image, which all modes use in turn.
    pub(crate) fn debian(&self, scratch: &Scratch) -> Result<PathBuf, Skip> {
        let tree = trees::integration()?;
        let owner = Some((self.person.user.uid, self.person.user.gid));
        let home = scratch.dir("home-debian", owner, 0o755).expect("a home");
        let file = std::fs::File::open(tree).expect("the tree");
        let mut import = self.person.at(&home).command(&["import", "-q", "-", DEBIAN]);
        run_with(import.stdin(file), Input::AsIs, 2 * crate::network::LIMIT).ok();
        Ok(home)
    }

    /// A network with a way out in that home, which is somebody's.
    pub(crate) fn python_lab(&self, person: Person) -> Lab<'_> {
        let meetings = format!("{}-{}", self.label, self.next());
        Lab::new(&PYTHON, person, self.mode, (DEBIAN, &meetings), &[])
    }

    /// The output of Python's servers and clients in that home.
    pub(crate) fn python(&self, home: &Path) -> Finished {
        let lab = Lab::new(
            &PYTHON,
            self.person.at(home),
            self.mode,
            (DEBIAN, &format!("{}-{}", self.label, self.next())),
            if self.has_packets() { &["--internal"] } else { &[] },
        );
        let script = programs::guests().join("service.py");
        std::fs::copy(script, lab.meetings.join("service.py")).expect("a copy of the script");
        lab.pair(&["/usr/bin/python3", "/meetings/service.py"])
    }
}

/// A network that is removed with its containers when the case ends in any way.
pub(crate) struct Lab<'w> {
    pub(crate) person: Person,
    mode: &'static str,
    image: &'static str,
    pub(crate) meetings: PathBuf,
    names: Mutex<Vec<String>>,
    _turn: MutexGuard<'w, ()>,
}

impl<'w> Lab<'w> {
    fn new(
        turn: &'w Mutex<()>,
        person: Person,
        mode: &'static str,
        (image, meetings): (&'static str, &str),
        network: &[&str],
    ) -> Self {
        let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Not that of a run before, whose meetings are over.
        let meetings = person.dir(meetings);
        let is_new = std::fs::read_dir(&meetings).is_ok_and(|mut files| files.next().is_none());
        assert!(is_new, "{} is not empty", meetings.display());
        let lab = Self { person, mode, image, meetings, names: Mutex::default(), _turn: turn };
        let create = ["network", "create", NETWORK, "--subnet", SUBNET];
        lab.person.run(&[&create[..], network].concat()).ok();
        lab
    }

    /// The command for a program in a new container.
    pub(crate) fn command(&self, name: &str, options: &[&str], words: &[&str]) -> Command {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        let mode = format!("--execmode={}", self.mode);
        let bind = format!("{}:/meetings", self.meetings.display());
        let first = ["run", &mode, "--network", NETWORK, "--name", name, "-v", &bind];
        let all = [&first[..], &["-e", "MEETINGS=/meetings"], options, &[self.image], words];
        self.person.command(&all.concat())
    }

    /// The image of its containers.
    pub(crate) fn image(&self) -> &'static str {
        self.image
    }

    /// Runs a program in a new container to its end.
    pub(crate) fn run(&self, name: &str, words: &[&str]) -> Finished {
        self.run_with(name, &[], words)
    }

    /// The same with more options.
    pub(crate) fn run_with(&self, name: &str, options: &[&str], words: &[&str]) -> Finished {
        let options = [&["--rm"], options].concat();
        run_with(&mut self.command(name, &options, words), Input::Null, crate::network::LIMIT)
    }

    /// Runs a program in a new container that has the host's network.
    pub(crate) fn run_on_host(&self, options: &[&str], words: &[&str]) -> Finished {
        let mode = format!("--execmode={}", self.mode);
        let all = [&["run", &mode], options, &[self.image], words].concat();
        run_with(&mut self.person.command(&all), Input::Null, crate::network::LIMIT)
    }

    /// Starts a container that goes on, and waits until it has said `ready`.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn start(&self, name: &str, options: &[&str], words: &[&str]) {
        let options = [&["-d"], options].concat();
        run_with(&mut self.command(name, &options, words), Input::Null, crate::network::LIMIT).ok();
        self.is_ready(name);
    }

    /// Waits until a container has said `ready`.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn is_ready(&self, name: &str) {
        let ready = until(SOON, || self.log(name).contains("ready\n").then_some(()));
        assert!(ready.is_some(), "{name} is not ready: {}", self.log(name));
    }

    /// What a container has said.
    pub(crate) fn log(&self, name: &str) -> String {
        self.person.run(&["logs", name]).out()
    }

    /// The process of a container, as the host knows it.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn pid(&self, name: &str) -> u32 {
        let done = self.person.run(&["inspect", "--format", "{{.State.Pid}}", name]);
        done.ok().line().parse().expect("a process id")
    }

    /// Runs a program as `one` in the first container and as `two` in the second, at once.
    ///
    /// # Panics
    /// If the first does not begin.
    fn pair(&self, words: &[&str]) -> Finished {
        let role = |name: &str| {
            let words = [words, &[name]].concat();
            run_with(&mut self.command(name, &["--rm"], &words), Input::Null, crate::network::LIMIT)
        };
        let began = self.meetings.join("begin.one");
        thread::scope(|scope| {
            let one = scope.spawn(|| role("one"));
            // Addresses are given in the order of starts.
            let first =
                until(SOON, || (began.exists() || one.is_finished()).then(|| began.exists()));
            let two = (first == Some(true)).then(|| role("two"));
            let mut one = one.join().expect("a run");
            let Some(two) = two else { panic!("the first did not begin: {one:?}") };
            let both = format!("== one\n{}== two\n{}", one.out(), two.out());
            one.stdout = both.into_bytes();
            one.stderr.extend(&two.stderr);
            if one.code() == 0 {
                one.status = two.status;
            }
            one
        })
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let names = std::mem::take(self.names.get_mut().unwrap_or_else(PoisonError::into_inner));
        for name in names {
            self.person.run(&["rm", "-f", &name]);
        }
        self.person.run(&["network", "rm", NETWORK]);
    }
}

/// The processes of a person's store with this name, and their numbers.
pub(crate) fn processes(person: &Person, name: &str) -> Vec<u32> {
    let store = person.store();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let containers = store.join("containers");
    let is_its = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let of_store = line.contains(&store.display().to_string());
        let of_container = line
            .split_whitespace()
            .nth(1)
            .is_some_and(|id| id.len() == 64 && containers.join(id).exists());
        line.starts_with(name) && (of_store || of_container)
    };
    all.filter_map(number).filter(is_its).collect()
}
