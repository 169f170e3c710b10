//! Facts about hosts: which are insecure, and which scheme they speak.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use crate::Settings;
use crate::url::{Scheme, split_authority};

/// Docker Hub's name in references, and the host that serves its registry.
pub(crate) const HUB: (&str, &str) = (oci::reference::DEFAULT_REGISTRY, "registry-1.docker.io");

/// Shared by the TLS step and the sessions. Locks are held for single look-ups only.
#[derive(Debug)]
pub(crate) struct Hosts {
    plain_http: BTreeSet<String>,
    insecure: RwLock<BTreeSet<String>>,
    schemes: RwLock<HashMap<String, Scheme>>,
    reached: RwLock<BTreeSet<String>>,
}

impl Hosts {
    pub(crate) fn new(settings: &Settings) -> Self {
        Hosts {
            plain_http: with_hub(settings.plain_http.clone()),
            insecure: RwLock::new(with_hub(settings.insecure.clone())),
            schemes: RwLock::default(),
            reached: RwLock::default(),
        }
    }

    /// Returns true if the certificate of `host[:port]` is not checked and plain HTTP is allowed.
    /// As in Docker, loopback always is insecure.
    pub(crate) fn is_insecure(&self, authority: &str) -> bool {
        let host = split_authority(authority).map(|(host, _)| host);
        // `split_authority` requires brackets around IPv6; the TLS step passes none.
        let host = host.unwrap_or_else(|| authority.to_owned());
        let loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let set = self.insecure.read().unwrap_or_else(PoisonError::into_inner);
        loopback || set.contains("*") || set.contains(authority)
    }

    /// Returns true if the settings require plain HTTP.
    pub(crate) fn is_plain(&self, authority: &str) -> bool {
        self.plain_http.contains(authority)
    }

    /// Marks a host as insecure, because `registries.conf` says so.
    pub(crate) fn set_insecure(&self, authority: &str) {
        let mut set = self.insecure.write().unwrap_or_else(PoisonError::into_inner);
        let host = if authority == HUB.0 { HUB.1 } else { authority };
        set.insert(host.to_owned());
    }

    /// The schemes to try, in order.
    pub(crate) fn schemes(&self, authority: &str) -> Vec<Scheme> {
        if self.plain_http.contains(authority) {
            return vec![Scheme::Http];
        }
        let known = self.schemes.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(authority) {
            Some(scheme) => vec![*scheme],
            None if self.is_insecure(authority) => vec![Scheme::Https, Scheme::Http],
            None => vec![Scheme::Https],
        }
    }

    /// Stores the scheme that a host answered.
    pub(crate) fn set_scheme(&self, authority: &str, scheme: Scheme) {
        let mut known = self.schemes.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(authority.to_owned(), scheme);
    }

    /// Stores that a host answered at all: from then on a refused connection may be a restart.
    pub(crate) fn set_reached(&self, authority: &str) {
        let mut reached = self.reached.write().unwrap_or_else(PoisonError::into_inner);
        reached.insert(authority.to_owned());
    }

    /// Returns true if a host has answered before.
    pub(crate) fn was_reached(&self, authority: &str) -> bool {
        self.reached.read().unwrap_or_else(PoisonError::into_inner).contains(authority)
    }
}

/// Settings for Docker Hub apply to the host that serves it.
fn with_hub(mut hosts: BTreeSet<String>) -> BTreeSet<String> {
    if hosts.contains(HUB.0) {
        hosts.insert(HUB.1.to_owned());
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_insecure() {
        let hosts = Hosts::new(&Settings::default());
        for host in
            ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "::1"]
        {
            assert!(hosts.is_insecure(host), "{host}");
            assert_eq!(hosts.schemes(host).len(), 2);
        }
        for host in ["127.0.0.1.evil.example", "localhost.evil", "h:5000", "docker.io"] {
            assert!(!hosts.is_insecure(host), "{host}");
            assert_eq!(hosts.schemes(host), [Scheme::Https]);
        }
        hosts.set_insecure("h:5000");
        assert!(hosts.is_insecure("h:5000") && !hosts.is_insecure("h:5001"));
        hosts.set_scheme("h:5000", Scheme::Http);
        assert_eq!(hosts.schemes("h:5000"), [Scheme::Http]);
    }
}
