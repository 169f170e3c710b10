//! What is there besides the hosts: an image, a registry, a Slurm; and how long the works take.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::hosts::{Process, lives_there};
use testkit::image::{Built, Image};
use testkit::layer::Layer;
use testkit::skip::Skip;
use testkit::slurm::Cluster;

use super::traces::Traces;
use super::works::Work;
use crate::hosts::lab::{COUNT, LIMIT, Lab};
use crate::hosts::registry;
use crate::hosts::slurm::slurm;
use crate::hosts::small::{self, BOX, noise};

/// The image that is pulled.
pub(super) const PULLED: &str = "127.0.0.1:5000/big:1";
/// Bytes of the part of an image that cannot be compressed.
const BIG: usize = 24 << 20;

/// The site.
pub(super) struct Site<'l> {
    pub(super) lab: &'l Lab,
    pub(super) slurm: Option<Cluster<'l>>,
    registry: Mutex<Option<Child>>,
    /// How long a work takes when nobody is killed.
    pub(super) lengths: Mutex<BTreeMap<Work, Duration>>,
}

fn big_image() -> Result<Built, Skip> {
    let more = Layer::new().file("more", 0o644, noise(1, BIG));
    Ok(Image::new().layer(small::layer()?).layer(more).env("PATH", "/bin").build())
}

impl<'l> Site<'l> {
    /// Starts what these works need.
    pub(super) fn start(lab: &'l Lab, works: &HashSet<Work>) -> Result<Self, Skip> {
        small::load(lab, &lab.people[0])?;
        let registry = Mutex::default();
        let mut site = Self { lab, slurm: None, registry, lengths: Mutex::default() };
        if works.contains(&Work::Pulled) {
            registry::push(&site.registry_files(), "big", &big_image()?)?;
            site.mend_registry()?;
        }
        if works.iter().any(|work| work.needs_slurm()) {
            site.slurm = Some(slurm(lab, "slurm-of-kills")?);
            small::load(lab, &lab.site)?;
        }
        site.file("services", &services("kills", BOX, &site.ssh()));
        site.file("pulled", &services("pulled", PULLED, &site.ssh()));
        site.file("run", &run("runs", &site.ssh()));
        site.file("job", &run("job", "backend = { kind = \"slurm\" }\n"));
        for work in works {
            work.measure(&site);
        }
        Ok(site)
    }

    fn ssh(&self) -> String {
        self.lab.ssh(&["host1", "host2", "host3"])
    }

    fn file(&self, name: &str, text: &str) {
        self.lab.file(&format!("kills-{name}.toml"), text);
    }

    /// The path of a cluster file.
    pub(super) fn path(&self, name: &str) -> String {
        self.lab.shared.join(format!("kills-{name}.toml")).display().to_string()
    }

    fn registry(&self) -> MutexGuard<'_, Option<Child>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of the registry's files.
    fn registry_files(&self) -> PathBuf {
        self.lab.shared.join("registry-of-kills")
    }

    /// Starts the registry of the first host if it does not run.
    fn mend_registry(&self) -> Result<(), Skip> {
        let mut registry = self.registry();
        if registry.as_ref().is_some_and(lives_there) {
            return Ok(());
        }
        if let Some(mut dead) = registry.take() {
            let _ = dead.wait();
        }
        let on = |command: &Command| self.lab.hosts.command(0, command);
        *registry = Some(registry::serve(&self.registry_files(), "127.0.0.1:5000", on)?);
        Ok(())
    }

    /// Starts the site's daemons again that were killed.
    pub(super) fn mend(&self) {
        self.lab.mend_servers().expect("servers of SSH");
        if let Some(slurm) = &self.slurm {
            slurm.mend();
        }
        if self.registry().is_some() {
            self.mend_registry().expect("a registry");
        }
    }

    /// The processes of a host whose words are meant.
    pub(super) fn processes(&self, host: usize, is_it: impl Fn(&str) -> bool) -> Vec<Process> {
        let all = self.lab.hosts.processes(host).into_iter();
        all.filter(|process| is_it(&process.words)).collect()
    }

