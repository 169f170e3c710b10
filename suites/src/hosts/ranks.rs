//! Ranks of MPI on all hosts, started by the hosts' own launchers: Slurm's `srun`, and `mpiexec` of
//! Open MPI and of MPICH.
//!
//! Each rank sends megabytes to the next one, and the counters of the hosts' links must show them:
//! simulated hosts have one kernel, and could pass them on otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::command::{Finished, Input, run_with, until};
use testkit::skip::{Outcome, Skip, need_program};
use testkit::slurm::{Cluster, Conditions};

use crate::hosts::lab::{Case, LIMIT, Lab};
use crate::hosts::slurm::slurm_with;
use crate::secrets::Watch;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("ranks::slurm", slurm),
    ("ranks::slurm_without_pmi", slurm_without_pmi),
    ("ranks::mpiexec", mpiexec),
    ("ranks::local", local),
];

const IMAGE: &str = "lab/ranks:1";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hosts/guests/ranks.c");
const RING: &str = "ring of 3 ranks: right, in the container: 1, of the file\n";
/// What is on no command line.
const VARIABLE: &str = "WORD=of the file";
/// What each rank sends, in bytes.
const SENT: u64 = 2 * (4 << 20);

/// The archive of the image, which all hosts see.
fn archive(lab: &Lab) -> Result<PathBuf, Skip> {
    for program in ["mpicc.openmpi", "mpicc.mpich", "busybox", "realpath"] {
        need_program(program)?;
    }
    let tree = lab.shared.join("ranks");
    let file = lab.shared.join("ranks.tar");
    if !file.exists() {
        let mut make = Command::new("sh");
        make.args(["-c", include_str!("guests/tree.sh"), "tree.sh"]).arg(&tree).arg(SOURCE);
        run_with(&mut make, Input::Null, LIMIT).ok();
    }
    Ok(file)
}

/// Has the image in the store of a command.
fn image(lab: &Lab, run: impl Fn(&[&str]) -> Finished) -> Outcome {
    if run(&["image", "inspect", IMAGE]).code() != 0 {
        run(&["import", "-q", &archive(lab)?.display().to_string(), IMAGE]).ok();
    }
    Ok(())
}

/// A file of ranks, one on each of three hosts, or all on one without a backend.
///
/// UCX takes simulated hosts for one machine, so it gets links alone there. On one host it does
/// not: with links between ranks of one host, `MPI_Finalize` of MPICH 4.0 often never returns, and
/// Hydra ends all ranks of a host if one ends without it.
fn file(lab: &Lab, name: &str, backend: &str, command: &[&str]) -> String {
    let links = if backend.is_empty() { "" } else { ", UCX_TLS = \"tcp,self\"" };
    let text = format!(
        "name = \"{name}\"\nimage = \"{IMAGE}\"\nnodes = 3\n{backend}\n\
         env = {{ WORD = \"of the file\"{links} }}\n\
         [run]\nlaunch = \"ranks\"\nslots = 1\ncommand = {command:?}\n"
    );
    lab.file(&format!("{name}.toml"), &text)
}

/// The bytes that each host has sent while something was done.
fn sent<T>(lab: &Lab, work: impl FnOnce() -> T) -> (T, Vec<u64>) {
    let all = || (0..lab.people.len()).map(|host| lab.hosts.sent(host));
    let before: Vec<u64> = all().collect();
    let done = work();
    (done, all().zip(before).map(|(after, before)| after - before).collect())
}

/// A Slurm on the hosts, and commands in an allocation of all of them.
struct Batch<'l> {
    lab: &'l Lab,
    slurm: Cluster<'l>,
}

impl<'l> Batch<'l> {
    fn start(lab: &'l Lab, plugins: Option<&Path>) -> Result<Self, Skip> {
        let slurm =
            slurm_with(lab, "slurm-ranks", &Conditions { plugins, ..Conditions::default() })?;
        image(lab, |words| {
            let command = lab.hosts.command(0, &lab.site.command(words));
            run_with(&mut { command }, Input::Null, LIMIT)
        })?;
        Ok(Self { lab, slurm })
    }

    /// A program in an allocation, with further variables.
    fn command(&self, variables: &[(&str, &str)], words: &[&str]) -> Command {
        let person = &self.lab.site;
        let mut job = self.slurm.command(&person.user, "salloc", &person.home);
        job.args(["--quiet", "--nodes=3", "--"]).args(words);
        job.envs(variables.iter().copied());
        self.lab.hosts.command(0, &job)
    }

    fn up(&self, mode: &str, file: &str) -> Finished {
        let program = self.lab.site.program.display().to_string();
        let variables = [("CORACLE_EXECMODE", mode)];
        let variables = if mode.is_empty() { &[][..] } else { &variables };
        let mut up = self.command(variables, &[&program, "cluster", "up", "-f", file]);
        run_with(&mut up, Input::Null, LIMIT)
    }
}

