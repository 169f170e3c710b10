//! The filters `publish` and `expose` of a list of containers.

use engine::spec::Publish;
use engine::supervise::state::Observed;
use store::Store;

use super::list::{self, Listed};
use crate::error::{Error, Result};
use crate::filter::Filters;

/// Both filters. As in Docker, one value that matches is enough.
#[derive(Debug, Default)]
pub struct PortFilters {
    publish: Vec<PortRange>,
    expose: Vec<PortRange>,
}

/// `PORT[-PORT][/PROTOCOL]`.
#[derive(Debug, PartialEq, Eq)]
struct PortRange {
    first: u16,
    last: u16,
    udp: bool,
}

impl PortRange {
    fn parse(text: &str) -> Option<Self> {
        let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let udp = match protocol {
            "tcp" => false,
            "udp" => true,
            _ => return None,
        };
        let range = Self { first: first.parse().ok()?, last: last.parse().ok()?, udp };
        (range.first <= range.last).then_some(range)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.udp == other.udp && self.first <= other.last && other.first <= self.last
    }

    /// Whether it has one of the `count` ports from `first` on.
    fn meets(&self, first: u16, count: u16, udp: bool) -> bool {
        self.overlaps(&Self { first, last: first.saturating_add(count.max(1) - 1), udp })
    }
}

impl PortFilters {
    /// Reads the values.
    ///
    /// # Errors
    /// Where one is not a port.
    pub fn parse(filters: &Filters) -> Result<Self> {
        let read = |key: &str| -> Result<Vec<PortRange>> {
            let parse = |text: &str| {
                PortRange::parse(text).ok_or_else(|| {
                    Error::invalid(format!("--filter '{key}={text}' is not a port"))
                        .with_hint("write PORT or PORT-PORT, with /tcp or /udp behind it")
                })
            };
            filters.of(key).map(parse).collect()
        };
        Ok(Self { publish: read("publish")?, expose: read("expose")? })
    }

    /// Whether a container matches. As in Docker, one that does not run has no ports.
    pub fn match_any(&self, store: &Store, seen: &Listed) -> bool {
        if self.publish.is_empty() && self.expose.is_empty() {
            return true;
        }
        if !matches!(seen.state, Observed::Running(_)) {
            return false;
        }
        let met = |ranges: &[PortRange], first: u16, port: &Publish| {
            ranges.iter().any(|range| range.meets(first, port.count, port.udp))
        };
        let published = seen.glance.network.publish.iter().any(|port| {
            met(&self.publish, port.host, port) || met(&self.expose, port.inside, port)
        });
        let exposed = || {
            let image = seen.glance.image.as_ref().map(|image| &*image.config);
            let exposed = list::exposed(store, &seen.glance.expose, image);
            let mut exposed = exposed.iter().filter_map(|text| PortRange::parse(text));
            exposed.any(|port| self.expose.iter().any(|range| range.overlaps(&port)))
        };
        published || !self.expose.is_empty() && exposed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_filters() {
        let range = |text| PortRange::parse(text);
        assert_eq!(range("80"), Some(PortRange { first: 80, last: 80, udp: false }));
        assert_eq!(range("8000-8010/udp"), Some(PortRange { first: 8000, last: 8010, udp: true }));
        for wrong in ["", "x", "80/sctp", "90-80", "70000", "80-"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
        let some = range("8000-8010").unwrap();
        assert!(
            some.meets(8010, 1, false) && some.meets(7999, 2, false) && some.meets(8005, 0, false)
        );
        assert!(
            !some.meets(8011, 5, false)
                && !some.meets(7999, 1, false)
                && !some.meets(8005, 1, true)
        );
    }
}
