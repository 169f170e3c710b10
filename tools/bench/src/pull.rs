//! Measures pull and unpack: five layers, 460 MB compressed, 1.4 GB, 43,000 files, from a registry
//! on the loopback; against `gzip | tar` of the same layers all at once, `podman pull`, and
//! `skopeo` with `umoci`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use testkit::big::{self, LayerFile, Shape};
use testkit::debian::cache;

use super::{Bench, Line, median, milliseconds};
use xtask::shell::{Outcome, has};

/// Puts the image into the registry; returns its layers, and how many bytes these have.
pub(super) fn push(bench: &Bench) -> Outcome<(Vec<LayerFile>, u64)> {
    let small = std::env::var_os("CORACLE_BENCH_SMALL").is_some();
    let shape = if small { Shape::SMALL } else { Shape::BENCHMARK };
    let dir = cache().join(format!("big-{}", shape.files));
    println!("making the image (kept in {})", dir.display());
    let layers =
        big::write_layout(shape, &dir, "bench/big:1").map_err(|error| error.to_string())?;
    let packed: u64 = layers.iter().map(|layer| layer.size).sum();
    println!("{} layers, {} MB compressed", layers.len(), packed / 1_000_000);
    let (manifest, parts) = big::blobs(&dir).map_err(|error| error.to_string())?;
    let target = bench.registry.target();
    for part in &parts {
        target.blob("bench/big", part).map_err(|error| error.to_string())?;
    }
    target.manifest("bench/big", "1", &manifest).map_err(|error| error.to_string())?;
    Ok((layers, packed))
}

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let (layers, _) = push(bench)?;
    let public = share(bench, &layers)?;
    let image = format!("{}/bench/big:1", bench.registry.host());
    let mut peers: Vec<(&str, f64, Runner)> =
        vec![("", 0.0, coracle), ("`gzip -dc \\| tar x`, all layers at once", 1.0, gunzip_tar)];
    if has("podman") {
        peers.push(("podman pull", 0.3, podman));
    }
    if has("skopeo") && has("umoci") {
        peers.push(("skopeo copy + umoci unpack", 0.3, skopeo_umoci));
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for round in 0..bench.rounds {
        for ((name, _, runner), times) in peers.iter().zip(&mut times) {
            match once(bench, *runner, &image, &public) {
                Ok(seconds) => {
                    println!(
                        "round {round}: {} {}",
                        if name.is_empty() { "coracle" } else { name },
                        milliseconds(seconds)
                    );
                    times.push(seconds);
                }
                Err(error) => println!("{name}: {error}"),
            }
        }
    }
    let ours = median(times[0].clone());
    let lines = peers.iter().zip(times).skip(1).filter(|(_, times)| !times.is_empty()).map(
        |((name, aim, _), times)| {
            let theirs = median(times);
            Line {
                what: "pull and unpack".to_owned(),
                against: (*name).to_owned(),
                ours: milliseconds(ours),
                theirs: milliseconds(theirs),
                value: ours / theirs,
                aim: *aim,
                unit: "",
            }
        },
    );
    Ok(lines.collect())
}

/// Runs it once in an empty home.
type Runner = fn(&Bench, &Path, &str, &Path) -> Outcome;

fn once(bench: &Bench, runner: Runner, image: &str, layers: &Path) -> Outcome<f64> {
    let owner = Some((bench.user.uid, bench.user.gid));
    let home = bench.scratch.dir("pull-home", owner, 0o755).map_err(|error| error.to_string())?;
    // Data that the last one left to be written must not slow down the next.
    let _ = Command::new("sync").status();
    let began = Instant::now();
    let result = runner(bench, &home, image, layers);
    let time = began.elapsed().as_secs_f64();
    // Only root, or the tool that made them, can remove trees of mapped users.
    let _ = Command::new("rm").arg("-rf").arg(&home).status();
    result.map(|()| time)
}

/// Puts the layers where the user can read them.
fn share(bench: &Bench, layers: &[LayerFile]) -> Outcome<std::path::PathBuf> {
    let dir = bench.scratch.dir("layers", None, 0o755).map_err(|error| error.to_string())?;
    for (n, layer) in layers.iter().enumerate() {
        fs::copy(&layer.path, dir.join(format!("{n}.tar.gz")))
            .map_err(|error| error.to_string())?;
    }
    Ok(dir)
}

fn coracle(bench: &Bench, home: &Path, image: &str, _layers: &Path) -> Outcome {
    bench
        .as_user(home, |c| c.arg(&bench.coracle).args(["pull", "-q", "--tls-verify=false", image]))
        .map(drop)
}

fn gunzip_tar(bench: &Bench, home: &Path, _image: &str, layers: &Path) -> Outcome {
    let script = "for f in \"$1\"/*.tar.gz; do d=$HOME/$(basename $f); mkdir $d; \
                  (gzip -dc $f | tar -x -C $d) & done; wait";
    bench.as_user(home, |c| c.args(["sh", "-c", script, "sh"]).arg(layers)).map(drop)
}

fn podman(bench: &Bench, home: &Path, image: &str, _layers: &Path) -> Outcome {
    bench
        .as_user(home, |c| {
            c.arg(format!("XDG_RUNTIME_DIR={}", home.display()));
            c.args([
                "podman",
                "--cgroup-manager=cgroupfs",
                "pull",
                "-q",
                "--tls-verify=false",
                image,
            ])
        })
        .map(drop)
}

fn skopeo_umoci(bench: &Bench, home: &Path, image: &str, _layers: &Path) -> Outcome {
    let script = "skopeo --insecure-policy copy -q --src-tls-verify=false docker://\"$1\" oci:$HOME/layout:1 && \
                  umoci unpack --rootless --image $HOME/layout:1 $HOME/bundle";
    bench.as_user(home, |c| c.args(["sh", "-c", script, "sh", image])).map(drop)
}
