//! Tests of image configurations that lead outside: working directories, entry points, volumes and
//! accounts through `/proc`, with `--isolate`, in the mode of the kernel's namespaces and in that
//! of the host's runtime.

use serde_json::json;
use testkit::command::{copy_program, until};
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::person::{LIMIT, Person, borrowed};
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::hostile::{Answer, Case, Place};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("working_directories_out", working_directories_out),
    ("working_directory_of_an_exec", working_directory_of_an_exec),
    ("entry_points_out", entry_points_out),
    ("this_program_as_the_entry_point", this_program_as_the_entry_point),
    ("hidden_files_are_replaced_by_the_hosts", hidden_files_are_replaced_by_the_hosts),
    ("nothing_over_proc", nothing_over_proc),
    ("trees_of_the_callers", trees_of_the_callers),
    ("accounts_that_block", accounts_that_block),
];

/// Numbers that descriptors of a start may have.
const NUMBERS: std::ops::Range<u32> = 3..14;
const ISOLATED: [&str; 2] = ["--isolate", "--network=none"];

fn modes(place: &Place) -> Vec<String> {
    let doctor = place.person.run(&["doctor", "--format", "json"]);
    let mut modes = borrowed(&doctor);
    modes.retain(|mode| mode == "R1");
    modes.push("N1".to_owned());
    modes.iter().map(|mode| format!("--execmode={mode}")).collect()
}

/// The guest's image with links to every descriptor; `change` edits its configuration.
fn pulled(place: &Place, name: &str, change: impl FnOnce(Image) -> Image) -> String {
    let mut layer = Layer::new().symlink("here", "/proc/self/cwd");
    for number in NUMBERS {
        layer = layer.symlink(&format!("app{number}"), &format!("/proc/self/fd/{number}"));
    }
    let image = change(testkit::guest::image().layer(layer)).build();
    place.pull(name, &image, Answer::Contained).1
}

/// Path of the canary's file from any directory, through the host's root.
fn bird(place: &Place) -> String {
    format!("../../../../../../../../../..{}/bird", place.canary.display())
}

/// Checks that the file was neither read nor changed, and that nothing was made beside the caller's
/// files.
#[track_caller]
fn kept_in(place: &Place, what: &str, done: &testkit::command::Finished) {
    assert!(!done.out().contains("alive"), "{what}: the host's files are in reach: {done:?}");
    assert!(!done.err().contains("panicked"), "{what}: {done:?}");
    for directory in [place.person.store(), place.person.store().join("containers")] {
        let made = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let made = made.map(|entry| entry.file_name());
        let strange: Vec<_> = made.filter(|name| name == "made-outside").collect();
        assert!(strange.is_empty(), "{what}: a directory was made in {}", directory.display());
    }
    place.walls(what);
}

fn working_directories_out(place: &Place) -> Outcome {
    let bird = bird(place);
    let look = ["/bin/guest", "read", &bird];
    let name = pulled(place, "workdir", |image| image.config("WorkingDir", json!("/app3")));
    for mode in modes(place) {
        let run = |flags: &[&str]| {
            let words = [&["run", "--rm", &mode], &ISOLATED[..], flags, &[&name], &look].concat();
            let done = place.person.run(&words);
            kept_in(place, &format!("{mode} {flags:?}"), &done);
            done
        };
        let refused = run(&[]);
        refused.expect(125);
        assert!(refused.err().contains("working directory"), "{refused:?}");
        for number in NUMBERS {
            run(&["-w", &format!("/app{number}")]);
            run(&["-w", &format!("/proc/self/fd/{number}/made-outside")]);
        }
        for way in ["/here", "/proc/self/cwd", "/proc/self/root/..", "/proc/1/cwd", "/dev/fd/3"] {
            run(&["-w", way]);
        }
        run(&["--init", "-w", "/app3"]);
        run(&["--read-only", "--cap-drop=ALL", "-u", "1000", "-w", "/app3"]);
    }
    Ok(())
}

/// A container in the background that is removed when the case ends.
struct Background<'p> {
    person: &'p Person,
    name: String,
}

impl<'p> Background<'p> {
    fn start(person: &'p Person, name: String, mode: &str, rest: &[&str]) -> Self {
        let this = Self { person, name };
        let words = [&["run", "-d", "--name", &this.name, mode], &ISOLATED[..], rest].concat();
        this.person.run(&words).ok();
        this
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.person.run(&["rm", "-f", &self.name]);
    }
}

fn working_directory_of_an_exec(place: &Place) -> Outcome {
    let bird = bird(place);
    let name = pulled(place, "execdir", |image| image);
    for (n, mode) in modes(place).iter().enumerate() {
        let rest = [name.as_str(), "/bin/guest", "sleep", "300"];
        let container = Background::start(&place.person, format!("execdir{n}"), mode, &rest);
        for number in NUMBERS {
            let way = format!("/app{number}");
            let words = ["exec", "-w", &way, &container.name, "/bin/guest", "read", &bird];
            kept_in(place, &format!("{mode} {way}"), &place.person.run(&words));
        }
    }
    Ok(())
}

