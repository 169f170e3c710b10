//! Tests of two concurrent commands that need the same object, or remove it.

use std::sync::mpsc;
use std::thread;

use testkit::command::Finished;
use testkit::person::Person;
use testkit::skip::Outcome;

use crate::crash::place::{Case, Dice, Place, pull, rounds, still_usable, whole};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("pull_and_pull", pull_and_pull),
    ("pull_and_rmi", pull_and_rmi),
    ("pull_and_prune", pull_and_prune),
    ("run_and_rm", run_and_rm),
    ("run_and_rmi", run_and_rmi),
    ("load_and_load", load_and_load),
    ("tag_and_tag", tag_and_tag),
    ("create_and_volume_prune", create_and_volume_prune),
    ("trials_and_sweeps", trials_and_sweeps),
];

/// Runs both at once, the second a little later; each must end by itself with an allowed status.
#[track_caller]
fn both(person: &Person, first: &[&str], second: &[&str], dice: &mut Dice) -> [Finished; 2] {
    let pause = std::time::Duration::from_micros(dice.below(60_000));
    let done = thread::scope(|scope| {
        let one = scope.spawn(|| person.run(first));
        let two = scope.spawn(|| {
            thread::sleep(pause);
            person.run(second)
        });
        [one.join().expect("a thread"), two.join().expect("a thread")]
    });
    for done in &done {
        assert!([0, 1, 125, 137].contains(&done.code()), "{done:?}");
        assert!(!done.err().contains("panicked"), "{done:?}");
    }
    let after = format!("`{}` with `{}`", first.join(" "), second.join(" "));
    still_usable(person, &after);
    done
}

fn pull_and_pull(place: &Place<'_>) -> Outcome {
    let person = place.fresh("pullpull");
    let [one, two] = &place.images.names;
    let mut dice = Dice::new(1);
    for _ in 0..rounds(4) {
        for done in both(&person, &pull(one), &pull(two), &mut dice) {
            done.ok();
        }
        for done in both(&person, &pull(one), &pull(one), &mut dice) {
            done.ok();
        }
        person.run(&["rmi", "-f", "-a"]).ok();
        person.run(&["image", "prune", "-a", "-f"]).ok();
    }
    whole(&person, place.images, "two pulls at once");
    Ok(())
}

fn pull_and_rmi(place: &Place<'_>) -> Outcome {
    let person = place.fresh("pullrmi");
    let [one, two] = &place.images.names;
    let mut dice = Dice::new(2);
    for _ in 0..rounds(5) {
        person.run(&pull(two)).ok();
        both(&person, &pull(one), &["rmi", "-f", two], &mut dice)[0].ok();
        // The pulled image is complete, although its shared layer was being removed.
        let done =
            person.run(&["run", "--rm", "--pull=never", one, "/bin/guest", "list", "/shared/3"]);
        assert_eq!(done.ok().out().matches(',').count(), 99, "{done:?}");
        person.run(&["rmi", "-f", one]).ok();
    }
    whole(&person, place.images, "pull and rmi at once");
    Ok(())
}

fn pull_and_prune(place: &Place<'_>) -> Outcome {
    let person = place.fresh("pullprune");
    let [one, _] = &place.images.names;
    let mut dice = Dice::new(3);
    for _ in 0..rounds(5) {
        // `prune -a` may remove the new image, but never half of it.
        both(&person, &pull(one), &["system", "prune", "-f"], &mut dice)[0].ok();
        let done = person.run(&["run", "--rm", "--pull=never", one, "/bin/guest", "exit", "7"]);
        assert_eq!(done.code(), 7, "a prune of what nobody uses took a new image apart: {done:?}");
        both(&person, &pull(one), &["image", "prune", "-a", "-f"], &mut dice);
        person.run(&["verify"]).ok();
        person.run(&["rmi", "-f", "-a"]).ok();
        person.run(&["image", "prune", "-a", "-f"]).ok();
    }
    whole(&person, place.images, "pull and prune at once");
    Ok(())
}

fn create_and_volume_prune(place: &Place<'_>) -> Outcome {
    let person = place.fresh("volprune");
    let [one, _] = &place.images.names;
    person.run(&pull(one)).ok();
    let mut dice = Dice::new(8);
    for _ in 0..rounds(8) {
        let create = ["create", "--name=cc", "-v", "data:/data", one, "/bin/guest"];
        both(&person, &create, &["volume", "prune", "-af"], &mut dice)[0].ok();
        person.run(&["volume", "inspect", "data"]).ok();
        person.run(&["rm", "cc"]).ok();
        person.run(&["volume", "rm", "data"]).ok();
    }
    // A container whose record is unreadable may use any volume.
    person.run(&["create", "--name=cc", "-v", "data:/data", one, "/bin/guest"]).ok();
    let record = person.store().join("containers/cc/container.json");
    std::fs::write(&record, "{").expect("a record");
    assert_ne!(person.run(&["volume", "prune", "-af"]).code(), 0);
    assert_ne!(person.run(&["volume", "rm", "data"]).code(), 0);
    person.run(&["volume", "inspect", "data"]).ok();
    Ok(())
}

