//! Operations on images, called as a front end calls them: with a listener and a token of its own.

use std::path::Path;
use std::sync::{Arc, Mutex};

use containers::config::Settings;
use containers::events::Silent;
use containers::images::list::{self, ListRequest};
use containers::images::pull::{PullRequest, Pulled, Remote};
use containers::images::source::Source;
use containers::images::{import, load, save, tag};
use containers::request::RegistryRequest;
use containers::storage::verify::{self, VerifyRequest};
use containers::{Cancel, Dialect, Event, Events, Foreign, Kind, Session, Surroundings};
use testkit::image::{Built, Image};
use testkit::layer::Layer;
use testkit::registry::Registry;

/// Keeps what it is told, and cancels when the first bytes of a layer have arrived.
#[derive(Default)]
struct Listener {
    lines: Mutex<Vec<String>>,
    cancels: Option<Cancel>,
}

impl Listener {
    fn heard(&self, text: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(text))
    }
}

impl Events for Listener {
    fn event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Progress { text, .. } => (*text).to_owned(),
            Event::Expected { bytes, .. } => format!("expected {}", *bytes > 0),
            Event::PartStarted(part) => format!("started {}", part.verb),
            Event::PartMoved { .. } => {
                if let Some(cancel) = &self.cancels {
                    cancel.cancel();
                }
                return;
            }
            Event::PartDone(part) => format!("done {}", part.verb),
            Event::WorkDone { moved, .. } => format!("moved {}", *moved > 0),
            _ => return,
        };
        self.lines.lock().unwrap().push(line);
    }
}

fn session(place: &Path) -> Session {
    let surroundings = Surroundings {
        environment: [("HOME".into(), place.into())].into(),
        directory: Some(place.to_owned()),
        ..Surroundings::default()
    };
    let settings = Settings { store_dir: Some(place.join("store")), ..Settings::default() };
    let dialect = (Dialect::default(), Foreign::default());
    Session::new(Arc::new(surroundings), settings, dialect, Arc::new(Silent))
}

/// Two layers, the first of them large enough to arrive in several pieces.
fn image() -> Built {
    let noise: Vec<u8> =
        (0..4_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    Image::new()
        .layer(Layer::new().file("noise", 0o644, noise))
        .layer(Layer::new().file("word", 0o644, "word"))
        .cmd(&["/none"])
        .build()
}

fn pull(session: &Session, name: &str) -> containers::Result<Pulled> {
    let request = PullRequest {
        name: name.to_owned(),
        platform: None,
        all_tags: false,
        unpack: true,
        registry: RegistryRequest { tls_verify: Some(false), ..RegistryRequest::default() },
    };
    let remote = Remote::find(session, &request)?;
    remote.pull(&remote.references()[0])
}

fn names(session: &Session) -> Vec<String> {
    let listed = list::list(session, &ListRequest::default()).unwrap();
    listed.iter().map(|one| one.image.reference().unwrap().to_string()).collect()
}

#[test]
fn a_pull_tells_its_own_listener() {
    let place = tempfile::tempdir().unwrap();
    let registry = Registry::start().unwrap();
    registry.image("tools", "1", &image());
    let name = format!("{}/tools:1", registry.host());
    let all = session(place.path());
    let first = Arc::new(Listener::default());
    let pulled = pull(&all.with(first.clone(), Cancel::default()), &name).unwrap();
    assert!(!pulled.unchanged);
    for line in ["2 of 2 layers", "expected true", "started fetching", "done fetching"] {
        assert!(first.heard(line), "{line}: {:?}", first.lines);
    }
    assert!(first.heard("moved true") && first.heard(": pulled"), "{:?}", first.lines);
    // The second pull has nothing to fetch, and only its own listener is told.
    let before = first.lines.lock().unwrap().len();
    let second = Arc::new(Listener::default());
    let again = pull(&all.with(second.clone(), Cancel::default()), &name).unwrap();
    assert_eq!((again.digest, again.unchanged), (pulled.digest, true));
    assert!(second.heard("up to date") && !second.heard("started"), "{:?}", second.lines);
    assert_eq!(first.lines.lock().unwrap().len(), before);
    assert_eq!(names(&all), [name]);
}

#[test]
fn a_cancelled_pull_leaves_the_store_usable() {
    let place = tempfile::tempdir().unwrap();
    let registry = Registry::start().unwrap();
    registry.image("tools", "1", &image());
    let name = format!("{}/tools:1", registry.host());
    let all = session(place.path());
    let cancel = Cancel::default();
    let listener = Listener { cancels: Some(cancel.clone()), ..Listener::default() };
    let error = pull(&all.with(Arc::new(listener), cancel), &name).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled, "{error}");
    assert!(names(&all).is_empty());
    let whole = verify::verify(&all, &VerifyRequest::default()).unwrap();
    assert!(whole.problems.is_empty(), "{:?}", whole.problems);
    // Another operation of the same session is not cancelled, and finishes the work.
    assert!(!pull(&all, &name).unwrap().unchanged);
    assert_eq!(names(&all), [name]);
}

#[test]
fn an_image_goes_out_and_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    let tree = place.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("word"), "word").unwrap();
    let sender = session(&one);
    let mut request = import::ImportRequest::new(Source::Path(tree));
    request.name = Some("sent:1".to_owned());
    request.changes = vec!["CMD [\"/word\"]".to_owned()];
    import::import(&sender, request).unwrap();
    let mut archive = Vec::new();
    let selection = save::Selection::find(&sender, &["sent:1".to_owned()]).unwrap();
    selection.write(save::Form::Oci, &mut archive).unwrap();
    let receiver = session(&other);
    let reader: Box<dyn std::io::Read + Send> = Box::new(std::io::Cursor::new(archive));
    let source = Source::Stream { reader, name: "the archive".to_owned() };
    let request = load::LoadRequest { source, name: None, platform: None };
    let loaded: Vec<_> =
        load::load(&receiver, request).unwrap().map(|names| names.unwrap()[0].familiar()).collect();
    assert_eq!(loaded, ["sent:1"]);
    let again = tag::TagRequest {
        source: "sent:1".to_owned(),
        target: "kept:2".to_owned(),
        ..tag::TagRequest::default()
    };
    tag::tag(&receiver, &again).unwrap();
    let refused = tag::tag(&receiver, &tag::TagRequest { keep: true, ..again }).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    assert_eq!(names(&receiver).len(), 2);
}
