//! Tests that `apt-get` installs a system as real root would have made it, also after a restart.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::skip::Outcome;

use crate::programs::stage::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[("install", install), ("as_unpacked", as_unpacked)];

const LONG: Duration = Duration::from_mins(8);
/// Format of a tree's listing. Sizes and times differ with the day.
const LOOKS: &str = "-printf '%P %u %g %m %y %l\\n'";

/// Installs the packages of the preinstalled tree into a container of the minimal one, and compares
/// the two.
fn install(w: &World) -> Outcome {
    let base = testkit::debian::tar()?;
    w.import(&base, "localhost/debian:base").ok();
    let c = w.container_of("localhost/debian:base");
    let update = c.sh_in("apt-get update 2>&1", LONG);
    if unreachable(&update) {
        testkit::skip!("no package mirror can be reached from this machine");
    }
    update.ok();
    let packages = "build-essential python3 openssh-server";
    let script = format!(
        "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} 2>&1 | tail -40"
    );
    c.sh_in(&script, LONG).ok();
    right(&c);
    let before = looks(&c);
    c.restart();
    right(&c);
    assert_eq!(before, looks(&c), "after a restart");
    // That tree has the same packages and more; missing packages were found by the comparison of
    // packages.
    let mut real = of_archive(&w.tree);
    real.retain(|path, _| before.contains_key(path));
    same(&before, &real);
    Ok(())
}

/// The tree that real root made has the same listing in the container.
fn as_unpacked(w: &World) -> Outcome {
    let c = w.container();
    same(&looks(&c), &of_archive(&w.tree));
    Ok(())
}

/// Checks the installed packages with their own tools, and a few files with other owners or special
/// bits.
#[track_caller]
fn right(c: &Container<'_>) {
    let done = c.sh("\
        dpkg --audit; dpkg --verify | grep -v ' c ' || true; apt-get check -qq
        stat -c '%U:%G %a %n' /usr/bin/passwd /usr/bin/ssh-agent /etc/shadow /var/mail /var/log/apt/term.log /tmp
        python3 -c 'print(sum(range(10)))'; echo 'int main(void) { return 7; }' > /tmp/t.c; cc /tmp/t.c -o /tmp/t; /tmp/t || echo $?
        rm -f /tmp/t /tmp/t.c; mkdir -p /run/sshd; /usr/sbin/sshd -t -o HostKey=/etc/ssh/ssh_host_ed25519_key; getent passwd sshd | cut -d: -f1,6");
    let expected = "\
        root:root 4755 /usr/bin/passwd\nroot:_ssh 2755 /usr/bin/ssh-agent\nroot:shadow 640 /etc/shadow\nroot:mail 2775 /var/mail\n\
        root:adm 640 /var/log/apt/term.log\nroot:root 1777 /tmp\n45\n7\nsshd:/run/sshd\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
}

type Looks = BTreeMap<String, String>;

#[track_caller]
fn looks(c: &Container<'_>) -> Looks {
    let done = c.sh(&format!("find / -xdev {LOOKS}"));
    parse(&done.ok().out())
}

fn parse(text: &str) -> Looks {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(path, rest)| (path.to_owned(), rest.trim_end().to_owned()))
        .collect()
}

/// The listing of an archive, with its own names.
fn of_archive(tar: &std::path::Path) -> Looks {
    let done =
        run_with(Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(tar), Input::Null, LONG);
    let text = done.ok().out();
    let mut names = [BTreeMap::new(), BTreeMap::new()];
    for (index, file) in ["./etc/passwd", "./etc/group"].into_iter().enumerate() {
        let done = run_with(Command::new("tar").arg("-xOf").arg(tar).arg(file), Input::Null, LONG);
        for line in done.ok().out().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            names[index].insert(fields[2].to_owned(), fields[0].to_owned());
        }
    }
    let mut all = Looks::new();
    let mut links = Vec::new();
    for line in text.lines() {
        let Some(entry) = entry(line, &names) else { continue };
        match entry {
            Entry::File(path, looks) => drop(all.insert(path, looks)),
            Entry::Hard(path, target) => links.push((path, target)),
        }
    }
    for (path, target) in links {
        if let Some(looks) = all.get(&target).cloned() {
            all.insert(path, looks);
        }
    }
    all
}

enum Entry {
    File(String, String),
    Hard(String, String),
}

/// A line of `tar -tv`: `-rw-r--r-- 0/0  12 2025-01-01 00:00 ./name -> target`.
fn entry(line: &str, names: &[BTreeMap<String, String>; 2]) -> Option<Entry> {
    let mut rest = line;
    let mut words = [""; 5];
    for word in &mut words {
        let (first, after) = rest.trim_start().split_once(' ')?;
        (*word, rest) = (first, after);
    }
    let path = |text: &str| text.trim_start_matches("./").trim_end_matches('/').to_owned();
    if let Some((name, target)) = rest.split_once(" link to ") {
        return Some(Entry::Hard(path(name), path(target)));
    }
    let (name, target) = rest.split_once(" -> ").unwrap_or((rest, ""));
    let (uid, gid) = words[1].split_once('/')?;
    let name_of =
        |index: usize, id: &str| names[index].get(id).map_or(id, String::as_str).to_owned();
    let kind = match words[0].chars().next()? {
        '-' => 'f',
        other => other,
    };
    let mode = mode(&words[0][1..]);
    let looks = format!("{} {} {mode:o} {kind} {target}", name_of(0, uid), name_of(1, gid));
    Some(Entry::File(path(name), looks.trim_end().to_owned()))
}

/// Parses `rwsr-xr-t` as a number.
fn mode(letters: &str) -> u32 {
    let special = [(2, 0o4000), (5, 0o2000), (8, 0o1000)];
    letters.chars().enumerate().fold(0, |mode, (index, letter)| {
        let bit = 0o400 >> index;
        let extra = special.iter().find(|(at, _)| *at == index).map_or(0, |(_, bit)| *bit);
        mode | match letter {
            '-' => 0,
            's' | 't' => bit | extra,
            'S' | 'T' => extra,
            _ => bit,
        }
    })
}

/// Compares two listings, except for files that depend on the container or on the time of
/// installation.
#[track_caller]
fn same(seen: &Looks, real: &Looks) {
    let passed_over = |path: &str| {
        let own = [
            "proc",
            "sys",
            "dev",
            "run",
            "tmp",
            "etc/hosts",
            "etc/hostname",
            "etc/resolv.conf",
            ".coracle",
            "root",
            "var/log",
            "var/cache",
            "var/lib/apt",
            "var/lib/dpkg",
            "etc/apt",
        ];
        path.is_empty() || own.iter().any(|own| path == *own || path.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')))
            // Python's byte code is made where a trigger ran.
            || path.contains("__pycache__")
    };
    let mut differing = Vec::new();
    for path in seen.keys().chain(real.keys().filter(|path| !seen.contains_key(*path))) {
        if !passed_over(path) && seen.get(path) != real.get(path) {
            differing.push(format!(
                "{path}: {:?}, real root has {:?}",
                seen.get(path),
                real.get(path)
            ));
        }
    }
    assert!(
        differing.is_empty(),
        "{} files: {:#?}",
        differing.len(),
        &differing[..differing.len().min(30)]
    );
    assert!(seen.len() > 3000, "{} files", seen.len());
}

pub(crate) fn unreachable(done: &Finished) -> bool {
    let words =
        ["Could not resolve", "Could not connect", "Connection refused", "Network is unreachable"];
    words.iter().any(|text| done.out().contains(text))
}
