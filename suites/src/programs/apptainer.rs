//! Tests of mode S1 with the Apptainer of Debian's newest release, which needs that release's C
//! library: its tree simulates the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{Finished, Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip, need_program};

use crate::programs::newest;
use crate::programs::stage::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[("by_real_apptainer", by_real_apptainer)];

/// Enters a tree as its root: in a plain `chroot` the kernel refuses user namespaces.
const ENTER: &str = r#"
tree=$1 here=$2; shift 2
mount --bind "$tree" "$tree"
for each in proc dev sys; do mount --rbind "/$each" "$tree/$each"; done
mkdir -p "$tree$here" "$tree/.old"
mount --bind "$here" "$tree$here"
cd "$tree"
pivot_root . .old
cd /
umount -l /.old
exec "$@"
"#;

/// A host with Apptainer.
struct Host<'w> {
    world: &'w World,
    tree: PathBuf,
    /// The directory of the program and the user's home, which both hosts have.
    here: &'w Path,
}

impl<'w> Host<'w> {
    fn make(world: &'w World, scratch: &Scratch) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            testkit::skip!("it enters a tree of its own, which needs root");
        }
        for program in ["unshare", "pivot_root", "dpkg"] {
            need_program(program)?;
        }
        let packages = testkit::trees::apptainer()?;
        let tree = scratch.path().join("host");
        let script = r#"mkdir "$1"; tar -xf "$2" -C "$1"; tree=$1; shift 2
            for package; do dpkg -x "$package" "$tree"; done"#;
        let mut unpack = Command::new("sh");
        unpack.args(["-euc", script, "sh"]).arg(&tree).arg(newest::tree()?).args(packages);
        run_with(&mut unpack, Input::Null, LIMIT).ok();
        for file in ["/etc/passwd", "/etc/group"] {
            fs::copy(file, tree.join(&file[1..])).expect("the users");
        }
        let here = world.home().parent().expect("a directory above the home");
        Ok(Self { world, tree, here })
    }

    /// Runs the program on that host.
    fn run(&self, words: &[&str]) -> Finished {
        self.run_with(&[], words, Input::Null)
    }

    fn run_with(&self, variables: &[(&str, &str)], words: &[&str], input: Input) -> Finished {
        let inner = self.world.command(words);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-euc", ENTER, "sh"]);
        command.arg(&self.tree).arg(self.here).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(variables.iter().copied());
        for (name, value) in inner.get_envs() {
            value.map(|value| command.env(name, value));
        }
        run_with(&mut command, input, LIMIT)
    }
}

fn by_real_apptainer(w: &World) -> Outcome {
    let scratch = Scratch::new("apptainer").expect("a directory");
    let host = Host::make(w, &scratch)?;
    let image = newest::image(w)?;
    host.run(&["rm", "-f", "s1"]);
    host.run(&["create", "--name=s1", "--execmode=I1", image, "true"]).ok();
    modes(&host, image);
    host.run(&["setup", "--execmode=S1", "s1"]).ok();
    programs(&host);
    lifecycle(&host);
    host.run(&["rm", "-f", "s1"]).ok();
    Ok(())
}