fn entry_points_out(place: &Place) -> Outcome {
    let tool = place.person.home.join("outside-tool");
    copy_program(testkit::guest::program(), &tool);
    for mode in modes(place) {
        let name = pulled(place, "entry", |image| image);
        for number in NUMBERS {
            let up = "../../../../../../../../../..";
            let program = format!("/proc/self/fd/{number}/{up}{}", tool.display());
            let words = [&["run", "--rm", &mode], &ISOLATED[..]].concat();
            let words = [&words[..], &[&name, &program, "say", "outside"]].concat();
            let done = place.person.run(&words);
            assert!(!done.out().contains("outside"), "{mode} {number}: {done:?}");
            assert_ne!(done.code(), 0, "{mode} {number}: {done:?}");
        }
    }
    let _ = std::fs::remove_file(tool);
    Ok(())
}

/// The host's program cannot be written to through its process in a container.
fn this_program_as_the_entry_point(place: &Place) -> Outcome {
    // The caller's own copy, as in a home.
    let own = place.person.home.join("own-coracle");
    copy_program(&place.person.program, &own);
    place.person.give(&own);
    let person = Person { program: own, ..place.person.clone() };
    let name = pulled(place, "ourselves", |image| image);
    for (n, mode) in modes(place).iter().enumerate() {
        let rest = [name.as_str(), "/bin/guest", "overwrite"];
        let container = Background::start(&person, format!("ourselves{n}"), mode, &rest);
        // It waits for its input.
        let words = ["exec", "-i", &container.name, "/proc/self/exe", "load"];
        let mut inside = Running::start(&mut person.command(&words));
        let said = until(LIMIT, || {
            let done = person.run(&["logs", &container.name]);
            done.out().contains("overwriting").then(|| done.out())
        });
        // In N1 with one id it is the stage that is found there.
        let refused = said.as_deref().is_some_and(|said| said.starts_with("overwriting: E"));
        assert!(refused, "{mode}: {said:?}: {}", inside.text());
        inside.end_of_input();
        inside.end(LIMIT);
        let read = |path| std::fs::read(path).expect("a program");
        assert!(read(&person.program) == read(&place.person.program), "{mode}: it was changed");
    }
    Ok(())
}

/// The file that is mounted over another to hide it is the host's, whatever the image has at
/// `/dev/null`; a new volume gets the image's content at that path.
fn hidden_files_are_replaced_by_the_hosts(place: &Place) -> Outcome {
    let layer = Layer::new().symlink("dev/null", "/etc/image-file");
    let name = pulled(place, "hiding", |image| image.layer(layer));
    let words = [&["run", "--rm", "--execmode=N1"], &ISOLATED[..], &["-v", "/dev"]].concat();
    let rest = [name.as_str(), "/bin/guest", "link", "/dev/null", ";", "read", "/proc/interrupts"];
    let done = place.person.run(&[&words[..], &rest].concat());
    assert!(done.ok().out().contains("image-file"), "the volume is not the image's: {done:?}");
    assert!(!done.out().contains("from the image"), "{done:?}");
    place.walls("hiding");
    Ok(())
}

fn nothing_over_proc(place: &Place) -> Outcome {
    let link = Layer::new().symlink("data2", "/proc/sys");
    let name = pulled(place, "overproc", |image| image.layer(link));
    for volume in ["/proc", "/proc/sys", "/data2"] {
        let words = [&["run", "--rm", "--execmode=N1"], &ISOLATED[..]].concat();
        let words = [&words[..], &["-v", volume, &name, "/bin/guest", "exit", "0"]].concat();
        let done = place.person.run(&words);
        assert!(done.expect(125).err().contains("/proc"), "{volume}: {done:?}");
    }
    Ok(())
}

/// A tree of the caller's own (`--rootfs`) may have been written by anybody.
fn trees_of_the_callers(place: &Place) -> Outcome {
    let (bird, tree) = (bird(place), place.person.dir("hostile-tree"));
    for name in ["bin", "proc", "sys", "dev", "etc", "tmp"] {
        place.person.dir(&format!("hostile-tree/{name}"));
    }
    copy_program(testkit::guest::program(), &tree.join("bin/guest"));
    for number in NUMBERS {
        let _ = std::os::unix::fs::symlink(
            format!("/proc/self/fd/{number}"),
            tree.join(format!("app{number}")),
        );
    }
    let tree = tree.display().to_string();
    for number in NUMBERS {
        let way = format!("/app{number}");
        let words = [&["run", "--rm", "--execmode=N1"], &ISOLATED[..]].concat();
        let rest = ["-w", &way, "--rootfs", &tree, "/bin/guest", "read", &bird];
        kept_in(place, &way, &place.person.run(&[&words[..], &rest].concat()));
    }
    Ok(())
}

/// A user database that is a pipe without a writer.
fn accounts_that_block(place: &Place) -> Outcome {
    let fifo = testkit::layer::Entry::new(b'6', "etc/group");
    let layer = Layer::new().whiteout("etc/group").entry(&fifo);
    let name = pulled(place, "blocking", |image| image.layer(layer).config("User", json!("alice")));
    for mode in modes(place) {
        let words = [&["run", "--rm", &mode], &ISOLATED[..]].concat();
        let done = place.person.run(&[&words[..], &[&name, "/bin/guest", "ids"]].concat());
        place.judge("blocking", &done, Answer::Either);
    }
    Ok(())
}
