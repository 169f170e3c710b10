//! Tests of files of the store that were changed by other means: `verify` finds them, and they are
//! never run or served silently.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use testkit::skip::Outcome;

use crate::crash::place::{Case, Dice, Place, pull, rounds, still_usable};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("flipped_bits_are_found", flipped_bits_are_found),
    ("truncated_and_missing_files", truncated_and_missing_files),
    ("unreadable_files", unreadable_files),
    ("broken_index", broken_index),
    ("broken_records", broken_records),
];

/// Regular files of the blobs and of the unpacked layers.
fn stored(store: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut stack = vec![store.join("oci/blobs"), store.join("layers")];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => stack.push(path),
                Ok(kind) if kind.is_file() && entry.metadata().is_ok_and(|m| m.len() > 0) => {
                    files.push(path);
                }
                _ => {}
            }
        }
    }
    files.sort();
    files
}

fn flipped_bits_are_found(place: &Place<'_>) -> Outcome {
    let person = place.fresh("flip");
    person.run(&pull(&place.images.names[0])).ok();
    person.run(&["verify"]).ok();
    let files = stored(&person.store());
    let blobs: Vec<&PathBuf> =
        files.iter().filter(|file| file.to_string_lossy().contains("/blobs/")).collect();
    assert!(blobs.len() >= 5 && files.len() > 1000);
    let mut dice = Dice::new(7);
    // Every blob, and some files of the trees, at a random byte and bit, with their old times.
    let some = (0..rounds(8))
        .map(|_| &files[usize::try_from(dice.below(files.len() as u64)).unwrap_or(0)])
        .collect::<Vec<_>>();
    for file in blobs.into_iter().chain(some) {
        let good = fs::read(file).expect("a stored file");
        let meta = fs::metadata(file).expect("a stored file");
        let mut bad = good.clone();
        let at = usize::try_from(dice.below(good.len() as u64)).unwrap_or(0);
        bad[at] ^= 1 << dice.below(8);
        let rewrite = |bytes: &[u8]| {
            fs::write(file, bytes).expect("a stored file");
            let handle = fs::OpenOptions::new().write(true).open(file).expect("a stored file");
            let times = fs::FileTimes::new().set_modified(meta.modified().expect("a time"));
            handle.set_times(times).expect("the old time");
        };
        rewrite(&bad);
        let done = person.run(&["verify"]);
        rewrite(&good);
        assert!(
            done.code() != 0,
            "a flipped bit at {at} of {} was not found: {done:?}",
            file.display()
        );
        assert!(!done.err().contains("panicked"), "{done:?}");
    }
    person.run(&["verify"]).ok();
    // Damaged content of the right size is only fetched again after a repair has removed it.
    let largest = |file: &&PathBuf| fs::metadata(file).map_or(0, |meta| meta.len());
    for part in ["/blobs/", "/layers/"] {
        let of_part = files.iter().filter(|file| file.to_string_lossy().contains(part));
        let file = of_part.max_by_key(largest).expect("a stored file");
        let mut bytes = fs::read(file).expect("a stored file");
        bytes[0] ^= 1;
        fs::write(file, bytes).expect("a stored file");
        assert_ne!(person.run(&["verify", "--repair"]).code(), 0);
        person.run(&pull(&place.images.names[0])).ok();
        person.run(&["verify"]).ok();
    }
    Ok(())
}

fn truncated_and_missing_files(place: &Place<'_>) -> Outcome {
    let person = place.fresh("cut");
    let image = &place.images.names[0];
    person.run(&pull(image)).ok();
    let blobs: Vec<PathBuf> = stored(&person.store())
        .into_iter()
        .filter(|file| file.to_string_lossy().contains("/blobs/"))
        .collect();
    for file in blobs {
        let good = fs::read(&file).expect("a blob");
        for damage in 0..3 {
            match damage {
                0 => fs::write(&file, &good[..good.len() / 2]).expect("a blob"),
                1 => fs::write(&file, b"").expect("a blob"),
                _ => fs::remove_file(&file).expect("a blob"),
            }
            let done = person.run(&["verify"]);
            assert!(
                done.code() != 0,
                "{} (damage {damage}) was not found: {done:?}",
                file.display()
            );
            still_usable(&person, "a blob that was cut");
            for words in [
                ["history", image].as_slice(),
                &["inspect", "--type=image", image],
                &["save", "-o", "/dev/null", image],
            ] {
                let done = person.run(words);
                assert!(!done.err().contains("panicked") && done.status.is_some(), "{done:?}");
            }
            // A pull restores it.
            person.run(&pull(image)).ok();
            let mended = person.run(&["verify"]);
            assert_eq!(
                mended.code(),
                0,
                "{} (damage {damage}) was not mended by a pull: {mended:?}",
                file.display()
            );
        }
    }
    Ok(())
}

