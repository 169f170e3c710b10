//! The networks of several hosts that the agent of a host serves: what its threads share.
//!
//! Locks, in this order: `all`, `peers` of a network, `snapshot`, `others`, `holders`.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Instant;

use abi::network::Table;
use store::Store;
use sys::shared::SharedWords;

use super::containers::{Alive, Containers};
use crate::cluster::View;
use crate::locks::{self, lock};
use crate::networks::Network;
use crate::peers::{Message, Peers, PublicKey, Remote, message};
use crate::slices;
use crate::switch::Switch;

/// What the agent serves, and with what.
pub(super) struct Served {
    pub(super) store: Store,
    pub(super) containers: Arc<dyn Containers>,
    pub(super) alive: Arc<Alive>,
    /// For members that have network namespaces.
    pub(super) switch: Arc<Switch>,
    words: Arc<SharedWords>,
    /// By their numbers in this host's table.
    all: RwLock<HashMap<u16, Arc<Joined>>>,
}

/// A network that is served.
pub(super) struct Joined {
    pub(super) network: Network,
    /// Its number in this host's table.
    pub(super) number: u16,
    pub(super) view: RwLock<Arc<View>>,
    pub(super) peers: RwLock<Option<Peers>>,
    /// The members that others were told of.
    pub(super) snapshot: Mutex<Vec<Remote>>,
    pub(super) others: Mutex<HashMap<PublicKey, Others>>,
    pub(super) holders: Mutex<Holders>,
}

/// What is known of auxiliary addresses. While it is locked nobody gets one and nobody loses one.
#[derive(Default)]
pub(super) struct Holders {
    /// The hosts whose members have them, but for this one.
    pub(super) elsewhere: HashMap<Ipv4Addr, PublicKey>,
    /// When others were told of one that a member of this host has announced.
    pub(super) told: HashMap<Ipv4Addr, Instant>,
}

/// The members of another host.
#[derive(Default)]
pub(super) struct Others {
    pub(super) members: Vec<Remote>,
    /// The host has told of them since its link was made.
    pub(super) told: bool,
    /// Parts of a message that is not complete.
    coming: Vec<Remote>,
    /// Since when the link is down.
    pub(super) down: Option<Instant>,
}

impl Joined {
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&locks::read(&self.view))
    }

    pub(super) fn peers(&self) -> RwLockReadGuard<'_, Option<Peers>> {
        locks::read(&self.peers)
    }

    pub(super) fn send(&self, key: &PublicKey, message: &Message) -> bool {
        self.peers().as_ref().is_some_and(|peers| peers.send(key, message))
    }

    /// Takes a part of what another host says of its members. What it cannot know is left out:
    /// addresses of other hosts, and texts that are no names.
    pub(super) fn take(&self, key: &PublicKey, (part, last): (u16, bool), members: Vec<Remote>) {
        let view = self.view();
        let Some(at) = view.list.position(key) else { return };
        let subnet = self.network.definition().subnet;
        let is_its = |member: &Remote| {
            member.is_valid() && slices::owner(subnet, member.address) == Some(at)
        };
        let mut others = lock(&self.others);
        let its = others.entry(*key).or_default();
        if part == 0 {
            its.coming.clear();
        }
        let room = message::MEMBERS.saturating_sub(its.coming.len());
        its.coming.extend(members.into_iter().filter(is_its).take(room));
        if last {
            its.members = std::mem::take(&mut its.coming);
            its.told = true;
        }
    }
}

impl Served {
    pub(super) fn new(
        store: &Store,
        containers: &Arc<dyn Containers>,
        alive: &Arc<Alive>,
        words: &Arc<SharedWords>,
        switch: &Arc<Switch>,
    ) -> Self {
        Self {
            store: store.clone(),
            containers: Arc::clone(containers),
            alive: Arc::clone(alive),
            switch: Arc::clone(switch),
            words: Arc::clone(words),
            all: RwLock::default(),
        }
    }

    pub(super) fn table(&self) -> Option<Table<'_>> {
        Table::open(self.words.words())
    }

    /// The network with a number.
    pub(super) fn joined(&self, number: u16) -> Option<Arc<Joined>> {
        locks::read(&self.all).get(&number).cloned()
    }

    /// The network with an id.
    pub(super) fn joined_by_id(&self, id: &str) -> Option<Arc<Joined>> {
        let all = locks::read(&self.all);
        all.values().find(|joined| joined.network.id() == id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Joined>> {
        locks::read(&self.all).values().cloned().collect()
    }

    /// Serves a network from now on, or does not any more.
    pub(super) fn put(&self, number: u16, joined: Option<Arc<Joined>>) {
        let mut all = locks::write(&self.all);
        let old = match joined {
            Some(joined) => all.insert(number, joined),
            None => all.remove(&number),
        };
        drop(all);
        // The links' threads have the network, too.
        if let Some(old) = old {
            drop(locks::write(&old.peers).take());
        }
    }
}
