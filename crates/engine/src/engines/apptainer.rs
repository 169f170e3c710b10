//! S1: the host's Apptainer or Singularity, on a container's own directory.
//!
//! This engine serves hosts where user namespaces are forbidden and an administrator has installed
//! Apptainer with a set-user-id starter; without that starter it needs user namespaces. The
//! container's tree is prepared as for the engines without mounts ([`interpose`]), and Apptainer
//! mounts what those would show: the directory as `/`, everything else as binds. Programs write
//! directly into that directory, so no file in it may be the image's ([`RootKind::OwnTree`]).
//!
//! As with an OCI runtime ([`super::oci`]), Apptainer starts Coracle, through a descriptor:
//! streams, environment, arguments, limits and descriptors reach it as they are, without
//! Apptainer's changes. Apptainer's parent process, which would stay to pass signals on, is ended
//! as soon as the container is there. The program is then a child of the process that watches it,
//! as in the other engines.

use super::contract::{
    Asked, Begun, CallsBy, Caps, Engine, Fit, Helper, IdsFrom, MadeFiles, Properties, RootKind,
};
use super::external::first_process::WORD;
use super::external::handed::{Handed, Order, memory, open, pipe};
use super::external::helper::{self, LAUNCHER, await_adoption, complaint};
use super::interpose::prepare::{self, Prepared};
use super::interpose::{self, run as common};
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::attend::{adopt_orphans, attend};
use crate::launch::members::by_namespace;
use crate::launch::spawn::{Ties, spawn_elsewhere};
use crate::launch::streams::{Child, Streams};
use crate::launch::terminal::{Pty, has_own_devices};
use crate::launch::{cgroup, report};
use crate::plan::{IdRange, Ids, Plan, Process, Seccomp};
use crate::records::Records;
use crate::sharing;
use rustix::fs::OFlags;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// File systems that Apptainer mounts by itself, as on the host.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Further mounts of Apptainer that are not wanted.
const UNWANTED: &str = "home,cwd,tmp,hostfs,bind-paths";
/// Apptainer replaces these files by its own, unless the container's are mounted there.
const ACCOUNTS: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// Apptainer, or Singularity.
pub const APPTAINER: Helper = Helper {
    key: "apptainer-program",
    names: &["apptainer", "singularity"],
    keeping: None,
    is_privileged: has_setuid_starter,
};

const S1: Properties = Properties {
    name: "S1",
    aliases: &[],
    about: "Apptainer or Singularity",
    asked: Asked::ByName,
    root: RootKind::OwnTree,
    ids: IdsFrom::Caller,
    calls: CallsBy::Kernel,
    made: MadeFiles::None,
    helper: Some(APPTAINER),
    caps: Caps {
        fake_root: false,
        host_name: false,
        named_networks: false,
        read_only: false,
        ..interpose::CAPS
    },
};

/// Mode S1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Apptainer;

impl Engine for Apptainer {
    fn properties(&self) -> &'static Properties {
        &S1
    }

    fn probe(&self, facts: &Facts) -> Fit {
        let Some(apptainer) = facts.helper(APPTAINER.key) else {
            return Fit::Unusable("neither apptainer nor singularity is in PATH".into());
        };
        match &facts.no_user_namespace {
            Some(why) if !apptainer.privileged => Fit::Unusable(format!(
                "{why}, and without user namespaces Apptainer needs a starter-suid that is root's"
            )),
            _ => Fit::Ready,
        }
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        adopt_orphans()?;
        let pty = Pty::of(plan, streams.session)?;
        spawn_elsewhere(pty, streams, |ties, _| start(plan, ties))
    }

    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
        let streams = Streams { tied: true, ..Streams::default() };
        attend(Some(&plan.place), || self.spawn(plan, streams).inspect(|_| begun()))
    }
}

/// Has Apptainer start the program; returns its number. The caller is a process that was forked for
/// this.
fn start(plan: &Plan, ties: Ties) -> Result<u32> {
    check(plan)?;
    let apptainer = plan.helpers.get(APPTAINER.key).cloned().unwrap_or_default();
    let records = Records::open(&plan.place)?;
    let turn = records.begin()?;
    let fresh =
        common::is_empty(&plan.place, &records) && by_namespace::all(&plan.place).is_empty();
    if plan.is_exec() {
        sharing::enter(&records)?;
    } else {
        sharing::begin(&records, fresh)?;
    }
    let prepared = prepare::prepare(plan, fresh)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let inside = inside_of(plan);
    let words = words(&apptainer, &prepared)?;
    let program = open(Path::new("/proc/self/exe"), OFlags::RDONLY)?;
    let (gate, mut opener) = pipe()?;
    let (sender, mut receiver) = report::pipe()?;
    let said = memory("said", &[])?;
    let order = Order { plan: &inside, engine: None, reports: true, ties };
    let handed = Handed::new(program, OwnedFd::from(sender), gate, order)?;
    let parent = helper::begin(&apptainer, &words, &handed.numbered(), &said)?;
    drop(handed);
    let Some(pid) = receiver.process()? else {
        let status = helper::end(parent)?.code();
        return Err(Error::Helper {
            program: apptainer,
            status: format!("status {status}"),
            output: complaint(&said),
        });
    };
    rustix::process::kill_process(parent, Signal::KILL)
        .map_err(|errno| Error::call("end Apptainer's own process", errno))?;
    helper::end(parent)?;
    records.add(pid)?;
    if fresh {
        by_namespace::note(&plan.place, pid, by_namespace::Owner::Unknown);
    }
    await_adoption(pid);
    let _ = opener.write_all(&[1]);
    let outcome = receiver.outcome();
    if outcome.is_err() {
        records.remove(pid);
    }
    drop(turn);
    outcome.map(|_| pid)
}

