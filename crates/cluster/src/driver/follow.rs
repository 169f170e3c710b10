//! Follows the rule of a service: measures at its balancers each second, and changes the number of
//! its containers as the rule decides. Each decision is told in one line, with what it follows
//! from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::admin::Admin;
use super::hosts::lock;
use super::scale::Changing;
use super::{Setting, Watcher};
use crate::balance::{Active, Counted};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::plan::{self, Balanced, Plan, Site};
use crate::scale::histogram::Histogram;
use crate::scale::rule::{self, Measured, State};
use crate::spec::{Scaling, Service, Spec, units};

/// How often is measured.
const EVERY: Duration = Duration::from_secs(1);
/// How often is looked whether somebody asks for the end.
pub(super) const GLANCE: Duration = Duration::from_millis(50);
/// After a change that has failed none is tried for so long, each time twice as long, up to the
/// second.
const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// How often balancers are compared with the containers: one may have been started again with
/// another address.
const COMPARE: Duration = Duration::from_secs(10);

/// By service, numbers of containers.
pub(super) type StandIns = Mutex<BTreeMap<String, Vec<u32>>>;

/// A cluster that is up.
pub(super) struct Up<'a> {
    pub(super) spec: &'a Spec,
    pub(super) setting: &'a Setting,
    pub(super) hosts: &'a super::Hosts,
    pub(super) sites: &'a [Site],
    pub(super) plan: &'a Plan,
    pub(super) watcher: &'a dyn Watcher,
    /// Held by the one service that is changed.
    pub(super) turn: Mutex<()>,
    /// The numbers of containers that stand in for those on lost hosts, by service.
    pub(super) stand_ins: &'a StandIns,
}

impl Up<'_> {
    /// Does something while no other driver changes the cluster; `None` if one does now, or the
    /// watcher asks for the end.
    pub(super) fn changing<T>(
        &self,
        change: impl FnOnce(&Changing<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let _turn = lock(&self.turn);
        let place = Place::take_within(&self.setting.store, &self.spec.name, Duration::ZERO)?;
        let Some(place) = place else { return Ok(None) };
        if self.watcher.is_stopped() {
            place.leave();
            return Ok(None);
        }
        let of = (self.hosts, self.sites);
        change(&Changing::of(self.spec, self.plan, of, place.path(), self.watcher)).map(Some)
    }

    /// Does something again and again, with a pause, until the watcher asks for the end. What fails
    /// is told once, and makes the pause twice as long, up to the second.
    pub(super) fn often(&self, pause: (Duration, Duration), mut work: impl FnMut() -> Result<()>) {
        let (first, longest) = pause;
        let (mut told, mut pause) = (String::new(), first);
        while !self.watcher.is_stopped() {
            match work() {
                Ok(()) => {
                    told.clear();
                    pause = first;
                }
                Err(error) => {
                    pause = (2 * pause).min(longest);
                    if !self.watcher.is_stopped() && error.to_string() != told {
                        told = error.to_string();
                        self.watcher.note(&told);
                    }
                }
            }
            let until = Instant::now() + pause;
            while !self.watcher.is_stopped() && Instant::now() < until {
                std::thread::sleep(GLANCE);
            }
        }
    }
}

/// What a balancer had counted when it was last asked.
#[derive(Default)]
struct Before {
    counted: Option<Counted>,
    /// The numbers of the requests that it had told.
    seen: BTreeSet<u64>,
}

/// A service whose number of containers follows a rule.
struct Following<'a> {
    up: &'a Up<'a>,
    service: &'a Service,
    rule: &'a Scaling,
    balanced: &'a Balanced,
    admins: Vec<(Admin<'a>, Before)>,
    state: State,
    began: Instant,
    /// When the balancers were asked, and compared with the containers.
    asked: Option<Instant>,
    compared: Option<Instant>,
    /// No change is tried before, and how long the last pause was.
    pause: Option<(Instant, Duration)>,
    /// What was told last, if it has not passed.
    told: Option<String>,
}

/// What balancers say at one time.
struct Seen {
    /// The containers that they know.
    count: u32,
    /// What was measured since the last time; `None` where that is not known.
    measured: Option<Measured>,
}

