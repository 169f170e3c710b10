//! Tests of udocker's own directory: its content is listed, used and taken over, and nothing in it
//! changes before that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use testkit::image::{Pack, compress, digest};
use testkit::layer::Layer;
use testkit::skip::Outcome;

use crate::udocker::world::{Case, IMAGE, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("containers_are_found_and_run", containers_are_found_and_run),
    ("images_of_each_manifest", images_of_each_manifest),
    ("everything_moves", everything_moves),
    ("rewritten_trees_are_refused", rewritten_trees_are_refused),
    ("openmole", openmole),
];

/// Puts an image into udocker's layout, with a manifest of the form `kind`.
pub(crate) fn put_image(w: &World, top: &Path, name: &str, tag: &str, kind: &str) {
    let packed = compress(&w.layer, Pack::Gzip);
    let place = w.below(top, &format!("repos/{name}/{tag}"));
    let layers = w.below(top, "layers");
    let config = json!({
        "architecture": "amd64", "os": "linux", "created": "2020-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/bin", "OLD=yes"], "Cmd": ["sh", "-c", "echo from udocker"]},
    });
    let link = |file: &str| {
        let up = "../".repeat(name.split('/').count() + 2);
        let _ = symlink(format!("{up}layers/{file}"), place.join(file));
    };
    w.file(&place.join("TAG"), format!("{name}:{tag}"));
    if kind == "v1" {
        for (id, layer) in
            [("aa11", compress(&Layer::new().finish(), Pack::Gzip)), ("bb22", packed)]
        {
            w.file(&layers.join(format!("{id}.layer")), layer);
            w.file(&layers.join(format!("{id}.json")), config.to_string());
            link(&format!("{id}.layer"));
            link(&format!("{id}.json"));
        }
        w.file(&place.join("v1"), "");
        w.file(&place.join("ancestry"), json!(["bb22", "aa11"]).to_string());
        return;
    }
    let layer = digest(&packed);
    w.file(&layers.join(&layer), &packed);
    link(&layer);
    w.file(&place.join("v2"), "");
    let manifest = if kind == "schema1" {
        json!({
            "schemaVersion": 1, "name": name, "tag": tag, "architecture": "amd64",
            "fsLayers": [{"blobSum": layer}],
            "history": [{"v1Compatibility": config.to_string()}],
        })
    } else {
        let text = config.to_string();
        let named = digest(text.as_bytes());
        w.file(&layers.join(&named), text.clone());
        link(&named);
        json!({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"digest": named, "size": text.len(), "mediaType": "application/vnd.docker.container.image.v1+json"},
            "layers": [{"digest": layer, "size": packed.len(), "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"}],
        })
    };
    w.file(&place.join("manifest"), manifest.to_string());
}

/// Puts a container into udocker's layout.
fn put_container(w: &World, top: &Path, id: &str, name: &str) -> PathBuf {
    let root = w.below(top, &format!("containers/{id}/ROOT"));
    let made = w.udocker(&["create", IMAGE]).ok().line();
    let tree = w.udocker(&["inspect", "-p", &made]).ok().line();
    // Copied as the user, so that the tree belongs to them.
    w.shell(&[], &format!("cp -r '{tree}'/. '{}'", root.display())).ok();
    w.udocker(&["rm", &made]).ok();
    let place = root.parent().expect("its place");
    w.file(&place.join("imagerepo.name"), "old/image:3");
    let config = json!({"architecture": "amd64", "os": "linux",
        "config": {"Cmd": ["sh", "-c", "echo $OLD of udocker"], "Env": ["PATH=/bin", "OLD=container"], "WorkingDir": "/opt"}});
    w.file(&place.join("container.json"), config.to_string());
    let _ = symlink(place, place.with_file_name(name));
    root
}

