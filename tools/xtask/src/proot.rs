//! `PRoot` for the lab, beside its udocker: built from the source that Debian's sid has.
//!
//! udocker's mode P1 is `PRoot` with seccomp, and no package of Debian's can be that. Bookworm's
//! 5.1.0 does not start dynamic programs with the options that udocker gives it; sid's 5.4.0 is
//! built without seccomp, and translates no path. The source itself is repaired in one place: it
//! knows threads by `clone`, but glibc makes them by `clone3` since 2.34, and so `PRoot` kept a
//! separate heap for each thread, and the program's memory was damaged.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::tools;

use crate::shell::{Outcome, has, read};

const BUILD: &str = r#"
cd "$1"
mkdir -p lists/partial cache/archives/partial
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] http://deb.debian.org/debian sid main" > sources.list
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache" \
        -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
# apt-get has compared what it leaves with the signed list; the package's description may be absent.
apt source --download-only proot || [ -e proot_*.orig.tar.gz ]
tar -xzf proot_*.orig.tar.gz
cd proot-*/src
grep -q clone3 tracee/tracee.c || sed -i '/CURRENT) == PR_clone)$/{n
a\	else if (status >= 0 && peek_reg(parent, CURRENT, SYSARG_NUM) == 435 /* clone3 */)
a\		clone_flags = peek_word(parent, peek_reg(parent, CURRENT, SYSARG_1));
}' tracee/tracee.c
grep -q clone3 tracee/tracee.c
release=${PWD%/src}
make proot VERSION="${release##*-}" LDFLAGS='-static -ltalloc -Wl,-z,noexecstack'
./proot --version | grep -q 'seccomp_filter = yes'
mv proot "$2"
"#;

/// Builds `PRoot` where the lab's Python has its programs, if it is not there.
pub(crate) fn set_up() {
    let programs = tools::root().join("lab/bin");
    if programs.join("proot").exists() || !programs.exists() {
        return;
    }
    println!("building PRoot");
    if let Err(error) = build(&programs.join("proot")) {
        println!("could not build PRoot: udocker and MPI in PRoot will be skipped ({error})");
    }
}

fn build(program: &Path) -> Outcome {
    if !has("apt-get") {
        return Err("its source comes from Debian".to_owned());
    }
    let directory = tools::root().join("build-proot");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let mut script = Command::new("sh");
    script.args(["-ec", BUILD, "sh"]).arg(&directory).arg(program).stdin(Stdio::null());
    let built = read(&mut script);
    // The compilation's files are not needed any more; if they cannot be removed, they do no harm.
    let _ = fs::remove_dir_all(&directory);
    built.map(drop).map_err(|error| {
        let line = error.lines().rev().find(|line| line.contains("rror")).unwrap_or("no network?");
        line.to_owned()
    })
}
