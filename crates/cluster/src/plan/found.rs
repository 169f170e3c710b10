//! Variables of nodes whose values are found on the hosts ([`remote::routes`]).

use remote::routes;

use super::{Site, pair};
use crate::spec::{Network, Spec};

const OPTION: &str = "--env-default";

/// Options of `run` with a node's variables. The image and the file come before them.
pub(super) fn words(spec: &Spec, site: &Site) -> Vec<String> {
    if spec.network != Some(Network::Host) {
        return Vec::new();
    }
    // Open MPI takes a list of interfaces, or one of those that are not to be used.
    let run = spec.run.as_ref();
    let names = spec.env.iter().chain(run.iter().flat_map(|run| &run.env)).map(|(name, _)| name);
    let mut said = names.chain(run.iter().flat_map(|run| &run.command));
    let excludes = said.any(|text| text.contains("_if_exclude"));
    let fit = |name: &str| !(excludes && name.ends_with("_if_include"));
    let own = site.variables.iter().filter(|(name, _)| fit(name));
    own.flat_map(|(name, value)| pair(OPTION, &format!("{name}={value}"))).collect()
}

/// Those options that are the same on all hosts.
pub(super) fn common(spec: &Spec, sites: &[Site]) -> Vec<String> {
    let all: Vec<Vec<String>> = sites.iter().map(|site| words(spec, site)).collect();
    let is_everywhere =
        |pair: &[String]| all.iter().all(|words| words.chunks(2).any(|other| other == pair));
    let first = all.first().map_or(&[][..], Vec::as_slice);
    first.chunks(2).filter(|pair| is_everywhere(pair)).flatten().cloned().collect()
}

/// The variables among the options of `run`.
pub(super) fn variables(words: &[String]) -> Vec<&str> {
    let pairs = words.windows(2).filter(|pair| pair[0] == OPTION);
    pairs.map(|pair| &*pair[1]).collect()
}

/// Sites that are not known yet, with names for what will be found.
pub(super) fn named(mut sites: Vec<Site>) -> Vec<Site> {
    if sites.len() > 1 {
        let all = routes::unknown();
        let all: Vec<_> = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for site in &mut sites {
            site.variables.clone_from(&all);
        }
    }
    sites
}

/// What `explain` says of them.
pub(super) fn told(spec: &Spec, sites: &[Site]) -> Option<String> {
    if sites.len() < 2 || spec.nodes == 0 {
        return None;
    }
    let told = match spec.network {
        Some(Network::Host) => {
            "$INTERFACE and $SUBNET: the interface by which a host reaches the others. A variable \
             of this name in the environment of cluster up, in the file or in the image comes before"
        }
        Some(Network::Names) => {
            "each node gets UCX_NET_DEVICES and UCX_POSIX_USE_PROC_LINK for the interface that it \
             sees, unless the file or the image sets them"
        }
        Some(Network::Overlay) | None => {
            "each node gets those of MPI, UCX, NCCL and Gloo that its network needs, unless the \
             file or the image sets them: coracle run --explain --network NAME"
        }
    };
    Some(told.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::unknown_sites;

    fn of(more: &str) -> String {
        let text = format!(
            "name = \"lab\"\nimage = \"a\"\nnodes = 2\n\
             backend = {{ kind = \"ssh\", hosts = [\"a\", \"b\"] }}\n{more}"
        );
        let spec = crate::spec::parse(Path::new("lab.toml"), &text).unwrap();
        words(&spec, &unknown_sites(&spec, "/lab")[0]).join(" ")
    }

    #[test]
    fn nodes_in_the_network_of_several_hosts_get_variables() {
        let all = of("network = \"host\"\n");
        assert!(all.contains("--env-default OMPI_MCA_btl_tcp_if_include=$SUBNET --env-default"));
        assert!(all.contains(" GLOO_SOCKET_IFNAME=$INTERFACE"), "{all}");
        assert_eq!(of(""), "");
        assert_eq!(of("network = \"names\"\n"), "");
        for said in [
            "env = { OMPI_MCA_btl_tcp_if_exclude = \"docker0\" }\n",
            "[run]\ncommand = \"mpirun --mca btl_tcp_if_exclude docker0 ./a\"\n",
        ] {
            let some = of(&format!("network = \"host\"\n{said}"));
            assert!(!some.contains("_if_include") && some.contains("HYDRA_IFACE"), "{some}");
        }
    }
}
