//! A cluster that is up is watched: rules are followed, a batch system gets the nodes that it asks
//! for, lost hosts are reported and containers on them replaced on other hosts, and the end by
//! somebody else is seen.
//!
//! One process at a time follows the rules of a cluster and its batch system. It holds the lock of
//! a file in the cluster's directory, and ends when that file is gone: so `down` ends it without
//! having to know which process it is.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::at::words;
use super::follow::{StandIns, Up, follow, stand_in};
use super::hosts::lock;
use super::member::members;
use super::reach::Reach;
use super::{Cluster, Lost, Setting, Watcher, nodes, status_of_reached};
use crate::error::{Error, Result};
use crate::place;
use crate::spec::{Kind, Replicas, Scaling, Service, Spec};

/// How often is looked whether somebody asks for the end.
const GLANCE: Duration = Duration::from_millis(100);
/// How often is looked whether a host is lost.
const HOSTS: Duration = Duration::from_secs(1);
/// How often is looked whether somebody else has ended the cluster.
const LOOK: Duration = Duration::from_secs(5);
/// Somebody who only looks whether the lock is held has it for a moment.
const MOMENT: Duration = Duration::from_secs(1);
/// Hosts that are lost are reached again after so long.
const AGAIN: Duration = Duration::from_secs(10);
/// A process that follows rules begins, and ends, within so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The file whose lock it holds, and the one that it writes to in the background.
const HELD: &str = "watch";
const LOG: &str = "watch.log";

/// The services of a file whose number of containers follows a rule.
fn with_rules(spec: &Spec) -> impl Iterator<Item = (&Service, &Scaling)> {
    spec.services.iter().filter_map(|service| match &service.replicas {
        Replicas::Scaled(rule) => Some((service, &**rule)),
        Replicas::Fixed(_) => None,
    })
}

/// The services of a file that have their number of containers also while hosts are lost.
fn with_stand_ins(spec: &Spec) -> impl Iterator<Item = (&Service, u32)> {
    let has_others = spec.backends[0].kind != Kind::Local;
    let behind = move |service: &&Service| has_others && service.balance.is_some();
    spec.services.iter().filter(behind).filter_map(|service| match service.replicas {
        Replicas::Fixed(count) => Some((service, count)),
        Replicas::Scaled(_) => None,
    })
}

/// Whether a cluster of a file changes by itself: its rules have to be followed, its batch system
/// asks for nodes, or what was on lost hosts is started on others.
pub fn is_followed(spec: &Spec) -> bool {
    with_rules(spec).next().is_some()
        || spec.batch.is_some()
        || with_stand_ins(spec).next().is_some()
}

/// What says that this process follows the rules of a cluster.
struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
    /// `None` if another process does.
    fn take(setting: &Setting, cluster: &str) -> Result<Option<Self>> {
        let path = place::directory(&setting.store, cluster).join(HELD);
        let cannot = |error| Error::new(format!("cannot lock {}: {error}", path.display()));
        let file = place::locked(&path, MOMENT).map_err(cannot)?;
        Ok(file.map(|file| Self { file, path }))
    }

    /// Whether nobody has removed the file.
    fn is_wanted(&self) -> bool {
        place::is_at(&self.file, &self.path).unwrap_or(true)
    }
}

