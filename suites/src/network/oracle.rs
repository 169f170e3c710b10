//! The oracle: real network namespaces with a veth pair between them.
//!
//! An unprivileged user makes them in a user namespace; where that is forbidden, root makes them
//! without. The first namespace has the address of the first member, the second that of the
//! second. The interface has no address of version 6, since members have none. Neighbours that do
//! not answer are given up quickly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use testkit::command::{Finished, Input, find_program, run_with};
use testkit::scratch::Scratch;
use testkit::skip::Skip;
use testkit::users::User;

use crate::network::compare::{self, differences};
use crate::network::programs::{self, PROGRAMS, Program};

/// Makes the network and runs a program in it. `$1` `alone`, `plain` (alone, without capabilities)
/// or `pair`, `$2` the first address, `$3` a directory for meetings, then the program.
const SCRIPT: &str = r#"
set -e
PATH=$PATH:/usr/sbin:/sbin
how=$1 address=$2 MEETINGS=$3
export MEETINGS
shift 3
mount -t tmpfs tmpfs /run
printf '127.0.0.1 localhost\n::1 localhost\n100.80.0.2 one\n100.80.0.3 two\n' >"$MEETINGS/hosts"
mount --bind "$MEETINGS/hosts" /etc/hosts
ip netns add two
two() { nsenter --net=/run/netns/two "$@"; }
ip link set lo up
two ip link set lo up
ip link add eth0 type veth peer name eth0 netns two
for at in '' two; do
    $at ip link set eth0 addrgenmode none
    $at ip ntable change name arp_cache dev eth0 retrans 20
done
ip addr add "$address/24" brd + dev eth0
two ip addr add 100.80.0.3/24 brd + dev eth0
ip link set eth0 up
two ip link set eth0 up
case $how in
alone) exec "$@" ;;
plain) exec setpriv --bounding-set=-all -- "$@" ;;
esac
two "$@" two >"$MEETINGS/said.two" &
status=0
"$@" one >"$MEETINGS/said.one" || status=$?
wait $! || status=$?
for role in one two; do
    echo "== $role"
    cat "$MEETINGS/said.$role"
done
exit $status
"#;

/// The first member's address.
const ADDRESS: &str = "100.80.0.2";

/// The interpreter of the oracle's side.
const PYTHON: &str = "/usr/bin/python3";

/// Runs programs in namespaces.
pub(crate) struct Oracle {
    place: PathBuf,
    user: User,
    /// Root without a user namespace.
    is_root: bool,
    bin: PathBuf,
    count: Mutex<usize>,
    results: Mutex<HashMap<&'static str, Vec<String>>>,
    python: OnceLock<Result<Vec<String>, Skip>>,
}

impl Oracle {
    /// Finds out how namespaces can be had.
    pub(crate) fn prepare(scratch: &Scratch, user: &User, bin: &Path) -> Result<Self, String> {
        for program in ["ip", "unshare", "nsenter", "setpriv"] {
            find_program(program).ok_or_else(|| format!("no oracle: {program} is missing"))?;
        }
        let place = scratch
            .dir("oracle", Some((user.uid, user.gid)), 0o755)
            .map_err(|error| error.to_string())?;
        let mut oracle = Self {
            place,
            user: user.clone(),
            is_root: false,
            bin: bin.to_owned(),
            count: Mutex::new(0),
            results: Mutex::default(),
            python: OnceLock::new(),
        };
        let first = oracle.run("alone", ADDRESS, &["true"]);
        if first.code() == 0 {
            return Ok(oracle);
        }
        oracle.is_root = true;
        let tried = rustix::process::getuid().is_root();
        if tried && oracle.run("alone", ADDRESS, &["true"]).code() == 0 {
            return Ok(oracle);
        }
        Err(format!("no network namespaces: {}", first.err().trim()))
    }

    fn run(&self, how: &str, address: &str, words: &[&str]) -> Finished {
        let number = {
            let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            *count
        };
        let meetings = self.place.join(format!("run-{number}"));
        let mut make = self.user.command("mkdir", &self.place);
        run_with(make.arg(&meetings), Input::Null, crate::network::LIMIT).ok();
        let mut command = if self.is_root {
            Command::new("unshare")
        } else {
            let mut command = self.user.command("unshare", &self.place);
            command.args(["--user", "--map-root-user"]);
            command
        };
        command
            .args(["--mount", "--net", "--fork", "--kill-child", "--propagation", "private"])
            .args(["--", "sh", "-c", SCRIPT, "oracle", how, address])
            .arg(&meetings)
            .args(words);
        run_with(&mut command, Input::Null, crate::network::LIMIT)
    }

