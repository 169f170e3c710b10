//! Tests of Debian's newest release: its C library makes processes, cancels threads and opens files
//! by calls that older ones do not use.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::command::{Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip, need_program};

use crate::programs::languages::{guest, guests};
use crate::programs::python::WORKERS;
use crate::programs::stage::{Case, Container, LIMIT, World};
use crate::programs::system::unreachable;

pub(crate) const CASES: &[(&str, Case)] =
    &[("install", install), ("workers", workers), ("cancelled", cancelled)];

const LONG: Duration = Duration::from_mins(8);

const IMAGE: &str = "localhost/debian:newest";

/// A container of the image.
fn container(w: &World) -> Result<Container<'_>, Skip> {
    image(w)?;
    Ok(w.container_of(IMAGE))
}

/// The tree.
pub(crate) fn tree() -> Result<PathBuf, Skip> {
    testkit::trees::newest()
}

/// The image, which is made once for all engines.
pub(crate) fn image(w: &World) -> Result<&'static str, Skip> {
    static MADE: Mutex<bool> = Mutex::new(false);
    let tree = tree()?;
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*made {
        w.import(&tree, IMAGE).ok();
        *made = true;
    }
    drop(made);
    Ok(IMAGE)
}

fn install(w: &World) -> Outcome {
    let c = container(w)?;
    let update = c.sh_in("apt-get -q update 2>&1", LONG);
    if unreachable(&update) {
        testkit::skip!("no package mirror can be reached from this machine");
    }
    update.ok();
    let install = "DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends dash ed cron >/log 2>&1 || { cat /log; exit 1; }";
    let look = "dpkg --audit; dpkg --verify ed cron; stat -c '%U:%G %a' /usr/bin/crontab; printf 'a\\nhello\\n.\\nw /t\\n' | ed -s; cat /t";
    let done = c.sh_in(
        &format!("{install}; {look}; apt-get purge -qq -y ed >/log 2>&1; ! test -e /usr/bin/ed"),
        LONG,
    );
    assert_eq!(done.ok().out(), "root:crontab 2755\nhello\n", "{done:?}");
    Ok(())
}

fn workers(w: &World) -> Outcome {
    let c = container(w)?;
    c.feed("cat > /workers.py", guest("workers.py")).ok();
    let done = c.sh("python3 /workers.py");
    assert_eq!(done.ok().out(), WORKERS, "{done:?}");
    Ok(())
}

fn cancelled(w: &World) -> Outcome {
    need_program("gcc")?;
    let c = container(w)?;
    let scratch = Scratch::new("cancel").expect("a directory");
    let program = scratch.path().join("cancel");
    let mut build = Command::new("gcc");
    build.args(["-O1", "-pthread", "-o"]).arg(&program).arg(guests().join("cancel.c"));
    run_with(&mut build, Input::Null, LIMIT).ok();
    let bytes = fs::read(&program).expect("the program");
    let done = c.feed("cat > /cancel; chmod 755 /cancel; /cancel", bytes);
    let expected = "\
        0 cancelled 1\n1 cancelled 2\n2 cancelled 3\n3 cancelled 4\n4 cancelled 5\n5 cancelled 6\n6 cancelled 7\ndescriptors left open: 0\n\
        spawned 160, wrong 0\nNo such file or directory\nPermission denied\nby descriptor 9\nsystem 6, popen 4 /srv\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