/// `srun` by `PMIx` and by PMI-2, in every kind of mode.
fn slurm(lab: &Lab) -> Outcome {
    let batch = Batch::start(lab, None)?;
    let backend = "backend = { kind = \"slurm\" }";
    let open = file(lab, "open", backend, &["ranks-openmpi"]);
    let watch = Watch::start(VARIABLE);
    for mode in ["", "N1", "I1", "P1", "F2"] {
        let (done, sent) = sent(lab, || batch.up(mode, &open));
        assert_eq!(done.ok().out(), RING, "{mode}: {done:?}");
        assert!(sent.iter().all(|bytes| *bytes >= SENT), "{mode}: {sent:?} {done:?}");
    }
    let mpich = file(lab, "mpich", backend, &["ranks-mpich"]);
    let (done, all) = sent(lab, || batch.up("", &mpich));
    assert_eq!(done.ok().out(), RING, "{done:?}");
    assert!(all.iter().all(|bytes| *bytes >= SENT), "{all:?} {done:?}");
    for (status, how) in [("7", "with status 7"), ("137", "by signal 9")] {
        let file = file(lab, "bad", backend, &["ranks-openmpi", "fail", "1", status]);
        let done = batch.up("", &file);
        assert_eq!(done.code().to_string(), status, "{done:?}");
        let note = format!("rank 1 on host2 has ended first, {how}\n");
        assert!(done.err().contains(&note), "{done:?}");
    }
    asked(&batch, backend);
    watch.ends_without();
    Ok(())
}

/// A signal reaches all ranks, whose status it is then.
fn asked(batch: &Batch<'_>, backend: &str) {
    let file = file(batch.lab, "asked", backend, &["ranks-openmpi", "wait"]);
    let program = batch.lab.site.program.display();
    let script = format!(
        "{program} cluster up -f {file} > $HOME/out & until grep -q begun $HOME/out; do sleep 0.2; \
         done; kill -TERM $!; wait $!; echo status $?"
    );
    let mut command = batch.command(&[], &["sh", "-c", &script]);
    let done = run_with(&mut command, Input::Null, LIMIT);
    assert_eq!(done.out(), "status 3\n", "{done:?}");
}

/// A Slurm without PMI-2, hosts with and without an `mpiexec` of MPICH.
fn slurm_without_pmi(lab: &Lab) -> Outcome {
    let plugins = lab.shared.join("plugins");
    let all = Path::new("/usr/lib/x86_64-linux-gnu/slurm-wlm");
    fs::create_dir_all(&plugins).expect("a directory");
    for plugin in fs::read_dir(all).expect("Slurm's plugins").flatten() {
        let link = plugins.join(plugin.file_name());
        if plugin.file_name() != "mpi_pmi2.so" && !link.exists() {
            std::os::unix::fs::symlink(plugin.path(), link).expect("a link");
        }
    }
    let batch = Batch::start(lab, Some(&plugins))?;
    let backend = "backend = { kind = \"slurm\" }";
    let mpich = file(lab, "other", backend, &["ranks-mpich"]);
    let (done, all) = sent(lab, || batch.up("", &mpich));
    assert_eq!(done.ok().out(), RING, "{done:?}");
    assert!(all.iter().all(|bytes| *bytes >= SENT), "{all:?} {done:?}");
    let path = programs(lab, &[("mpiexec", "mpiexec.openmpi")]);
    let program = lab.site.program.display().to_string();
    let mut up = batch.command(&[("PATH", &path)], &[&program, "cluster", "up", "-f", &mpich]);
    let done = run_with(&mut up, Input::Null, LIMIT);
    let says = "error: the program's MPI is MPICH (libmpich.so.12.";
    assert!(done.code() == 125 && done.err().contains(says), "{done:?}");
    let says = format!("srun has pmix, pmix_v4; {path}/mpiexec is mpiexec (OpenRTE) 4.");
    assert!(done.err().contains(&says) && done.err().contains("hint: "), "{done:?}");
    Ok(())
}

/// A directory of programs for `PATH`, with these launchers of MPI alone.
fn programs(lab: &Lab, launchers: &[(&str, &str)]) -> String {
    let place = lab.shared.join("programs");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).expect("a directory");
    let all = fs::read_dir("/usr/bin").expect("programs").flatten();
    let is_launcher =
        |name: &str| ["mpi", "orte", "prte"].iter().any(|word| name.starts_with(word));
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names = names.filter(|name| !is_launcher(name)).map(|name| (name.clone(), name));
    let launchers = launchers.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned()));
    for (name, to) in names.chain(launchers) {
        let link = place.join(name);
        std::os::unix::fs::symlink(Path::new("/usr/bin").join(to), link).expect("a link");
    }
    place.display().to_string()
}

