//! The application as ranks that the host's launcher starts.

use super::{LABEL, Ranks, Site, Slots, Step, Words, image_name, pair, site, slots, volume};
use crate::spec::{Kind, Run, Spec};

use super::explain::shown;
use super::{Act, found};

/// Ranks on all nodes.
pub(super) fn step(spec: &Spec, run: &Run, sites: &[Site]) -> Step {
    let mut hosts: Vec<Slots> = Vec::new();
    for number in 1..=spec.nodes {
        let Site { host, address, .. } = site(sites, number);
        let slots = slots(spec, sites, number);
        match hosts.iter_mut().find(|other| other.host == *host) {
            Some(same) => same.slots += slots,
            None => hosts.push(Slots { host: host.clone(), address: *address, slots }),
        }
    }
    let mut options = Words::default();
    options.extend(["--rm", "--pull", "never"]);
    options.extend(pair("--label", &format!("{LABEL}={}", spec.name)));
    options.extend(pair("--network", "host"));
    // All ranks have one command.
    options.extend(found::common(spec, sites));
    options.variables(&spec.env);
    options.variables(&run.env);
    options.extend(spec.volumes.iter().flat_map(|text| volume(&sites[0], text)));
    options.extend(run.directory.iter().flat_map(|path| pair("--workdir", path)));
    let ranks = Ranks {
        hosts,
        options,
        image: image_name(spec, None),
        command: run.command.clone(),
        by_srun: matches!(spec.backends[0].kind, Kind::Slurm { .. }),
    };
    Step { host: None, act: Act::Ranks(ranks) }
}

impl Ranks {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.hosts.iter().map(|host| host.slots).sum()
    }

    /// The command of `run` for a rank, of an image by this name. Its container has that of the
    /// host's other ranks.
    pub(crate) fn run(&self, image: &str, more: &[String]) -> Words {
        let (program, words) =
            self.command.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let mut all = Words::from(vec!["run".to_owned()]);
        all.append(self.options.clone());
        all.extend(more);
        // What the image starts by itself is not started, as in a node's container.
        all.extend(program.into_iter().flat_map(|program| pair("--entrypoint", program)));
        all.push(image);
        all.extend(words);
        all
    }

    /// Options of `exec` with the variables and the directory that a rank has.
    pub(crate) fn surroundings(&self) -> Words {
        self.options.options(&["-e", "--workdir"])
    }

    /// The words of `srun` before the command of a rank. Each host has as many as the one with the
    /// fewest slots.
    pub(crate) fn srun(&self, mpi: &str, names: &[String]) -> Vec<String> {
        let each = self.hosts.iter().map(|host| host.slots).min().unwrap_or(1);
        let nodes = self.hosts.len();
        let mut words: Vec<String> =
            ["srun", "--overlap", "--quiet", "--kill-on-bad-exit=1", "--input=0", "--chdir=/"]
                .map(str::to_owned)
                .to_vec();
        words.push(format!("--mpi={mpi}"));
        words.push(format!("--nodes={nodes}"));
        words.push(format!("--ntasks={}", nodes as u64 * u64::from(each)));
        words.push(format!("--ntasks-per-node={each}"));
        if !names.is_empty() {
            words.push(format!("--nodelist={}", names.join(",")));
        }
        words
    }

    /// The command in words, for a launcher that is not known yet.
    pub(crate) fn explained(&self) -> String {
        let run = format!("coracle {}", shown(&self.run(&self.image, &[])));
        if self.by_srun {
            let srun = shown(&self.srun("pmix", &[]));
            return format!("{srun} {run}    # --mpi=pmi2 where the image has MPICH");
        }
        let hosts = if self.hosts.len() > 1 { " --hostfile $CLUSTER/ranks.hosts" } else { "" };
        format!("mpiexec{hosts} -n {} {run}    # of the image's MPI", self.count())
    }
}
