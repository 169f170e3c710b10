//! Tests with other tools that read Coracle's files, and whose files it reads: `skopeo`, `umoci`,
//! `podman`.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::path::Path;
use std::process::ExitCode;

use testkit::docker_registry::DockerRegistry;
use testkit::harness::{Suite, Wishes};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, need_program};

struct Place {
    person: Person,
    image: String,
}

type Case = fn(&Place) -> Outcome;

const CASES: &[(&str, Case)] = &[
    ("skopeo_reads_the_store", skopeo_reads_the_store),
    ("umoci_reads_the_store", umoci_reads_the_store),
    ("podman_reads_the_store", podman_reads_the_store),
    ("skopeo_reads_what_is_saved", skopeo_reads_what_is_saved),
    ("podman_loads_what_is_saved", podman_loads_what_is_saved),
    ("we_load_what_skopeo_writes", we_load_what_skopeo_writes),
    ("we_load_what_podman_saves", we_load_what_podman_saves),
    ("entries_of_other_tools_survive", entries_of_other_tools_survive),
    ("tar_reads_exports_and_we_import_its_tars", tar_reads_exports_and_we_import_its_tars),
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let scratch = Scratch::new("interop").expect("a scratch directory");
    let set = everybody(&scratch, crate::program::coracle()).and_then(|users| {
        let registry = DockerRegistry::start()?;
        registry.target().image("test/guest", "1", &testkit::guest::image().build())?;
        Ok((users, registry))
    });
    let mut places = Vec::new();
    let mut reason = String::new();
    match &set {
        Err(error) => reason = error.to_string(),
        Ok((users, registry)) => {
            let image = format!("{}/test/guest:1", registry.host());
            for person in users {
                let done = person.run(&["pull", "-q", "--tls-verify=false", &image]);
                if done.code() == 0 {
                    places.push(Place { person: person.clone(), image: image.clone() });
                } else {
                    println!("no test image: {done:?}");
                }
            }
        }
    }
    let mut suite = Suite::new("interop");
    if !reason.is_empty() {
        suite.skipped("interop", &reason);
    }
    for place in &places {
        for (name, body) in CASES {
            suite.case(format!("{}::{name}", place.person.user.kind()), move || body(place));
        }
    }
    if places.is_empty() && reason.is_empty() {
        suite.case("setting_up".to_owned(), || panic!("no user could pull the test image"));
    }
    suite.run(wishes)
}

impl Place {
    fn layout(&self) -> String {
        self.person.store().join("oci").display().to_string()
    }

    /// The store's layout under a path without hidden directories: old versions of podman derive an
    /// image name from the path, which `.local` would make invalid.
    fn plain_layout(&self) -> String {
        let link = self.person.home.join("layout");
        let _ = std::os::unix::fs::symlink(self.layout(), &link);
        format!("oci:{}:{}", link.display(), self.image)
    }

    fn file(&self, name: &str) -> String {
        self.person.home.join(name).display().to_string()
    }

    /// Saves the test image; returns the file's name.
    #[track_caller]
    fn saved(&self, format: &str) -> String {
        let file = self.file(&format!("saved-by-us-{format}"));
        if !Path::new(&file).exists() {
            self.person.run(&["save", "--format", format, "-o", &file, &self.image]).ok();
        }
        file
    }

    /// Loads a file into an empty store and runs the image.
    #[track_caller]
    fn loads_and_runs(&self, file: &str, what: &str) {
        let fresh = self.person.at(&self.person.dir(&format!("fresh-{what}")));
        fresh.run(&["load", "-i", file, "localhost/test/given:1"]).ok();
        let names = fresh.run(&["images", "--format={{.Repository}}:{{.Tag}}"]).ok().out();
        let name = names.lines().next().unwrap_or_default();
        let done = fresh.run(&["run", "--rm", "--pull=never", name, "/bin/guest", "exit", "7"]);
        assert_eq!(done.code(), 7, "{what}: {names}: {done:?}");
    }
}

fn skopeo_reads_the_store(place: &Place) -> Outcome {
    need_program("skopeo")?;
    let name = format!("oci:{}:{}", place.layout(), place.image);
    let done = place.person.other("skopeo", &["inspect", &name]);
    assert!(done.ok().out().contains("\"Architecture\": \"amd64\""), "{done:?}");
    let copy = format!("oci:{}:copied", place.file("skopeo-copy"));
    place.person.other("skopeo", &["--insecure-policy", "copy", "-q", &name, &copy]).ok();
    Ok(())
}

fn umoci_reads_the_store(place: &Place) -> Outcome {
    need_program("umoci")?;
    let done = place.person.other("umoci", &["ls", "--layout", &place.layout()]);
    assert!(done.ok().out().contains(&place.image), "{done:?}");
    let image = format!("{}:{}", place.layout(), place.image);
    let bundle = place.file("umoci-bundle");
    place.person.other("umoci", &["unpack", "--rootless", "--image", &image, &bundle]).ok();
    assert!(Path::new(&bundle).join("rootfs/bin/guest").exists());
    Ok(())
}

fn podman(place: &Place, words: &[&str]) -> testkit::command::Finished {
    let mut all = vec!["--cgroup-manager=cgroupfs", "--storage-driver=vfs"];
    all.extend(words);
    place.person.other("podman", &all)
}

