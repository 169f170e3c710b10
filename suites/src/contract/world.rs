//! The environment of a case: one engine, one user, one store with the test image.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::command::{Finished, Input, run_with, until};
use testkit::docker_registry::DockerRegistry;
use testkit::fence::fenced;
use testkit::guest;
use testkit::person::{borrowed, public_copy, usable};
use testkit::running::Running;
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::users::{self, Setting, User};

/// One case.
pub(crate) type Case = fn(&World) -> Outcome;

/// Time limit of one command on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The modes of external engines in which the suite runs.
const BORROWED: [&str; 2] = ["R1", "R2"];

/// The kind of host that a world is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// This one, and the engine is asked for.
    Any,
    /// This one, which chooses the engine by itself.
    Chooses,
    /// One that forbids user namespaces, and chooses the engine by itself.
    Forbidden,
}

/// Everything that lives as long as the suite.
pub(crate) struct Stage {
    /// One per engine and user.
    pub(crate) worlds: Vec<World>,
    /// Modes that could not be set up, with the reasons.
    pub(crate) missing: Vec<(String, String)>,
    _registry: Option<DockerRegistry>,
    _scratch: Scratch,
}

/// One engine and one user with a store.
pub(crate) struct World {
    /// The binary, at a path where every user can run it.
    pub(crate) coracle: PathBuf,
    /// The user.
    pub(crate) user: User,
    /// `N1`, `R1`...
    pub(crate) engine: String,
    /// Where it runs, and whether its mode is asked for.
    pub(crate) host: Host,
    /// The user's home, with the store at its usual path.
    pub(crate) home: PathBuf,
    /// A directory of this user for the files of cases.
    pub(crate) files: PathBuf,
    /// The test image.
    pub(crate) image: String,
    /// `host:port` of the registry, if there is one.
    pub(crate) registry: Option<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Stage {
    /// Starts a registry, pulls the test image as each user and finds the ready engines.
    pub(crate) fn set() -> Result<Self, String> {
        let scratch = Scratch::new("contract").map_err(|error| error.to_string())?;
        let coracle =
            public_copy(&scratch, crate::program::coracle()).map_err(|error| error.to_string())?;
        let users = users::all();
        if users.is_empty() {
            return Err(users::MISSING.to_owned());
        }
        let registry = DockerRegistry::start();
        let mut missing = Vec::new();
        if let Err(error) = &registry {
            missing.push(("registry".to_owned(), error.to_string()));
        }
        let registry = registry.ok();
        let image = prepare(&scratch, registry.as_ref())?;
        let mut worlds = Vec::new();
        for user in users {
            let owner = Some((user.uid, user.gid));
            let dir = |name: &str| {
                scratch
                    .dir(&format!("{}-{name}", user.name), owner, 0o755)
                    .map_err(|e| e.to_string())
            };
            let world = World {
                coracle: coracle.clone(),
                home: dir("home")?,
                files: dir("files")?,
                user: user.clone(),
                engine: String::new(),
                host: Host::Any,
                image: image.clone(),
                registry: registry.as_ref().map(DockerRegistry::host),
            };
            world.fetch(scratch.path())?;
            let doctor = world.coracle(&["doctor", "--format", "json"]);
            for engine in usable(&doctor, world.user.kind(), &mut missing) {
                let host = world.host_of(&engine);
                let mut world = World { engine, host, ..world.clone_parts() };
                if host == Host::Forbidden {
                    // Another host, so another home: what a program finds out about its host is
                    // kept there.
                    world.home = dir("forbidden-home")?;
                    world.fetch(scratch.path())?;
                }
                world.expect_choice()?;
                worlds.push(world);
            }
            let borrowed = borrowed(&doctor);
            for engine in BORROWED {
                if borrowed.iter().any(|mode| mode == engine) {
                    worlds.push(World { engine: engine.to_owned(), ..world.clone_parts() });
                } else {
                    let name = format!("{engine}::{}", world.user.kind());
                    missing.push((name, "neither runc nor crun, or no user namespaces".to_owned()));
                }
            }
            // Without namespaces, filters and tracing; one user is enough.
            if world.user.kind() == "plain" {
                match fenced(&scratch, &coracle) {
                    None => missing.push(("F2".to_owned(), "no C compiler".to_owned())),
                    Some(program) => {
                        let engine = "F2".to_owned();
                        worlds.push(World { coracle: program, engine, ..world.clone_parts() });
                    }
                }
            }
        }
        Ok(Self { worlds, missing, _registry: registry, _scratch: scratch })
    }
}

/// Puts the test image into the registry, or into a layout if there is none.
fn prepare(scratch: &Scratch, registry: Option<&DockerRegistry>) -> Result<String, String> {
    let built = guest::image().build();
    if let Some(registry) = registry {
        registry.target().image("test/guest", "1", &built).map_err(|error| error.to_string())?;
        return Ok(format!("{}/test/guest:1", registry.host()));
    }
    let layout = scratch.path().join("layout");
    built.write_layout(&layout, "localhost/test/guest:1").map_err(|error| error.to_string())?;
    Ok("localhost/test/guest:1".to_owned())
}

impl World {
    fn clone_parts(&self) -> Self {
        Self {
            coracle: self.coracle.clone(),
            user: self.user.clone(),
            engine: self.engine.clone(),
            host: self.host,
            home: self.home.clone(),
            files: self.files.clone(),
            image: self.image.clone(),
            registry: self.registry.clone(),
        }
    }

