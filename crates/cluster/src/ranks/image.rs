//! The MPI of a program in a container, read from its libraries.
//!
//! The names of the libraries that a program needs (`DT_NEEDED`), and that these need, say which
//! MPI it was linked with. Of a script, or of a program that loads MPI later (Python), there is
//! nothing to read; then all MPI libraries of the image count, which is an answer if they are of
//! one family.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_NULL, DT_STRSZ, DT_STRTAB, DynamicTag, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use serde::{Deserialize, Serialize};

use super::{Family, Protocol};

/// Directories that libraries are looked for in, with those beneath.
const PLACES: [&str; 5] = ["/usr/lib", "/usr/lib64", "/lib64", "/usr/local", "/opt"];
/// How far beneath, and how many entries are looked at in all.
const DEPTH: u32 = 4;
const ENTRIES: usize = 100_000;
/// Directories with many files and no MPI.
const PASSED_OVER: [&str; 8] =
    ["share", "include", "python", "gcc", "locale", "perl", "modules", "firmware"];
/// A library is not longer, in bytes.
const LONGEST: u64 = 256 << 20;

/// What is known of a program's MPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The program's; `None` where it could not be told.
    pub family: Option<Family>,
    /// It was read from the program itself, and not from what the image has.
    pub is_linked: bool,
    /// The files of the MPI library and of the `PMIx` library, with their versions.
    pub files: Vec<String>,
    /// The protocols that it speaks with a launcher.
    pub speaks: Vec<Protocol>,
    /// Its `PMIx` is of the first version, which understands no later one.
    pub is_first_pmix: bool,
}

/// Looks at a program by the words of its command, from inside of its container.
pub fn look(words: &[String], path: &str) -> Found {
    let libraries = Libraries::of_container();
    let program = words.first().and_then(|word| find(word, path));
    let needed = program.and_then(|program| libraries.needed_by(&program));
    let linked = needed.as_ref().and_then(|needed| libraries.family(needed));
    if let (Some(family), Some(needed)) = (linked, needed) {
        return libraries.found(Some(family), true, &needed);
    }
    let all: BTreeSet<String> = libraries.files.keys().cloned().collect();
    libraries.found(libraries.family(&all), false, &all)
}

/// A program as a shell finds it.
fn find(word: &str, path: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(word.into());
    }
    path.split(':').map(|directory| Path::new(directory).join(word)).find(|file| file.is_file())
}

/// The libraries of a container, by their names.
struct Libraries {
    files: BTreeMap<String, PathBuf>,
}

impl Libraries {
    fn of_container() -> Self {
        let mut libraries = Self { files: BTreeMap::new() };
        let mut left = ENTRIES;
        for place in PLACES {
            libraries.walk(Path::new(place), DEPTH, &mut left);
        }
        libraries
    }

    fn walk(&mut self, directory: &Path, depth: u32, left: &mut usize) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_passed_over = || PASSED_OVER.iter().any(|start| name.starts_with(start));
            if is_directory && depth > 1 && !is_passed_over() {
                self.walk(&entry.path(), depth - 1, left);
            } else if !is_directory && name.contains(".so") {
                self.files.entry(name).or_insert_with(|| entry.path());
            }
        }
    }

    /// The libraries that a program needs, and that these need; `None` if it is none that a loader
    /// reads.
    fn needed_by(&self, program: &Path) -> Option<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        let mut left = needed(program)?;
        while let Some(name) = left.pop() {
            if seen.insert(name.clone())
                && let Some(file) = self.files.get(&name)
            {
                left.extend(needed(file).unwrap_or_default());
            }
        }
        Some(seen)
    }

    /// The family of some libraries; `None` if they are of none, or of both.
    fn family(&self, names: &BTreeSet<String>) -> Option<Family> {
        let is_open = |name: &&String| {
            let own = ["libopen-pal.so", "libopen-rte.so", "libmpi_cxx.so", "libmpi_mpifh.so"];
            own.iter().any(|start| name.starts_with(start))
        };
        let is_mpich = |name: &&String| {
            let own = ["libmpich.so", "libmpifort.so", "libmpicxx.so"];
            own.iter().any(|start| name.starts_with(start))
                || name.starts_with("libmpi.so.12") && !self.is_open_mpi(name)
        };
        match (names.iter().any(|name| is_open(&name)), names.iter().any(|name| is_mpich(&name))) {
            (true, false) => Some(Family::OpenMpi),
            (false, true) => Some(Family::Mpich),
            _ => None,
        }
    }

    /// Old releases of Open MPI have the library's name of MPICH's interface.
    fn is_open_mpi(&self, name: &str) -> bool {
        let all = self.files.get(name).and_then(|file| needed(file)).unwrap_or_default();
        all.iter().any(|name| name.starts_with("libopen-pal.so"))
    }

    fn found(&self, family: Option<Family>, is_linked: bool, names: &BTreeSet<String>) -> Found {
        let begins = |start: &str| {
            let file = names.iter().find(|name| name.starts_with(start));
            file.and_then(|name| self.real_name(name))
        };
        let library = match family {
            None => None,
            Some(Family::OpenMpi) => begins("libmpi.so"),
            Some(Family::Mpich) => begins("libmpi.so.12").or_else(|| begins("libmpich.so")),
        };
        // Open MPI loads it as a part of its own, or by a component.
        let pmix = match family {
            Some(Family::OpenMpi) => begins("libpmix.so").or_else(|| {
                let file = self.files.keys().find(|name| name.starts_with("libpmix.so"));
                file.and_then(|name| self.real_name(name))
            }),
            _ => begins("libpmix.so"),
        };
        let has = |start: &str| self.files.keys().any(|name| name.starts_with(start));
        let mut speaks = Vec::new();
        match family {
            None => {}
            Some(Family::OpenMpi) => {
                speaks.push(Protocol::Pmix);
                // Its components for Slurm's own libraries.
                if has("mca_pmix_s2.so") || has("mca_pmix_s1.so") {
                    speaks.push(Protocol::Pmi);
                }
            }
            // One that was built for PMIx speaks nothing else.
            Some(Family::Mpich) if pmix.is_some() && is_linked => speaks.push(Protocol::Pmix),
            Some(Family::Mpich) => speaks.push(Protocol::Pmi),
        }
        let is_first = |file: &String| {
            ["libpmix.so.1.", "libpmix.so.2.0."].iter().any(|start| file.starts_with(start))
        };
        let is_first_pmix = family == Some(Family::OpenMpi)
            && (pmix.as_ref().is_some_and(is_first) || has("mca_pmix_pmix112.so"));
        Found {
            family,
            is_linked,
            files: library.into_iter().chain(pmix).collect(),
            speaks,
            is_first_pmix,
        }
    }

    /// The name that a file has at the end of links: with its version.
    fn real_name(&self, name: &str) -> Option<String> {
        let file = self.files.get(name)?;
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        Some(file.file_name()?.to_string_lossy().into_owned())
    }
}

