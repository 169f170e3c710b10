//! Which launcher of the host starts the ranks of an image: `srun` or an `mpiexec`.
//!
//! | MPI in the image | speaks | is started by |
//! |---|---|---|
//! | Open MPI | `PMIx` | `srun --mpi=pmix`, Open MPI's `mpiexec` |
//! | MPICH, Intel MPI, MVAPICH | PMI-1, PMI-2 | `srun --mpi=pmi2`, Hydra's `mpiexec` |
//!
//! A launcher of the other kind would start each rank as a job of its own, or let it wait for ever;
//! so it is refused. Where the image's MPI is not known, `PMIx` is taken if it is there.
//!
//! Releases of `PMIx` from 2.1 on understand each other, as its makers say
//! (<https://pmix.org/support/faq/how-does-pmix-work-with-containers/>), but not those before: a
//! first release against a later one is refused.

use super::image::Found;
use super::{Family, Protocol};
use crate::error::{Error, Result};

/// What a host starts ranks by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// In an allocation of Slurm: the types that `srun --mpi` takes.
    pub srun: Option<Vec<String>>,
    /// The launchers of MPI in `PATH`, in the order of preference.
    pub mpiexec: Vec<Mpiexec>,
}

/// A launcher of MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mpiexec {
    /// Its path.
    pub path: String,
    /// The family that it belongs to.
    pub family: Family,
    /// Its release, in its own words.
    pub version: String,
}

/// The launcher that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// `srun` with this type of MPI.
    Srun(String),
    /// One of MPI's own.
    Mpiexec(Mpiexec),
}

impl Offer {
    /// Adds what `srun --mpi=list` has said.
    #[must_use]
    pub fn with_srun(self, said: &str) -> Self {
        // "MPI plugin types are...", and a type on each line; newer releases also have "specific
        // pmix plugin versions available: pmix_v4,pmix_v5".
        let mut types: Vec<String> = Vec::new();
        for line in said.lines() {
            // The sentence has the name of a type, too.
            let line = line.split_once("available:").map_or(line, |(_, rest)| rest);
            let words = line.split(|c: char| c.is_whitespace() || c == ',');
            let is_type = |word: &&str| word.starts_with("pmi") || *word == "none";
            types.extend(words.filter(is_type).map(str::to_owned));
        }
        types.sort();
        types.dedup();
        Self { srun: Some(types), ..self }
    }

    /// Adds what launchers have said: a line `== PATH`, and behind it the answer to `--version`.
    #[must_use]
    pub fn with_mpiexec(mut self, said: &str) -> Self {
        for answer in format!("\n{said}").split("\n== ").skip(1) {
            let (path, answer) = answer.split_once('\n').unwrap_or((answer, ""));
            let has = |word: &str| answer.contains(word);
            let family = if has("Open MPI") || has("OpenRTE") || has("PRRTE") {
                Family::OpenMpi
            } else if has("HYDRA") || has("Intel(R) MPI") || has("MVAPICH") {
                Family::Mpich
            } else {
                continue;
            };
            let lines = || answer.lines().map(str::trim).filter(|line| !line.is_empty());
            let number = lines().find_map(|line| line.strip_prefix("Version:"));
            let version = match number {
                Some(number) => format!("HYDRA {}", number.trim()),
                None => lines().next().unwrap_or_default().to_owned(),
            };
            self.mpiexec.push(Mpiexec { path: path.to_owned(), family, version });
        }
        self
    }

    fn says(&self) -> String {
        let mut parts = Vec::new();
        if let Some(types) = &self.srun {
            let types: Vec<&str> =
                types.iter().map(String::as_str).filter(|word| *word != "none").collect();
            parts.push(match types[..] {
                [] => "srun has no PMI".to_owned(),
                _ => format!("srun has {}", types.join(", ")),
            });
        }
        for one in &self.mpiexec {
            parts.push(format!("{} is {}", one.path, one.version));
        }
        if self.mpiexec.is_empty() {
            parts.push("mpiexec was not found".to_owned());
        }
        parts.join("; ")
    }
}

