//! Tests of images from a registry, by name, by digest, by platform, and as archives.

use testkit::image::{Flavour, Image, Pack, index};
use testkit::layer::Layer;
use testkit::push::Target;
use testkit::skip::Outcome;

use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("layers_stack", layers_stack),
    ("packings", packings),
    ("by_digest", by_digest),
    ("platforms", platforms),
    ("tag_and_rmi", tag_and_rmi),
    ("a_layer_is_fetched_once", a_layer_is_fetched_once),
    ("configuration_of_the_image", configuration_of_the_image),
    ("history_and_inspect", history_and_inspect),
    ("index_of_the_image", index_of_the_image),
    ("save_and_load", save_and_load),
    ("missing_images", missing_images),
];

fn target(w: &World) -> Result<(Target, String), testkit::skip::Skip> {
    let Some(host) = &w.registry else { testkit::skip!("no docker-registry here") };
    let address = host.parse().expect("an address");
    Ok((Target { address, basic: None }, host.clone()))
}

fn push(w: &World, name: &str, image: &Image) -> Result<String, testkit::skip::Skip> {
    let (target, host) = target(w)?;
    target.image(name, "1", &image.build()).expect("pushing");
    Ok(format!("{host}/{name}:1"))
}

fn pull(w: &World, image: &str) -> String {
    w.coracle(&["pull", "-q", "--tls-verify=false", image]).ok().line()
}

fn over(layers: Vec<Layer>) -> Image {
    let mut image = testkit::guest::image();
    for layer in layers {
        image = image.layer(layer);
    }
    image
}

fn layers_stack(w: &World) -> Outcome {
    let second = Layer::new()
        .file("data/one", 0o644, "second\n")
        .whiteout("data/remove-me")
        .file("etc/added", 0o644, "added\n")
        .file("kind", 0o644, "file")
        .dir("opaque")
        .file("opaque/below", 0o644, "");
    let third = Layer::new()
        .whiteout("kind")
        .dir("kind")
        .file("kind/inside", 0o644, "dir\n")
        .opaque("opaque")
        .dir("opaque")
        .file("opaque/above", 0o644, "")
        .hardlink("data/two-names", "data/one")
        .whiteout("data/sub");
    let name = push(w, &w.name("stack"), &over(vec![second, third]))?;
    pull(w, &name);
    let run = |guest: &[&str]| {
        let mut words = vec!["run", "--rm", name.as_str(), "/bin/guest"];
        words.extend(guest);
        w.coracle(&words).out()
    };
    assert_eq!(run(&["list", "/data"]), "[\"one\",\"two-names\"]\n");
    assert_eq!(run(&["read", "/data/two-names"]), "second\n");
    assert_eq!(run(&["list", "/opaque"]), "[\"above\"]\n");
    assert_eq!(run(&["read", "/kind/inside"]), "dir\n");
    assert_eq!(
        run(&["read", "/etc/added", ";", "read", "/etc/image-file"]),
        "added\nfrom the image\n"
    );
    Ok(())
}

fn packings(w: &World) -> Outcome {
    for (n, pack) in [Pack::Plain, Pack::Zstd, Pack::GzipMembers].into_iter().enumerate() {
        let text = format!("{pack:?}\n").repeat(30_000);
        let layer = Layer::new().file("packed", 0o644, text.clone());
        let image = testkit::guest::image().packed(layer.finish(), pack);
        let image = if pack == Pack::Plain { image.docker() } else { image };
        let name = push(w, &format!("{}-{n}", w.name("pack")), &image)?;
        pull(w, &name);
        let read = w.coracle(&["run", "--rm", &name, "/bin/guest", "read", "/packed"]);
        assert_eq!(read.ok().out(), text, "{pack:?}");
    }
    Ok(())
}

fn by_digest(w: &World) -> Outcome {
    let image = over(vec![Layer::new().file("d", 0o644, w.name("digest"))]);
    let digest = image.build().manifest.digest;
    let name = push(w, &w.name("digest"), &image)?;
    let by = format!("{}@{digest}", name.trim_end_matches(":1"));
    assert_eq!(pull(w, &by), by);
    w.coracle(&["run", "--rm", &by, "/bin/guest", "exit", "8"]).expect(8);
    let wrong = format!("{}@sha256:{}", name.trim_end_matches(":1"), "0".repeat(64));
    w.coracle(&["pull", "--tls-verify=false", &wrong]).expect(1);
    Ok(())
}

