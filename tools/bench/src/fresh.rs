//! Measures a fresh container of an image with 43,000 names, made, run and removed, beside podman,
//! bwrap and `PRoot`.
//!
//! bwrap and `PRoot` make no trees, so theirs is a copy by hard links. That is the cheapest there
//! is, and a program in it could change the files of the image.

use std::process::Command;

use super::names::{self, Names, TRUE};
use super::podman::Podman;
use super::{Bench, Line, milliseconds};
use xtask::shell::{Outcome, has};

const COUNT: usize = 40;
/// Rounds with a peer that copies a tree.
const COPIES: usize = 5;
const MODES: &[&str] = &["N1", "I1"];

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let many = names::many(bench)?;
    let mut peers = Vec::new();
    let podman =
        if has("podman") && has("runc") { Some(Podman::new(bench, &bench.user)?) } else { None };
    if let Some(podman) = &podman {
        let words = run_by_podman(podman, &many)?;
        peers.push(("podman run --rm, overlay and runc", words, COUNT));
    }
    let copied = "d=$(mktemp -d -p \"$1\") && cp -al \"$1/tree\" \"$d/tree\" && cd / && ";
    for (name, program) in [
        (
            "bwrap, tree of links",
            "bwrap --unshare-user --uid 0 --gid 0 --bind \"$d/tree\" / --dev-bind /proc /proc --dev-bind /dev /dev --ro-bind /sys /sys",
        ),
        ("PRoot, tree of links", "proot -0 -b /proc -b /dev -b /sys -r \"$d/tree\""),
    ] {
        if !has(program.split(' ').next().unwrap_or_default()) {
            continue;
        }
        let script = format!("{copied}{program} {} && rm -rf \"$d\"", TRUE.join(" "));
        let tree = bench.home.join("links").display().to_string();
        peers.push((name, ["sh", "-c", &script, "sh", &tree].map(str::to_owned).into(), COPIES));
    }
    unpacked(bench, &many)?;
    for mode in MODES {
        let mode = format!("--execmode={mode}");
        bench.coracle(&[&["run", "--rm", &mode, &many.image], &TRUE[..]].concat())?;
    }
    let mut lines = Vec::new();
    for (name, peer, count) in peers {
        // A peer may fail, which is shown; Coracle has run already.
        match compare(bench, &many, name, peer, count) {
            Ok(found) => lines.extend(found),
            Err(error) => println!("{name}: {error}"),
        }
    }
    Ok(lines)
}

/// The ratio of each mode to a peer.
fn compare(
    bench: &Bench,
    many: &Names,
    name: &str,
    peer: Vec<String>,
    count: usize,
) -> Outcome<Vec<Line>> {
    let ours = |mode: &&str| -> Vec<String> {
        let (program, mode) = (bench.coracle.display().to_string(), format!("--execmode={mode}"));
        let words = [&[program.as_str(), "run", "--rm", &mode, &many.image], &TRUE[..]].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let mut commands: Vec<Vec<String>> = MODES.iter().map(ours).collect();
    commands.push(peer);
    let times = bench.medians(count, &commands)?;
    let theirs = times[MODES.len()];
    let line = |(mode, ours): (&&str, &f64)| Line {
        what: format!("fresh container of 43,000 names made, run and removed, in {mode}"),
        against: name.to_owned(),
        ours: milliseconds(*ours),
        theirs: milliseconds(theirs),
        value: ours / theirs,
        aim: f64::INFINITY,
        unit: "",
    };
    Ok(MODES.iter().zip(&times).map(line).collect())
}

/// The words that run the program by podman, with the image in its store. It shares the host's
/// network as Coracle does.
fn run_by_podman(podman: &Podman, many: &Names) -> Outcome<Vec<String>> {
    let id = podman.run(&["pull", "-q", &format!("oci:{}", many.layout.display())])?;
    let image = id.lines().last().unwrap_or_default().trim().to_owned();
    let words = ["run", "--rm", "--network=host"].map(str::to_owned);
    let program = TRUE.map(str::to_owned);
    Ok([podman.words.clone(), words.into(), vec![image], program.into()].concat())
}

/// The image's tree in the user's home, for those that bring none.
fn unpacked(bench: &Bench, many: &Names) -> Outcome {
    let tree = bench.home.join("links/tree");
    bench.as_user(&bench.home, |command| command.args(["mkdir", "-p"]).arg(&tree))?;
    let tar = bench.home.join("links.tar");
    bench.coracle(&["create", "--name=tree", &many.image])?;
    bench.coracle(&["export", "-o", &tar.display().to_string(), "tree"])?;
    bench.as_user(&bench.home, |command: &mut Command| {
        let unpack = ["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-f"];
        command.args(unpack).arg(&tar).arg("-C").arg(&tree)
    })?;
    Ok(())
}