/// Input and output of programs arrive.
fn programs(host: &Host<'_>) {
    let w = host.world;
    let doctor = host.run(&["doctor"]).out();
    let line = doctor.lines().find(|line| line.contains("S1")).unwrap_or_default();
    assert!(line.contains("ready"), "{doctor}");
    let data = w.home().join("s1, with: \"signs\"");
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("file"), "of the host\n").expect("a file");
    std::os::unix::fs::chown(&data, Some(w.user().uid), Some(w.user().gid)).expect("an owner");
    let mount = |from: &Path, to: &str, more: &str| {
        format!(
            "--mount=type=bind,\"source={}\",target={to}{more}",
            from.display().to_string().replace('"', "\"\"")
        )
    };
    let (volume, file) = (mount(&data, "/a/data", ""), mount(&data.join("file"), "/a/file", ",ro"));
    let script = r#"id -u; pwd; printf '<%s>' "$A" "$@"; cat /a/file; echo new > /a/data/new
        ! echo x 2>/dev/null > /a/file; env | grep -c -i -e apptainer -e singularity; test -c /dev/null; echo x > /dev/null
        echo x > /mem/x; ulimit -n; exit 7"#;
    let variable = "A=1\n$HOME,\"2\"";
    let words = [
        "-w",
        "/new/dir",
        "-e",
        variable,
        &volume,
        &file,
        "--tmpfs=/mem",
        "--ulimit=nofile=77",
        "s1",
    ];
    let guest = ["sh", "-c", script, "sh", "", "a b", "$x", "c\nd"];
    let run = |words: &[&str]| host.run(&[&["run"][..], words].concat());
    let done = run(&[&words[..], &guest].concat());
    let expected = format!(
        "{}\n/new/dir\n<1\n$HOME,\"2\"><><a b><$x><c\nd>of the host\n0\n77\n",
        w.user().uid
    );
    assert_eq!(done.expect(7).out(), expected, "{done:?}");
    assert_eq!(done.err(), "");
    assert_eq!(fs::read_to_string(data.join("new")).unwrap_or_default(), "new\n");
    let lines = "line\n".repeat(100_000);
    let cat = host.run_with(&[], &["run", "-i", "s1", "cat"], Input::Bytes(lines.clone().into()));
    assert!(cat.ok().out() == lines);
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        run(&["s1", "sh", "-c", &format!("kill -{signal} $$")]).expect(code);
    }
    assert!(run(&["s1", "/no/such"]).expect(127).err().contains("not found in the container"));
    run(&["s1", "/etc/passwd"]).expect(126);
    let done = run(&["-u", "root", "s1", "true"]);
    assert!(
        done.expect(125).err().contains("the caller") && done.err().contains("--user="),
        "{done:?}"
    );
    let done = run(&["--device=/dev/null:/dev/other", "s1", "true"]);
    assert!(done.expect(125).err().contains("not possible with engine S1"), "{done:?}");
    let other = [("CORACLE_APPTAINER", "/no/such/program")];
    let done = host.run_with(&other, &["run", "s1", "true"], Input::Null);
    assert!(done.expect(125).err().contains("/no/such/program"), "{done:?}");
    let done = run(&["-t", "s1", "sh", "-c", "test -t 0 && test -t 1 && tty"]);
    assert!(done.ok().out().starts_with("/dev/pts/"), "{done:?}");
}

/// Changes made in this mode are there in other modes, and never in the image.
fn modes(host: &Host<'_>, image: &str) {
    let run = |mode: &str, script: &str| {
        host.run(&["run", &format!("--execmode={mode}"), "s1", "sh", "-euc", script])
    };
    run("I1", "echo I1 > /i; chown 5:6 /i; chmod 4755 /usr/bin/env").ok();
    let done = run("S1", "cat /i; echo S1 >> /etc/profile; rm /etc/issue; echo S1 > /s; ln /s /s2");
    assert_eq!(done.ok().out(), "I1\n");
    let look = "cat /i /s; tail -n1 /etc/profile; ! test -e /etc/issue; stat -c %u:%g:%h:%a /i /s /usr/bin/env";
    for mode in ["P1", "I1", "N1"] {
        let done = run(mode, look);
        let expected = "I1\nS1\nS1\n5:6:1:644\n0:0:2:644\n0:0:1:4755\n";
        assert_eq!(done.ok().out(), expected, "{mode}");
    }
    run("N1", "echo N1 > /n").ok();
    assert_eq!(run("S1", "cat /n /s2").ok().out(), "N1\nS1\n");
    let of_image =
        host.run(&["run", "--rm", "--execmode=P1", image, "tail", "-n1", "/etc/profile"]);
    assert!(!of_image.ok().out().contains("S1"), "{of_image:?}");
}

/// It can be watched, entered and ended; and several programs start in it at once.
fn lifecycle(host: &Host<'_>) {
    let script = "trap 'echo ended; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    host.run(&["run", "-d", "s1", "sh", "-c", script]).ok();
    let up = host.run(&["exec", "s1", "sh", "-c", "echo in; id -u"]);
    assert_eq!(up.ok().out(), format!("in\n{}\n", host.world.user().uid));
    assert!(host.run(&["top", "s1"]).ok().out().contains("sleep"));
    host.run(&["stop", "-t", "20", "s1"]).ok();
    assert!(host.run(&["logs", "s1"]).ok().out().ends_with("ended\n"));
    std::thread::scope(|scope| {
        let one = || host.run(&["run", "s1", "sh", "-c", "sleep 1; echo $((6 * 7))"]).line();
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        assert!(all.into_iter().all(|one| one.join().is_ok_and(|line| line == "42")));
    });
}