fn platforms(w: &World) -> Outcome {
    let (target, host) = target(w)?;
    let here = over(vec![Layer::new().file("arch", 0o644, "amd64")]).build();
    let arm = Image::new()
        .platform("arm64", Some("v8"))
        .layer(Layer::new().file("arch", 0o644, "arm64"))
        .build();
    let name = w.name("multi");
    let list = index(Flavour::Oci, &[&arm, &here]);
    target.index(&name, "1", &[&arm, &here], &list).expect("pushing");
    let full = format!("{host}/{name}:1");
    pull(w, &full);
    assert_eq!(
        w.coracle(&["run", "--rm", &full, "/bin/guest", "read", "/arch"]).ok().out(),
        "amd64"
    );
    let done = w.coracle(&["pull", "-q", "--tls-verify=false", "--platform=linux/s390x", &full]);
    assert!(done.code() == 1 && done.err().contains("s390x"), "{done:?}");
    let other = w.at(&w.dir("arm-home"));
    other.coracle(&["pull", "-q", "--tls-verify=false", "--platform=linux/arm64", &full]).ok();
    let arch = other.coracle(&["inspect", "--type=image", "--format={{.Architecture}}", &full]);
    assert_eq!(arch.ok().line(), "arm64");
    Ok(())
}

fn tag_and_rmi(w: &World) -> Outcome {
    let tag = format!("localhost/tagged/{}:x", w.name("t"));
    w.coracle(&["tag", &w.image, &tag]).ok();
    let listed = w.coracle(&["images", "--format", "{{.Repository}}:{{.Tag}}"]).ok().out();
    assert!(listed.lines().any(|line| line == tag), "{listed}");
    w.coracle(&["run", "--rm", &tag, "/bin/guest", "exit", "0"]).ok();
    w.coracle(&["rmi", &tag]).ok();
    assert_ne!(w.coracle(&["rmi", &tag]).code(), 0);
    w.guest(&[], &["exit", "0"]).ok();
    Ok(())
}

fn a_layer_is_fetched_once(w: &World) -> Outcome {
    let image = over(vec![Layer::new().file("more", 0o644, w.name("once"))]);
    let name = push(w, &w.name("once"), &image)?;
    let done = w.coracle(&["pull", "--tls-verify=false", &name]);
    done.ok();
    assert!(done.err().contains("1 of 2 layers"), "only the new layer is fetched: {done:?}");
    Ok(())
}

fn configuration_of_the_image(w: &World) -> Outcome {
    let image = testkit::guest::image()
        .config("User", "alice")
        .config("WorkingDir", "/data/sub")
        .config("Entrypoint", serde_json::json!(["/bin/guest"]))
        .config("Cmd", serde_json::json!(["ids"]))
        .env("GREETING", "hello there")
        .config("StopSignal", "SIGUSR1")
        .config("Labels", serde_json::json!({ "of": "image" }));
    let name = push(w, &w.name("config"), &image)?;
    pull(w, &name);
    let ids = crate::contract::world::json(&w.coracle(&["run", "--rm", &name]));
    assert_eq!(
        (&ids["uid"][0], &ids["gid"][0]),
        (&serde_json::json!(1234), &serde_json::json!(1235))
    );
    let facts = crate::contract::world::json(&w.coracle(&["run", "--rm", &name, "facts"]));
    assert_eq!(facts["cwd"], serde_json::json!("/data/sub"));
    let value = w.coracle(&["run", "--rm", &name, "getenv", "GREETING"]).ok().out();
    assert_eq!(value, "\"hello there\"\n");
    let label = w.coracle(&["inspect", "--type=image", "--format={{.Config.Labels.of}}", &name]);
    assert_eq!(label.ok().line(), "image");
    Ok(())
}