    /// All containers and stores of clusters, with their hosts.
    pub(super) fn containers(&self) -> Vec<String> {
        let on = |host: usize| {
            let names = self.lab.run(host, &["ps", "-a", "--format", "{{.Names}}"]).out();
            let list = ["-c", "ls -d /tmp/coracle-*/cluster-*/ 2> /dev/null"];
            let mut list = self.lab.command(host, Path::new("/bin/sh"), &list);
            let stores = run_with(&mut list, Input::Null, LIMIT).out();
            names
                .lines()
                .chain(stores.lines())
                .map(|name| format!("{name} on host{}", host + 1))
                .collect::<Vec<_>>()
        };
        (0..COUNT).flat_map(on).collect()
    }

    /// A command of Coracle in the store that all hosts see.
    pub(super) fn run_of_site(&self, words: &[&str]) -> Finished {
        let person = &self.lab.site;
        let slurm = self.slurm.as_ref().expect("a Slurm");
        let program = person.program.display().to_string();
        let mut command = slurm.command(&person.user, &program, &person.home);
        command.args(words);
        run_with(&mut self.lab.hosts.command(0, &command), Input::Null, LIMIT)
    }

    /// Ends what a failed point has left, so that it does not spoil the next ones.
    pub(super) fn sweep(&self) {
        self.mend();
        for work in Work::ALL {
            if !work.needs_slurm() || self.slurm.is_some() {
                work.down(self);
            }
        }
        if let Some(slurm) = &self.slurm {
            slurm.ask(&["scancel", "--full", "--user", &self.lab.site.user.name]);
        }
        for host in 0..COUNT {
            let names = self.lab.run(host, &["ps", "-aq"]).out();
            let names: Vec<&str> = names.lines().collect();
            if !names.is_empty() {
                self.lab.run(host, &[&["rm", "-f"], &names[..]].concat());
            }
            self.lab.run(host, &["network", "prune", "-f"]);
            for process in self.processes(host, |words| {
                words.contains("cluster agent") || words.contains("/coracle ")
            }) {
                process.kill();
            }
        }
        std::thread::sleep(Duration::from_secs(3));
    }

    /// After the last point nothing is left, not even what lives for some seconds.
    pub(super) fn ends_well(&self, before: &Traces) {
        let mut left = String::new();
        let gone = until(LIMIT, || {
            left = before.more_in(&Traces::of(self.lab));
            for host in 0..COUNT {
                let shared = self.processes(host, |words| words.contains("[mux]"));
                left.extend(shared.iter().map(|process| format!("{}\n", process.words)));
            }
            left.is_empty().then_some(())
        });
        assert!(gone.is_some(), "left at the end: {left}");
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.registry().as_mut() {
            for process in self.processes(0, |words| words.contains("docker-registry")) {
                process.kill();
            }
            let _ = child.wait();
        }
    }
}

/// Services on all hosts, each with a volume, that are ready one after the other.
fn services(name: &str, image: &str, backend: &str) -> String {
    let serve = |port: u16| {
        format!("test -e /data/kept || echo kept > /data/kept; exec httpd -f -p {port} -h /www")
    };
    format!(
        "name = {name:?}\nimage = {image:?}\n{backend}\
         [service.db]\ncommand = {:?}\nvolume = [\"kept:/data\"]\nready = {{ tcp = 81 }}\n\
         [service.web]\ncommand = {:?}\nvolume = [\"kept:/data\"]\nreplicas = 3\nafter = [\"db\"]\n\
         ready = {{ http = \"80\" }}\n",
        serve(81),
        serve(80)
    )
}

/// A program that reaches all nodes.
fn run(name: &str, backend: &str) -> String {
    let script = "for node in node1 node2 node3; do \
                  /run/coracle/rsh $node hostname || exit 9; done; echo good";
    format!(
        "name = {name:?}\nimage = {BOX:?}\nnodes = 3\n{backend}\
         [run]\ncommand = [\"sh\", \"-c\", {script:?}]\n"
    )
}

/// What a run prints.
pub(super) const GOOD: &str = "node1\nnode2\nnode3\ngood\n";
