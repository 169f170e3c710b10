//! pjdfstest: some four hundred small cases about file system calls and the order of their errors.
//!
//! It runs as root, and as a user, of a container that an unprivileged user started (without
//! subordinate ids; in namespaces with a range of them too); every case
//! that passes for real root, or a real user, in a chroot has to pass there. The suite determines
//! those cases itself if it runs as root; otherwise every failing case counts. [`known`] lists the
//! known failures with their reasons.

mod known;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::fence::fenced;
use testkit::harness::{Suite, Wishes};
use testkit::image::{Image, Pack};
use testkit::layer::{Entry, Layer};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::tools;

use std::process::ExitCode;

const IMAGE: &str = "localhost/posix:1";
const LIMIT: Duration = Duration::from_mins(4);
/// Engines for the user without subordinate ids: those that decide about ids and owners
/// themselves; F2 is added.
const ENGINES: [&str; 5] = ["I1", "I2", "P1", "P2", "N1"];
/// For the user with a range: the one where the kernel decides. (The others are the same for both.)
const WITH_RANGE: [&str; 1] = ["N1"];
/// The tree's own programs come first.
const PATH: &str = "/bin:/usr/sbin:/usr/bin:/sbin";
const PROGRAM: [&str; 5] = ["/bin/pjdfstest", "-c", "/etc/pjdfstest.toml", "-p", "/tmp"];
/// Remounting is left out; the suite sleeps between two reads of a time.
const SETTINGS: &str = r#"[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
stat_st_birthtime = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
"#;

/// The users of the cases: a name, and the argument of `chroot --userspec`.
const USERS: [(&str, &str); 2] = [("root", "0:0"), ("user", "1001:1001")];

/// Name of a case, and `ok`, `FAILED` or `skipped`.
type Results = BTreeMap<String, String>;

fn results(done: &Finished) -> Results {
    let text = done.out();
    assert!(text.contains("\nSummary: "), "pjdfstest did not get to its end: {done:?}");
    let mut results = Results::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(end @ ("ok" | "FAILED" | "skipped")), None) =
            (words.next(), words.next(), words.next())
        {
            results.insert(name.to_owned(), end.to_owned());
        }
    }
    results
}

struct Stage {
    /// Each user with an engine.
    worlds: Vec<(Person, String)>,
    /// The same tree for a real chroot, if the suite runs as root.
    tree: Option<PathBuf>,
    _scratch: Scratch,
}

fn layer(program: &Path) -> std::io::Result<Vec<u8>> {
    let mut layer = Layer::new();
    for (name, mode) in [("bin", 0o755), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755)] {
        layer.push(&Entry::new(b'5', name).mode(mode));
    }
    layer.push(&Entry::new(b'5', "tmp").mode(0o1777));
    let passwd = "root:x:0:0::/:/\nnobody:x:65534:65534::/:/\ntests:x:1001:1001::/:/\n";
    for file in helpers() {
        layer = layer.file(file.trim_start_matches('/'), 0o755, std::fs::read(&file)?);
    }
    let layer = layer
        .file("etc/passwd", 0o644, passwd)
        .file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\ntests:x:1001:\n")
        .file("etc/pjdfstest.toml", 0o644, SETTINGS)
        // Some cases look for a program to copy.
        .file("bin/which", 0o755, "#!/bin/sh\necho \"/bin/$1\"\n")
        .file("bin/pjdfstest", 0o755, std::fs::read(program)?);
    Ok(layer.finish())
}

/// Programs of this machine that some cases start, and their libraries, by the names that are
/// looked up.
fn helpers() -> Vec<String> {
    let mut files: Vec<String> =
        ["/bin/sh", "/bin/sleep", "/bin/mount", "/bin/umount"].map(str::to_owned).into();
    let output = Command::new("ldd").args(&files).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let libraries = text.unwrap_or_default();
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with("/lib"));
    files.extend(libraries.map(str::to_owned));
    files.sort();
    files.dedup();
    files.retain(|file| Path::new(file).is_file());
    files
}

