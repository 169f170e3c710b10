//! Tells what happens to containers ([`crate::journal`]).

use engine::supervise::Signal;
use store::ContainerDir;

use super::record::{self, Record};
use crate::journal::{self, Actor, Kind};
use crate::session::Session;

/// A container as the object of an event: its name, its image and its labels.
pub fn actor(container: &ContainerDir, record: Option<&Record>) -> Actor {
    let mut actor = Actor { id: container.id().to_owned(), ..Actor::default() };
    if let Some(record) = record {
        actor.attributes.extend(record.config.labels.clone());
        actor = actor.with("image", &record.own.image_name);
    }
    actor.with("name", record::title(container))
}

/// The same of a container whose record has not been read.
pub fn actor_of(container: &ContainerDir) -> Actor {
    actor(container, record::read(container).ok().as_ref())
}

/// Tells what has just happened to a container.
pub fn tell(session: &Session, action: &str, container: &ContainerDir, record: &Record) {
    journal::tell(session, Kind::Container, action, actor(container, Some(record)));
}

/// The same of a container whose record has not been read.
pub fn tell_of(session: &Session, action: &str, container: &ContainerDir) {
    journal::tell(session, Kind::Container, action, actor_of(container));
}

/// Tells that a container is about to be sent a signal: before its program can end by it.
pub fn tell_signal(session: &Session, actor: Actor, signal: Signal) {
    let actor = actor.with("signal", signal.number().to_string());
    journal::tell(session, Kind::Container, "kill", actor);
}
