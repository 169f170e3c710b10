//! Writes the results as text, and into `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use super::{Bench, Line};
use xtask::shell::{Outcome, read, root};
use xtask::table::Table;

/// Sections that people write and that are kept: the first stands before the results.
const MISSED: &str = "## Missed aims";
const NOTES: &str = "## Notes";

/// All results.
pub(crate) fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&["what", "against", "Coracle", "peer", "result", "aim", ""]);
    for line in lines {
        let unit = if line.unit.is_empty() { String::new() } else { format!(" {}", line.unit) };
        let (aim, verdict) = match line.aim {
            // Measured for comparison.
            aim if aim.is_infinite() => (String::new(), String::new()),
            aim => (format!("<= {aim}{unit}"), verdict(line.value, aim)),
        };
        let value = match line.value {
            value if value.is_nan() => String::new(),
            value => format!("{value:.2}{unit}"),
        };
        table.row(&[&line.what, &line.against, &line.ours, &line.theirs, &value, &aim, &verdict]);
    }
    table
}

/// Whether the aim is met, else by how much it is missed.
fn verdict(value: f64, aim: f64) -> String {
    if aim == 0.0 {
        // A ratio to 0 is not defined.
        return if value > 0.0 { format!("**missed** by {value:.0}") } else { "met".to_owned() };
    }
    match (value / aim - 1.0) * 100.0 {
        over if over <= 0.0 => "met".to_owned(),
        over if over < 1.0 => "**missed** by less than 1 %".to_owned(),
        over => format!("**missed** by {over:.0} %"),
    }
}

/// Writes the sections that were measured into the document, keeping the others and its notes.
pub(crate) fn write(bench: &Bench, sections: &[Section]) -> Outcome {
    let docs = root().join("docs");
    fs::create_dir_all(&docs).map_err(|error| format!("{}: {error}", docs.display()))?;
    let path = docs.join("benchmarks.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut text = String::from(
        "# Benchmarks\n\n\
         `cargo xtask bench [NAME]...` writes the tables here, a section for each name; only the section\n\
         \"Missed aims\" and the notes are written by hand. Everything runs as an unprivileged user with the\n\
         release binary. Start-up is pinned to one CPU. Each command takes turns with its peer, and medians\n\
         are compared. A ratio is Coracle's time over the peer's in the same run, so below 1 Coracle is\n\
         faster than the peer. An aim is the worst result that is acceptable.\n\n\
         `cargo xtask bench net PART...` measures parts of that section and only shows them: `names` and\n\
         `packets` are networks of one host, `hosts` are those of two simulated hosts beside other programs\n\
         that join hosts, `hpl` is Linpack and messages by Open MPI on four. `CORACLE_BENCH_ROUNDS` says how\n\
         often each place has its turn, 3 times if it is not set.\n\n\
         `cargo xtask bench cluster PART...` does the same with clusters: `up` is the start of eight nodes\n\
         and a command in one, `mpi` is Linpack and messages by Open MPI in three, `agents` is a driver of\n\
         64 hosts at rest, `page` is the first page of six services, and `model` fits laws to the starts of\n\
         few nodes and tells what they say about a thousand. `grow` is a service that gets more containers\n\
         behind HAProxy, which is killed too, `follow` one whose number follows a rule, and `farm` is a Slurm\n\
         and a Grid Engine whose nodes are containers, the first beside one of the host whose nodes are\n\
         started by scripts: that one looks only twice a minute whether a batch job's nodes are there. Its\n\
         hosts are simulated by namespaces, with a real `sshd` on each, and share the processors of this\n\
         machine.\n",
    );
    text.push_str(part(&old, MISSED));
    for name in super::names() {
        match sections.iter().find(|section| section.name == name) {
            Some(section) => text.push_str(&section.text(bench)),
            None => text.push_str(part(&old, &headline(name))),
        }
    }
    let _ = write!(text, "\n## Machine\n\n{}\n", machine(bench));
    let notes = part(&old, NOTES).trim_start();
    text.push_str(if notes.is_empty() { NOTES } else { notes });
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// What was measured under one name.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) lines: Vec<Line>,
    pub(crate) trouble: Option<String>,
}

impl Section {
    fn text(&self, bench: &Bench) -> String {
        let date = read(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default();
        let mut text = format!(
            "\n{}\n\n{}, {} rounds.\n\n{}",
            headline(self.name),
            date.trim(),
            bench.rounds,
            table(&self.lines).markdown()
        );
        if let Some(trouble) = &self.trouble {
            let _ = writeln!(text, "\nNot measured: {trouble}");
        }
        text
    }
}

fn headline(name: &str) -> String {
    format!("## `{name}`")
}

/// A section of the document with its headline and the empty line before; empty if there is none.
fn part<'a>(text: &'a str, headline: &str) -> &'a str {
    let Some(start) = text.find(&format!("\n{headline}\n")) else { return "" };
    let end = text[start + 1..].find("\n## ").map_or(text.len(), |end| start + 1 + end);
    &text[start..end]
}

fn machine(bench: &Bench) -> String {
    let one = |program: &str, words: &[&str]| {
        let text = read(Command::new(program).args(words)).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory =
        memory.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default();
    let place = bench.scratch.path().display().to_string();
    let mut text = String::new();
    for (name, value) in [
        ("date", one("date", &["-u", "+%Y-%m-%d"])),
        ("kernel", one("uname", &["-sr"])),
        ("CPU", format!("{} x {model}", one("nproc", &[]))),
        ("memory", format!("{} GB", memory >> 20)),
        ("file system of the store", one("stat", &["-f", "-c", "%T", &place])),
        (
            "user",
            format!(
                "{}, subordinate ids: {}",
                bench.user.name,
                if bench.user.range { "a range" } else { "none" }
            ),
        ),
        ("rounds", format!("{} of each pull, 200 of each start", bench.rounds)),
        ("rustc", one("rustc", &["--version"])),
        ("bwrap", one("bwrap", &["--version"])),
        ("runc", one("runc", &["--version"])),
        ("podman", one("podman", &["--version"])),
        ("skopeo", one("skopeo", &["--version"])),
        ("umoci", one("umoci", &["--version"])),
        ("gzip", one("gzip", &["--version"])),
    ] {
        let _ = writeln!(text, "- {name}: {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_by_how_much_an_aim_is_missed() {
        assert_eq!(verdict(1.0, 1.0), "met");
        assert_eq!(verdict(1.02, 1.005), "**missed** by 1 %");
        assert_eq!(verdict(10.03, 10.0), "**missed** by less than 1 %");
        assert_eq!(verdict(1.57, 1.2), "**missed** by 31 %");
        assert_eq!((&*verdict(0.0, 0.0), &*verdict(3.0, 0.0)), ("met", "**missed** by 3"));
    }
}
