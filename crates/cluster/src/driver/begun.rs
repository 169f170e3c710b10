//! The containers of services that a driver begins, until they are ready: a file of numbers for
//! each service, in the cluster's directory. A container that runs does not tell whether it was
//! ready once, so the next driver waits for what one that was killed has left here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::hosts::Host;
use crate::error::{Error, Result};

/// Where the files are, in the cluster's directory.
const PLACE: &str = "begun";

/// The cluster's directory, and the machine that has it.
pub(super) type Kept<'a> = (&'a Path, &'a dyn Host);

fn path(kept: &Path, service: &str) -> PathBuf {
    kept.join(PLACE).join(service)
}

/// The numbers of a service. What cannot be read names none.
pub(super) fn read(kept: &Path, service: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(path(kept, service)).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Adds numbers, before their containers are started.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn add(place: Kept<'_>, service: &str, numbers: &[u32]) -> Result<()> {
    let mut all: BTreeSet<u32> = read(place.0, service).into_iter().collect();
    all.extend(numbers);
    write(place, service, &all)
}

/// Takes numbers away: their containers are ready.
///
/// # Errors
/// If the file cannot be changed.
pub(super) fn take(place: Kept<'_>, service: &str, numbers: &[u32]) -> Result<()> {
    let mut all: BTreeSet<u32> = read(place.0, service).into_iter().collect();
    all.retain(|number| !numbers.contains(number));
    write(place, service, &all)
}

fn write((kept, driver): Kept<'_>, service: &str, numbers: &BTreeSet<u32>) -> Result<()> {
    let path = path(kept, service);
    if numbers.is_empty() {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::new(format!("cannot remove {}: {error}", path.display())))
            }
            _ => Ok(()),
        };
    }
    let text: Vec<String> = numbers.iter().map(|number| format!("{number}\n")).collect();
    driver.put(&path, 0o600, text.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::Local;
    use super::*;

    #[test]
    fn what_is_begun_is_known_until_it_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let here = Local { program: Vec::new() };
        let kept: Kept<'_> = (directory.path(), &here);
        let known = || read(directory.path(), "web");
        assert_eq!(known(), [0; 0]);
        add(kept, "web", &[3, 2]).unwrap();
        add(kept, "web", &[2, 7]).unwrap();
        assert_eq!((known(), read(directory.path(), "db")), (vec![2, 3, 7], Vec::new()));
        take(kept, "web", &[3, 9]).unwrap();
        assert_eq!(known(), [2, 7]);
        take(kept, "web", &[2, 7]).unwrap();
        take(kept, "web", &[1]).unwrap();
        assert!(!path(directory.path(), "web").exists());
    }
}
