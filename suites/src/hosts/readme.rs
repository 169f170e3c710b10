//! The blocks of the README's section on many hosts, as they are there: on one machine, on three
//! hosts behind `ssh`, and in Slurm, where user namespaces are allowed or forbidden.
//!
//! Only the surroundings are made for them. The images that they name are in the store: Debian with
//! all packages, so that `apt-get` has nothing to fetch. `ssh` reads the tests' own configuration,
//! and the first host knows the others by name.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use testkit::command::{Finished, Input, run_with};
use testkit::skip::Outcome;
use testkit::slurm::{Cluster, Conditions};
use testkit::users::Setting;

use crate::hosts::lab::{Case, LIMIT, Lab};
use crate::hosts::slurm::slurm_with;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("readme::one_machine", one_machine),
    ("readme::ssh", ssh),
    ("readme::slurm_allowed", slurm_allowed),
    ("readme::slurm_forbidden", slurm_forbidden),
];

const README: &str = include_str!("../../../README.md");
const RING: &str = "ring of [(2, 'node1'), (0, 'node2'), (1, 'node3')]\n";

/// The blocks of the section, in their order.
fn blocks() -> [&'static str; 5] {
    let section = README.split("\n## ").find(|section| section.starts_with("Many hosts\n"));
    let parts = section.expect("the section").split("```sh\n").skip(1);
    let blocks = parts.map(|part| part.split("```").next().expect("its end"));
    blocks.collect::<Vec<_>>().try_into().expect("the blocks")
}

/// Where the blocks run: a directory in the home that all hosts see.
struct Place<'l> {
    lab: &'l Lab,
    directory: PathBuf,
    setting: Setting,
    slurm: Option<Cluster<'l>>,
}

impl<'l> Place<'l> {
    fn make(lab: &'l Lab, forbidden: bool) -> Result<Self, testkit::skip::Skip> {
        let setting = Setting { no_namespaces: forbidden, ..Setting::default() };
        let directory = lab.site.dir("readme");
        let place = Self { lab, directory, setting, slurm: None };
        let bin = lab.site.dir("bin");
        if !bin.join("coracle").exists() {
            std::os::unix::fs::symlink(&lab.site.program, bin.join("coracle")).expect("a link");
            let config = lab.shared.join("config");
            let text = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", config.display());
            lab.site.file(&bin.join("ssh"), text);
            fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755))
                .expect("rights");
            let names = (0..lab.hosts.count())
                .map(|host| format!("{} host{}\n", lab.hosts.address(host), host + 1));
            let hosts =
                lab.file("names", &format!("127.0.0.1 localhost\n{}", names.collect::<String>()));
            let mut mount = Command::new("mount");
            mount.args(["--bind", &hosts, "/etc/hosts"]);
            run_with(&mut lab.hosts.command(0, &mount), Input::Null, LIMIT).ok();
        }
        place.images()?;
        // What an earlier case has left that failed.
        place
            .script("coracle cluster down --force gateway; coracle cluster down --force ring")
            .ok();
        Ok(place)
    }

    /// Puts the images into the store.
    fn images(&self) -> Outcome {
        let stock = ["debian:bookworm", "python:3-slim", "redis:7"];
        let words = ["image", "inspect", stock[0]];
        let mut inspect = self.command("coracle");
        if run_with(inspect.args(words), Input::Null, LIMIT).code() == 0 {
            return Ok(());
        }
        let tree = File::open(testkit::trees::readme()?).expect("the tree");
        let mut import = self.command("coracle");
        // Without sources `apt-get` fetches nothing.
        import.args(["import", "-q", "-", stock[0]]).stdin(tree);
        run_with(&mut import, Input::AsIs, LIMIT).ok();
        for name in &stock[1..] {
            self.script(&format!("coracle tag {} {name}", stock[0])).ok();
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let (user, home) = (&self.lab.site.user, &self.lab.site.home);
        let mut command = match &self.slurm {
            Some(slurm) => slurm.command(user, program, home),
            None => user.command_in(program, home, &self.setting),
        };
        let path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
        command.env("PATH", format!("{}/bin:{path}", home.display()));
        self.lab.hosts.command(0, &command)
    }

    /// Runs a script on the first host. A command that fails ends it.
    fn script(&self, script: &str) -> Finished {
        let script = format!("cd {}\n{script}", self.directory.display());
        run_with(self.command("sh").args(["-e", "-c", &script]), Input::Null, LIMIT)
    }

    /// Makes the image, if it is not there, and writes the files. They run on this machine.
    fn begin(&self) {
        let [services, image, ring, ..] = blocks();
        if self.script("coracle image inspect lab/mpi:1").code() != 0 {
            self.script(image).ok();
        }
        let done = self.script(services);
        assert!(done.ok().out().contains("visit "), "{done:?}");
        let done = self.script(ring);
        assert!(done.ok().out().ends_with(RING), "{done:?}");
        self.script("rm result").ok();
    }
}

fn one_machine(lab: &Lab) -> Outcome {
    Place::make(lab, true)?.begin();
    Ok(())
}

fn ssh(lab: &Lab) -> Outcome {
    let place = Place::make(lab, true)?;
    place.begin();
    let [.., ssh, _] = blocks();
    let done = place.script(ssh);
    assert!(done.ok().out().contains(RING) && done.out().contains("visit "), "{done:?}");
    Ok(())
}

fn slurm_allowed(lab: &Lab) -> Outcome {
    slurm(lab, false)
}

fn slurm_forbidden(lab: &Lab) -> Outcome {
    slurm(lab, true)
}

fn slurm(lab: &Lab, forbidden: bool) -> Outcome {
    let mut place = Place::make(lab, forbidden)?;
    place.begin();
    let setting = place.setting.clone();
    let conditions = Conditions { setting, ..Conditions::default() };
    place.slurm = Some(slurm_with(lab, "slurm-readme", &conditions)?);
    let [.., slurm] = blocks();
    let done = place.script(slurm);
    if done.code() != 0 || !done.out().contains(RING) || !done.out().contains("visit ") {
        // Slurm ends with this case, and a job's cluster is only forgotten while Slurm is there.
        let state = place.script(
            "set +e; coracle cluster status gateway; curl -sv http://host1:8080/
             coracle cluster logs gateway; coracle cluster down --force gateway",
        );
        panic!("{done:?}\n{state:?}");
    }
    // A job has the mode that its host allows.
    let doctor = place.script("srun --quiet --nodes=1 coracle doctor --format json");
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("a report");
    let engines = report["engines"].as_array().expect("engines");
    let namespaces = engines.iter().find(|engine| engine["mode"] == "N1").expect("a mode");
    assert_eq!(namespaces["state"] == "unusable", forbidden, "{namespaces}");
    Ok(())
}
