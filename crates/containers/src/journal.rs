//! The events of containers, images, networks and volumes, in the form of Docker's `events`
//! (Docker Engine API, `GET /events`).
//!
//! Operations tell what they did ([`tell`]), supervisors what became of a program
//! ([`observer`]), and [`follow`] reads it. A store keeps the last one or two megabytes of each
//! host. What cannot be written down is not a failure of what was done.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::supervise::{Change, Observer, Told};
use jiff::Timestamp;
use oci::Reference;
use serde::{Deserialize, Serialize};
use store::JournalReader;

use crate::error::Result;
use crate::filter::{self, Filters};
use crate::session::Session;
use crate::time;

/// The filters of a request for events.
pub const FILTERS: &[&str] =
    &["container", "event", "image", "label", "network", "scope", "type", "volume"];

/// The scope of all events, and the driver of volumes in the store.
const LOCAL: &str = "local";
/// How long a reader waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A container; the id is its own.
    Container,
    /// An image; the id is its digest, or its name for what concerns a name.
    Image,
    /// A network with a name.
    Network,
    /// A volume; the id is its name.
    Volume,
}

impl Kind {
    /// Its name in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Image => "image",
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }
}

/// An event. Its fields and their order are those of Docker's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The action once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The actor's id once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The container's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is about.
    #[serde(rename = "Type")]
    pub kind: Kind,
    /// What happened: `start`, `die`, `pull`, ...
    #[serde(rename = "Action")]
    pub action: String,
    /// To which object.
    #[serde(rename = "Actor")]
    pub actor: Actor,
    /// Always `local`.
    pub scope: String,
    /// Unix seconds.
    pub time: i64,
    /// Unix nanoseconds.
    #[serde(rename = "timeNano")]
    pub time_nano: i64,
}

/// The object of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// See [`Kind`].
    #[serde(rename = "ID")]
    pub id: String,
    /// Name, image, labels, and what is known of the action (`exitCode`, `signal`, ...).
    #[serde(rename = "Attributes")]
    pub attributes: BTreeMap<String, String>,
}

impl Actor {
    /// An image, or a network.
    pub fn named(id: impl Into<String>, name: &str) -> Self {
        let attributes = [("name".to_owned(), name.to_owned())].into();
        Self { id: id.into(), attributes }
    }

    /// A volume of the store's own.
    pub fn volume(name: &str) -> Self {
        let attributes = [("driver".to_owned(), LOCAL.to_owned())].into();
        Self { id: name.to_owned(), attributes }
    }

    /// The same object with something that is known of the action.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.attributes.insert(key.to_owned(), value.into());
        self
    }
}

impl Entry {
    fn new(kind: Kind, action: &str, actor: Actor, at: Timestamp) -> Self {
        let is_short = matches!(kind, Kind::Container | Kind::Image);
        Self {
            status: is_short.then(|| action.to_owned()),
            id: is_short.then(|| actor.id.clone()),
            from: actor.attributes.get("image").filter(|_| kind == Kind::Container).cloned(),
            kind,
            action: action.to_owned(),
            actor,
            scope: LOCAL.to_owned(),
            time: at.as_second(),
            time_nano: i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX),
        }
    }

    fn matches(&self, filters: &Filters) -> bool {
        let (id, name) = (&self.actor.id, self.actor.attributes.get("name"));
        let has_name = |wanted: &str| name.is_some_and(|name| name == wanted);
        let is_actor = |kind, wanted: &str| {
            self.kind == kind && (has_name(wanted) || !wanted.is_empty() && id.starts_with(wanted))
        };
        let is_image = |wanted: &str| {
            let with_tag = |text: &str| {
                text == wanted
                    || text.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(':'))
            };
            match self.kind {
                Kind::Image => with_tag(id) || name.is_some_and(|name| with_tag(name)),
                _ => self.from.as_deref().is_some_and(with_tag),
            }
        };
        // The action of `exec` has its command behind a colon.
        let action = self.action.split(':').next().unwrap_or_default();
        filters.any("container", |wanted| is_actor(Kind::Container, wanted))
            && filters.any("network", |wanted| is_actor(Kind::Network, wanted))
            && filters.any("volume", |wanted| is_actor(Kind::Volume, wanted))
            && filters.any("image", is_image)
            && filters.any("event", |wanted| wanted == action || wanted == self.action)
            && filters.any("scope", |wanted| wanted == self.scope)
            && filters.any("type", |wanted| wanted == self.kind.name())
            && filters.all("label", |wanted| filter::label(&self.actor.attributes, wanted))
    }
}

/// Writes down what has just happened.
pub fn tell(session: &Session, kind: Kind, action: &str, actor: Actor) {
    append(session, &[Entry::new(kind, action, actor, time::now())]);
}

/// The same of a name of an image, which is its own id here, as in Docker.
pub fn tell_image(session: &Session, action: &str, reference: &Reference) {
    let familiar = reference.familiar();
    tell(session, Kind::Image, action, Actor::named(familiar.clone(), &familiar));
}

fn append(session: &Session, entries: &[Entry]) {
    let Ok(store) = session.store() else { return };
    if store.read_only().is_some() {
        return;
    }
    let mut lines = Vec::with_capacity(512);
    for entry in entries {
        if serde_json::to_writer(&mut lines, entry).is_ok() {
            lines.push(b'\n');
        }
    }
    if let Err(error) = store.journal().append(&lines) {
        tracing::debug!("journal: {error}");
    }
}

