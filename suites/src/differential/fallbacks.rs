//! Tests of the in-process engine without features that older or stricter kernels lack: each
//! feature is disabled by its name, and a few programs must give the same output.

use std::path::Path;
use std::process::Command;

use testkit::command::{Input, run_with};
use testkit::harness::Suite;
use testkit::skip::Outcome;

use super::native::Who;
use super::{LIMIT, Stage, World};

/// Names for `CORACLE_STAGE`, alone and together.
const SWITCHES: &[&str] = &[
    "no-openat2",
    "no-filter-cache",
    "no-wipe-on-fork",
    "no-memory-files",
    "no-exec-memory",
    "no-set-mm",
    "no-fixed-noreplace",
    "no-statx",
    "no-openat2,no-filter-cache,no-wipe-on-fork,no-memory-files,no-set-mm,no-fixed-noreplace,no-statx",
];
/// Programs that cover the fallbacks: names, descriptors, programs, signals, memory.
const PROGRAMS: &[&str] = &["paths", "opens", "execs", "signals", "memory"];

/// A difference caused by a missing feature.
struct Known {
    switch: &'static str,
    program: &'static str,
    /// How the lines begin.
    lines: &'static [&'static str],
    /// The reason.
    #[expect(dead_code, reason = "for whoever reads this list")]
    reason: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        switch: "no-openat2",
        program: "opens",
        lines: &["how(", "stat how-made: ", "syscall(SYS_openat2, "],
        reason: "the guest's own openat2 is ENOSYS then, as on the kernels that it stands for",
    },
    Known {
        switch: "no-openat2",
        program: "paths",
        lines: &["f/.  "],
        reason: "a file that is to be made at the name of a file with '/.' behind it is EEXIST, not ENOTDIR: the walk by steps has found something there",
    },
    Known {
        switch: "no-set-mm",
        program: "execs",
        lines: &["  heap="],
        reason: "the kernel's heap begins behind the stage, where it cannot grow: allocators go on with mmap",
    },
    Known {
        switch: "no-set-mm",
        program: "memory",
        lines: &["sbrk(", "(char *)sbrk("],
        reason: "likewise",
    },
];

/// True if a line is known to differ without these features.
pub(crate) fn is_known(switches: &str, program: &str, line: &str) -> bool {
    let line = line.get(2..).unwrap_or_default();
    KNOWN.iter().any(|known| {
        switches.split(',').any(|switch| switch == known.switch)
            && program == known.program
            && known.lines.iter().any(|begin| line.starts_with(begin))
    })
}

/// Adds the cases: of I1, for one user.
pub(crate) fn add<'a>(suite: &mut Suite<'a>, stage: &'a Stage) {
    let Some(world) = stage.worlds.iter().find(|world| world.engine == "I1") else { return };
    for switches in SWITCHES {
        for program in PROGRAMS {
            suite.case(format!("fallback::{switches}::{program}"), move || {
                world.compare(&stage.native, program, Who::Root, switches);
                Ok(())
            });
        }
    }
    suite.case("fallback::is_told".to_owned(), move || {
        is_told(world);
        Ok(())
    });
    suite.case("fallback::a_store_without_programs".to_owned(), move || no_programs(world, stage));
}

/// How the stage reports a call site.
const REWRITTEN: &str = "coracle: rewritten: ";

/// An unknown name must be reported.
fn is_told(world: &World) {
    let done = world.run("paths", Who::Root, "no-such-thing");
    assert!(done.err().contains("no-such-thing"), "{done:?}");
    let sites = world.run("paths", Who::Root, "report-sites").err();
    assert!(sites.contains(REWRITTEN), "{sites}");
    for without in ["no-memory-files", "no-exec-memory", "no-rewriting"] {
        let done = world.run("paths", Who::Root, &format!("report-sites,{without}"));
        assert!(!done.err().contains(REWRITTEN), "{without}: {done:?}");
    }
}

/// The store on a file system without execution, as a home may be, and the programs elsewhere: the
/// stage is executed from memory.
fn no_programs(world: &World, stage: &Stage) -> Outcome {
    let place = stage.scratch.path().join("noexec");
    std::fs::create_dir_all(&place).expect("a directory");
    let mount = ["-t", "tmpfs", "-o", "noexec,mode=755,size=64m", "none"];
    let made = Command::new("mount").args(mount).arg(&place).status();
    if !made.is_ok_and(|status| status.success()) {
        testkit::skip!("no memory file system can be mounted");
    }
    let done = std::panic::catch_unwind(|| in_memory(world, stage, &place));
    let _ = Command::new("umount").arg("-l").arg(&place).status();
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
    Ok(())
}

fn in_memory(world: &World, stage: &Stage, place: &Path) {
    let store = place.join("store");
    std::fs::create_dir(&store).expect("a directory");
    world.person.give(&store);
    let run = |engine: &str| {
        let tree = stage.scratch.path().join(format!("tree-{engine}"));
        let _ = std::fs::remove_dir_all(&tree);
        std::fs::create_dir_all(&tree).expect("a directory");
        let mut extract = Command::new("tar");
        extract.arg("-xf").arg(stage.scratch.path().join("native.tar")).arg("-C").arg(&tree);
        assert!(extract.arg("--no-same-owner").status().expect("tar").success());
        let give = Command::new("chown").arg("-R").arg(&world.person.user.name).arg(&tree).status();
        assert!(give.expect("chown").success());
        let mode = format!("--execmode={engine}");
        let tree = tree.display().to_string();
        let words = ["run", "--rm", &mode, "--rootfs", &tree, "/bin/execs", "/nowhere"];
        let mut command = world.person.command(&words);
        run_with(command.env("CORACLE_DIR", &store), Input::Null, LIMIT)
    };
    for engine in ["I1", "I2"] {
        let done = run(engine);
        assert!(done.ok().out().lines().count() > 20, "{done:?}");
    }
    let refused = run("P1");
    assert!(refused.code() != 0 && refused.err().contains("noexec"), "{refused:?}");
}
