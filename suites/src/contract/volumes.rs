//! Tests of volumes without a name: those that `-v /directory` makes, and those that images
//! declare.

use serde_json::json;
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::skip::Outcome;

use super::same::with_image;
use super::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[("unnamed", unnamed), ("declared", declared)];

/// A volume without a name outlives its container, unless it is removed with it: by `rm -v`, or by
/// the end of a run with `--rm`. One that another container mounts stays then, too.
fn unnamed(w: &World) -> Outcome {
    // A store of its own: other cases remove what is not used.
    let (w, image) = with_image(w, &testkit::guest::image(), "unnamed");
    let run = |flags: &[&str], guest: &[&str]| {
        let mode = w.mode();
        let all = [&["run", &mode], flags, &[&image, "/bin/guest"], guest].concat();
        w.coracle(&all)
    };
    // Of a container that has ended.
    let volume_of = |name: &str, flags: &[&str]| {
        let flags = [&["--name", name], flags].concat();
        run(&flags, &["write", "/v/x", "kept"]).ok();
        let template = "{{range .Mounts}}{{.Name}}{{end}}";
        w.coracle(&["container", "inspect", "--format", template, name]).ok().line()
    };
    let read = |volume: &str| {
        let flag = format!("{volume}:/v");
        run(&["--rm", "-v", &flag], &["read", "/v/x"]).ok().out()
    };
    let is_there = |volume: &str| w.coracle(&["volume", "inspect", volume]).code() == 0;
    let (one, two) = (w.name("owner"), w.name("other"));
    let kept = volume_of(&one, &["-v", "/v"]);
    w.coracle(&["rm", &one]).ok();
    assert_eq!(read(&kept), "kept", "rm took it");
    assert!(is_there(&kept), "a run that mounted it by its name took it");
    let kept_by_force = volume_of(&one, &["-v", "/v"]);
    w.coracle(&["rm", "-f", &one]).ok();
    assert!(is_there(&kept_by_force), "rm -f took it");
    let pruned = volume_of(&one, &["-v", "/v"]);
    w.coracle(&["container", "prune", "-f"]).ok();
    assert!(is_there(&pruned), "container prune took it");
    w.coracle(&["volume", "rm", &kept, &kept_by_force, &pruned]).ok();
    let shared = volume_of(&one, &["-v", "/v"]);
    assert_eq!(volume_of(&two, &["--volumes-from", &one]), shared);
    w.coracle(&["rm", "-v", &one]).ok();
    assert!(is_there(&shared), "another container mounts it");
    w.coracle(&["rm", "-fv", &two]).ok();
    assert!(!is_there(&shared), "rm -v left it");
    let before = w.coracle(&["volume", "ls", "-q"]).ok().out();
    run(&["--rm", "-v", "/v"], &["write", "/v/x", "gone"]).ok();
    assert_eq!(w.coracle(&["volume", "ls", "-q"]).ok().out(), before, "run --rm left it");
    Ok(())
}

/// Each path that an image declares gets a volume, which begins with the image's files.
fn declared(w: &World) -> Outcome {
    let image = Image::new()
        .layer(testkit::guest::layer())
        .layer(Layer::new().dir("v").file("v/of-the-image", 0o644, "i"))
        .config("Volumes", json!({ "/v": {}, "/new/deep/": {} }));
    let (w, image) = with_image(w, &image, "declares");
    let run = |words: &[&str], guest: &[&str]| {
        w.coracle(&[&["run", &w.mode()], words, &[&image, "/bin/guest"], guest].concat())
    };
    let volumes = || w.coracle(&["volume", "ls", "-q"]).ok().out();
    let (one, two) = (w.name("declares"), w.name("shares"));
    let writes = ["write", "/v/x", "1", ";", "write", "/new/deep/x", "2", ";", "list", "/v"];
    let done = run(&["--read-only", "--name", &one], &writes);
    assert_eq!(super::world::json(&done), json!(["of-the-image", "x"]));
    let container = Container::named(&w, &one);
    let mounts = "{{range .Mounts}}{{.Type}} {{.Destination}} {{.RW}},{{end}}";
    assert_eq!(container.inspect(mounts), "volume /new/deep true,volume /v true,");
    assert_eq!(volumes().lines().count(), 2);
    // Another container shares them, and gets none of its own.
    let done = run(&["--volumes-from", &one, "--name", &two], &["read", "/new/deep/x"]);
    assert_eq!(done.ok().out(), "2");
    assert_eq!(volumes().lines().count(), 2);
    w.coracle(&["rm", &one, &two]).ok();
    assert_eq!(volumes().lines().count(), 2, "rm took them");
    w.coracle(&["volume", "prune", "-f"]).ok();
    // What the user mounts there takes the place of the image's volume.
    let dir = w.dir("own");
    w.file(&dir, "in", "of the host");
    let bound = format!("{}:/v/", dir.display());
    let done = run(&["--rm", "-v", &bound, "--tmpfs", "/new/deep"], &["list", "/v"]);
    assert_eq!(super::world::json(&done), json!(["in"]));
    run(&["--rm"], &["write", "/v/x", "3"]).ok();
    assert_eq!(volumes(), "", "run --rm left them");
    Ok(())
}
