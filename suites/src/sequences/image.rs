//! Builds the guest program and its tree: a directory for each of 64 sequences with the same few
//! files, which belong to the image.

use std::path::Path;
use std::process::Command;

use testkit::image::{Built, Image, Pack};
use testkit::layer::{Entry, Layer};

/// Number of sequences for which a tree has directories.
pub(crate) const SLOTS: u64 = 64;

/// The image, and its only layer as a tar.
pub(crate) struct Prepared {
    pub(crate) built: Built,
    pub(crate) layer: Vec<u8>,
}

fn compile(sources: &[&str], flags: &[&str], program: &Path) -> Result<Vec<u8>, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sequences");
    let output = Command::new("gcc")
        .args(["-w", "-static", "-o"])
        .arg(program)
        .args(flags)
        .args(sources.iter().map(|source| here.join(source)))
        .output()
        .map_err(|error| format!("gcc: {error}"))?;
    if !output.status.success() {
        return Err(format!("gcc: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::read(program).map_err(|error| error.to_string())
}

/// Compiles the programs and builds the image.
pub(crate) fn prepare(scratch: &Path) -> Result<Prepared, String> {
    let sources = [
        "guest/main.c",
        "guest/state.c",
        "guest/ours.c",
        "guest/names.c",
        "guest/descriptors.c",
        "guest/attributes.c",
        "guest/processes.c",
        "guest/ids.c",
    ];
    let guest = compile(&sources, &["-O1", "-g0", "-pthread"], &scratch.join("sequences"))?;
    let flags =
        ["-Os", "-s", "-nostdlib", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"];
    let linker = ["-Wl,-z,noseparate-code,-z,norelro,--build-id=none"];
    let tiny = compile(&["tiny.c"], &[&flags[..], &linker].concat(), &scratch.join("tiny"))?;
    let mut layer = Layer::new();
    for (dir, mode) in
        [("bin", 0o755), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755), ("work", 0o755)]
    {
        layer.push(&Entry::new(b'5', dir).mode(mode));
    }
    layer = layer.file("bin/sequences", 0o755, guest).file(
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/:/bin/sh\n",
    );
    for slot in 0..SLOTS {
        let at = |name: &str| format!("work/s{slot}/{name}");
        layer = layer
            .entry(&Entry::new(b'5', format!("work/s{slot}")).mode(0o777))
            .entry(&Entry::new(b'5', at("d")).mode(0o755))
            .file(&at("d/f"), 0o644, "contents of d/f")
            .entry(&Entry::new(b'5', at("d/d")).mode(0o1777))
            .file(&at("f"), 0o644, "contents of f")
            .entry(&Entry::new(b'0', at("e")).mode(0o640).owner(5, 6).data("of another"))
            .entry(&Entry::new(b'5', at("c")).mode(0o2750).owner(5, 6))
            .file(&at("c/f"), 0o604, "within")
            .symlink(&at("l"), "d/f")
            .symlink(&at("m"), &format!("/work/s{slot}/d"))
            .symlink(&at("d/l"), "../b/../d")
            .file(&at("x"), 0o755, "#!/bin/sequences echo\n")
            .file(&at("p"), 0o755, tiny.clone());
    }
    let layer = layer.finish();
    let image = Image::new().packed(layer.clone(), Pack::Gzip).env("PATH", "/bin");
    Ok(Prepared { built: image.build(), layer })
}
