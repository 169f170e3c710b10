//! What a run removes and what it ends: what it has made, and what belongs to it.

use testkit::skip::Outcome;

use crate::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("a_word_is_an_image_then_a_container", a_word_is_an_image_then_a_container),
    ("rm_is_for_what_a_run_makes", rm_is_for_what_a_run_makes),
    ("a_name_is_not_the_beginning_of_an_id", a_name_is_not_the_beginning_of_an_id),
];

/// A container that runs until it is told to end, and an image of the same name that is here.
fn a_word_is_an_image_then_a_container(w: &World) -> Outcome {
    let c = w.detached(&[], &["write", "/tmp/precious", "kept", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    w.coracle(&["tag", &w.image, &c.name]).ok();
    let mode = w.mode();
    let of_image = |flags: &[&str], guest: &[&str]| {
        let words = [&["run", "--rm", mode.as_str()], flags, &[c.name.as_str()], guest].concat();
        w.coracle(&words)
    };
    let client = of_image(&[], &["/bin/guest", "list", "/tmp"]);
    let id = c.inspect("{{.Id}}");
    assert_eq!(client.ok().out(), "[]\n", "in a container of its own");
    // Once, and it says what to type instead.
    let told = format!("coracle run {}", &id[..12]);
    assert_eq!(client.err().matches(&told).count(), 1, "{client:?}");
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    let inside = w.coracle(&["run", &id[..12], "/bin/guest", "read", "/tmp/precious"]);
    assert_eq!((inside.ok().out(), inside.err()), ("kept".to_owned(), String::new()));
    // Without the image it is the container again, and no registry is asked.
    w.coracle(&["rmi", &c.name]).ok();
    let inside = w.coracle(&["run", &c.name, "/bin/guest", "read", "/tmp/precious"]);
    assert_eq!((inside.ok().out(), inside.err()), ("kept".to_owned(), String::new()));
    Ok(())
}

fn rm_is_for_what_a_run_makes(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let id = c.inspect("{{.Id}}");
    for word in [c.name.as_str(), &id[..12]] {
        let done = w.coracle(&["run", "--rm", word, "/bin/guest", "exit", "0"]);
        assert!(done.expect(125).err().contains("coracle rm"), "with a hint: {done:?}");
        let done = w.coracle(&["run", "--pull=always", word, "/bin/guest", "exit", "0"]);
        assert!(done.expect(125).err().contains("--pull"), "{done:?}");
    }
    w.coracle(&["run", "--explain", &c.name]).ok();
    // A start that fails removes nothing either.
    w.coracle(&["run", &c.name, "/no/such/program"]).expect(127);
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    // Whoever asks for a container to be shared is told too.
    let words = w.words_for(&["run", "--rm"], &["--join", &c.name], &["exit", "0"]);
    w.coracle(&words).expect(125);
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    // What it has made goes, whether it began or not.
    for (guest, code) in [("/no/such/program", 127), ("/bin/guest", 0)] {
        let name = w.name("made");
        let words = ["run", "--rm", "--name", &name, &w.mode(), &w.image, guest, "exit", "0"];
        w.coracle(&words).expect(code);
        assert_ne!(w.coracle(&["inspect", "--type=container", &name]).code(), 0);
    }
    Ok(())
}

/// Only who has the name is replaced, not whose id happens to begin so.
fn a_name_is_not_the_beginning_of_an_id(w: &World) -> Outcome {
    let (first, second) = (w.name("old"), w.name("other"));
    let _containers = [Container::named(w, &first), Container::named(w, &second)];
    let id = w.coracle(&["create", &w.mode(), "--name", &first, &w.image]).ok().line();
    let prefix = &id[..10];
    w.coracle(&["create", "--force", "--name", prefix, &w.mode(), &w.image]).ok();
    assert_eq!(w.coracle(&["inspect", "--format={{.Id}}", &first]).ok().line(), id);
    w.coracle(&["rm", prefix]).ok();
    assert_eq!(w.coracle(&["inspect", "--format={{.Id}}", &first]).ok().line(), id);
    Ok(())
}