    /// The kind of host that chooses an engine by itself for this user, where one does: N1 on this
    /// one, I1 where user namespaces are forbidden.
    fn host_of(&self, engine: &str) -> Host {
        match (engine, self.user.kind()) {
            ("N1", _) => Host::Chooses,
            ("I1", "plain") if users::no_namespaces().is_ok() => Host::Forbidden,
            _ => Host::Any,
        }
    }

    /// Checks that the host chooses the engine, where it is not asked for.
    fn expect_choice(&self) -> Result<(), String> {
        if self.host == Host::Any {
            return Ok(());
        }
        let doctor = self.coracle(&["doctor", "--format", "json"]);
        let report: Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
        if report["chosen"] == self.engine.as_str() {
            return Ok(());
        }
        Err(format!("{:?} does not choose {}: {doctor:?}", self.host, self.engine))
    }

    /// The same engine, asked for.
    pub(crate) fn asking(&self) -> Self {
        Self { host: Host::Any, ..self.clone_parts() }
    }

    /// The same engine and user with another home and an empty store.
    pub(crate) fn at(&self, home: &Path) -> Self {
        Self { home: home.to_owned(), ..self.clone_parts() }
    }

    /// The same user and store with another primary group.
    pub(crate) fn in_group(&self, gid: u32) -> Self {
        let parts = self.clone_parts();
        Self { user: User { gid, ..self.user.clone() }, ..parts }
    }

    /// The same user and store with a supplementary group.
    pub(crate) fn also_in_group(&self, group: u32) -> Self {
        let user = User { groups: vec![group], ..self.user.clone() };
        Self { user, ..self.clone_parts() }
    }

    /// Gets the test image into the store.
    pub(crate) fn fetch(&self, scratch: &Path) -> Result<(), String> {
        let done = if self.registry.is_some() {
            self.coracle(&["pull", "-q", "--tls-verify=false", &self.image])
        } else {
            let layout = scratch.join("layout").display().to_string();
            self.coracle(&["load", "-q", "-i", &layout])
        };
        if done.code() == 0 { Ok(()) } else { Err(format!("no test image: {done:?}")) }
    }

    /// True if a program can have any id: subordinate ones, or those that an engine emulates.
    pub(crate) fn has_ids(&self) -> bool {
        self.user.range || self.engine != "R1"
    }

    /// True if the container uses the kernel's mounts and ids, so that known differences of
    /// overlays and id maps apply.
    pub(crate) fn has_overlay(&self) -> bool {
        self.engine.starts_with('N') || self.engine == "R1"
    }

    /// Skips a case about isolation in an engine that cannot isolate.
    pub(crate) fn boundary(&self) -> Outcome {
        if !self.has_overlay() {
            testkit::skip!("--isolate needs namespaces of the kernel's");
        }
        Ok(())
    }

    /// The flag that selects this engine.
    pub(crate) fn mode(&self) -> String {
        format!("--execmode={}", self.engine)
    }

    /// A command with these arguments, as the user.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        self.command_in(&Setting::default(), arguments)
    }

    /// A command under unusual conditions.
    pub(crate) fn command_in<S: AsRef<OsStr>>(
        &self,
        setting: &Setting,
        arguments: &[S],
    ) -> Command {
        let no_namespaces = setting.no_namespaces || self.host == Host::Forbidden;
        let setting = Setting { no_namespaces, ..setting.clone() };
        let mut command = self.user.command_in(&self.coracle, &self.home, &setting);
        // What is chosen by itself is what users get: there the program has to choose.
        let mode = self.mode();
        let asks = |word: &&S| self.host == Host::Any || word.as_ref() != OsStr::new(&mode);
        command.args(arguments.iter().filter(asks));
        command
    }