/// Refuses a plan that this engine cannot carry out.
fn check(plan: &Plan) -> Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let asked = (plan.process.uid, plan.process.gid);
    if asked != (uid, gid) {
        return Err(Error::Missing {
            what: format!("user {}:{}", asked.0, asked.1),
            needs: "another engine than S1, whose programs are the caller".into(),
            hint: Some(format!("use --user={uid}:{gid}, or --execmode=P1 for root and others")),
        });
    }
    if has_own_devices(plan) {
        return Err(Error::Unsupported {
            flag: "a device under another name, or some GPUs without the others,".into(),
            engine: "S1".into(),
            able: ["N1", "I1", "P1"].map(String::from).to_vec(),
        });
    }
    Ok(())
}

/// The plan for Coracle in the container, where no process has a capability and nothing is left to
/// be mapped or mounted.
fn inside_of(plan: &Plan) -> Plan {
    let root = IdRange { inside: 0, outside: 0, count: 1 };
    let process = Process { capabilities: None, seccomp: Seccomp::None, ..plan.process.clone() };
    Plan { ids: Ids::Single { uid: root, gid: root }, process, ..plan.clone() }
}

/// Apptainer's command line.
fn words(apptainer: &Path, prepared: &Prepared) -> Result<Vec<String>> {
    let mut words = vec![text(apptainer.as_os_str().as_bytes())?];
    words.extend(["exec", "--writable", "--no-home", "--no-mount", UNWANTED].map(String::from));
    words.extend(["--pwd", "/"].map(String::from));
    let bound = prepared.world.bound();
    let root = &prepared.files.root;
    for path in ACCOUNTS {
        let file = root.join(&path[1..]);
        let is_bound = bound.iter().any(|bound| bound.guest == path.as_bytes());
        if !is_bound && file.symlink_metadata().is_ok_and(|found| found.is_file()) {
            words.extend(mount(file.as_os_str().as_bytes(), path.as_bytes(), false)?);
        }
    }
    for bound in bound.iter().filter(|bound| bound.guest != b"/") {
        let guest = Path::new(OsStr::from_bytes(&bound.guest));
        let is_there = bound.guest == bound.host
            && !bound.read_only
            && KERNELS.iter().any(|kernels| guest.starts_with(kernels));
        if !is_there {
            words.extend(mount(&bound.host, &bound.guest, bound.read_only)?);
        }
    }
    words.push(text(root.as_os_str().as_bytes())?);
    words.extend([LAUNCHER, WORD].map(String::from));
    Ok(words)
}

/// A bind, as comma-separated values, which can hold any name.
fn mount(source: &[u8], target: &[u8], read_only: bool) -> Result<[String; 2]> {
    let field = |key: &str, path: &[u8]| -> Result<String> {
        Ok(format!("\"{key}={}\"", text(path)?.replace('"', "\"\"")))
    };
    let (source, target) = (field("source", source)?, field("destination", target)?);
    let flag = if read_only { ",ro" } else { "" };
    Ok(["--mount".into(), format!("type=bind,{source},{target}{flag}")])
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Invalid {
        what: "path".into(),
        value: String::from_utf8_lossy(bytes).into_owned(),
        why: "Apptainer takes names in UTF-8 only".into(),
    })
}

/// Whether an Apptainer has the program by which it works without user namespaces, owned by root
/// and with the set-user-id bit.
fn has_setuid_starter(program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(program) = program.canonicalize() else { return false };
    let Some(prefix) = program.parent().and_then(Path::parent) else { return false };
    let libraries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let mut places = vec![prefix.join("libexec"), prefix.join("lib"), prefix.join("lib64")];
    places.extend(libraries.map(|entry| entry.path()));
    places.iter().flat_map(|place| [place.join("apptainer"), place.join("singularity")]).any(
        |place| {
            let starter = place.join("bin/starter-suid").metadata();
            starter.is_ok_and(|found| found.uid() == 0 && found.mode() & 0o4001 == 0o4001)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FoundHelper;

    #[test]
    fn without_user_namespaces_it_must_be_roots() {
        let reason = |facts: &Facts| match Apptainer.probe(facts) {
            Fit::Unusable(why) => Some(why),
            Fit::Ready | Fit::Degraded(_) => None,
        };
        let mut facts = Facts::default();
        assert!(reason(&facts).unwrap().contains("neither apptainer nor singularity"));
        let program = |privileged| {
            let path = "/usr/bin/apptainer".into();
            [(APPTAINER.key.to_owned(), FoundHelper { path, privileged })].into()
        };
        facts.helpers = program(false);
        assert_eq!(reason(&facts), None);
        facts.no_user_namespace = Some("AppArmor".into());
        let why = reason(&facts).unwrap();
        assert!(why.contains("AppArmor") && why.contains("starter-suid"), "{why}");
        facts.helpers = program(true);
        assert_eq!(reason(&facts), None);
    }

    #[test]
    fn every_name_can_be_bound() {
        let words = mount(b"/a,b:\"c\"", b"/x y", true).unwrap();
        assert_eq!(words[1], r#"type=bind,"source=/a,b:""c""","destination=/x y",ro"#);
        assert!(mount(b"/\xff", b"/", false).is_err());
    }
}