/// An `mpiexec` on the first host, whose daemons on the others the driver starts.
fn mpiexec(lab: &Lab) -> Outcome {
    image(lab, |words| lab.run(0, words))?;
    let watch = Watch::start(VARIABLE);
    let backend = lab.ssh(&["host1", "host2", "host3"]);
    let open = file(lab, "open", &backend, &["ranks-openmpi", "read"]);
    lab.run(0, &["cluster", "up", "-d", "-f", &open]).ok();
    let mut run = lab.command(0, &lab.people[0].program, &["cluster", "run", "-f", &open]);
    let (done, all) = sent(lab, || run_with(&mut run, Input::Bytes(b"a line\n".to_vec()), LIMIT));
    assert_eq!(done.ok().out(), format!("read a line\n{RING}"), "{done:?}");
    assert!(all.iter().all(|bytes| *bytes >= SENT), "{all:?} {done:?}");
    // Another command in the same cluster.
    let words = ["cluster", "run", "-f", &open, "--", "busybox", "cat", "/etc/coracle/hosts"];
    let done = lab.run(0, &words);
    assert_eq!(done.ok().out(), "node1 slots=1\nnode2 slots=1\nnode3 slots=1\n");
    lab.run(0, &["cluster", "down", "open"]).ok();
    let mpich = file(lab, "mpich", &backend, &["ranks-mpich"]);
    let (done, all) = sent(lab, || lab.run(0, &["cluster", "up", "-f", &mpich]));
    assert_eq!(done.ok().out(), RING, "{done:?}");
    assert!(all.iter().all(|bytes| *bytes >= SENT), "{all:?} {done:?}");
    let bad = file(lab, "bad", &backend, &["ranks-openmpi", "fail", "2", "9"]);
    let done = lab.run(0, &["cluster", "up", "-f", &bad]);
    assert_eq!(done.code(), 9, "{done:?}");
    assert!(done.err().contains("rank 2 on host3 has ended first, with status 9\n"), "{done:?}");
    killed(lab, &backend);
    watch.ends_without();
    Ok(())
}

/// Ranks whose driver is killed end with it.
fn killed(lab: &Lab, backend: &str) {
    let file = file(lab, "lost", backend, &["ranks-openmpi", "wait"]);
    let program = &lab.people[0].program;
    let mut up = lab.command(0, program, &["cluster", "up", "--grace", "1s", "-f", &file]);
    let mut up = up.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let up = up.as_mut().expect("a driver");
    let mut said = vec![0; RING.len() + 6];
    let read = std::io::Read::read_exact(up.stdout.as_mut().expect("a pipe"), &mut said);
    let script = "pkill -KILL -f 'cluster up --grace 1s'";
    let mut kill = lab.command(0, Path::new("/bin/sh"), &["-c", script]);
    run_with(&mut kill, Input::Null, LIMIT);
    let _ = up.wait();
    read.expect("the ranks begin");
    let processes = || {
        let all = |host: usize| {
            let script = ["-c", "ps -eo pid,ppid,stat,wchan:24,args"];
            let mut ps = lab.command(host, Path::new("/bin/sh"), &script);
            run_with(&mut ps, Input::Null, LIMIT).out()
        };
        (0..lab.people.len()).map(all).collect::<String>()
    };
    let left = || {
        let all = processes();
        let is_left = |line: &str| ["ranks-openmpi", "orted"].iter().any(|w| line.contains(w));
        all.lines().any(is_left)
    };
    // Whose child it is, and what that waits for, says why.
    assert!(until(LIMIT, || (!left()).then_some(())).is_some(), "ranks are left:\n{}", processes());
    lab.run(0, &["cluster", "down", "lost"]).ok();
}

/// All nodes on one host, by the launcher that fits; and one that does not.
fn local(lab: &Lab) -> Outcome {
    image(lab, |words| lab.run(0, words))?;
    let watch = Watch::start(VARIABLE);
    for kind in ["openmpi", "mpich"] {
        let file = file(lab, "here", "", &[&format!("ranks-{kind}")]);
        let done = lab.run(0, &["cluster", "up", "-f", &file]);
        assert_eq!(done.ok().out(), RING, "{done:?}");
    }
    let file = file(lab, "here", "", &["ranks-openmpi"]);
    let path = programs(lab, &[("mpiexec", "mpiexec.mpich")]);
    let mut up = lab.command(0, &lab.people[0].program, &["cluster", "up", "-f", &file]);
    let done = run_with(up.env("PATH", &path), Input::Null, LIMIT);
    let says = format!("{path}/mpiexec is HYDRA 4.");
    assert!(done.code() == 125 && done.err().contains(&says), "{done:?}");
    assert!(done.err().contains("error: the program's MPI is Open MPI (libmpi.so.40."), "{done:?}");
    watch.ends_without();
    Ok(())
}
