//! Uses the crate as a second front end would: a process with threads, a store of its own, a
//! listener and a token for each operation, and errors that it maps by their kind.

use std::path::Path;
use std::sync::{Arc, Mutex};

use containers::config::{PullPolicy, Settings};
use containers::container::{control, list, make, record, removal};
use containers::events::Silent;
use containers::images::find::{self, ImageQuery};
use containers::request::{ContainerRequest, RegistryRequest, options};
use containers::{Cancel, Dialect, Event, Events, Foreign, Kind, Session, Surroundings};
use store::Store;
use testkit::image::{Built, Image};
use testkit::layer::Layer;
use testkit::registry::{Fault, Registry};

/// Keeps what it is told, and may cancel at the first part of a pull.
#[derive(Default)]
struct Listener {
    lines: Mutex<Vec<String>>,
    cancels: Option<Cancel>,
}

impl Events for Listener {
    fn event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Progress { text, .. } => format!("progress {text}"),
            Event::PartStarted(part) => format!("{} {} bytes", part.verb, part.bytes),
            Event::PartDone(part) => format!("done {} bytes", part.bytes),
            Event::WorkDone { moved, .. } => format!("moved {moved} bytes"),
            _ => return,
        };
        self.lines.lock().unwrap().push(line);
        if let (Event::PartStarted(_), Some(cancel)) = (event, &self.cancels) {
            cancel.cancel();
        }
    }
}

fn session(place: &Path) -> Session {
    let surroundings = Surroundings {
        environment: [("HOME".into(), place.into())].into(),
        directory: Some(place.to_owned()),
        ..Surroundings::default()
    };
    let dialect = (Dialect::default(), Foreign::default());
    let settings = Settings { store_dir: Some(place.join("store")), ..Settings::default() };
    Session::new(Arc::new(surroundings), settings, dialect, Arc::new(Silent))
}

/// A container of a plain tree, which needs neither an image nor the host's abilities.
fn request(name: &str, tree: &Path) -> ContainerRequest {
    let mut request = ContainerRequest::default();
    request.image.rootfs = Some(tree.to_owned());
    request.command = vec!["/none".to_owned()];
    request.record.name = Some(name.to_owned());
    request
}

/// An image whose layer is large enough to be pulled in several pieces.
fn image() -> Built {
    let bytes: Vec<u8> =
        (0..400_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    Image::new().layer(Layer::new().file("noise", 0o644, bytes)).cmd(&["/none"]).build()
}

fn pull(session: &Session, name: &str) -> containers::Result<store::Image> {
    let registry = RegistryRequest { tls_verify: Some(false), ..RegistryRequest::default() };
    let policy = PullPolicy::Always;
    find::get(session, &ImageQuery { name, policy, platform: None, registry: &registry })
}

fn names(store: &Store) -> Vec<String> {
    let mut names = list::map(store, true, |seen| seen.names.join(",")).unwrap();
    names.sort();
    names
}

#[test]
fn a_session_is_shared_by_threads() {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Session>();
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let session = session(place.path());
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (session, tree) = (&session, &tree);
            scope.spawn(move || {
                let mine = session.with(Arc::new(Silent), Cancel::default());
                make::create(&mine, &request(name, tree), false).unwrap();
                control::add_name(session, name, &format!("{name}-too")).unwrap();
            });
        }
    });
    assert_eq!(names(session.store().unwrap()), ["one,one-too", "two,two-too"]);
    let kept = record::read(&record::find(&session, "one").unwrap()).unwrap();
    assert_eq!(kept.own.cmd, ["/none"]);
    assert!(removal::remove(&session, "one", removal::RemoveRequest::default()).unwrap());
    removal::sync(&session).unwrap();
    assert_eq!(names(session.store().unwrap()), ["two,two-too"]);
}

#[test]
fn errors_have_a_kind_and_a_hint() {
    let place = tempfile::tempdir().unwrap();
    let session = session(place.path());
    make::create(&session, &request("one", place.path()), false).unwrap();

    let missing = control::rename(&session, "nobody", "somebody").unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    assert!(missing.hint().unwrap().contains("ps -a"), "{missing}");

    let taken = make::create(&session, &request("one", place.path()), false).unwrap_err();
    assert_eq!(taken.kind(), Kind::Conflict);
    assert!(taken.hint().unwrap().contains("another name"), "{taken}");

    let invalid = options::restart("now and then").unwrap_err();
    assert_eq!(invalid.kind(), Kind::Invalid);
    assert!(invalid.hint().unwrap().contains("unless-stopped"), "{invalid}");

    // The test's process has several threads, so nothing may be started from it.
    let unsafe_here = control::start(&session, "one").unwrap_err();
    assert_eq!(unsafe_here.kind(), Kind::Unsupported);
    assert!(unsafe_here.hint().unwrap().contains("one thread"), "{unsafe_here}");
}

#[test]
fn a_pull_is_told_and_can_be_cancelled() {
    let place = tempfile::tempdir().unwrap();
    let session = session(place.path());
    let registry = Registry::start().unwrap();
    let built = image();
    registry.image("team/tool", "1", &built);
    let name = format!("{}/team/tool:1", registry.host());

    registry.fault("/blobs/", Fault::Slow(4096, std::time::Duration::from_millis(20)), 100);
    let cancel = Cancel::default();
    let quitter = Listener { cancels: Some(cancel.clone()), ..Listener::default() };
    let error = pull(&session.with(Arc::new(quitter), cancel), &name).unwrap_err();
    assert_eq!((error.kind(), error.fact()), (Kind::Cancelled, format!("cannot pull {name}")));
    assert!(find::local(&session, &name).unwrap().is_none());

    let listener = Arc::new(Listener::default());
    let calm = session.with(Arc::<Listener>::clone(&listener), Cancel::default());
    let image = pull(&calm, &name).unwrap();
    assert_eq!(image.digest().to_string(), built.manifest.digest);
    let lines = listener.lines.lock().unwrap();
    let bytes = built.layers[0].bytes.len();
    assert!(lines[0].starts_with("progress ") && lines[0].contains("1 of 1 layers"), "{lines:?}");
    assert!(lines.contains(&format!("fetching {bytes} bytes")), "{lines:?}");
    assert!(lines.contains(&format!("done {bytes} bytes")), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("moved "), "{lines:?}");
}