    /// Runs `coracle` to its end without input.
    pub(crate) fn coracle<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        run_with(&mut self.command(arguments), Input::Null, LIMIT)
    }

    /// The command line of `run --rm` with this engine, further flags, and the guest with its
    /// arguments.
    pub(crate) fn words(&self, flags: &[&str], guest: &[&str]) -> Vec<String> {
        self.words_for(&["run", "--rm"], flags, guest)
    }

    /// The same with another beginning than `run --rm`.
    pub(crate) fn words_for(&self, verb: &[&str], flags: &[&str], guest: &[&str]) -> Vec<String> {
        let mode = self.mode();
        let mut words: Vec<&str> = verb.to_vec();
        words.push(&mode);
        words.extend(flags);
        words.push(&self.image);
        words.push("/bin/guest");
        words.extend(guest);
        words.into_iter().map(str::to_owned).collect()
    }

    /// Runs the guest in a new container that is removed.
    pub(crate) fn guest(&self, flags: &[&str], guest: &[&str]) -> Finished {
        self.coracle(&self.words(flags, guest))
    }

    /// The guest's last line of output, parsed as JSON.
    #[track_caller]
    pub(crate) fn json(&self, flags: &[&str], guest: &[&str]) -> Value {
        json(&self.guest(flags, guest))
    }

    /// Starts the guest in the background under a new name and waits until it runs.
    #[track_caller]
    pub(crate) fn detached(&self, flags: &[&str], guest: &[&str]) -> Container<'_> {
        let container = Container { world: self, name: self.name("d") };
        let mut all = vec!["--name", container.name.as_str()];
        all.extend(flags);
        let done = self.coracle(&self.words_for(&["run", "-d"], &all, guest));
        done.ok();
        container
    }

    /// Starts the guest in the foreground.
    pub(crate) fn start(&self, flags: &[&str], guest: &[&str]) -> Running {
        Running::start(&mut self.command(&self.words(flags, guest)))
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self, stem: &str) -> String {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{stem}-{}-{number}", self.engine.to_lowercase())
    }

    /// Makes an empty directory of the user for one case.
    pub(crate) fn dir(&self, stem: &str) -> PathBuf {
        let path = self.files.join(self.name(stem));
        fs::create_dir_all(&path).expect("a directory for the case");
        self.give(&path);
        path
    }

    /// Writes a file of the user.
    pub(crate) fn file(&self, dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).expect("a file for the case");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if self.user.uid != rustix::process::getuid().as_raw() {
            std::os::unix::fs::chown(path, Some(self.user.uid), Some(self.user.gid))
                .expect("giving a file to the user");
        }
    }

    /// The user's store.
    pub(crate) fn store(&self) -> PathBuf {
        self.home.join(".local/share/coracle")
    }
}

/// A container that is removed when the case ends in any way.
pub(crate) struct Container<'w> {
    world: &'w World,
    /// Its name.
    pub(crate) name: String,
}

impl<'w> Container<'w> {
    /// Takes over a container that a case has made, to remove it.
    pub(crate) fn named(world: &'w World, name: &str) -> Self {
        Self { world, name: name.to_owned() }
    }

    /// `coracle exec` in it.
    pub(crate) fn exec(&self, flags: &[&str], guest: &[&str]) -> Finished {
        let mut words = vec!["exec"];
        words.extend(flags);
        words.extend([self.name.as_str(), "/bin/guest"]);
        words.extend(guest);
        self.world.coracle(&words)
    }

    /// One field of `inspect --format`.
    #[track_caller]
    pub(crate) fn inspect(&self, template: &str) -> String {
        let done =
            self.world.coracle(&["inspect", "--type=container", "--format", template, &self.name]);
        done.ok().line()
    }

    /// Waits until its log has a text.
    #[track_caller]
    pub(crate) fn said(&self, text: &str) {
        let mut last = None;
        let seen = until(Duration::from_secs(20), || {
            let done = self.world.coracle(&["logs", &self.name]);
            let found = done.out().contains(text);
            last = Some(done);
            found.then_some(())
        });
        assert!(seen.is_some(), "the log of {} never held {text:?}: {last:?}", self.name);
    }

    /// Waits until it is in a state such as `exited`.
    #[track_caller]
    pub(crate) fn becomes(&self, state: &str) {
        let seen = until(Duration::from_secs(20), || {
            (self.inspect("{{.State.Status}}") == state).then_some(())
        });
        assert!(
            seen.is_some(),
            "{} is {}, not {state}",
            self.name,
            self.inspect("{{.State.Status}}")
        );
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        self.world.coracle(&["rm", "-f", &self.name]);
    }
}

/// The last line of standard output as JSON, after success.
#[track_caller]
pub(crate) fn json(done: &Finished) -> Value {
    done.ok();
    let text = done.out();
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {done:?}"))
}