/// A watcher that asks for the end when rules are not to be followed any more.
struct Until<'a> {
    watcher: &'a dyn Watcher,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Watcher for Until<'_> {
    fn phase(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn signal(&self, within: Duration) -> Option<i32> {
        self.watcher.signal(within)
    }

    fn note(&self, text: &str) {
        self.watcher.note(text);
    }

    fn is_stopped(&self) -> bool {
        (self.stop)()
    }
}

impl Cluster {
    /// Does something while the rules of the cluster's file are followed, if it has some and no
    /// other process follows them. `directory` is where relative paths of the file start, absolute.
    pub fn following<T>(
        &self,
        spec: &Spec,
        (setting, directory): (&Setting, &Path),
        watcher: &dyn Watcher,
        work: impl FnOnce() -> T,
    ) -> T {
        if !is_followed(spec) {
            return work();
        }
        let held = match Held::take(setting, &spec.name) {
            Ok(Some(held)) => held,
            Ok(None) => {
                watcher.note("another process follows the cluster already");
                return work();
            }
            Err(error) => {
                watcher.note(&format!("it is not followed: {error}"));
                return work();
            }
        };
        let over = AtomicBool::new(false);
        // The work has the watcher's signals: here they would be lost to it.
        let is_over = || over.load(Ordering::Relaxed) || !held.is_wanted();
        let following = Following { setting, directory, watcher, is_over: &is_over };
        thread::scope(|scope| {
            scope.spawn(|| following.go_on(self, spec));
            let done = work();
            over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Waits until the watcher asks for the end, or somebody else has ended the cluster. Hosts that
    /// are lost meanwhile are told; the others go on.
    ///
    /// # Errors
    /// If all hosts are lost, and none of them answers again.
    pub fn wait(&self, setting: &Setting, watcher: &dyn Watcher) -> Result<()> {
        let cluster = &self.plan.cluster;
        let answers_again = |lost: &[Lost]| -> Result<bool> {
            let reach = Reach::kept(&setting.store, cluster)?;
            Ok(reach.is_some_and(|reach| !reach.that_answer(setting, cluster, lost).is_empty()))
        };
        let mut told: Vec<Lost> = Vec::new();
        let (mut asked, mut looked, mut tried) = (Instant::now(), Instant::now(), None);
        while !watcher.is_stopped() {
            thread::sleep(GLANCE);
            if asked.elapsed() >= HOSTS {
                asked = Instant::now();
                let lost = self.hosts.lost();
                for new in lost.iter().filter(|lost| !told.contains(lost)) {
                    watcher.note(&new.why);
                }
                // The first streams to them do not come back, but they may.
                if lost.len() == self.hosts.all().count() {
                    if !super::is_known(setting, cluster) {
                        return Ok(());
                    }
                    if tried.is_none_or(|tried: Instant| tried.elapsed() >= AGAIN) {
                        if !answers_again(&lost)? {
                            return Err(Error::new("all hosts are lost"));
                        }
                        tried = Some(Instant::now());
                    }
                }
                told = lost;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let (left, lost) = status_of_reached(cluster, &self.hosts)?;
                if left.is_empty() && lost.len() < self.hosts.all().count() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Follows the rules of a cluster that is up, until the watcher asks for the end or somebody ends
/// the cluster. When the file changes its new rules are followed; hosts that are lost are reached
/// again. `directory` is where relative paths of the file start, absolute.
///
/// # Errors
/// If the file has no rules, the cluster is not up, or another process follows them.
pub fn watch(
    spec: &Spec,
    setting: &Setting,
    directory: &Path,
    watcher: &dyn Watcher,
) -> Result<()> {
    let cluster = reached(spec, setting, directory, &[])?;
    let held = Held::take(setting, &spec.name)?.ok_or_else(|| {
        let fact = format!("another process follows cluster {}", spec.name);
        Error::new(fact).with_hint("end that one, or let it go on")
    })?;
    let is_over = || watcher.is_stopped() || !held.is_wanted();
    cluster.hosts.away().iter().for_each(|lost| watcher.note(&lost.why));
    Following { setting, directory, watcher, is_over: &is_over }.go_on(&cluster, spec);
    Ok(())
}

/// A cluster that is up, on the hosts that answer. Those that are `lost` are not tried.
fn reached(spec: &Spec, setting: &Setting, directory: &Path, lost: &[Lost]) -> Result<Cluster> {
    if !is_followed(spec) {
        let fact = "the file has no rule that could be followed, no batch system, and no balancer on \
                    several hosts";
        return Err(Error::new(fact).with_hint("see replicas and [batch] in docs/cluster.md"));
    }
    let (hosts, sites) = super::reach_without(setting, &spec.name, directory, lost)?;
    members(&spec.name, &hosts)?;
    let plan = crate::plan::plan(spec, &sites);
    Ok(Cluster { hosts, sites, plan, is_new: false, time: None, ends_with_driver: false })
}

/// How a cluster is followed.
struct Following<'a> {
    setting: &'a Setting,
    directory: &'a Path,
    watcher: &'a dyn Watcher,
    is_over: &'a (dyn Fn() -> bool + Sync),
}

impl Following<'_> {
    /// Follows a cluster until that is over: with what its file says at any time, and the hosts
    /// that answer.
    fn go_on(&self, first: &Cluster, spec: &Spec) {
        let (mut own, mut spec): (Option<Cluster>, Spec) = (None, spec.clone());
        let stand_ins = StandIns::default();
        let mut stamp = stamp_of(&spec.path);
        loop {
            let cluster = own.as_ref().unwrap_or(first);
            let back = Mutex::<Vec<Lost>>::default();
            let is_changed = || stamp_of(&spec.path) != stamp || !lock(&back).is_empty();
            let stop = || (self.is_over)() || is_changed() || !cluster.hosts.lost().is_empty();
            thread::scope(|scope| {
                scope.spawn(|| self.look_for_lost(cluster, &back, &stop));
                self.follow(cluster, &spec, &stand_ins, &stop);
            });
            let mut lost = cluster.hosts.lost();
            self.tell("goes on without", &lost);
            let back = lock(&back);
            self.tell("is there again:", &back);
            lost.extend(cluster.hosts.away().iter().filter(|one| !back.contains(one)).cloned());
            drop(back);
            let Some(again) = self.again(&spec, &mut stamp, lost) else { return };
            let (reached, new) = again;
            (own, spec) = (Some(reached), new);
        }
    }

    fn tell(&self, what: &str, hosts: &[Lost]) {
        let names: Vec<&str> = hosts.iter().map(|lost| &*lost.host).collect();
        if !names.is_empty() {
            self.watcher.note(&format!("{what} {}", names.join(", ")));
        }
    }

    /// Looks whether hosts that are lost answer again, and adds the first that do.
    fn look_for_lost(&self, cluster: &Cluster, back: &Mutex<Vec<Lost>>, stop: &dyn Fn() -> bool) {
        let name = &cluster.plan.cluster;
        let away = cluster.hosts.away();
        let Ok(Some(reach)) = Reach::kept(&self.setting.store, name) else { return };
        while !away.is_empty() && wait(AGAIN, stop) {
            let found = reach.that_answer(self.setting, name, away);
            if !found.is_empty() {
                *lock(back) = found;
                return;
            }
        }
    }

    /// Reaches the cluster again, with what the file says now. `None` if that is over.
    fn again(
        &self,
        spec: &Spec,
        stamp: &mut Stamp,
        mut lost: Vec<Lost>,
    ) -> Option<(Cluster, Spec)> {
        let mut told = String::new();
        loop {
            if (self.is_over)() {
                return None;
            }
            *stamp = stamp_of(&spec.path);
            let again = crate::spec::read_to_start(&spec.path)
                .and_then(|new| same_name(spec, new))
                .and_then(|new| Ok((reached(&new, self.setting, self.directory, &lost)?, new)));
            match again {
                Ok(again) => {
                    let is_new = |one: &&Lost| !lost.iter().any(|lost| lost.host == one.host);
                    let new = again.0.hosts.away().iter().filter(is_new);
                    new.for_each(|new| self.watcher.note(&new.why));
                    self.watcher.note("begins again, with the file and the hosts as they are now");
                    return Some(again);
                }
                Err(error) if error.to_string() == told => {}
                Err(error) => {
                    told = error.to_string();
                    let text = format!("nothing is followed until that is mended: {told}");
                    self.watcher.note(&text);
                }
            }
            // No host may have answered: then all are tried.
            lost.clear();
            wait(AGAIN, &|| (self.is_over)() || stamp_of(&spec.path) != *stamp);
        }
    }

    /// Follows all that a file asks for until that is to stop.
    fn follow(
        &self,
        cluster: &Cluster,
        spec: &Spec,
        stand_ins: &StandIns,
        stop: &(dyn Fn() -> bool + Sync),
    ) {
        let until = Until { watcher: self.watcher, stop };
        let Cluster { hosts, sites, plan, .. } = cluster;
        let (setting, turn) = (self.setting, Mutex::new(()));
        let up = &Up { spec, setting, hosts, sites, plan, watcher: &until, turn, stand_ins };
        thread::scope(|scope| {
            scope.spawn(move || {
                if let Err(error) = nodes::serve(up) {
                    up.watcher.note(&error.to_string());
                }
            });
            for (service, rule) in with_rules(spec) {
                scope.spawn(move || {
                    if let Err(error) = follow(up, service, rule) {
                        up.watcher.note(&format!("{}: {error}", service.name));
                    }
                });
            }
            let is_whole = hosts.away().is_empty() && lock(stand_ins).values().all(Vec::is_empty);
            for (service, count) in with_stand_ins(spec).filter(|_| !is_whole) {
                scope.spawn(move || stand_in(up, service, count));
            }
            while !stop() {
                thread::sleep(GLANCE);
            }
        });
    }
}

/// Waits for so long; returns false at once where `stop` says so.
fn wait(time: Duration, stop: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if stop() {
            return false;
        }
        thread::sleep(GLANCE);
    }
    !stop()
}

/// A file that is another cluster's now says nothing about this one.
fn same_name(spec: &Spec, new: Spec) -> Result<Spec> {
    if new.name == spec.name {
        return Ok(new);
    }
    Err(Error::new(format!("the file is of cluster {} now", new.name)))
}

/// What changes when a file is written; `None` if it is not there.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The file's stamp now.
fn stamp_of(path: &Path) -> Stamp {
    let meta = path.metadata().ok()?;
    Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// Has a process of its own follow the rules of a cluster that is up, if none does. Returns the
/// path of the file in which it tells what it does.
///
/// # Errors
/// If it does not begin, with what it has said.
pub fn watch_apart(spec: &Spec, setting: &Setting, file: &Path) -> Result<PathBuf> {
    let directory = place::directory(&setting.store, &spec.name);
    let log = directory.join(LOG);
    if is_held(&directory) {
        return Ok(log);
    }
    let cannot = |error: std::io::Error| {
        Error::new(format!("cluster {} cannot be followed: {error}", spec.name))
    };
    let mut said = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(&log)
        .map_err(cannot)?;
    let begin = said.seek(SeekFrom::End(0)).map_err(cannot)?;
    let mut command = setting.here.command(&words(&["cluster", "watch", "-f"]).into())?;
    command.arg(file);
    command.stdin(Stdio::null());
    command.stdout(said.try_clone().map_err(cannot)?);
    command.stderr(said.try_clone().map_err(cannot)?);
    sys::child::apart(&mut command, None);
    let mut child = command.spawn().map_err(cannot)?;
    let until = Instant::now() + PATIENCE;
    while !is_held(&directory) {
        let has_ended = child.try_wait().map_err(cannot)?.is_some();
        if has_ended || Instant::now() >= until {
            let _ = child.kill();
            let mut text = String::new();
            let read =
                said.seek(SeekFrom::Start(begin)).and_then(|_| said.read_to_string(&mut text));
            let why = if read.is_ok() { super::hosts::report(&text) } else { "it has ended" };
            let fact = format!("cluster {} is not followed: {why}", spec.name);
            return Err(Error::new(fact).with_hint("try: coracle cluster watch -f FILE"));
        }
        thread::sleep(GLANCE / 5);
    }
    Ok(log)
}

/// Whether a process follows the rules of the cluster with this directory.
fn is_held(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(HELD)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Ends the process that follows the rules of a cluster, if there is one.
///
/// # Errors
/// If it goes on.
pub(super) fn end(setting: &Setting, cluster: &str) -> Result<()> {
    let path = place::directory(&setting.store, cluster).join(HELD);
    let Ok(file) = File::open(&path) else { return Ok(()) };
    // That it is gone already is as good.
    let _ = std::fs::remove_file(&path);
    let until = Instant::now() + PATIENCE;
    while flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        if Instant::now() >= until {
            let fact = format!("what follows cluster {cluster} does not end");
            return Err(
                Error::new(fact).with_hint("end the process 'coracle cluster watch' yourself")
            );
        }
        thread::sleep(GLANCE / 5);
    }
    Ok(())
}