    fn program(&self, program: &Program, address: &str) -> Vec<String> {
        let how = match program {
            Program { is_pair: true, .. } => "pair",
            Program { is_plain: true, .. } => "plain",
            _ => "alone",
        };
        let path = self.bin.join(program.name).display().to_string();
        compare::lines(self.run(how, address, &[&path]).ok())
    }

    /// The lines of a program, which runs once.
    pub(crate) fn lines(&self, program: &Program) -> Vec<String> {
        let kept = || self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = kept().get(program.name) {
            return lines.clone();
        }
        // Two threads may run it at once; their results are the same.
        let lines = self.program(program, ADDRESS);
        kept().insert(program.name, lines.clone());
        lines
    }

    /// Checks that a program says enough, and twice the same.
    pub(crate) fn is_steady(&self, program: &Program) {
        let first = self.lines(program);
        assert!(first.len() >= program.least, "only {} lines: {first:#?}", first.len());
        let faults = ["EBADF", "never came", "no listener", "no receiver", "?"];
        let holes: Vec<&String> = first
            .iter()
            .filter(|line| faults.iter().any(|fault| line.contains(fault)))
            .filter(|line| !EXPECTED.iter().any(|part| line.contains(part)))
            .collect();
        assert!(holes.is_empty(), "lines of a program that lost its way: {holes:#?}");
        for _ in 0..2 {
            let again = self.program(program, ADDRESS);
            assert_eq!(differences(&first, &again), Vec::<String>::new());
        }
    }

    /// The lines of Python's servers and clients, with this machine's Python.
    pub(crate) fn python(&self) -> Result<&Vec<String>, Skip> {
        let run = || {
            if !Path::new(PYTHON).exists() {
                return Err(Skip(format!("{PYTHON} is not installed")));
            }
            let script = self.bin.join("service.py");
            std::fs::copy(programs::guests().join("service.py"), &script)
                .expect("a copy of the script");
            let script = script.display().to_string();
            let lines = compare::lines(self.run("pair", ADDRESS, &[PYTHON, &script]).ok());
            assert!(lines.len() >= programs::PYTHON.least, "{lines:#?}");
            Ok(lines)
        };
        self.python.get_or_init(run).as_ref().map_err(Clone::clone)
    }
}

/// Where a program means such an error.
const EXPECTED: &[&str] = &["(-1", "killed | no listener 100.80.0.2 80: EADDRINUSE"];

/// A check of the oracle itself.
type Case = fn(&Oracle);

/// All of them.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("sees_another_address", sees_another_address),
    ("sees_another_program", sees_another_program),
];

fn named(name: &str) -> &'static Program {
    PROGRAMS.iter().find(|program| program.name == name).expect("a program of the list")
}

/// A member with a wrong address is seen.
fn sees_another_address(oracle: &Oracle) {
    let program = named("binds");
    let right = oracle.lines(program);
    let wrong = oracle.program(program, "100.80.0.9");
    assert!(differences(&right, &wrong).len() > 20, "the address is not seen");
    let caught = std::panic::catch_unwind(|| {
        compare::expect_same(program, &mut std::iter::empty(), (&right, &wrong));
    });
    assert!(caught.is_err(), "it passes with a wrong address");
}

/// Results of different programs are not taken for equal, nor is one with a line less.
fn sees_another_program(oracle: &Oracle) {
    let (udp, binds) = (oracle.lines(named("udp")), oracle.lines(named("binds")));
    assert!(differences(&udp, &binds).len() > 500);
    for at in [0, udp.len() / 2, udp.len() - 1] {
        let mut less = udp.clone();
        let line = less.remove(at);
        assert_eq!(differences(&udp, &less), [format!("- {line}")]);
        let caught = std::panic::catch_unwind(|| {
            compare::expect_same(named("udp"), &mut std::iter::empty(), (&udp, &less));
        });
        assert!(caught.is_err(), "a missing line is not seen");
    }
}
