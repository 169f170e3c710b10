//! A user, where user namespaces are allowed or forbidden, and the place of a case.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::image::{Built, Image};
use testkit::layer::Layer;
use testkit::person::{LIMIT, Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};
use testkit::users::{Setting, no_namespaces};

/// The image of most cases: busybox and a page.
pub(crate) const BOX: &str = "localhost/box:1";
const DEBIAN: &str = "localhost/cluster:debian";
const SERVERS: &str = "localhost/cluster:servers";
const BATCH: &str = "localhost/cluster:batch";

/// What `sh` and others of the image are links to.
const APPLETS: [&str; 21] = [
    "sh", "ls", "cat", "sleep", "httpd", "nc", "echo", "id", "env", "yes", "head", "dd", "seq",
    "kill", "mkdir", "hostname", "wget", "true", "pwd", "tty", "touch",
];

/// Everything that lives as long as the suite.
pub(crate) struct Stage {
    pub(crate) worlds: Vec<World>,
    pub(crate) missing: Vec<(String, String)>,
    /// Removed at the end.
    _scratch: Scratch,
}

impl Stage {
    pub(crate) fn set() -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("cluster").map_err(text)?;
        let image = image()?;
        let people = everybody(&scratch, crate::program::coracle()).map_err(text)?;
        let (mut worlds, mut missing) = (Vec::new(), Vec::new());
        for person in &people {
            let is_plain = person.user.kind() == "plain" || people.len() == 1;
            for (label, part) in if is_plain { PLAIN } else { RANGE } {
                let is_free = *label != "forbidden";
                if let (false, Err(why)) = (is_free, no_namespaces()) {
                    missing.push((format!("{label}, {part:?}"), why));
                    continue;
                }
                let owner = Some((person.user.uid, person.user.gid));
                let home = scratch.dir(&format!("home-{label}-{part:?}"), owner, 0o755);
                let home = home.map_err(text)?;
                let setting = Setting { no_namespaces: !is_free, ..Setting::default() };
                let person = person.at(&home);
                let layout = home.join("layout");
                image.write_layout(&layout, BOX).map_err(text)?;
                person.run(&["load", "-q", "-i", &layout.display().to_string()]).ok();
                worlds.push(World::new(person, label, setting, *part));
            }
        }
        Ok(Self { worlds, missing, _scratch: scratch })
    }
}

fn image() -> Result<Built, String> {
    Ok(unbuilt()?.build())
}

/// The image of most cases, to which more can be added.
pub(crate) fn unbuilt() -> Result<Image, String> {
    let layer = Layer::busybox(&APPLETS).map_err(|skip| skip.to_string())?;
    let layer = layer.dir("www").file("www/index.html", 0o644, "page\n");
    let layer =
        layer.file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\nbob:x:7:7::/:/bin/sh\n");
    Ok(Image::new().layer(layer).env("PATH", "/bin"))
}

/// The cases of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those of batch systems, which wait for most of their time, beside the others.
    Batch,
    /// All others.
    Most,
    /// Those that a range of ids could change.
    Ids,
}

const PLAIN: &[(&str, Part)] = &[
    ("allowed", Part::Batch),
    ("allowed", Part::Most),
    ("forbidden", Part::Batch),
    ("forbidden", Part::Most),
];
const RANGE: &[(&str, Part)] = &[("range", Part::Ids)];

/// One user in one setting.
pub(crate) struct World {
    pub(crate) person: Person,
    pub(crate) label: &'static str,
    setting: Setting,
    /// Words of `nsenter`, if commands run in namespaces of a case.
    entry: Vec<String>,
    pub(crate) part: Part,
    count: AtomicU32,
    debian: OnceLock<Result<(), Skip>>,
    servers: OnceLock<Result<(), Skip>>,
    batch: OnceLock<Result<(), Skip>>,
}

impl World {
    fn new(person: Person, label: &'static str, setting: Setting, part: Part) -> Self {
        Self {
            person,
            label,
            setting,
            entry: Vec::new(),
            part,
            count: AtomicU32::new(0),
            debian: OnceLock::new(),
            servers: OnceLock::new(),
            batch: OnceLock::new(),
        }
    }

    /// The same setting for another person, in namespaces that `nsenter` enters.
    pub(crate) fn entered(&self, person: Person, entry: Vec<String>) -> Self {
        let new = Self::new(person, self.label, self.setting.clone(), self.part);
        Self { entry, ..new }
    }

    /// The lane of its cases: one at a time, so that all that is there is the case's own.
    pub(crate) fn lane(&self) -> String {
        self.person.home.display().to_string()
    }

    /// A command of the user.
    fn command_in(&self, program: impl AsRef<OsStr>, setting: &Setting) -> Command {
        let command = self.person.user.command_in(program, &self.person.home, setting);
        if self.entry.is_empty() {
            return command;
        }
        // A user whom the host knows has the groups that it knows.
        let words = command.get_args().map(|word| match word.to_str() {
            Some("--clear-groups") => OsStr::new("--init-groups"),
            _ => word,
        });
        let mut entered = Command::new("nsenter");
        entered.args(&self.entry).arg(command.get_program()).args(words);
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        entered.env_clear().envs(variables);
        entered
    }