/// Follows the rule of a service until the watcher asks for the end.
///
/// # Errors
/// If no host of a balancer answers.
pub(super) fn follow(up: &Up<'_>, service: &Service, rule: &Scaling) -> Result<()> {
    let Some(balanced) = plan::balance::of(up.spec, up.sites, service) else { return Ok(()) };
    let admin = |balancer: &plan::Balancer| {
        let host = up.hosts.of(balancer.host.as_deref())?;
        Ok((Admin::of(balancer, host), Before::default()))
    };
    let there = |one: &&plan::Balancer| !up.hosts.is_away(one.host.as_deref());
    let admins: Vec<(Admin<'_>, Before)> =
        balanced.balancers.iter().filter(there).map(admin).collect::<Result<_>>()?;
    if admins.is_empty() {
        return Err(Error::new("not followed: the host of its balancer is lost"));
    }
    let mut following = Following {
        up,
        service,
        rule,
        balanced: &balanced,
        admins,
        state: State::default(),
        began: Instant::now(),
        asked: None,
        compared: None,
        pause: None,
        told: None,
    };
    let mut next = Instant::now();
    while !up.watcher.is_stopped() {
        if Instant::now() < next {
            std::thread::sleep(GLANCE);
            continue;
        }
        next = Instant::now() + EVERY;
        following.turn();
    }
    Ok(())
}

/// Has a service behind a balancer have its number of containers while hosts are lost, until the
/// watcher asks for the end.
pub(super) fn stand_in(up: &Up<'_>, service: &Service, count: u32) {
    up.often((COMPARE, LONGEST_PAUSE), || {
        let done = up.changing(|changing| {
            let mut all = lock(up.stand_ins);
            changing.stand_in(service, count, all.entry(service.name.clone()).or_default())
        });
        let named = |error| Error::new(format!("{}: {error}", service.name));
        done.map(drop).map_err(named)
    });
}

impl Following<'_> {
    fn say(&self, text: &str) {
        self.up.watcher.note(&format!("{}: {text}", self.service.name));
    }

    /// Says once what goes on.
    fn say_once(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            self.say(&text);
            self.told = Some(text);
        }
    }

    /// Measures, decides, and carries that out.
    fn turn(&mut self) {
        if self.compared.is_none_or(|compared| compared.elapsed() >= COMPARE) {
            self.compare();
        }
        let now = self.began.elapsed();
        let seen = match self.look() {
            Ok(seen) => seen,
            Err(error) => {
                // What is not known changes nothing, and ends what has lasted.
                rule::decide(self.rule, &mut self.state, self.rule.min, now, None);
                self.say_once(error.to_string());
                return;
            }
        };
        self.told = None;
        if self.pause.is_some_and(|(until, _)| Instant::now() < until) {
            return;
        }
        let mut state = self.state.clone();
        let Seen { count, measured } = seen;
        let decision = rule::decide(self.rule, &mut state, count, now, measured.as_ref());
        let Some(why) = decision.why else {
            self.state = state;
            return;
        };
        let began = Instant::now();
        let told = format!("{count} -> {}, because {why}", decision.count);
        match self.change(count, decision.count, &told) {
            // A decision that is not carried out was none.
            Ok(false) => {}
            Ok(true) => {
                (self.state, self.pause) = (state, None);
                let time = units::spell_since(began);
                self.say(&format!("{} containers after {time}", decision.count));
            }
            Err(error) if self.up.watcher.is_stopped() => self.say(&error.to_string()),
            Err(error) => {
                let pause = self.pause.map_or(PAUSE, |(_, pause)| (2 * pause).min(LONGEST_PAUSE));
                self.pause = Some((Instant::now() + pause, pause));
                let again = units::spell(pause);
                self.say(&format!("no change, and tried again after {again}: {error}"));
            }
        }
    }

    /// Changes the number of containers if it is still the one that was decided from. Returns
    /// whether that has happened.
    fn change(&self, from: u32, to: u32, told: &str) -> Result<bool> {
        let changed = self.up.changing(|changing| {
            self.say(told);
            changing.set(self.service, to, Some(from))
        })?;
        Ok(changed.is_some_and(|scaled| scaled.now == to))
    }

    /// Has the balancers know what there is.
    fn compare(&mut self) {
        match self.up.changing(|changing| changing.settle(self.service)) {
            Ok(Some(())) => self.compared = Some(Instant::now()),
            // Another driver is at work.
            Ok(None) => {}
            Err(error) => {
                self.compared = Some(Instant::now());
                self.say_once(error.to_string());
            }
        }
    }

    /// Asks the balancers.
    fn look(&mut self) -> Result<Seen> {
        let since = self.asked.replace(Instant::now()).map(|asked| asked.elapsed());
        let mut ready: BTreeMap<String, bool> = BTreeMap::new();
        let (mut requests, mut busy, mut times) = (Some(0), 0, Histogram::default());
        let mut failed = None;
        for (admin, before) in &mut self.admins {
            match ask(admin, before) {
                Ok((active, new, recent)) => {
                    // Those of hosts that are lost are no measure of the others.
                    for one in
                        active.into_iter().filter(|one| !self.balanced.is_on_lost_host(&one.name))
                    {
                        busy += one.count;
                        // One that takes requests at all of its ports, from any balancer.
                        let is_ready = ready.entry(one.name).or_insert(true);
                        *is_ready &= one.is_ready;
                    }
                    requests = requests.zip(new).map(|(sum, new)| sum + new);
                    times.merge(&recent);
                }
                Err(error) => {
                    *before = Before::default();
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // Requests that are not answered yet have no time, which is not that of a service at rest.
        let is_known =
            times.total() > 0 || requests == Some(0) && busy == 0 || !self.rule.asks_for_times();
        let measured = requests.zip(since).filter(|_| is_known).map(|(requests, since)| Measured {
            rate: f64::from(u32::try_from(requests).unwrap_or(u32::MAX))
                / since.as_secs_f64().max(0.001),
            times,
            ready: ready.values().filter(|ready| **ready).count() as u32,
        });
        Ok(Seen { count: ready.len() as u32, measured })
    }
}

/// What a balancer's servers do, how many requests came since the last time, and their times. A
/// balancer that was started again counts anew: how many came is not known then.
fn ask(
    admin: &mut Admin<'_>,
    before: &mut Before,
) -> Result<(Vec<Active>, Option<u64>, Histogram)> {
    let (active, counted) = admin.activity()?;
    let was = before.counted.replace(counted).filter(|was| was.uptime <= counted.uptime);
    let new = was.and_then(|was| counted.requests.checked_sub(was.requests));
    if new.is_none() {
        before.seen.clear();
    }
    let recent = admin.requests(&before.seen)?;
    before.seen = recent.seen;
    Ok((active, new, if new.is_some() { recent.times } else { Histogram::default() }))
}
