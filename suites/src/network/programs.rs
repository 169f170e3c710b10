//! The programs of the suite, and the image with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{Input, run_with};
use testkit::image::{Built, Image};
use testkit::layer::{Entry, Layer};

/// A program of both sides.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The file in `guests`, if it has another name.
    source: &'static str,
    flags: &'static [&'static str],
    /// Two containers run it, as `one` and `two`.
    pub(crate) is_pair: bool,
    /// It runs in every mode.
    pub(crate) short: bool,
    /// The oracle runs it without capabilities, as mode `names` runs everything.
    pub(crate) is_plain: bool,
    /// It says at least so many lines: a program that ends early must not pass.
    pub(crate) least: usize,
}

const ANY: Program = Program {
    name: "",
    source: "",
    flags: &[],
    is_pair: false,
    short: false,
    is_plain: false,
    least: 0,
};

impl Program {
    /// Modes that catch calls inside processes do not load programs of 32 bits.
    pub(crate) fn runs_in(&self, mode: &str) -> bool {
        mode.starts_with(['P', 'N']) || self.flags.is_empty()
    }
}

/// One per topic. The programs of 32 bits make their calls through `socketcall`.
pub(crate) const PROGRAMS: &[Program] = &[
    Program { name: "pair", is_pair: true, short: true, least: 250, ..ANY },
    Program { name: "binds", least: 740, ..ANY },
    Program { name: "connects", short: true, least: 380, ..ANY },
    Program { name: "listeners", least: 200, ..ANY },
    Program { name: "six", least: 950, ..ANY },
    Program { name: "udp", short: true, least: 310, ..ANY },
    Program { name: "interfaces", short: true, least: 70, ..ANY },
    Program { name: "outside", is_plain: true, least: 40, ..ANY },
    Program { name: "connects32", source: "connects", flags: &["-m32"], least: 380, ..ANY },
    Program { name: "udp32", source: "udp", flags: &["-m32"], least: 310, ..ANY },
    Program { name: "interfaces32", source: "interfaces", flags: &["-m32"], least: 70, ..ANY },
];

/// Python's servers and clients, in `guests/service.py`.
pub(crate) const PYTHON: Program = Program { name: "python", is_pair: true, least: 60, ..ANY };

/// What only [`super::strangers`], [`super::packets`] and [`super::hosts`] run.
const TOOLS: [Program; 4] = [
    Program { name: "tool", ..ANY },
    Program { name: "lan", ..ANY },
    Program { name: "hammer", ..ANY },
    Program { name: "race", ..ANY },
];

/// The directory of the sources.
pub(crate) fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/network/guests")
}

/// Compiles everything into a directory that all users can read.
pub(crate) fn compile(scratch: &Path) -> Result<PathBuf, String> {
    let bin = scratch.join("bin");
    std::fs::create_dir_all(&bin).map_err(|error| error.to_string())?;
    for program in PROGRAMS.iter().chain(&TOOLS) {
        let source = if program.source.is_empty() { program.name } else { program.source };
        let gcc = |flags: &[&str]| {
            let mut command = Command::new("gcc");
            command.args(["-O1", "-g0", "-w", "-static", "-pthread", "-o"]);
            command.arg(bin.join(program.name)).args(flags);
            command.arg(guests().join(format!("{source}.c")));
            run_with(&mut command, Input::Null, crate::network::LIMIT)
        };
        let mut done = gcc(program.flags);
        if done.code() != 0 && !program.flags.is_empty() {
            println!("no {}, one of 64 bits instead: {done:?}", program.name);
            done = gcc(&[]);
        }
        if done.code() != 0 {
            return Err(format!("gcc {}: {done:?}", program.name));
        }
    }
    Ok(bin)
}

/// The image: the programs and nothing else.
pub(crate) fn image(bin: &Path) -> Result<Built, String> {
    let mut layer = Layer::new();
    for (dir, mode) in [
        ("bin", 0o755),
        ("etc", 0o755),
        ("proc", 0o755),
        ("sys", 0o755),
        ("dev", 0o755),
        ("tmp", 0o1777),
        ("meetings", 0o777),
    ] {
        layer.push(&Entry::new(b'5', dir).mode(mode));
    }
    for program in PROGRAMS.iter().chain(&TOOLS) {
        let bytes = std::fs::read(bin.join(program.name)).map_err(|error| error.to_string())?;
        layer = layer.file(&format!("bin/{}", program.name), 0o755, bytes);
    }
    let layer = layer.file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\n");
    Ok(Image::new().layer(layer).env("PATH", "/bin").build())
}
