//! Tests of nested containers: engines in one another, and in other tools' containers.
//!
//! The inner program is the same binary with a store of its own, in a directory that all levels
//! have. An engine either works there or is refused with one error that says why and what to use
//! instead; nothing hangs and nothing is ended by a signal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, copy_program, find_program, run_with};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

use crate::contract::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("engines_inside", engines_inside),
    ("tracers_inside", tracers_inside),
    ("three_levels", three_levels),
    ("owners_inside", owners_inside),
    ("too_deep", too_deep),
    ("in_bwrap", in_bwrap),
    ("in_podman", in_podman),
];

/// Path of the directory on every level.
const PLACE: &str = "/nest";
/// The commands of the innermost guest, with known output in a tree of its own.
const ASKED: &[&str] =
    &["write", "/tmp/a", "x", ";", "list", "/tmp", ";", "read", "/etc/image-file"];
const ANSWER: &str = "[\"a\"]\nfrom the image\n";

/// A directory with the program and a store for each level, which has the test image.
fn place(w: &World, levels: usize) -> PathBuf {
    let dir = w.dir("nest");
    copy_program(&w.coracle, &dir.join("coracle"));
    let image = dir.join("image.tar");
    w.coracle(&["save", "-o", &image.display().to_string(), &w.image]).ok();
    for level in 0..levels {
        let mut load = w.command(&["load", "-q", "-i", &image.display().to_string()]);
        load.env("CORACLE_DIR", dir.join(format!("store-{level}")));
        run_with(&mut load, Input::Null, LIMIT).ok();
    }
    dir
}

/// The command line by which a level runs the next: each engine's container runs the next one's
/// program.
fn words(w: &World, engines: &[&str], level: usize, mount: &str, asked: &[&str]) -> Vec<String> {
    let Some((engine, rest)) = engines.split_first() else {
        return ["/bin/guest"].iter().chain(asked).map(|&word| word.to_owned()).collect();
    };
    let mut all: Vec<String> = Vec::new();
    if level > 0 {
        all.push(format!("{PLACE}/coracle"));
    }
    let mode = format!("--execmode={engine}");
    all.extend(["run", "--rm", &mode].map(str::to_owned));
    if !rest.is_empty() {
        let store = format!("CORACLE_DIR={PLACE}/store-{level}");
        all.extend(["-v", mount, "-e", &store].map(str::to_owned));
    }
    all.push(w.image.clone());
    all.extend(words(w, rest, level + 1, &format!("{PLACE}:{PLACE}"), asked));
    all
}

/// Runs a chain of engines, the outermost as this user.
fn chain(w: &World, engines: &[&str]) -> Finished {
    chain_of(w, engines, ASKED)
}

fn chain_of(w: &World, engines: &[&str], asked: &[&str]) -> Finished {
    let dir = place(w, engines.len() - 1);
    let mount = format!("{}:{PLACE}", dir.display());
    let mut command = w.command(&words(w, engines, 0, &mount, asked));
    let done = run_with(&mut command, Input::Null, LIMIT);
    let _ = fs::remove_dir_all(&dir);
    done
}

#[track_caller]
fn works(done: &Finished) {
    assert_eq!(done.ok().out(), ANSWER, "{done:?}");
}

/// Checks that it was refused by one error with a hint, and by no signal.
#[track_caller]
fn refused(done: &Finished, mode: &str) {
    let text = done.expect(125).err();
    assert!(text.contains(&format!("execution mode {mode} is not usable")), "{done:?}");
    assert_eq!((text.matches("error:").count(), text.matches("hint:").count()), (1, 1), "{done:?}");
}

/// In-process engines, in every engine but the one that would catch their calls first.
fn engines_inside(w: &World) -> Outcome {
    for inner in ["I1", "I2"] {
        let done = chain(w, &[&w.engine, inner]);
        if w.engine == "P2" {
            refused(&done, inner);
            assert!(done.err().contains("a tracer around it"), "{done:?}");
        } else {
            works(&done);
        }
    }
    Ok(())
}

/// Tracers work where no engine is in the program's process, or one that can be left.
fn tracers_inside(w: &World) -> Outcome {
    for inner in ["P1", "P2"] {
        let done = chain(w, &[&w.engine, inner]);
        if w.has_overlay() {
            works(&done);
        } else {
            refused(&done, inner);
            assert!(done.err().contains("an engine serves already"), "{done:?}");
        }
    }
    Ok(())
}

