//! Which networks containers can have on this host, and why not the others.

use engine::choose::by_name;
use host::{Host, Trial};
use serde::Serialize;

use super::{EngineLine, State};

/// One kind of network.
#[derive(Debug, Serialize)]
pub struct NetworkLine {
    /// `host`, `names` or `overlay`.
    pub mode: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// How well it works.
    pub state: State,
    /// The modes of engines that work here and can have it.
    pub engines: Vec<&'static str>,
    /// Why it works with less or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What would make it work, or work better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// All kinds, by the facts of the host and what its engines can do.
pub(super) fn networks(host: &Host, engines: &[EngineLine]) -> Vec<NetworkLine> {
    let works = |line: &&EngineLine| matches!(line.state, State::Ready | State::Degraded);
    let able = |wanted: fn(&engine::choose::Caps) -> bool| -> Vec<&'static str> {
        let able = |line: &&EngineLine| by_name(line.mode).is_some_and(|one| wanted(&one.caps()));
        engines.iter().filter(works).filter(able).map(|line| line.mode).collect()
    };
    let advice_of = |mode: &str| {
        engines.iter().find(|line| line.mode == mode).and_then(|line| line.advice.clone())
    };
    let line = |mode, about, engines| NetworkLine {
        mode,
        about,
        state: State::Ready,
        engines,
        why: None,
        advice: None,
    };
    let shared = line("host", "the host's addresses and ports", able(|_| true));
    let mut named = line(
        "names",
        "addresses, ports and names of one's own, translated in system calls",
        able(|caps| caps.named_networks && !caps.network),
    );
    if named.engines.is_empty() {
        named.fails("no mode that translates addresses works here", advice_of("I1"));
    } else {
        named.needs(&host.networking.loopback, "addresses of the loopback cannot be bound");
    }
    let packets = able(|caps| caps.network && caps.named_networks);
    let mut overlay = line("overlay", "packets in network namespaces", packets);
    if overlay.engines.is_empty() {
        overlay.fails("no mode with namespaces works here", advice_of("N1"));
    } else {
        overlay.needs(&host.namespaces.net, "no network namespaces");
        overlay.device(host);
        overlay.way_out(host);
    }
    vec![shared, named, overlay]
}

impl NetworkLine {
    fn fails(&mut self, why: &str, advice: Option<String>) {
        (self.state, self.why, self.advice) = (State::Unusable, Some(why.to_owned()), advice);
        self.engines.clear();
    }

    fn needs(&mut self, trial: &Trial, without: &str) {
        if let (State::Ready, Some(why)) = (self.state, trial.why()) {
            let advice = trial.advice().map(str::to_owned);
            self.fails(&format!("{without}: {why}"), advice);
        }
    }

    /// A device for packets, of either kind.
    fn device(&mut self, host: &Host) {
        let (tun, veth) = (&host.networking.tun, &host.networking.veth);
        if let (State::Ready, Some(no_tun), Some(no_veth)) = (self.state, tun.why(), veth.why()) {
            let advice = tun.advice().map(str::to_owned);
            self.fails(&format!("no device for packets: {no_tun}; {no_veth}"), advice);
        }
    }

    /// A program that connects a namespace with the host's network, which has to open the TUN. The
    /// switch does it too, with limits.
    fn way_out(&mut self, host: &Host) {
        if self.state != State::Ready {
            return;
        }
        let has = |name: &str| host.programs.find(name).is_some();
        let (why, advice) = if !has("pasta") && !has("slirp4netns") {
            let install = "install passt or slirp4netns".to_owned();
            ("neither pasta nor slirp4netns is installed".to_owned(), Some(install))
        } else if let Some(why) = host.networking.tun.why() {
            (why.to_owned(), host.networking.tun.advice().map(str::to_owned))
        } else {
            return;
        };
        let why = Some(format!("the way out is limited, by the switch of the networks: {why}"));
        (self.state, self.why, self.advice) = (State::Degraded, why, advice);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn engines(works: &[&'static str]) -> Vec<EngineLine> {
        let line = |mode: &&'static str| EngineLine {
            mode,
            about: "",
            state: if works.contains(mode) { State::Ready } else { State::Unusable },
            chosen: false,
            why: None,
            advice: Some(format!("advice for {mode}")),
            options: BTreeMap::new(),
        };
        ["I1", "P1", "N1"].iter().map(line).collect()
    }

    fn of(host: &Host, works: &[&'static str]) -> [NetworkLine; 3] {
        networks(host, &engines(works)).try_into().expect("three kinds")
    }

    fn fails(why: &str) -> Trial {
        Trial::fails("tried", why).with_advice(format!("mend {why}"))
    }

    fn with_pasta() -> Host {
        let mut host = Host::default();
        host.programs = host::Programs::known([("pasta", "/usr/bin/pasta")]);
        host
    }

    #[test]
    fn a_host_with_everything() {
        let [shared, named, overlay] = of(&with_pasta(), &["I1", "P1", "N1"]);
        assert_eq!((shared.state, shared.engines.len()), (State::Ready, 3));
        assert_eq!((named.state, named.engines), (State::Ready, vec!["I1", "P1"]));
        assert_eq!((overlay.state, overlay.engines), (State::Ready, vec!["N1"]));
        assert_eq!((overlay.why, overlay.advice), (None, None));
    }

    #[test]
    fn a_host_without_namespaces_has_names() {
        let [_, named, overlay] = of(&with_pasta(), &["I1"]);
        assert_eq!((named.state, overlay.state), (State::Ready, State::Unusable));
        assert_eq!(overlay.advice.as_deref(), Some("advice for N1"));
        let [_, named, _] = of(&with_pasta(), &["N1"]);
        assert_eq!(
            (named.state, named.advice.as_deref()),
            (State::Unusable, Some("advice for I1"))
        );
    }

    #[test]
    fn one_device_suffices() {
        let mut host = with_pasta();
        host.networking.veth = fails("no veth");
        assert_eq!(of(&host, &["N1"])[2].state, State::Ready);
        host.networking.tun = fails("closed");
        let [_, _, overlay] = of(&host, &["N1"]);
        assert_eq!(overlay.why.as_deref(), Some("no device for packets: closed; no veth"));
        assert_eq!(overlay.advice.as_deref(), Some("mend closed"));
        host.networking.veth = Trial::works("tried");
        let [_, _, overlay] = of(&host, &["N1"]);
        assert_eq!((overlay.state, overlay.engines), (State::Degraded, vec!["N1"]));
    }

    #[test]
    fn without_a_helper_the_way_out_is_limited() {
        let [_, _, overlay] = of(&Host::default(), &["N1"]);
        assert_eq!(overlay.state, State::Degraded);
        assert_eq!(overlay.advice.as_deref(), Some("install passt or slirp4netns"));
    }
}