fn need_podman(place: &Place) -> Outcome {
    need_program("podman")?;
    if !place.person.user.range {
        testkit::skip!("podman wants subordinate ids");
    }
    let done = podman(place, &["info"]);
    if done.code() != 0 {
        testkit::skip!(
            "podman does not work here: {}",
            done.err().lines().next().unwrap_or_default()
        );
    }
    Ok(())
}

fn podman_reads_the_store(place: &Place) -> Outcome {
    need_podman(place)?;
    podman(place, &["pull", "-q", &place.plain_layout()]).ok();
    Ok(())
}

fn skopeo_reads_what_is_saved(place: &Place) -> Outcome {
    need_program("skopeo")?;
    for (format, transport) in
        [("docker-archive", "docker-archive"), ("oci-archive", "oci-archive"), ("oci-dir", "oci")]
    {
        let file = place.saved(format);
        let copy = format!("dir:{}", place.file(&format!("skopeo-of-{format}")));
        let from = format!("{transport}:{file}");
        let done = place.person.other("skopeo", &["--insecure-policy", "copy", "-q", &from, &copy]);
        assert_eq!(done.code(), 0, "{format}: {done:?}");
    }
    Ok(())
}

fn podman_loads_what_is_saved(place: &Place) -> Outcome {
    need_podman(place)?;
    for format in ["docker-archive", "oci-archive"] {
        let done = podman(place, &["load", "-q", "-i", &place.saved(format)]);
        assert_eq!(done.code(), 0, "{format}: {done:?}");
    }
    Ok(())
}

fn we_load_what_skopeo_writes(place: &Place) -> Outcome {
    need_program("skopeo")?;
    let from = format!("oci:{}:{}", place.layout(), place.image);
    for (n, to) in [
        "docker-archive:FILE:localhost/test/sk:1",
        "oci-archive:FILE:localhost/test/sk:1",
        "oci:FILE:named",
        "oci-archive:FILE",
    ]
    .iter()
    .enumerate()
    {
        let file = place.file(&format!("by-skopeo-{n}"));
        let to = to.replace("FILE", &file);
        place.person.other("skopeo", &["--insecure-policy", "copy", "-q", &from, &to]).ok();
        place.loads_and_runs(&file, &format!("skopeo-{n}"));
    }
    Ok(())
}

fn we_load_what_podman_saves(place: &Place) -> Outcome {
    need_podman(place)?;
    podman(place, &["pull", "-q", &place.plain_layout()]).ok();
    let id = podman(place, &["images", "-q", "--no-trunc"]).ok().out();
    let id = id.lines().next().unwrap_or_default().to_owned();
    podman(place, &["tag", &id, "localhost/test/pod:1"]).ok();
    for format in ["docker-archive", "oci-archive"] {
        let file = place.file(&format!("by-podman-{format}"));
        podman(place, &["save", "-q", "--format", format, "-o", &file, "localhost/test/pod:1"])
            .ok();
        place.loads_and_runs(&file, &format!("podman-{format}"));
    }
    Ok(())
}

/// `skopeo` may copy into the store's layout; its entry stays, and is usable.
fn entries_of_other_tools_survive(place: &Place) -> Outcome {
    need_program("skopeo")?;
    let fresh =
        Place { person: place.person.at(&place.person.dir("shared")), image: place.image.clone() };
    fresh.person.run(&["pull", "-q", "--tls-verify=false", &place.image]).ok();
    let from = format!("oci:{}:{}", place.layout(), place.image);
    let to = format!("oci:{}:localhost/by/skopeo:1", fresh.layout());
    fresh.person.other("skopeo", &["--insecure-policy", "copy", "-q", &from, &to]).ok();
    fresh.person.run(&["tag", &place.image, "localhost/by/us:1"]).ok();
    let listed = fresh.person.run(&["images", "--format={{.Repository}}"]).ok().out();
    for name in ["localhost/by/skopeo", "localhost/by/us", "test/guest"] {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    let words = ["run", "--rm", "--pull=never", "localhost/by/skopeo:1", "/bin/guest", "exit", "7"];
    fresh.person.run(&words).expect(7);
    Ok(())
}

fn tar_reads_exports_and_we_import_its_tars(place: &Place) -> Outcome {
    let name = "interop-export";
    place.person.run(&["create", "--name", name, &place.image]).ok();
    let file = place.file("export.tar");
    place.person.run(&["export", "-o", &file, name]).ok();
    place.person.run(&["rm", name]).ok();
    let dir = place.person.dir("untarred").display().to_string();
    place
        .person
        .other("tar", &["-x", "--no-same-owner", "--exclude=dev/*", "-f", &file, "-C", &dir])
        .ok();
    let again = place.file("again.tar.gz");
    place.person.other("tar", &["-czf", &again, "-C", &dir, "."]).ok();
    place.person.run(&["import", &again, "localhost/test/tarred:1"]).ok();
    let words = ["run", "--rm", "localhost/test/tarred:1", "/bin/guest", "read", "/etc/image-file"];
    assert_eq!(place.person.run(&words).ok().out(), "from the image\n");
    let words = ["import", &dir, "localhost/test/dir:1"];
    place.person.run(&words).ok();
    Ok(())
}