/// Owners are kept in the inner container's files as in the outer one's.
fn owners_inside(w: &World) -> Outcome {
    if w.engine == "P2" || !w.has_ids() && w.has_overlay() {
        testkit::skip!("no engine works in P2, and one id of the kernel's is not enough");
    }
    let asked = ["write", "/tmp/a", "x", ";", "chown", "/tmp/a", "7", "8", ";", "stat", "/tmp/a"];
    let done = chain_of(w, &[&w.engine, "I1", "I1"], &asked);
    assert!(done.ok().out().contains("\"gid\":8"), "{done:?}");
    assert!(done.out().contains("\"uid\":7"), "{done:?}");
    Ok(())
}

fn three_levels(w: &World) -> Outcome {
    if w.engine == "P2" {
        testkit::skip!("no engine works in P2");
    }
    works(&chain(w, &[&w.engine, "I1", "I1"]));
    works(&chain(w, &[&w.engine, "I2", "I1"]));
    Ok(())
}

/// A process has four places for stages.
fn too_deep(w: &World) -> Outcome {
    if w.engine != "I1" {
        testkit::skip!("the places are those of engines inside the process");
    }
    works(&chain(w, &["I1"; 4]));
    let done = chain(w, &["I1"; 5]);
    refused(&done, "I1");
    assert!(done.err().contains("nested deeper"), "{done:?}");
    Ok(())
}

fn in_bwrap(w: &World) -> Outcome {
    if find_program("bwrap").is_none() {
        testkit::skip!("bwrap is not installed");
    }
    let dir = place(w, 1);
    let place = dir.display().to_string();
    let mut command = w.user.command("bwrap", &w.home);
    command.args(["--unshare-all", "--share-net", "--ro-bind", "/", "/", "--proc", "/proc"]);
    command.args(["--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/tmp/nest"]);
    command.args(["--bind", &place, "/tmp/nest", "--setenv", "CORACLE_DIR", "/tmp/nest/store-0"]);
    command.args(["/tmp/nest/coracle", "run", "--rm", &w.mode(), &w.image, "/bin/guest"]);
    command.args(ASKED);
    let done = run_with(&mut command, Input::Null, LIMIT);
    let _ = fs::remove_dir_all(&dir);
    works(&done);
    Ok(())
}

/// In a container with the default seccomp profile of podman and Docker, made by root, as an
/// unprivileged user.
fn in_podman(w: &World) -> Outcome {
    if find_program("podman").is_none() || find_program("runc").is_none() {
        testkit::skip!("podman or runc is not installed");
    }
    if !rustix::process::getuid().is_root() {
        testkit::skip!("only root makes containers with podman here");
    }
    if w.engine.starts_with('R') {
        testkit::skip!("that tree has no runtime");
    }
    let dir = place(w, 1);
    let done = podman(w, &dir);
    let _ = fs::remove_dir_all(&dir);
    works(&done);
    Ok(())
}

/// A container of root, in a tree with only a shell.
fn podman(w: &World, dir: &Path) -> Finished {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Podman requires short paths.
    let scratch = Scratch::new("pod").expect("a directory");
    let mut podman = Command::new("podman");
    let below = |name: &str| scratch.path().join(name).display().to_string();
    let tree = dir.join("tree");
    for name in ["bin", "proc", "sys", "dev", "etc", "tmp", "nest"] {
        fs::create_dir_all(tree.join(name)).expect("a tree");
    }
    podman
        .args(["--root", &below("all"), "--runroot", &below("run")])
        .args(["run", "--rm", "--network=none", "--runtime=runc"])
        // Root may lack the right to raise limits where the tests run.
        .args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"])
        .args(["--user", &format!("{}:{}", w.user.uid, w.user.gid)])
        .args(["-v", &format!("{}:{PLACE}", dir.display()), "-e", "HOME=/tmp"])
        .args(["-e", &format!("CORACLE_DIR={PLACE}/store-0")])
        .args(["--rootfs", &tree.display().to_string(), &format!("{PLACE}/coracle")])
        .args(["run", "--rm", &w.mode(), &w.image, "/bin/guest"])
        .args(ASKED);
    // The file with the place of root's containers would disturb later look-ups of credentials.
    let known = Path::new("/run/containers").exists();
    let done = run_with(&mut podman, Input::Null, Duration::from_mins(1));
    if !known {
        let _ = fs::remove_dir_all("/run/containers");
    }
    done
}