/// Writes down what becomes of a container's program. A further program in a running container is
/// what Docker calls `exec`.
pub fn observer<'a>(session: &'a Session, actor: Actor, command: &[String]) -> Observer<'a> {
    let command = command.join(" ");
    Box::new(move |told: &[Told]| {
        let entry = |told: &Told| {
            let at = time::parse(&told.time).unwrap_or_else(time::now);
            let (action, actor) = match (told.change, told.further) {
                (Change::Started, false) => ("start".to_owned(), actor.clone()),
                (Change::Started, true) => (format!("exec_start: {command}"), actor.clone()),
                (Change::Ended(outcome), further) => {
                    let action = if further { "exec_die" } else { "die" };
                    (action.to_owned(), actor.clone().with("exitCode", outcome.code.to_string()))
                }
            };
            Entry::new(Kind::Container, &action, actor, at)
        };
        append(session, &told.iter().map(entry).collect::<Vec<_>>());
    })
}

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// From this time on; without it only those that are still to come.
    pub since: Option<Timestamp>,
    /// Before this time, at which the reading ends; without it it does not.
    pub until: Option<Timestamp>,
    /// See [`FILTERS`].
    pub filters: Filters,
}

/// Gives each event to `each` in the order of their times, until it says that it wants no more, or
/// the caller cancels.
pub fn follow(
    session: &Session,
    query: &Query,
    each: &mut dyn FnMut(&Entry) -> bool,
) -> Result<()> {
    let began = time::now();
    let mut reader = JournalReader::new(session.store()?);
    let mut is_first = true;
    loop {
        // Asked before reading: what happened until then is there.
        let ends = query.until.is_some_and(|until| until <= time::now());
        let mut entries: Vec<Entry> = reader
            .lines()?
            .iter()
            // A line that a full disk has cut is none.
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if is_first && query.since.is_none() {
            entries.retain(|entry| entry.at() >= began);
        }
        is_first = false;
        entries.retain(|entry| {
            query.since.is_none_or(|since| entry.at() >= since)
                && query.until.is_none_or(|until| entry.at() < until)
                && entry.matches(&query.filters)
        });
        // Of several hosts; and a short program's start is written with its end.
        entries.sort_by_key(|entry| entry.time_nano);
        if !entries.iter().all(&mut *each) || ends {
            return Ok(());
        }
        session.cancel().check()?;
        std::thread::sleep(PAUSE);
    }
}

impl Entry {
    /// When it happened.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.time_nano.into()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, action: &str, id: &str, attributes: &[(&str, &str)]) -> Entry {
        let mut actor = Actor { id: id.to_owned(), ..Actor::default() };
        for (key, value) in attributes {
            actor = actor.with(key, *value);
        }
        Entry::new(
            kind,
            action,
            actor,
            Timestamp::from_nanosecond(1_700_000_000_000_000_005).unwrap(),
        )
    }

    #[test]
    fn the_form_is_dockers() {
        let died = entry(
            Kind::Container,
            "die",
            "ab12",
            &[("image", "deb"), ("exitCode", "3"), ("name", "x")],
        );
        let text = serde_json::to_string(&died).unwrap();
        assert_eq!(
            text,
            r#"{"status":"die","id":"ab12","from":"deb","Type":"container","Action":"die","Actor":{"ID":"ab12","Attributes":{"exitCode":"3","image":"deb","name":"x"}},"scope":"local","time":1700000000,"timeNano":1700000000000000005}"#
        );
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), died);
    }

    #[test]
    fn filters() {
        let of = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            Filters::parse(&texts, FILTERS).unwrap()
        };
        let exec = entry(
            Kind::Container,
            "exec_start: sh -c 'a: b'",
            "ab12",
            &[("image", "deb:1"), ("name", "x"), ("team", "red")],
        );
        for fits in [
            &["container=x"][..],
            &["container=ab"],
            &["event=exec_start"],
            &["event=die", "event=exec_start"],
            &["image=deb"],
            &["image=deb:1"],
            &["type=container", "scope=local"],
            &["label=team", "label=team=red"],
        ] {
            assert!(exec.matches(&of(fits)), "{fits:?}");
        }
        for not in [
            &["container=y"][..],
            &["container="],
            &["volume=x"],
            &["event=exec"],
            &["image=de"],
            &["type=image"],
            &["label=team", "label=team=blue"],
        ] {
            assert!(!exec.matches(&of(not)), "{not:?}");
        }
        let made = entry(Kind::Network, "create", "ab12", &[("name", "lab"), ("type", "bridge")]);
        assert!(made.matches(&of(&["network=lab", "type=network", "event=create"])));
        assert!(made.matches(&of(&["network=ab"])) && !made.matches(&of(&["network=la"])));
        assert!(!made.matches(&of(&["container=lab"])) && made.status.is_none());
        let pulled = entry(Kind::Image, "pull", "deb:1", &[("name", "deb")]);
        assert!(pulled.matches(&of(&["image=deb", "type=image"])));
        assert!(!pulled.matches(&of(&["container=deb"])));
    }
}
