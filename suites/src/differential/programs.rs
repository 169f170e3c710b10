//! Compiles the programs and builds their image.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::image::{Built, Image};
use testkit::layer::{Entry, Layer};
use testkit::scratch::Scratch;

/// One per family of calls; `dynamic` is `paths` with the C library as a library, `narrow` is
/// `loads` for i386, `musl`, `others` and `other` are `memory`, `threads` and `paths` with another
/// C library, the last as a library.
pub(crate) const PROGRAMS: &[&str] = &[
    "paths",
    "opens",
    "stats",
    "links",
    "directories",
    "execs",
    "loads",
    "narrow",
    "signals",
    "handlers",
    "threads",
    "tasks",
    "memory",
    "masks",
    "crowds",
    "spaces",
    "sites",
    "sockets",
    "attributes",
    "identity",
    "procs",
    "leaks",
    "dynamic",
    "musl",
    "others",
    "other",
];

/// The image, and its only layer as a tar.
pub(crate) struct Prepared {
    pub(crate) built: Built,
    pub(crate) layer: Vec<u8>,
}

/// musl has neither the kernel's headers nor names of errors.
const OF_MUSL: &[&str] = &[
    "-idirafter",
    "/usr/include",
    "-idirafter",
    "/usr/include/x86_64-linux-gnu",
    "-Dstrerrorname_np=strerror",
];

fn compile(name: &str, flags: &[&str], into: &Path) -> Result<Vec<u8>, String> {
    let source = match name {
        "dynamic" | "other" => "paths",
        "narrow" => "loads",
        "musl" => "memory",
        "others" => "threads",
        name => name,
    };
    let musl = matches!(name, "musl" | "others" | "other");
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/differential/guests");
    let program = into.join(name);
    let output = Command::new(if musl { "musl-gcc" } else { "gcc" })
        .args(if musl { OF_MUSL } else { &[] })
        .args(["-O1", "-g0", "-w", "-o"])
        .arg(&program)
        .args(flags)
        .arg(guests.join(format!("{source}.c")))
        .output()
        .map_err(|error| format!("gcc: {error}"))?;
    if !output.status.success() {
        return Err(format!("gcc {name}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::read(&program).map_err(|error| error.to_string())
}

/// The interpreter and the C library of this machine, as the program names them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default()
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// The image, built here; or from the layer in the file `CORACLE_LAYER`, which [`keep_layer`] wrote
/// for machines without a compiler.
pub(crate) fn image(scratch: &Path) -> Result<Prepared, String> {
    let layer = match std::env::var_os("CORACLE_LAYER") {
        Some(file) => std::fs::read(file).map_err(|error| error.to_string()),
        None => layer(scratch),
    }?;
    let image = Image::new().packed(layer.clone(), testkit::image::Pack::Gzip);
    Ok(Prepared { built: image.env("PATH", "/bin").build(), layer })
}

/// Builds the layer and writes it to a file.
pub(crate) fn keep_layer(file: &Path) -> Result<(), String> {
    let scratch = Scratch::new("differential").map_err(|error| error.to_string())?;
    std::fs::write(file, layer(scratch.path())?).map_err(|error| error.to_string())
}

/// Compiles everything and builds the image's layer.
fn layer(scratch: &Path) -> Result<Vec<u8>, String> {
    let bin = scratch.join("programs");
    std::fs::create_dir_all(&bin).map_err(|error| error.to_string())?;
    let mut layer = Layer::new();
    for (dir, mode) in [
        ("bin", 0o755),
        ("etc", 0o755),
        ("proc", 0o755),
        ("sys", 0o755),
        ("dev", 0o755),
        ("work", 0o777),
        ("tmp", 0o1777),
    ] {
        layer.push(&Entry::new(b'5', dir).mode(mode));
    }
    let mut identity = Vec::new();
    for program in PROGRAMS {
        let flags: &[&str] =
            if matches!(*program, "dynamic" | "other") { &[] } else { &["-static"] };
        let bytes = match *program {
            "narrow" => compile(program, &["-static", "-m32"], &bin).or_else(|error| {
                println!("no program of 32 bits, one of 64 instead: {error}");
                compile(program, &["-static", "-DNARROW"], &bin)
            }),
            program => compile(program, flags, &bin),
        }?;
        if *program == "identity" {
            identity.clone_from(&bytes);
        }
        layer = layer.file(&format!("bin/{program}"), 0o755, bytes);
    }
    let musl = PathBuf::from("/lib/ld-musl-x86_64.so.1");
    for library in libraries(&bin.join("dynamic")).into_iter().chain([musl]) {
        let bytes = std::fs::read(&library).map_err(|error| error.to_string())?;
        let name = library.display().to_string();
        layer = layer.file(name.trim_start_matches('/'), 0o755, bytes);
    }
    let owner = |kind, path: &str, mode| Entry::new(kind, path).mode(mode).owner(5, 6);
    Ok(layer
        .file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\nuser:x:1234:1235::/:/bin/sh\n")
        .file("etc/group", 0o644, "root:x:0:\nuser:x:1235:\n")
        .entry(&Entry::new(b'5', "shared").mode(0o777))
        .file("shared/one", 0o666, "shared")
        .hardlink("shared/two", "shared/one")
        .entry(&owner(b'5', "owned", 0o710))
        .entry(&owner(b'0', "owned/secret", 0o640).data("secret"))
        .entry(&owner(b'0', "owned/program", 0o750).data("#!/bin/identity who\n"))
        .entry(&Entry::new(b'0', "suid").mode(0o4755).data(identity))
        .entry(&Entry::new(b'2', "a-link").link("/etc/passwd").owner(7, 8))
        .finish())
}