/// Chooses a launcher for an image's MPI.
///
/// # Errors
/// If the host has none that understands it.
pub fn choose(found: &Found, offer: &Offer) -> Result<Choice> {
    let types = offer.srun.as_deref().unwrap_or_default();
    let newest_pmi = ["pmi2", "pmi1"].iter().find(|name| types.iter().any(|word| word == **name));
    let pmix = types.iter().find(|word| *word == "pmix");
    let pmix = pmix.or_else(|| types.iter().rfind(|word| word.starts_with("pmix")));
    let Some(family) = found.family else {
        let srun = pmix.cloned().or_else(|| newest_pmi.map(|name| (*name).to_owned()));
        let mpiexec = || offer.mpiexec.first().cloned().map(Choice::Mpiexec);
        return srun.map(Choice::Srun).or_else(mpiexec).ok_or_else(|| none(found, offer));
    };
    for protocol in &found.speaks {
        let srun = match protocol {
            Protocol::Pmix if found.is_first_pmix => {
                types.iter().find(|word| word.ends_with("_v1")).cloned()
            }
            Protocol::Pmix => pmix.cloned(),
            Protocol::Pmi => newest_pmi.map(|name| (*name).to_owned()),
        };
        if let Some(name) = srun {
            return Ok(Choice::Srun(name));
        }
    }
    // Hydra speaks PMI alone, Open MPI's launcher PMIx alone.
    let speaks = |of: Family| match of {
        Family::OpenMpi => Protocol::Pmix,
        Family::Mpich => Protocol::Pmi,
    };
    let fits = |one: &&Mpiexec| {
        let protocol = speaks(one.family);
        one.family == family
            && found.speaks.contains(&protocol)
            && !(found.is_first_pmix && protocol == Protocol::Pmix)
    };
    offer.mpiexec.iter().find(fits).cloned().map(Choice::Mpiexec).ok_or_else(|| none(found, offer))
}

