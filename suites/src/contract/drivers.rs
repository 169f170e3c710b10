//! Tests of volumes that a program of the site mounts.
//!
//! The program is that of `docs/volumes.md` for lines of `fstab` with the option `user`: the
//! setuid `mount` of the host mounts for a user without privilege. Root lends such lines in a mount
//! namespace of the case; what they mount is a directory that stands for a server's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{Finished, Input, run_with};
use testkit::mounts::Mounts;
use testkit::skip::{Outcome, Skip, need_program};

use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("mounted_while_it_is_used", mounted_while_it_is_used),
    ("a_driver_that_fails_loses_nothing", a_driver_that_fails_loses_nothing),
];

/// The program; by the options of the tests it refuses.
const PROGRAM: &str = "#!/bin/sh
case $1,$4 in
    mount,refuse=*) echo \"no such export: ${4#*=}\" >&2; exit 32 ;;
    unmount,keep=*) echo 'target is busy' >&2; exit 32 ;;
    mount,*) exec mount \"$3\" ;;
    unmount,*) exec umount \"$3\" ;;
esac
";

/// A site where one volume can be mounted.
struct Site<'w> {
    world: &'w World,
    mounts: Mounts,
    programs: PathBuf,
    /// What is mounted.
    remote: PathBuf,
    /// The volume.
    volume: String,
}

impl<'w> Site<'w> {
    fn new(world: &'w World) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            testkit::skip!("only root can lend lines of fstab");
        }
        need_program("mount")?;
        let base = world.dir("site");
        let (remote, volume) = (base.join("remote"), world.name("far"));
        fs::create_dir(&remote).expect("a directory that stands for a server's");
        fs::set_permissions(&remote, fs::Permissions::from_mode(0o777)).expect("open to the user");
        let program = world.file(&base, "coracle-volume-lent", PROGRAM);
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("executable");
        let data = world.store().join("volumes").join(&volume).join("_data");
        let line = format!("{} {} none bind,noauto,user 0 0\n", remote.display(), data.display());
        let table = world.file(&base, "fstab", &line);
        // `mount` notes in `/run/mount` who may unmount.
        let script = format!(
            "mkdir -p /run/mount && mount -t tmpfs none /run/mount \
             && mount --bind '{}' /etc/fstab",
            table.display()
        );
        let mounts = Mounts::made(&script, "nothing can be mounted here")?;
        Ok(Self { world, mounts, programs: base, remote, volume })
    }

    /// Runs a program there as the user.
    fn run(&self, inner: &Command) -> Finished {
        let mut command = self.mounts.command(inner);
        command.env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin", self.programs.display()));
        run_with(&mut command, Input::Null, LIMIT)
    }

    fn coracle(&self, words: &[&str]) -> Finished {
        self.run(&self.world.command(words))
    }

    /// Runs the guest with the volume at `/v`.
    fn guest(&self, verb: &[&str], guest: &[&str]) -> Finished {
        let flag = format!("{}:/v", self.volume);
        let words = self.world.words_for(verb, &["-v", &flag], guest);
        self.run(&self.world.command(&words))
    }

    fn create(&self, options: &[&str]) {
        let label = format!("--label=site={}", self.volume);
        let words = [&["volume", "create", "--driver=lent", &label], options, &[&self.volume]];
        let words = words.concat();
        assert_eq!(self.coracle(&words).ok().line(), self.volume);
    }

    fn is_mounted(&self) -> bool {
        let words = ["volume", "inspect", "-f", "{{.Driver}} {{.Status.Mounted}}", &self.volume];
        self.coracle(&words).ok().line() == "lent true"
    }

    /// What the server has.
    fn remote(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.remote.join(name)).ok()
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        self.mounts.end();
        self.world.coracle(&["volume", "rm", "-f", &self.volume]);
    }
}

fn mounted_while_it_is_used(w: &World) -> Outcome {
    let site = Site::new(w)?;
    let volume = site.volume.as_str();
    site.create(&[]);
    assert!(!site.is_mounted(), "before its first use");
    site.guest(&["run", "--rm"], &["write", "/v/kept", "yes"]).ok();
    assert_eq!(site.remote("kept").as_deref(), Some("yes"));
    // The image's files at the volume's place are not copied into it.
    let over = w.words(&["-v", &format!("{volume}:/data")], &["list", "/data"]);
    assert_eq!(
        crate::contract::world::json(&site.run(&w.command(&over))),
        serde_json::json!(["kept"])
    );
    let name = w.name("d");
    let container = Container::named(w, &name);
    site.guest(&["run", "-d", "--name", &name], &["sleep", "300"]).ok();
    let refused = site.coracle(&["volume", "unmount", volume]);
    assert!(refused.code() == 1 && refused.err().contains("in use"), "{refused:?}");
    assert_eq!(container_reads(&site, &container), "yes");
    site.coracle(&["stop", "-t0", &name]).ok();
    site.coracle(&["volume", "unmount", volume]).ok();
    assert!(!site.is_mounted());
    site.coracle(&["start", &name]).ok();
    assert!(site.is_mounted(), "a start mounts it again");
    site.coracle(&["rm", "-f", &name]).ok();
    // What nothing uses stays, unless it is named; and the server keeps its files.
    let only = format!("--filter=label=site={volume}");
    site.coracle(&["volume", "prune", "-af", &only]).ok();
    assert!(site.is_mounted());
    site.coracle(&["volume", "rm", volume]).ok();
    assert_ne!(site.coracle(&["volume", "inspect", volume]).code(), 0);
    assert_eq!(site.remote("kept").as_deref(), Some("yes"));
    Ok(())
}

fn container_reads(site: &Site<'_>, container: &Container<'_>) -> String {
    site.coracle(&["exec", &container.name, "/bin/guest", "read", "/v/kept"]).ok().out()
}

fn a_driver_that_fails_loses_nothing(w: &World) -> Outcome {
    let site = Site::new(w)?;
    let volume = site.volume.as_str();
    let refused = site.coracle(&["volume", "create", "--driver=absent", volume]);
    assert_ne!(refused.code(), 0);
    assert!(refused.err().contains("coracle-volume-absent"), "{refused:?}");
    site.create(&["--opt", "refuse=/export"]);
    let refused = site.guest(&["run", "--rm"], &["write", "/v/lost", ""]);
    refused.expect(125);
    assert!(refused.err().contains("no such export: /export"), "{refused:?}");
    let data = w.store().join("volumes").join(volume).join("_data");
    assert!(is_empty(&data), "something ran without the mount");
    site.coracle(&["volume", "rm", volume]).ok();
    // One that cannot unmount.
    site.create(&["--opt", "keep=1"]);
    site.guest(&["run", "--rm"], &["write", "/v/kept", "yes"]).ok();
    let refused = site.coracle(&["volume", "rm", volume]);
    assert!(refused.code() == 1 && refused.err().contains("target is busy"), "{refused:?}");
    assert!(site.is_mounted(), "it was removed");
    assert_eq!(site.remote("kept").as_deref(), Some("yes"));
    Ok(())
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}