/// The libraries that a file names; `None` if a loader does not read it.
fn needed(file: &Path) -> Option<Vec<String>> {
    if fs::metadata(file).ok()?.len() > LONGEST {
        return None;
    }
    let data = &*fs::read(file).ok()?;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let dynamic = segments.iter().find_map(|part| part.dynamic(endian, data).ok().flatten());
    let Some(dynamic) = dynamic else { return Some(Vec::new()) };
    let all = || dynamic.iter().take_while(|entry| entry.tag(endian) != DT_NULL);
    let value = |tag: DynamicTag| {
        let found = all().find(|entry| entry.tag(endian) == tag);
        found.map(|entry| entry.val(endian))
    };
    let (table, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let texts = segments
        .iter()
        .find_map(|part| part.data_range(endian, data, table, size).ok().flatten())?;
    let text = |at: u64| {
        let rest = texts.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    let names = all().filter(|entry| entry.tag(endian) == DT_NEEDED);
    Some(names.filter_map(|entry| text(entry.val(endian))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries(names: &[&str]) -> (Libraries, BTreeSet<String>) {
        let files = names.iter().map(|name| ((*name).to_owned(), PathBuf::from("/nowhere")));
        let names = names.iter().map(|&name| name.to_owned()).collect();
        (Libraries { files: files.collect() }, names)
    }

    #[test]
    fn families_and_what_they_speak() {
        let open = ["libc.so.6", "libmpi.so.40", "libopen-pal.so.40", "libpmix.so.2"];
        for (names, family, speaks) in [
            (&open[..], Some(Family::OpenMpi), &[Protocol::Pmix][..]),
            (&["libmpi.so.40", "libopen-pal.so.80"], Some(Family::OpenMpi), &[Protocol::Pmix]),
            (&["libmpich.so.12"], Some(Family::Mpich), &[Protocol::Pmi]),
            (&["libmpi.so.12", "libmpifort.so.12"], Some(Family::Mpich), &[Protocol::Pmi]),
            (&["libmpich.so.12", "libpmix.so.2"], Some(Family::Mpich), &[Protocol::Pmix]),
            (
                &["libmpi.so.40", "libopen-rte.so.40", "mca_pmix_s2.so"],
                Some(Family::OpenMpi),
                &[Protocol::Pmix, Protocol::Pmi],
            ),
            (&["libopen-pal.so.40", "libmpich.so.12"], None, &[]),
            (&["libc.so.6"], None, &[]),
        ] {
            let (libraries, names) = libraries(names);
            assert_eq!(libraries.family(&names), family, "{names:?}");
            assert_eq!(libraries.found(family, true, &names).speaks, speaks, "{names:?}");
        }
        let (libraries, names) =
            libraries(&["libmpi.so.20", "libopen-pal.so.20", "mca_pmix_pmix112.so"]);
        assert!(libraries.found(Some(Family::OpenMpi), true, &names).is_first_pmix);
    }

    /// A program of the host that needs the C library, and files that are no programs.
    #[test]
    fn what_files_need() {
        let program = find("sh", "/no/such:/usr/bin:/bin").expect("a shell");
        let names = needed(&program).expect("a program");
        assert!(names.iter().any(|name| name.starts_with("libc.")), "{names:?}");
        assert_eq!(find("/x/y", ""), Some("/x/y".into()));
        assert_eq!(find("no-such-program", "/bin"), None);
        for file in ["/etc/passwd", "/no/such", "/"] {
            assert_eq!(needed(Path::new(file)), None, "{file}");
        }
    }
}