fn none(found: &Found, offer: &Offer) -> Error {
    let Some(family) = found.family else {
        return Error::new(format!("nothing here starts ranks: {}", offer.says()))
            .with_hint("install an mpiexec on the hosts, or write launch = \"inside\"");
    };
    let what = if found.is_linked { "the program's MPI" } else { "the image's MPI" };
    let mut wanted: Vec<String> = found.speaks.iter().map(Protocol::to_string).collect();
    if found.is_first_pmix {
        wanted = vec!["PMIx 1".to_owned()];
    }
    let files = match found.files.join(", ") {
        files if files.is_empty() => files,
        files => format!(" ({files})"),
    };
    let fact = format!(
        "{what} is {family}{files}, which needs a launcher with {}, and there is none: {}",
        wanted.join(" or "),
        offer.says()
    );
    let hint = match family {
        Family::OpenMpi => {
            "take an image with MPICH, have Slurm's PMIx or Open MPI's mpiexec on the hosts, or \
             write launch = \"inside\""
        }
        Family::Mpich => {
            "take an image with Open MPI, have MPICH's mpiexec on the hosts, or write launch = \
             \"inside\""
        }
    };
    Error::new(fact).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLURM: &str = "MPI plugin types are...\n\tcray_shasta\n\tpmi2\n\tpmix\n\tnone\nspecific \
                         pmix plugin versions available: pmix_v4\n";
    const OPEN: &str = "== /usr/bin/mpiexec\nmpiexec (OpenRTE) 4.1.4\n\nReport bugs to\n";
    const HYDRA: &str =
        "== /usr/bin/mpiexec.mpich\nHYDRA build details:\n    Version:       4.0.2\n";

    fn found(family: Family) -> Found {
        let (file, protocol) = match family {
            Family::OpenMpi => ("libmpi.so.40.30.4", Protocol::Pmix),
            Family::Mpich => ("libmpich.so.12.2.2", Protocol::Pmi),
        };
        Found {
            family: Some(family),
            is_linked: true,
            files: vec![file.to_owned()],
            speaks: vec![protocol],
            is_first_pmix: false,
        }
    }

    fn srun(name: &str) -> Choice {
        Choice::Srun(name.to_owned())
    }

    #[test]
    fn answers_of_launchers() {
        let offer = Offer::default().with_srun(SLURM);
        assert_eq!(offer.srun.unwrap(), ["none", "pmi2", "pmix", "pmix_v4"]);
        // Slurm 20.11 prefixes each line.
        let old = "srun: MPI types are...\nsrun: none\nsrun: pmix_v3\nsrun: pmix\n";
        assert_eq!(Offer::default().with_srun(old).srun.unwrap(), ["none", "pmix", "pmix_v3"]);
        let offer = Offer::default().with_mpiexec(&format!("{OPEN}{HYDRA}== /x\nwhat\n"));
        let all: Vec<_> = offer.mpiexec.iter().map(|one| (&*one.path, &*one.version)).collect();
        let expected = [
            ("/usr/bin/mpiexec", "mpiexec (OpenRTE) 4.1.4"),
            ("/usr/bin/mpiexec.mpich", "HYDRA 4.0.2"),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn each_mpi_has_its_launcher() {
        let offer = Offer::default().with_srun(SLURM).with_mpiexec(&format!("{OPEN}{HYDRA}"));
        assert_eq!(choose(&found(Family::OpenMpi), &offer), Ok(srun("pmix")));
        assert_eq!(choose(&found(Family::Mpich), &offer), Ok(srun("pmi2")));
        assert_eq!(choose(&Found::default(), &offer), Ok(srun("pmix")));
        let offer = Offer { srun: None, ..offer };
        let path = |family| match choose(&found(family), &offer) {
            Ok(Choice::Mpiexec(one)) => one.path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path(Family::OpenMpi), "/usr/bin/mpiexec");
        assert_eq!(path(Family::Mpich), "/usr/bin/mpiexec.mpich");
        // Slurm without it: the host's own launcher.
        let offer = Offer::default().with_srun("none\npmi2\n").with_mpiexec(OPEN);
        let Ok(Choice::Mpiexec(one)) = choose(&found(Family::OpenMpi), &offer) else { panic!() };
        assert_eq!(one.family, Family::OpenMpi);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let says = |found: &Found, offer: &Offer| choose(found, offer).unwrap_err();
        let offer = Offer::default().with_srun("\tpmix\n\tnone\n").with_mpiexec(OPEN);
        let error = says(&found(Family::Mpich), &offer);
        assert_eq!(
            error.to_string(),
            "the program's MPI is MPICH (libmpich.so.12.2.2), which needs a launcher with PMI-2, \
             and there is none: srun has pmix; /usr/bin/mpiexec is mpiexec (OpenRTE) 4.1.4"
        );
        assert!(error.hint().is_some());
        let error = says(&found(Family::OpenMpi), &Offer::default().with_mpiexec(HYDRA));
        assert!(error.to_string().ends_with("/usr/bin/mpiexec.mpich is HYDRA 4.0.2"), "{error}");
        let error = says(&Found::default(), &Offer::default());
        assert_eq!(error.to_string(), "nothing here starts ranks: mpiexec was not found");
        // PMIx 1 and a later one.
        let first = Found { is_first_pmix: true, ..found(Family::OpenMpi) };
        let offer = Offer::default().with_srun(SLURM).with_mpiexec(OPEN);
        assert!(says(&first, &offer).to_string().contains("needs a launcher with PMIx 1"));
        let offer = Offer::default().with_srun("pmix\npmix_v1\n");
        assert_eq!(choose(&first, &offer), Ok(srun("pmix_v1")));
    }
}
