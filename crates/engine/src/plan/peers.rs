//! The variables by which libraries of parallel programs reach the other members of a container's
//! networks, where these are made of translated addresses.
//!
//! Most need none, because they see the container's addresses alone
//! (`view::sockets::interfaces`): Open MPI, Hydra and PRRTE choose by subnet, NCCL takes the first
//! interface that is not `lo`, Gloo asks for the host's name. UCX, below MPICH and others, takes
//! two members of one host for processes that share everything:
//!
//! - it opens the shared memory of another process through `/proc`, which shows no other
//!   container's; `UCX_POSIX_USE_PROC_LINK=n` has it opened by name in `/dev/shm`, which is the
//!   host's for all of them;
//! - over TCP it prefers `lo`, and meets itself there; `UCX_NET_DEVICES` names the interface of the
//!   networks. It would also forbid adapters of InfiniBand and the like, so a host that has any
//!   gets it not.
//!
//! Open MPI's own lists of interfaces (`OMPI_MCA_btl_tcp_if_include`) are not set: they exclude
//! those that an image or user forbids (`..._if_exclude`), and Open MPI refuses both at once.

use super::Network;
use crate::facts::Facts;

/// Names and values for a container; the user's, the image's and the job's own come before them.
pub fn variables(network: &Network, facts: &Facts) -> Vec<(&'static str, String)> {
    if !matches!(network, Network::Names(_)) {
        return Vec::new();
    }
    // Without networks there are no others.
    let Some(ways) = &facts.ways else { return Vec::new() };
    let mut all = vec![("UCX_POSIX_USE_PROC_LINK", "n".to_owned())];
    if !ways.has_rdma && ways.interface != "lo" {
        all.push(("UCX_NET_DEVICES", ways.interface.clone()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Ways;

    fn of(network: &Network, interface: Option<&str>, has_rdma: bool) -> Vec<String> {
        let ways = interface.map(|interface| Ways { interface: interface.to_owned(), has_rdma });
        let facts = Facts { ways, ..Facts::default() };
        let all = variables(network, &facts);
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn members_get_what_leads_to_the_others() {
        let (names, link) = (Network::Names(None), "UCX_POSIX_USE_PROC_LINK=n");
        assert_eq!(of(&names, Some("eth0"), false), [link, "UCX_NET_DEVICES=eth0"]);
        assert_eq!(of(&names, Some("eth0"), true), [link]);
        assert_eq!(of(&names, Some("lo"), false), [link]);
    }

    #[test]
    fn others_get_nothing() {
        assert_eq!(of(&Network::Names(None), None, false), [""; 0]);
        for network in [Network::Inherit, Network::Loopback] {
            assert_eq!(of(&network, Some("eth0"), false), [""; 0]);
        }
    }
}