fn unreadable_files(place: &Place<'_>) -> Outcome {
    let person = place.fresh("unreadable");
    let image = &place.images.names[0];
    person.run(&pull(image)).ok();
    let blob = stored(&person.store())
        .into_iter()
        .find(|file| file.to_string_lossy().contains("/blobs/"))
        .expect("a blob");
    fs::set_permissions(&blob, fs::Permissions::from_mode(0o000)).expect("a mode");
    let done = person.run(&["verify"]);
    let save = person.run(&["save", "-o", "/dev/null", image]);
    fs::set_permissions(&blob, fs::Permissions::from_mode(0o644)).expect("a mode");
    let name = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
    assert!(done.code() != 0 && (done.err() + &done.out()).contains(&name[..12]), "{done:?}");
    assert!(!save.err().contains("panicked"), "{save:?}");
    person.run(&["verify"]).ok();
    Ok(())
}

fn broken_index(place: &Place<'_>) -> Outcome {
    let person = place.fresh("index");
    let image = &place.images.names[0];
    person.run(&pull(image)).ok();
    let file = person.store().join("oci/index.json");
    let good = fs::read(&file).expect("the index");
    for bad in [b"".as_slice(), b"{", &good[..good.len() / 2], b"[]"] {
        fs::write(&file, bad).expect("the index");
        let done = person.run(&["images"]);
        assert!(done.code() == 1 && done.err().contains("index.json"), "{done:?}");
        assert!(!person.run(&pull(image)).err().contains("panicked"));
        // Content that may be in use stays.
        let blobs = stored(&person.store());
        for words in [["system", "prune", "-a", "-f"].as_slice(), &["image", "prune", "-f"]] {
            let done = person.run(words);
            assert!(done.code() == 1 && done.err().contains("verify --repair"), "{done:?}");
        }
        assert_eq!(stored(&person.store()), blobs);
        let done = person.run(&["verify"]);
        assert!(done.code() == 1 && done.out().contains("index.json"), "{done:?}");
    }
    // Rebuilt without names, which a pull restores without fetching anything.
    let blobs = stored(&person.store());
    person.run(&["verify", "--repair"]).expect(1);
    person.run(&["verify"]).ok();
    person.run(&["image", "ls", "-a", "-q"]).ok();
    person.run(&pull(image)).ok();
    person.run(&["run", "--rm", "--pull=never", image, "/bin/guest", "exit", "7"]).expect(7);
    assert_eq!(stored(&person.store()), blobs);
    fs::write(&file, &good).expect("the index");
    person.give(&file);
    person.run(&["run", "--rm", image, "/bin/guest", "exit", "7"]).expect(7);
    Ok(())
}

/// One container's record is damaged: the others are listed and work.
fn broken_records(place: &Place<'_>) -> Outcome {
    let person = place.fresh("records");
    let image = &place.images.names[0];
    person.run(&pull(image)).ok();
    person.run(&["create", "--name=good", image]).ok();
    let id = person.run(&["create", "--name=bad", image]).ok().line();
    let file = person.store().join("containers").join(&id).join("container.json");
    for bad in [b"".as_slice(), b"{\"id\":", b"null"] {
        fs::write(&file, bad).expect("the record");
        let list = person.run(&["ps", "-a", "--format={{.Names}}"]);
        assert!(list.ok().out().lines().any(|name| name == "good"), "{list:?}");
        person.run(&["run", "good", "/bin/guest", "exit", "7"]).expect(7);
        let done = person.run(&["run", "bad", "/bin/guest", "exit", "7"]);
        assert!(done.code() == 125 && !done.err().contains("panicked"), "{done:?}");
    }
    person.run(&["rm", "-f", &id]).ok();
    Ok(())
}
