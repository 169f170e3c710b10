//! Tests of the loader without a tracer. A copy of its file gets the boot block, and the state that
//! a program finds is compared with the state that the kernel's own loading gives it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use abi::boot::{BOOT_ROOM, Boot, Ids};
use abi::boot32::Operations;
use abi::elf::{self, Class, Header};
use testkit::command::output;

/// A loader with its boot block: the block becomes the contents of the second segment.
fn patched(boot: &Boot<'_>) -> Vec<u8> {
    const SECOND: usize = 64 + 56;
    let mut block = [0; BOOT_ROOM];
    let length = boot.write(&mut block).expect("the block fits");
    let mut file = blobs::stage(0);
    file.resize(file.len().next_multiple_of(4096), 0);
    let offset = file.len() as u64;
    file[SECOND + 8..SECOND + 16].copy_from_slice(&offset.to_le_bytes());
    file[SECOND + 32..SECOND + 40].copy_from_slice(&(length as u64).to_le_bytes());
    file.extend_from_slice(&block[..length]);
    file
}

/// The same for i386: operations instead of paths alone.
fn patched32(boot: &Boot<'_>, program: &[u8], interpreter: Option<&[u8]>) -> Vec<u8> {
    const SECOND: usize = 52 + 32;
    let mut operations = Operations::NONE;
    for (bytes, is_interpreter) in [(Some(program), false), (interpreter, true)]
        .into_iter()
        .filter_map(|(bytes, is)| Some((bytes?, is)))
    {
        let header = Header::read(bytes).unwrap();
        let start = header.table as usize;
        let table = &bytes[start..start + header.table_length().unwrap()];
        operations.image(&header, elf::segments(header.class, table), is_interpreter).unwrap();
    }
    let last = Header::read(interpreter.unwrap_or(program)).unwrap();
    operations.entry(&last).unwrap();
    let mut block = [0; BOOT_ROOM];
    let length = operations.write(boot, &mut block).expect("the block fits");
    let mut file = blobs::LOADER_I386.to_vec();
    file.resize(file.len().next_multiple_of(4096), 0);
    let offset = file.len() as u32;
    file[SECOND + 4..SECOND + 8].copy_from_slice(&offset.to_le_bytes());
    file[SECOND + 16..SECOND + 20].copy_from_slice(&(length as u32).to_le_bytes());
    file.extend_from_slice(&block[..length]);
    file
}

fn interpreter(program: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(program).unwrap();
    let header = abi::elf::Header::read(&bytes)?;
    let start = header.table as usize;
    let table = &bytes[start..start + header.table_length()?];
    let found = abi::elf::segments(header.class, table)
        .find(|segment| segment.kind == abi::elf::INTERPRETER)?;
    let text = &bytes[found.offset as usize..(found.offset + found.file_size) as usize - 1];
    Some(text.to_vec())
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command that starts `program` by the loader, with the same arguments as `argv`.
    fn loaded(&self, program: &Path, argv: &[&str]) -> Command {
        self.loaded_as(program, argv, false, None)
    }

    fn loaded_as(&self, program: &Path, argv: &[&str], secure: bool, ids: Option<Ids>) -> Command {
        let name = program.file_name().unwrap();
        let mut comm = [0; 16];
        let bytes = name.as_encoded_bytes();
        let length = bytes.len().min(15);
        comm[..length].copy_from_slice(&bytes[..length]);
        let interpreter = interpreter(program);
        let boot = Boot {
            program: program.as_os_str().as_encoded_bytes(),
            interpreter: interpreter.as_deref(),
            name: program.as_os_str().as_encoded_bytes(),
            comm,
            secure,
            ids,
        };
        let loader = self.file(&format!("loader-of-{}", name.display()));
        let bytes = fs::read(program).unwrap();
        let narrow = Header::read(&bytes).is_some_and(|header| header.class == Class::Bits32);
        let file = if narrow {
            let inner = interpreter
                .as_ref()
                .map(|path| fs::read(Path::new(OsStr::from_bytes(path))).unwrap());
            patched32(&boot, &bytes, inner.as_deref())
        } else {
            patched(&boot)
        };
        fs::write(&loader, file).unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        command(&loader, argv)
    }

    /// Compiles, or says what is missing.
    fn compile(&self, compiler: &str, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let out = self.file(name);
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(source);
        let ran = Command::new(compiler).args(flags).arg("-o").arg(&out).arg(source).output();
        match ran {
            Ok(output) if output.status.success() => Some(out),
            Ok(output) => {
                println!(
                    "skipped: {compiler} {}: {}",
                    flags.join(" "),
                    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
                );
                None
            }
            Err(error) => {
                println!("skipped: {compiler}: {error}");
                None
            }
        }
    }
}