/// No sweep may remove the directory of the trials: a result that another command disturbs would be
/// cached, and disable a mode.
fn trials_and_sweeps(place: &Place<'_>) -> Outcome {
    let person = place.fresh("trials");
    let [one, _] = &place.images.names;
    person.run(&pull(one)).ok();
    let states = || -> Vec<String> {
        for entry in std::fs::read_dir(person.store()).expect("the store").flatten() {
            if entry.file_name().to_string_lossy().starts_with("inside-") {
                std::fs::remove_file(entry.path()).expect("what is remembered");
            }
        }
        let done = person.run(&["doctor", "--format", "json"]);
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a report");
        let engines = report["engines"].as_array().into_iter().flatten();
        engines.map(|engine| format!("{} {}", engine["mode"], engine["state"])).collect()
    };
    let quiet = states();
    let ((trying, tried), sweeper) = (mpsc::channel::<()>(), &person);
    thread::scope(|scope| {
        scope.spawn(move || {
            while tried.try_recv() == Err(mpsc::TryRecvError::Empty) {
                sweeper.run(&["system", "prune", "-f"]);
            }
        });
        // Dropped in every case.
        let _trying = trying;
        let busy: Vec<_> = (0..rounds(3)).map(|_| states()).collect();
        assert!(busy.iter().all(|found| *found == quiet), "{quiet:?}, and beside others {busy:?}");
    });
    Ok(())
}

fn run_and_rm(place: &Place<'_>) -> Outcome {
    let person = place.fresh("runrm");
    let [one, _] = &place.images.names;
    person.run(&pull(one)).ok();
    let mut dice = Dice::new(4);
    for _ in 0..rounds(10) {
        person.run(&["create", "--name=cc", one]).ok();
        both(
            &person,
            &["run", "cc", "/bin/guest", "write", "/x", "y"],
            &["rm", "-f", "cc"],
            &mut dice,
        );
        person.run(&["rm", "-f", "cc"]);
        both(
            &person,
            &["run", "--rm", "--name=dd", one, "/bin/guest", "sleep", "1"],
            &["rm", "-f", "dd"],
            &mut dice,
        );
        person.run(&["rm", "-f", "dd"]);
    }
    let left = person.run(&["ps", "-a", "-q"]);
    assert_eq!(left.ok().out(), "", "containers stayed");
    Ok(())
}

fn run_and_rmi(place: &Place<'_>) -> Outcome {
    let person = place.fresh("runrmi");
    let [one, _] = &place.images.names;
    let mut dice = Dice::new(5);
    for _ in 0..rounds(5) {
        person.run(&pull(one)).ok();
        let words = ["run", "--rm", "--pull=never", one, "/bin/guest", "list", "/shared/3"];
        let [run, _] = both(&person, &words, &["rmi", "-f", one], &mut dice);
        // Either it found the image, and then all of it, or it did not.
        assert!(run.code() == 125 || run.out().matches(',').count() == 99, "{run:?}");
    }
    whole(&person, place.images, "run and rmi at once");
    Ok(())
}

fn load_and_load(place: &Place<'_>) -> Outcome {
    let person = place.fresh("loadload");
    let archive = place.archive(&person).display().to_string();
    let words = ["load", "-q", "-i", &archive];
    let mut dice = Dice::new(6);
    for _ in 0..rounds(3) {
        for done in both(&person, &words, &words, &mut dice) {
            done.ok();
        }
        for done in both(&person, &words, &pull(&place.images.names[0]), &mut dice) {
            done.ok();
        }
        person
            .run(&["run", "--rm", "localhost/crash/loaded:1", "/bin/guest", "exit", "7"])
            .expect(7);
        person.run(&["rmi", "-f", "-a"]).ok();
    }
    Ok(())
}

/// The index is one file: concurrent writers must not lose each other's names.
fn tag_and_tag(place: &Place<'_>) -> Outcome {
    let person = place.fresh("tags");
    let [one, _] = &place.images.names;
    person.run(&pull(one)).ok();
    thread::scope(|scope| {
        for n in 0..16 {
            let person = &person;
            scope.spawn(move || {
                person.run(&["tag", one, &format!("localhost/tagged:{n}")]).ok().code()
            });
        }
    });
    let listed = person.run(&["images", "--format={{.Tag}}", "localhost/tagged"]);
    assert_eq!(listed.ok().out().lines().count(), 16, "{listed:?}");
    Ok(())
}
