//! Tests that Python's own tests of system interfaces end as in a plain chroot as real root.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

use crate::programs::known::PYTHON;
use crate::programs::languages::guest;
use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("tests", tests), ("workers", workers)];

const LONG: Duration = Duration::from_mins(8);

/// The tested modules; a tracer, which is slow, runs only the first few.
const MODULES: &[&str] = &[
    "test_os",
    "test_posix",
    "test_subprocess",
    "test_pathlib",
    "test_shutil",
    "test_signal",
    "test_threading",
];
const FEW: usize = 3;

/// Runs the tests that `$1` names (modules; those that `-m` chooses in them), and prints the result
/// of each on a line.
const SCRIPT: &str = "\
    export HOME=/root LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1; cd /tmp
    python3 -m test -j2 --timeout 240 --junit-xml /root/results.xml $1 >/root/log 2>&1 </dev/null || true
    python3 - <<'END'
import xml.etree.ElementTree as tree
for case in tree.parse('/root/results.xml').iter('testcase'):
    how = [child.tag for child in case if child.tag in ('failure', 'error', 'skipped')]
    print(case.get('name'), how[0] if how else 'ok')
END
";

/// Result of each test.
type Ends = BTreeMap<String, String>;

/// In a plain chroot: of all modules, and of few.
static NATIVE: [OnceLock<Ends>; 2] = [OnceLock::new(), OnceLock::new()];

fn ends(done: &Finished) -> Ends {
    let text = done.ok().out();
    let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, end)| (name.to_owned(), end.to_owned())).collect()
}

fn tests(w: &World) -> Outcome {
    if !rustix::process::getuid().is_root() {
        testkit::skip!("a plain chroot to compare with needs root");
    }
    let c = w.container();
    let count = if w.engine.starts_with('P') { FEW } else { MODULES.len() };
    let modules = MODULES[..count].join(" ");
    let run = |only: &str| ends(&c.sh_in(&format!("set -- '{only} {modules}'; {SCRIPT}"), LONG));
    let ours = run("");
    let native = NATIVE[usize::from(count == FEW)].get_or_init(|| {
        let scratch = Scratch::new("python").expect("a directory");
        ends(&chroot(&w.tree, scratch.path(), &modules))
    });
    assert!(native.len() > 700, "{} tests in a chroot", native.len());
    let is_known = |name: &str| PYTHON.iter().any(|(known, _)| name.ends_with(known));
    let mut differing: Vec<&String> = native
        .iter()
        .filter(|(name, end)| ours.get(*name) != Some(end))
        .map(|(name, _)| name)
        .collect();
    for (known, reason) in PYTHON {
        let differs = differing.iter().any(|name| name.ends_with(known));
        assert!(
            differs,
            "{known} is listed as different ({reason}), but is not: take it off the list"
        );
    }
    differing.retain(|name| !is_known(name));
    if differing.is_empty() {
        return Ok(());
    }
    // Some of them fail on a busy machine.
    let names: Vec<&str> = differing.iter().filter_map(|name| name.rsplit('.').next()).collect();
    let again = run(&format!("-m {}", names.join(" -m ")));
    differing.retain(|name| again.get(*name) != native.get(*name));
    if !differing.is_empty() {
        let log = c.sh("grep -A30 '^\\(ERROR\\|FAIL\\):' /root/log | head -200").out();
        let each = |name: &&String| {
            format!("{name}: {:?}, in a chroot {:?}", ours.get(*name), native[*name])
        };
        panic!("{:#?}\n{log}", differing.iter().map(each).collect::<Vec<_>>());
    }
    println!("UNSTABLE {}::python::tests: passed when run again: {names:?}", w.engine);
    Ok(())
}

/// The output of `workers.py` with any Python.
pub(crate) const WORKERS: &str = "\
    threads 800 [] 1000\nfork 300 49 {'srv'} [0, 0, 0] 40425\nspawn 300 49 {'srv'} [0, 0, 0] 40425\n\
    forkserver 300 49 {'srv'} [0, 0, 0] 40425\nprograms 435 {b'hello /srv\\n'}\nended -15\nsocket b'QUIET\\n'\nsignal\nin a thread True\n\
    spawned 7 True\n";

/// Threads, `fork`, `spawn` and `forkserver`, shared memory, asynchronous programs.
fn workers(w: &World) -> Outcome {
    let c = w.container();
    c.feed("cat > /workers.py", guest("workers.py")).ok();
    let done = c.sh("python3 /workers.py");
    assert_eq!(done.ok().out(), WORKERS, "{done:?}");
    Ok(())
}

/// Runs the same as real root in a plain chroot with the file systems of a container.
fn chroot(tar: &Path, top: &Path, modules: &str) -> Finished {
    let script = format!(
        "tar xpf {tar} -C {top} --numeric-owner; cd {top}; mount --bind . .; cd {top}; mount -t proc proc proc; mount --rbind /dev dev; \
         cp /etc/hosts /etc/resolv.conf etc/; exec chroot . sh -euc \"$1\" sh \"$2\"",
        tar = tar.display(),
        top = top.display()
    );
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        &script,
        "sh",
        SCRIPT,
        modules,
    ]);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    run_with(&mut command, Input::Null, LONG)
}