fn command(file: &Path, argv: &[&str]) -> Command {
    let mut command = Command::new(file);
    command.arg0(argv[0]).args(&argv[1..]).env_clear().env("FIRST", "1").env("SECOND", "two");
    command
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn same(place: &Place, program: &Path, argv: &[&str]) {
    let native = output(&mut command(program, argv)).unwrap();
    let loaded = output(&mut place.loaded(program, argv)).unwrap();
    let shown = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(shown(&native), shown(&loaded), "{}", program.display());
    assert_eq!(native.status.signal(), loaded.status.signal(), "{}", program.display());
    assert_eq!(native.status.code(), loaded.status.code(), "{}", program.display());
}

const LINKS: &[(&str, &[&str])] = &[
    ("pie", &["-O1", "-fPIE", "-pie"]),
    ("fixed", &["-O1", "-fno-PIE", "-no-pie"]),
    ("static", &["-O1", "-static", "-fno-PIE", "-no-pie"]),
    ("static-pie", &["-O1", "-static-pie", "-fPIE"]),
    ("huge-pages", &["-O1", "-fPIE", "-pie", "-Wl,-z,max-page-size=0x200000"]),
    ("huge-static-pie", &["-O1", "-fPIE", "-static-pie", "-Wl,-z,max-page-size=0x200000"]),
    ("joined", &["-O1", "-fPIE", "-pie", "-Wl,-z,noseparate-code"]),
    ("writable-code", &["-O1", "-static", "-no-pie", "-fno-PIE", "-Wl,-N"]),
    ("executable-stack", &["-O1", "-fPIE", "-pie", "-Wl,-z,execstack"]),
    ("executable-stack-static", &["-O1", "-static", "-Wl,-z,execstack"]),
    ("gold", &["-O1", "-fPIE", "-pie", "-fuse-ld=gold"]),
    ("gold-static", &["-O1", "-static", "-fuse-ld=gold"]),
    ("lld", &["-O1", "-fPIE", "-pie", "-fuse-ld=lld"]),
    ("lld-static", &["-O1", "-static", "-fuse-ld=lld", "-no-pie", "-fno-PIE"]),
];

#[test]
fn programs_find_what_the_kernel_would_have_given_them() {
    let place = Place::new();
    for compiler in ["gcc", "musl-gcc"] {
        for (name, flags) in LINKS {
            let name = format!("{compiler}-{name}/report");
            if let Some(program) = place.compile(compiler, "report.c", &name, flags) {
                same(&place, &program, &["argument zero", "one", "", "three"]);
            }
        }
    }
}

#[test]
fn programs_of_32_bits() {
    let place = Place::new();
    for (name, flags) in LINKS {
        let flags = [&["-m32", "-DI386"], *flags].concat();
        if let Some(program) =
            place.compile("gcc", "report.c", &format!("i386-{name}/report"), &flags)
        {
            same(&place, &program, &["argument zero", "one", "", "three"]);
        }
    }
}

#[test]
fn the_first_instruction_sees_clean_registers() {
    let place = Place::new();
    let layouts: &[(&str, &[&str])] = &[
        ("usual", &["-static", "-no-pie", "-fno-PIE"]),
        ("one-segment", &["-static", "-no-pie", "-fno-PIE", "-Wl,-N"]),
        (
            "shared-page",
            &[
                "-static",
                "-no-pie",
                "-fno-PIE",
                "-Wl,-z,noseparate-code",
                "-Wl,-z,max-page-size=4096",
            ],
        ),
        (
            "far",
            &[
                "-static",
                "-no-pie",
                "-fno-PIE",
                "-Wl,-Ttext-segment=0x7000000000",
                "-mcmodel=large",
            ],
        ),
        ("low", &["-static", "-no-pie", "-fno-PIE", "-Wl,-Ttext-segment=0x10000"]),
        ("pie", &["-static-pie", "-fPIE"]),
    ];
    for (name, flags) in layouts {
        let mut all = vec![
            "-O1",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fcf-protection=none",
        ];
        all.extend(*flags);
        let name = format!("{name}/start");
        if let Some(program) = place.compile("gcc", "start.c", &name, &all) {
            same(&place, &program, &["start", "now"]);
        }
    }
}

#[test]
fn addresses_are_random_unless_they_must_not_be() {
    let place = Place::new();
    let Some(program) = place.compile("gcc", "where.c", "where", &["-fPIE", "-pie"]) else {
        return;
    };
    let mut loaded = place.loaded(&program, &["where"]);
    let runs: Vec<String> = (0..3).map(|_| text(&output(&mut loaded).unwrap())).collect();
    assert!(runs[0] != runs[1] && runs[1] != runs[2], "{runs:?}");
    for column in 0..5 {
        let values: Vec<_> = runs.iter().map(|run| run.split(' ').nth(column)).collect();
        assert!(values[0] != values[1] || values[1] != values[2], "column {column}: {runs:?}");
    }
    let fixed = |loader: &Path| {
        text(
            &Command::new("setarch").args([OsStr::new("-R"), loader.as_os_str()]).output().unwrap(),
        )
    };
    let kept = place.file("loader-of-where");
    assert_eq!(fixed(&kept), fixed(&kept));
    let base = |line: &str| line.split(' ').next().unwrap().to_owned();
    assert_eq!(base(&fixed(&kept)), base(&fixed(&program)), "where debuggers expect it");
}

#[test]
fn ids_and_secure_mode_come_from_the_block() {
    let place = Place::new();
    let Some(program) = place.compile("gcc", "report.c", "ids/report", &["-static"]) else {
        return;
    };
    let ids = Ids { uid: 11, euid: 12, gid: 13, egid: 14 };
    let shown = text(&output(&mut place.loaded_as(&program, &["x"], true, Some(ids))).unwrap());
    for line in ["aux 11 11", "aux 12 12", "aux 13 13", "aux 14 14", "aux 23 1"] {
        assert!(shown.lines().any(|found| found == line), "{line} in {shown}");
    }
}

#[test]
fn what_cannot_be_loaded_ends_by_the_signal_that_the_kernel_sends() {
    let place = Place::new();
    let program = place.file("nothing");
    fs::write(&program, b"").unwrap();
    let ended = output(&mut place.loaded(&program, &["x"])).unwrap();
    assert_eq!(ended.status.signal(), Some(11));
    let file = place.file("plain");
    fs::write(&file, blobs::stage(0)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = output(&mut Command::new(&file)).unwrap();
    assert_eq!(ended.status.signal(), Some(11), "a loader that nobody told anything");
}

#[test]
fn large_argument_lists_and_real_programs() {
    let place = Place::new();
    let shell = Path::new("/bin/sh");
    let many: Vec<String> = (0..20_000).map(|number| format!("argument{number}")).collect();
    let mut loaded =
        place.loaded(shell, &["sh", "-c", "echo $# $0; exec 2>&1; cat /proc/self/comm", "zero"]);
    loaded.args(&many).env("PATH", "/usr/bin:/bin");
    assert_eq!(text(&output(&mut loaded).unwrap()), "20000 zero\ncat\n");
}