fn history_and_inspect(w: &World) -> Outcome {
    let history = w.coracle(&["history", "--no-trunc", &w.image]).ok().out();
    assert!(history.contains("step 0"), "{history}");
    let text = w.coracle(&["inspect", "--type=image", &w.image]).ok().out();
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json[0]["Os"], serde_json::json!("linux"), "{text}");
    let manifest = w.coracle(&["manifest", "inspect", &w.image]).ok().out();
    assert!(manifest.contains("\"layers\""), "{manifest}");
    Ok(())
}

/// A container without mounts comes with an index of its image; a damaged one is made anew.
fn index_of_the_image(w: &World) -> Outcome {
    let dir = w.dir("index");
    let file = dir.join("saved").display().to_string();
    w.coracle(&["save", "-o", &file, &w.image]).ok();
    let own = w.at(&w.dir("index-home"));
    own.coracle(&["load", "-i", &file]).ok();
    let words = ["image", "inspect", "--index", &w.image];
    let none = own.coracle(&words);
    assert!(none.expect(1).err().contains("has no index here"), "{none:?}");
    own.guest(&["--name=kept"], &["exit", "0"]).ok();
    if w.has_overlay() {
        own.coracle(&words).expect(1);
        return Ok(());
    }
    let text = own.coracle(&words).ok().out();
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let number = |key: &str| json[0][key].as_u64().expect(key);
    let kinds = ["Directories", "Files", "Links", "Others"].map(number);
    assert_eq!(number("Names"), kinds.iter().sum::<u64>(), "{text}");
    assert!(number("Names") > 10 && number("ToAsk") == 0, "{text}");
    let path = json[0]["Path"].as_str().expect("a path");
    let whole = std::fs::read(path).expect("the index");
    assert_eq!(number("Bytes"), whole.len() as u64);
    own.coracle(&["verify"]).ok();
    std::fs::remove_file(path).expect("removing it");
    std::fs::write(path, &whole[..whole.len() / 2]).expect("half of it");
    assert!(own.coracle(&["verify"]).expect(1).out().contains("index"));
    assert!(own.coracle(&["verify", "--repair"]).expect(1).out().contains("made anew"));
    own.coracle(&["verify"]).ok();
    own.guest(&["--rm"], &["exit", "0"]).ok();
    Ok(())
}

fn save_and_load(w: &World) -> Outcome {
    let dir = w.dir("save");
    let other = w.at(&w.dir("load-home"));
    for (n, format) in ["docker-archive", "oci-archive", "oci-dir"].into_iter().enumerate() {
        let file = dir.join(format!("saved-{n}")).display().to_string();
        w.coracle(&["save", "--format", format, "-o", &file, &w.image]).ok();
        let done = other.coracle(&["load", "-i", &file]);
        assert!(done.ok().out().contains("test/guest"), "{format}: {done:?}");
        other.guest(&[], &["exit", "9"]).expect(9);
        other.coracle(&["rmi", "-f", &w.image]).ok();
    }
    // What is there already stays one image, in whatever form it comes once more.
    let own = w.at(&w.dir("load-again"));
    let ids = || own.coracle(&["images", "-a", "--format={{.Repository}} {{.ID}}"]).ok().out();
    for n in [2, 0, 1, 0] {
        let file = dir.join(format!("saved-{n}")).display().to_string();
        own.coracle(&["load", "-i", &file]).ok();
        assert_eq!(ids().lines().count(), 1, "{n}: {}", ids());
    }
    own.coracle(&["image", "prune", "-f"]).ok();
    own.guest(&[], &["exit", "9"]).expect(9);
    own.coracle(&["rmi", &own.image]).ok();
    Ok(())
}

fn missing_images(w: &World) -> Outcome {
    let (_, host) = target(w)?;
    for name in ["no/such:1", "test/guest:no-such-tag"] {
        let done = w.coracle(&["pull", "--tls-verify=false", &format!("{host}/{name}")]);
        done.expect(1);
        let last = name.rsplit(':').next().unwrap_or_default();
        assert!(done.err().contains(last) || done.err().contains("no/such"), "{done:?}");
    }
    // Nothing listens there.
    w.coracle(&["pull", "--tls-verify=false", "127.0.0.1:1/x/y"]).expect(1);
    Ok(())
}