impl Stage {
    fn set() -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let program = tools::pjdfstest().map_err(|skip| skip.0)?;
        let scratch = Scratch::new("posix").map_err(text)?;
        let layer = layer(&program).map_err(text)?;
        let layout = scratch.path().join("layout");
        let image = Image::new().packed(layer.clone(), Pack::Gzip).env("PATH", "/bin").build();
        image.write_layout(&layout, IMAGE).map_err(text)?;
        let mut worlds = Vec::new();
        for person in everybody(&scratch, crate::program::coracle()).map_err(text)? {
            let done = person.run(&["load", "-q", "-i", &layout.display().to_string()]);
            if done.code() != 0 {
                return Err(format!("no test image: {done:?}"));
            }
            let wanted = if person.user.range { &WITH_RANGE[..] } else { &ENGINES[..] };
            let mut engines = person.engines(&mut Vec::new());
            engines.retain(|mode| wanted.contains(&mode.as_str()));
            worlds.extend(engines.into_iter().map(|mode| (person.clone(), mode)));
            if !person.user.range
                && let Some(program) = fenced(&scratch, &person.program)
            {
                worlds.push((Person { program, ..person }, "F2".to_owned()));
            }
        }
        let mut tree = None;
        if rustix::process::getuid().is_root() {
            let path = scratch.dir("native", None, 0o755).map_err(text)?;
            let tar = scratch.path().join("native.tar");
            std::fs::write(&tar, &layer).map_err(text)?;
            let done = Command::new("tar")
                .args(["--extract", "--same-owner", "--same-permissions", "--numeric-owner"])
                .arg("--file")
                .arg(&tar)
                .arg("--directory")
                .arg(&path)
                .stdin(Stdio::null())
                .status();
            if !done.map_err(text)?.success() {
                return Err("tar failed".to_owned());
            }
            // Programs need it; a case that misses it fails natively, and is then not required of
            // engines.
            let null = path.join("dev/null");
            let _ =
                Command::new("mknod").args(["-m", "666"]).arg(null).args(["c", "1", "3"]).status();
            tree = Some(path);
        }
        Ok(Self { worlds, tree, _scratch: scratch })
    }

    fn native(&self, user: &str) -> Option<Results> {
        let tree = self.tree.as_ref()?;
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={user}")).arg(tree).args(PROGRAM).env("PATH", PATH);
        Some(results(&run_with(&mut command, Input::Null, LIMIT)))
    }

    fn compare(&self, person: &Person, engine: &str, user: &str) {
        let mode = format!("--execmode={engine}");
        let words = ["run", "--rm", &mode, "-u", user, IMAGE];
        let words: Vec<&str> = words.into_iter().chain(PROGRAM).collect();
        let done = run_with(&mut person.command(&words), Input::Null, LIMIT);
        let here = results(&done);
        let native = self.native(user);
        let list = known::list(engine, person.user.range);
        let wanted = |case: &str| {
            native.as_ref().and_then(|native| native.get(case)).map_or("ok", String::as_str) == "ok"
        };
        let mut wrong = Vec::new();
        for (case, end) in here.iter().filter(|(case, end)| *end != "ok" && wanted(case)) {
            // Without a reference nobody knows what should have run.
            let is_counted = end == "FAILED" || native.is_some();
            if is_counted && !list.iter().any(|known| known::is_about(known, case)) {
                wrong.push(format!("{case}: {end}"));
            }
        }
        for known in list {
            let is_about = |case: &str| known::is_about(known, case) && wanted(case);
            let ends: Vec<&String> =
                here.iter().filter(|(case, _)| is_about(case)).map(|(_, end)| end).collect();
            if !ends.is_empty() && ends.iter().all(|end| *end == "ok") {
                wrong.push(format!("{} is listed as known, but passes", known.case));
            }
        }
        let count = |results: &Results| results.values().filter(|end| *end == "ok").count();
        let passed = count(&here);
        let natively = native.as_ref().map(|native| format!(", natively {}", count(native)));
        println!(
            "{engine} {} {user}: {passed} pass{}",
            person.user.kind(),
            natively.unwrap_or_default()
        );
        assert!(passed > 200, "only {passed} cases pass: {done:?}");
        assert!(
            wrong.is_empty(),
            "{passed} of {} cases pass, but\n  {}\n{}",
            here.len(),
            wrong.join("\n  "),
            reasons(&done)
        );
    }
}

/// pjdfstest's output about failing cases.
fn reasons(done: &Finished) -> String {
    let text = done.out();
    let mut lines = text.lines().peekable();
    let mut reasons = Vec::new();
    while let Some(line) = lines.next() {
        if line.ends_with("FAILED") {
            reasons.push(line.to_owned());
            while let Some(more) = lines.next_if(|line| line.starts_with(['\t', ' '])) {
                reasons.push(more.to_owned());
            }
        }
    }
    reasons.join("\n")
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("posix");
    // Cases compare times, and a tracer and its guest keep two processors busy.
    suite.threads(2);
    match &stage {
        Err(reason) => suite.skipped("posix", reason),
        Ok(stage) => {
            if stage.worlds.is_empty() {
                suite.skipped("posix", "no engine with a guest's world of its own");
            }
            for (person, engine) in &stage.worlds {
                for (name, user) in USERS {
                    let kind = person.user.kind();
                    suite.case(format!("{engine}::{kind}::pjdfstest::{name}"), move || {
                        stage.compare(person, engine, user);
                        Ok(())
                    });
                }
            }
        }
    }
    suite.run(wishes)
}