    /// Runs a case, and checks that nothing of it is left.
    pub(crate) fn try_out(&self, case: impl Fn(&Lab<'_>) -> Outcome) -> Outcome {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let lab = Lab { world: self, dir: self.person.dir(&format!("lab-{number}")) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&lab)));
        if outcome.is_err() {
            lab.sweep();
        }
        let outcome = outcome.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        lab.is_clean();
        outcome
    }

    /// Checks that all processes of the cases have ended.
    pub(crate) fn nothing_is_left(&self) {
        let gone = || self.processes().is_empty().then_some(());
        let gone = until(Duration::from_secs(20), gone);
        assert!(gone.is_some(), "processes are left: {:#?}", self.processes());
    }

    /// Processes of this home.
    fn processes(&self) -> Vec<String> {
        let home = self.person.home.display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = all.filter_map(|entry| {
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            words.contains(&home).then(|| format!("{} {words}", entry.path().display()))
        });
        lines.collect()
    }
}

/// The place of a case.
pub(crate) struct Lab<'w> {
    pub(crate) world: &'w World,
    pub(crate) dir: PathBuf,
}

impl Lab<'_> {
    /// A cluster file; gives its path. `NAME` is a name of a cluster that no other case has.
    pub(crate) fn file(&self, text: &str) -> String {
        self.world.person.file(&self.dir.join("lab.toml"), text)
    }

    /// A command of the program.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        self.command_in(words, &self.world.setting)
    }

    /// The same with closed standard input.
    pub(crate) fn without_input(&self, words: &[&str]) -> Command {
        let setting = Setting { closed_stdin: true, ..self.world.setting.clone() };
        self.command_in(words, &setting)
    }

    fn command_in<S: AsRef<OsStr>>(&self, words: &[S], setting: &Setting) -> Command {
        let mut command = self.world.command_in(&self.world.person.program, setting);
        command.args(words);
        command
    }

    /// Runs the program to its end without input.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Finished {
        run_with(&mut self.command(words), Input::Null, LIMIT)
    }

    /// `cluster WORD -f FILE WORDS`.
    pub(crate) fn cluster(&self, word: &str, words: &[&str]) -> Finished {
        let file = self.dir.join("lab.toml").display().to_string();
        self.run(&[&["cluster", "-f", &file, word], words].concat())
    }

    /// Runs a script of the host's shell, as [`Lab::shell`] has it.
    pub(crate) fn script(&self, script: &str) -> Finished {
        run_with(&mut self.shell(script), Input::Null, LIMIT)
    }

    /// A script of the host's shell, in which `$coracle` is the program and `$file` the cluster
    /// file.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let program = &self.world.person.program;
        let mut command = self.world.command_in("sh", &self.world.setting);
        command.args(["-c", script]).env("coracle", program).env("file", self.dir.join("lab.toml"));
        command
    }

    /// Names of containers, those of ended ones included, in their order.
    pub(crate) fn containers(&self) -> Vec<String> {
        let done = self.run(&["ps", "-a", "--format", "{{.Names}}"]);
        let mut names: Vec<String> = done.ok().out().lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Where the driver keeps files.
    pub(crate) fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(self.world.person.store().join("clusters"));
        let names = files.into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Checks that nothing is left.
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.containers(), [""; 0], "containers are left");
        let made = ["network", "ls", "--filter=type=custom", "--format", "{{.Name}}"];
        assert_eq!(self.run(&made).ok().out(), "", "networks are left");
        assert_eq!(self.kept(), [""; 0], "files of the driver are left");
    }

    /// Removes what a failed case has left, so that it does not fail the next ones.
    fn sweep(&self) {
        // A process that was left may hold the cluster's lock for a while.
        for _ in 0..6 {
            let kept = self.kept();
            if kept.is_empty() {
                break;
            }
            for name in kept {
                self.run(&["cluster", "down", &name]);
            }
        }
        let names = self.containers();
        if !names.is_empty() {
            self.run(&[vec!["rm".to_owned(), "-f".to_owned()], names].concat());
        }
        self.run(&["network", "prune", "-f"]);
    }

    /// The image with Debian's programs.
    pub(crate) fn debian(&self) -> Result<&'static str, Skip> {
        self.imported(&self.world.debian, testkit::trees::integration, DEBIAN)
    }

    /// The image with nginx and `HAProxy`.
    pub(crate) fn servers(&self) -> Result<&'static str, Skip> {
        self.imported(&self.world.servers, testkit::trees::servers, SERVERS)
    }

    /// The image with the daemons of Slurm and of Grid Engine.
    pub(crate) fn batch(&self) -> Result<&'static str, Skip> {
        self.imported(&self.world.batch, testkit::trees::batch, BATCH)
    }

    /// An image of a tree, which is imported once in each world.
    fn imported(
        &self,
        once: &OnceLock<Result<(), Skip>>,
        tree: fn() -> Result<PathBuf, Skip>,
        image: &'static str,
    ) -> Result<&'static str, Skip> {
        let import = || {
            let file = fs::File::open(tree()?).expect("the tree");
            let mut import = self.world.person.command(&["import", "-q", "-", image]);
            run_with(import.stdin(file), Input::AsIs, LIMIT).ok();
            Ok(())
        };
        once.get_or_init(import).clone().map(|()| image)
    }
}

/// A port of this machine that nobody has, and a listener that has it until it is dropped.
pub(crate) fn port() -> (u16, TcpListener) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    (listener.local_addr().expect("an address").port(), listener)
}
