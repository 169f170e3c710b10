//! Finds processes of the container that another tracer traces: each `exec` has a tracer of its
//! own.
//!
//! They are known by what they execute, the loader in the container's own directory. What they run
//! is the file in which the kernel finds their program headers, as the loader has told it.

use abi::processes::{headers, mapping, number};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use sys::ptrace::Id;
use view::paths::{Origin, reverse};
use view::{Text, World};

/// How to tell them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processes<'a> {
    pub(super) world: &'a World<'a>,
    /// The loaders' host paths, for 64 and 32 bits.
    pub(super) loaders: [&'a CStr; 2],
}

impl Processes<'_> {
    /// Which loader a process executes, if it is one of the container's.
    fn loader(&self, process: Id) -> Option<usize> {
        let link = sys::life::link(process, "exe").ok()?;
        let link = link.as_os_str().as_bytes();
        // Another version of us has put its own there since.
        let link = link.strip_suffix(b" (deleted)").unwrap_or(link);
        self.loaders.iter().position(|loader| loader.to_bytes() == link)
    }

    /// Guest path of what a process runs; false if it is none of the container's. Where the guest
    /// has no name for it, that is `/`.
    pub(super) fn program(&self, process: Id, into: &mut Text) -> bool {
        let Some(loader) = self.loader(process) else { return false };
        let wide = loader == 0;
        let auxiliary = std::fs::read(format!("/proc/{process}/auxv")).unwrap_or_default();
        let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        let headers = headers(&auxiliary, wide);
        let lines = || maps.split(|byte| *byte == b'\n').filter_map(mapping);
        let first = headers.and_then(|at| lines().find(|(from, to, _)| (*from..*to).contains(&at)));
        for (_, _, path) in first.into_iter().chain(lines()) {
            if matches!(reverse(self.world, path, into), Ok(Origin::Inside(_))) {
                return true;
            }
        }
        *into = Text::ROOT;
        true
    }

    /// All processes of the container that can be seen, also those of this tracer.
    pub(super) fn all(&self) -> Vec<Id> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        let numbers = entries.filter_map(|entry| number(entry.ok()?.file_name().as_bytes()));
        numbers
            .filter_map(|number| Id::try_from(number).ok())
            .filter(|process| self.loader(*process).is_some())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_no_container_is_none() {
        let world = World::new(&[], None, &[]);
        let processes =
            Processes { world: &world, loaders: [c"/nowhere/loader", c"/nowhere/loader-i386"] };
        assert!(!processes.program(std::process::id(), &mut Text::ROOT.clone()));
        assert!(processes.all().is_empty());
    }
}
