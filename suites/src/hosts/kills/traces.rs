//! What is on the hosts: processes, files outside of stores, and what stores have of containers,
//! networks, clusters and volumes. Unfinished work in a store's `tmp` is swept by later commands,
//! which the suite `crash` tries.

use std::process::Command;

use testkit::command::{Input, run_with};

use crate::hosts::lab::{COUNT, HOME, LIMIT, Lab};

/// Lines, in their order; what is there twice has two.
pub(super) struct Traces(Vec<String>);

/// Prints what is in the directories where something could be left. What is meant to stay is left
/// out: the program that has travelled, and the sockets of shared connections, which end by
/// themselves after seconds.
const SCRIPT: &str = r#"
find /tmp /dev/shm /run -xdev -path '*/.local/share/coracle' -prune -o -print |
    grep -Ev '/coracle-[0-9]+/(coracle-[0-9a-f]{64}(\.checked)?|[0-9a-f]{40}(\.[A-Za-z0-9]+)?)$'
for store; do
    cd "$store" 2> /dev/null || continue
    for place in clusters networks containers; do
        find "$PWD/$place" -mindepth 1 -maxdepth 1 2> /dev/null
    done
    find "$PWD/volumes" -type f -printf '%p %s\n' 2> /dev/null
done
true
"#;

impl Traces {
    /// Looks now.
    pub(super) fn of(lab: &Lab) -> Self {
        let mut lines = Vec::new();
        for host in 0..COUNT {
            let name = format!("host{}", host + 1);
            let mut find = Command::new("sh");
            find.args(["-c", SCRIPT, "sh"]);
            find.arg(format!("{HOME}/.local/share/coracle")).env("PATH", "/usr/bin:/bin");
            if host == 0 {
                find.arg(lab.site.store());
            }
            let done = run_with(&mut lab.hosts.command(host, &find), Input::Null, LIMIT);
            lines.extend(done.out().lines().map(|line| format!("{name}: {line}\n")));
            let processes = lab.hosts.processes(host).into_iter().filter(|process| {
                // Shared connections, which end by themselves.
                let is_session =
                    process.words.starts_with("sshd: ") && !process.words.contains("[listener]");
                // Slurm's own, which tries for minutes to tell its controller of a step's end.
                let is_step = process.words.starts_with("slurmstepd: ");
                !is_session && !is_step && !process.words.contains("[mux]")
            });
            lines.extend(processes.map(|process| format!("{name}: process {}\n", process.words)));
        }
        lines.sort();
        Self(lines)
    }

    /// What the other has more, and what it has less of volumes.
    pub(super) fn more_in(&self, other: &Self) -> String {
        let beyond = |these: &[String], those: &[String]| {
            let mut rest = those.to_vec();
            let mut more = these.to_vec();
            more.retain(|line| match rest.iter().position(|known| known == line) {
                Some(at) => {
                    rest.swap_remove(at);
                    false
                }
                None => true,
            });
            more
        };
        let lost = beyond(&self.0, &other.0).into_iter().filter(|line| line.contains("/volumes/"));
        let lost: Vec<String> = lost.map(|line| format!("lost: {line}")).collect();
        [beyond(&other.0, &self.0), lost].concat().concat()
    }
}