/// Everything below a directory, with the content of files.
fn snapshot(top: &Path) -> String {
    let script = format!(
        "cd '{}' && find . -path ./coracle -prune -o -type f -print0 | sort -z | xargs -0 stat -c '%n %a %s %Y'",
        top.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("find");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn containers_are_found_and_run(w: &World) -> Outcome {
    let top = w.dir("old-containers");
    let root = put_container(w, &top, "6b1c-aaaa", "c7");
    let before = snapshot(&top);
    let variables = [("UDOCKER_DIR", top.to_str().expect("a path"))];
    let ps = w.udocker_with(&variables, &["ps"]).ok().out();
    assert!(
        ps.contains("6b1c-aaaa") && ps.contains("['c7']") && ps.contains("old/image:3"),
        "{ps}"
    );
    for name in ["c7", "6b1c-aaaa"] {
        let done = w.udocker_with(&variables, &["run", name]);
        assert_eq!(done.ok().line(), "container of udocker");
    }
    let done = w
        .udocker_with(&variables, &["run", "-w", "/", "c7", "sh", "-c", "pwd; cat /opt/app/dev/x"]);
    assert_eq!(done.ok().out(), "/\nkept\n");
    assert_eq!(snapshot(&top), before);
    // Written files go into the tree, as with udocker.
    w.udocker_with(&variables, &["run", "c7", "touch", "/written"]).ok();
    assert!(root.join("written").exists());
    let ps = w.udocker_with(&variables, &["ps"]).ok().out();
    assert!(ps.lines().count() == 2 && ps.contains("6b1c-aaaa"), "once, by its id: {ps}");
    // Nothing there is removed, so nothing is reported as removed.
    w.udocker_with(&variables, &["rm", "-f", "c7"]).expect(1);
    w.udocker_with(&variables, &["run", "c7", "test", "-e", "/written"]).ok();
    assert_eq!(
        w.udocker_with(&variables, &["inspect", "-p", "c7"]).ok().line(),
        root.display().to_string()
    );
    Ok(())
}

fn images_of_each_manifest(w: &World) -> Outcome {
    let top = w.dir("old-images");
    put_image(w, &top, "quay.io/old/two", "2", "schema2");
    put_image(w, &top, "old/one", "latest", "schema1");
    put_image(w, &top, "ancient", "1", "v1");
    let before = snapshot(&top);
    let variables = [("UDOCKER_DIR", top.to_str().expect("a path"))];
    let images = w.udocker_with(&variables, &["images"]).ok().out();
    for name in ["quay.io/old/two:2", "old/one:latest", "ancient:1"] {
        assert!(images.contains(&format!("{name}    .\n")), "{images}");
    }
    for name in ["quay.io/old/two:2", "old/one", "ancient:1"] {
        let done = w.udocker_with(&variables, &["run", "--rm", "--pull=never", name]);
        assert_eq!(done.ok().line(), "from udocker", "{name}");
        let done = w.udocker_with(&variables, &["run", "--rm", name, "cat", "/opt/app/dev/x"]);
        assert_eq!(done.ok().line(), "kept");
    }
    w.udocker_with(&variables, &["rmi", "ancient:1"]).expect(1);
    let again = w.udocker_with(&variables, &["images"]).ok().out();
    assert_eq!(again, images);
    assert_eq!(snapshot(&top), before);
    Ok(())
}

fn everything_moves(w: &World) -> Outcome {
    let top = w.dir("old-moves");
    let home = w.dir("new-home");
    put_image(w, &top, "old/moved", "1", "schema2");
    let root = put_container(w, &top, "77aa-bbbb", "mover");
    w.file(&root.join("mine"), "of the container\n");
    let place = top.display().to_string();
    let variables = [("HOME", home.to_str().expect("a path"))];
    let coracle = w.person.program.display().to_string();
    let run = |words: &[&str]| {
        let mut command = w.other(&coracle, &variables, words);
        testkit::command::run_with(
            &mut command,
            testkit::command::Input::Null,
            testkit::person::LIMIT,
        )
    };
    let done = run(&["migrate", "udocker", "--from", &place]);
    assert!(done.ok().out().contains("image old/moved:1\n"), "{done:?}");
    assert!(top.join("repos/old/moved/1/TAG").exists() && root.exists());
    assert_eq!(run(&["run", "mover", "cat", "/mine"]).ok().out(), "of the container\n");
    assert_eq!(run(&["run", "mover"]).ok().out(), "container of udocker\n");
    assert_eq!(run(&["run", "--rm", "old/moved:1"]).ok().out(), "from udocker\n");
    assert_eq!(run(&["migrate", "udocker", "--from", &place, "--mv"]).ok().out(), "");
    assert!(!root.exists() && !top.join("repos/old/moved/1").exists());
    Ok(())
}

fn rewritten_trees_are_refused(w: &World) -> Outcome {
    let top = w.dir("old-f3");
    let root = put_container(w, &top, "99aa-cccc", "patched");
    w.file(&root.with_file_name("execmode"), "F3");
    let variables = [("UDOCKER_DIR", top.to_str().expect("a path"))];
    let done = w.udocker_with(&variables, &["run", "patched"]);
    done.expect(1);
    assert!(done.err().contains("F3") && done.err().contains("udocker setup"), "{done:?}");
    Ok(())
}

/// `OpenMOLE` writes the image itself, makes a container, and looks for it at udocker's path.
fn openmole(w: &World) -> Outcome {
    let top = w.dir("openmole");
    put_image(w, &top, "openmole/model", "1", "schema1");
    let place = |name: &str| top.join(name).display().to_string();
    let (repos, layers, containers) = (place("repos"), place("layers"), place("containers"));
    let variables = [
        ("UDOCKER_DIR", top.to_str().expect("a path")),
        ("UDOCKER_REPOS", &repos),
        ("UDOCKER_LAYERS", &layers),
        ("UDOCKER_CONTAINERS", &containers),
        ("UDOCKER_TARBALL", ""),
        ("UDOCKER_LOGLEVEL", "1"),
    ];
    let id = w.udocker_with(&variables, &["create", "openmole/model:1"]).ok().out();
    let id = id.lines().rfind(|line| !line.is_empty()).expect("an id").to_owned();
    let image = fs::read_to_string(top.join(format!("containers/{id}/imagerepo.name")));
    assert_eq!(image.expect("the image's name"), "openmole/model:1");
    let work = w.dir("openmole-work");
    w.file(&work.join("in put"), "5\n");
    let script = format!(
        "udocker run --workdir=\"/work dir\" --user=\"root\" -e N=\"a b\" -v \"{}\":\"/work dir\" {id} sh -c 'cat \"in put\"; echo $N; echo out > result'",
        work.display()
    );
    assert_eq!(w.shell(&variables, &script).ok().out(), "5\na b\n");
    assert_eq!(fs::read_to_string(work.join("result")).expect("the result"), "out\n");
    Ok(())
}
