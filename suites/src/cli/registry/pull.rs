//! Tests of `pull`: its result and progress output, and the handling of a faulty registry.

use std::time::Duration;

use testkit::docker_registry::Options;
use testkit::image::{Blob, Flavour, index};
use testkit::registry::{Auth, Fault, Registry};
use testkit::terminal::Terminal;

use testkit::skip::Outcome;

use crate::cli::Case;

use super::{image, large, place, real, text};

pub(in crate::cli) const CASES: &[(&str, Case)] = &[
    ("standard_output_has_the_answer_alone", standard_output_has_the_answer_alone),
    ("several_images_and_all_tags", several_images_and_all_tags),
    ("platforms_and_digests", platforms_and_digests),
    ("what_breaks_off_goes_on_where_it_was", what_breaks_off_goes_on_where_it_was),
    (
        "the_next_pull_goes_on_where_the_last_one_broke_off",
        the_next_pull_goes_on_where_the_last_one_broke_off,
    ),
    ("silence_is_not_waited_for_for_ever", silence_is_not_waited_for_for_ever),
    ("schema_1_is_refused_in_words", schema_1_is_refused_in_words),
    ("the_policy_says_when_to_ask", the_policy_says_when_to_ask),
    ("mirrors_blocks_and_prefixes", mirrors_blocks_and_prefixes),
    ("encrypted_layers_are_named", encrypted_layers_are_named),
];

fn standard_output_has_the_answer_alone() -> Outcome {
    let place = place("pull-output")?;
    let registry = real(Options::default())?;
    let host = registry.host();
    let built = image("one").build();
    registry.target().image("team/tool", "1", &built).unwrap();
    let name = format!("{host}/team/tool:1");
    let quiet = place.run(&["pull", "-q", &name]);
    assert_eq!(quiet.ok().out(), format!("{name}\n"));
    assert_eq!(quiet.err(), "");
    place.run(&["rmi", &name]).ok();

    let lines = place.run(&["pull", &name]);
    let digest = format!("Digest: {}\n", built.manifest.digest);
    let answer = |state: &str| format!("{digest}Status: {state} for {name}\n{name}\n");
    assert_eq!(lines.ok().out(), answer("Downloaded newer image"));
    let short = &built.layers[0].hex()[..12];
    assert!(lines.err().contains(&format!("{short}: done")), "{lines:?}");
    assert!(!lines.err().contains(['\x1b', '\r']), "{lines:?}");
    let again = place.run(&["pull", &name]);
    assert_eq!(again.ok().out(), answer("Image is up to date"));

    place.run(&["rmi", &name]).ok();
    let mut terminal = Terminal::spawn(&place.command(&["pull", &name]), 24, 100).unwrap();
    assert!(terminal.end().is_some_and(|status| status.success()), "{}", terminal.text());
    let shown = terminal.text();
    assert!(shown.contains(short) && shown.contains('\x1b'), "{shown:?}");
    assert!(shown.contains(&built.manifest.digest), "{shown:?}");
    for (variable, value) in [("CORACLE_PROGRESS", "none"), ("CORACLE_PROGRESS", "plain")] {
        place.run(&["rmi", &name]).ok();
        let mut command = place.command(&["pull", &name]);
        command.env(variable, value);
        let mut terminal = Terminal::spawn(&command, 24, 100).unwrap();
        assert!(terminal.end().is_some_and(|status| status.success()), "{}", terminal.text());
        assert!(!terminal.text().contains('\x1b'), "{value}: {:?}", terminal.text());
    }
    Ok(())
}

fn several_images_and_all_tags() -> Outcome {
    let place = place("pull-several")?;
    let registry = real(Options::default())?;
    let host = registry.host();
    let target = registry.target();
    for tag in ["1", "2", "3"] {
        target.image("team/tool", tag, &image(tag).build()).unwrap();
    }
    target.image("team/other", "latest", &image("other").docker().build()).unwrap();
    let names = [format!("{host}/team/tool:1"), format!("{host}/team/other")];
    let pulled = place.run(&["pull", "-q", &names[0], &names[1]]);
    assert_eq!(pulled.ok().out().lines().count(), 2);
    assert_eq!(place.run(&["images", "-q"]).out().lines().count(), 2);
    place.run(&["pull", "-q", "--all-tags", &format!("{host}/team/tool")]).ok();
    assert_eq!(place.run(&["images", "-q"]).out().lines().count(), 4);
    let both = place.run(&["pull", "--all-tags", &names[0]]);
    assert!(both.expect(1).err().contains("--all-tags"), "{both:?}");
    // The first failure ends the command, which reports its name.
    let failed = place.run(&["pull", &format!("{host}/team/none"), &names[0]]);
    assert!(failed.expect(1).err().contains("team/none"), "{failed:?}");
    assert!(failed.err().contains("hint: "), "{failed:?}");
    Ok(())
}

fn platforms_and_digests() -> Outcome {
    let place = place("pull-platform")?;
    let registry = real(Options::default())?;
    let host = registry.host();
    let amd = image("amd64").build();
    let v7 = image("v7").platform("arm", Some("v7")).build();
    let v6 = image("v6").platform("arm", Some("v6")).build();
    let images = [&amd, &v7, &v6];
    let list = index(Flavour::Oci, &images);
    registry.target().index("team/tool", "1", &images, &list).unwrap();
    let name = format!("{host}/team/tool:1");
    let architecture = |name: &str| {
        let shown = place.run(&[
            "inspect",
            "-f",
            "{{.Architecture}} {{if .Variant}}{{.Variant}}{{end}}",
            name,
        ]);
        shown.ok().line().trim_end().to_owned()
    };
    for (platform, found) in [
        ("linux/amd64", "amd64"),
        ("linux/arm/v6", "arm v6"),
        ("linux/arm/v7", "arm v7"),
        ("linux/arm", "arm v7"),
    ] {
        let pulled = place.run(&["pull", "-q", "--platform", platform, &name]);
        // The tag's digest is that of the index, whichever image was chosen from it.
        assert_eq!(pulled.ok().line(), name);
        let known = place.run(&["images", "--digests", "--no-trunc"]).ok().out();
        assert!(known.contains(&list.digest), "{known}");
        assert_eq!(architecture(&name), found, "{platform}");
    }
    let refused = place.run(&["pull", "--platform", "linux/s390x", &name]);
    assert!(refused.expect(1).err().contains("s390x"), "{refused:?}");
    assert!(refused.err().contains("linux/arm/v7"), "it should say what there is: {refused:?}");
    let refused = place.run(&["pull", "--platform", "odd", &name]);
    assert!(refused.expect(1).err().contains("architecture[/variant]"), "{refused:?}");

    for (digest, found) in [(&v6.manifest.digest, "arm v6"), (&list.digest, "amd64")] {
        let exact = format!("{host}/team/tool@{digest}");
        assert_eq!(place.run(&["pull", "-q", &exact]).ok().line(), exact);
        assert_eq!(architecture(&exact), found);
    }
    let wrong = format!("{host}/team/tool@sha256:{}", "0".repeat(64));
    place.run(&["pull", &wrong]).expect(1);
    Ok(())
}

fn what_breaks_off_goes_on_where_it_was() -> Outcome {
    let place = place("pull-faults")?;
    let registry = Registry::start_with(Auth::Anonymous).unwrap();
    let built = large(600_000);
    registry.image("team/tool", "1", &built);
    let name = format!("{}/team/tool:1", registry.host());
    registry.fault("/manifests/", Fault::busy("1"), 1);
    registry.fault("/manifests/", Fault::status(503), 1);
    registry.fault("/token", Fault::status(502), 1);
    let layer = format!("/blobs/{}", built.layers[0].digest);
    registry.fault(&layer, Fault::Cut(200_000), 1);
    registry.fault(&layer, Fault::HangUp, 1);
    registry.fault(&layer, Fault::Cut(100_000), 1);
    let pulled = place.run(&["pull", "-q", &name]);
    assert_eq!(pulled.ok().line(), name);
    let ranges: Vec<String> = registry
        .asked(&layer)
        .iter()
        .filter_map(|asked| asked.header("range").map(str::to_owned))
        .collect();
    assert!(ranges.last().is_some_and(|range| range == "bytes=300000-"), "{ranges:?}");
    assert!(place.run(&["verify"]).ok().out().contains("nothing is wrong"));
    Ok(())
}

fn the_next_pull_goes_on_where_the_last_one_broke_off() -> Outcome {
    let place = place("pull-resume")?;
    let registry = Registry::start().unwrap();
    let built = large(600_000);
    registry.image("team/tool", "1", &built);
    let name = format!("{}/team/tool:1", registry.host());
    let layer = format!("/blobs/{}", built.layers[0].digest);
    registry.fault(&layer, Fault::Cut(300_000), 1);
    place.with(&[("CORACLE_RETRIES", "0")], &["pull", &name]).expect(1);
    registry.fault(&layer, Fault::status(404), 1);
    let told = place.run(&["pull", &name]);
    assert!(told.expect(1).err().contains("does not have sha256:"), "{told:?}");
    assert!(told.err().contains("is incomplete"), "{told:?}");
    assert_eq!(place.run(&["images", "-q"]).ok().out(), "");
    let before = registry.asked(&layer).len();
    place.run(&["pull", &name]).ok();
    let asked = registry.asked(&layer);
    let range = asked[before..].iter().find_map(|asked| asked.header("range"));
    assert_eq!(range, Some("bytes=300000-"), "{asked:?}");
    // Bytes with a wrong digest are never stored.
    let wrong = image("wrong").build();
    registry.image("team/wrong", "1", &wrong);
    registry.fault(&wrong.layers[0].digest, Fault::Corrupt, 100);
    let name = format!("{}/team/wrong:1", registry.host());
    let refused = place.with(&[("CORACLE_RETRIES", "1")], &["pull", &name]);
    assert!(refused.expect(1).err().contains(&wrong.layers[0].digest), "{refused:?}");
    assert!(place.run(&["verify"]).ok().out().contains("nothing is wrong"));
    Ok(())
}

fn silence_is_not_waited_for_for_ever() -> Outcome {
    let place = place("pull-silence")?;
    let registry = Registry::start().unwrap();
    registry.image("team/tool", "1", &image("x").build());
    registry.fault("/manifests/", Fault::Silence(Duration::from_secs(30)), 100);
    let name = format!("{}/team/tool:1", registry.host());
    let settings = [("CORACLE_TIMEOUT", "1s"), ("CORACLE_RETRIES", "0")];
    let refused = place.with(&settings, &["pull", &name]);
    assert!(refused.expect(1).err().contains("cannot pull"), "{refused:?}");
    Ok(())
}

fn schema_1_is_refused_in_words() -> Outcome {
    let place = place("pull-schema")?;
    let registry = Registry::start().unwrap();
    for (tag, media_type) in [
        ("signed", "application/vnd.docker.distribution.manifest.v1+prettyjws"),
        ("plain", "application/vnd.docker.distribution.manifest.v1+json"),
        ("untold", "application/json"),
    ] {
        let body = r#"{"schemaVersion":1,"name":"team/old","tag":"1","architecture":"amd64","fsLayers":[],"history":[]}"#;
        registry.manifest("team/old", tag, &Blob::new(media_type, body.into()));
        let name = format!("{}/team/old:{tag}", registry.host());
        let refused = place.run(&["pull", &name]);
        assert!(refused.expect(1).err().contains("schema 1"), "{refused:?}");
        assert!(refused.err().contains("hint: "), "{refused:?}");
    }
    Ok(())
}

fn the_policy_says_when_to_ask() -> Outcome {
    let place = place("pull-policy")?;
    let registry = Registry::start().unwrap();
    registry.image("team/tool", "1", &image("first").build());
    let name = format!("{}/team/tool:1", registry.host());
    let create = |policy: &str| place.run(&["create", "--pull", policy, &name]);
    let refused = create("never");
    assert!(refused.expect(125).err().contains("team/tool"), "{refused:?}");
    assert!(registry.log().is_empty());
    create("missing").ok();
    let asked = registry.log().len();
    create("missing").ok();
    create("never").ok();
    assert_eq!(registry.log().len(), asked);
    // `newer` requests the digest of the name only; a changed image is fetched.
    create("newer").ok();
    let id = || place.run(&["images", "-q", "--no-trunc"]).ok().line();
    let first = id();
    registry.image("team/tool", "1", &image("second").build());
    create("newer").ok();
    let second = id();
    assert_ne!(first, second);
    registry.image("team/tool", "1", &image("third").build());
    create("always").ok();
    assert_ne!(id(), second);
    let host = registry.host();
    drop(registry);
    let settings = [("CORACLE_RETRIES", "0")];
    place.with(&settings, &["create", "--pull", "newer", &name]).ok();
    let refused = place.with(&settings, &["create", "--pull", "always", &name]);
    assert!(refused.expect(125).err().contains(&host), "{refused:?}");
    Ok(())
}

fn mirrors_blocks_and_prefixes() -> Outcome {
    let place = place("pull-mirrors")?;
    let registry = Registry::start().unwrap();
    let built = image("mirrored").build();
    registry.image("copies/team/tool", "1", &built);
    registry.image("team/tool", "1", &built);
    let host = registry.host();
    let list = place.file(
        "registries.conf",
        &format!(
            "[[registry]]\nprefix = \"far.test\"\nlocation = \"far.test\"\n\
             [[registry.mirror]]\nlocation = \"{host}/copies\"\ninsecure = true\n\
             [[registry]]\nprefix = \"evil.test\"\nblocked = true\n\
             [[registry]]\nprefix = \"moved.test/old\"\nlocation = \"{host}/team\"\ninsecure = true\n"
        ),
    );
    let variable = [("CONTAINERS_REGISTRIES_CONF", text(&list))];
    let pull = |name: &str| place.with(&variable, &["pull", name]);
    let mirrored = pull("far.test/team/tool:1");
    assert!(mirrored.ok().err().contains(&format!("from {host}")), "{mirrored:?}");
    assert!(mirrored.out().ends_with("\nfar.test/team/tool:1\n"), "{mirrored:?}");
    pull("moved.test/old/tool:1").ok();
    let refused = pull("evil.test/x");
    assert!(refused.expect(1).err().contains("blocked"), "{refused:?}");
    // The user's own path of that file, and its drop-ins.
    std::fs::rename(&list, place.file(".config/containers/registries.conf", "")).unwrap();
    place.run(&["pull", "-q", "far.test/team/tool:1"]).ok();

    let config = format!(
        "[registry]\ndefault = \"near.test\"\ninsecure = [\"{host}\"]\n[registry.mirrors]\n\"near.test\" = [\"http://{host}/copies\"]\n"
    );
    place.file(".config/coracle/config.toml", &config);
    place.run(&["pull", "-q", "team/tool:1"]).ok();
    let names = place.run(&["images", "--format", "{{.Repository}}"]).ok().out();
    for name in ["far.test/team/tool", "moved.test/old/tool", "near.test/team/tool"] {
        assert!(names.lines().any(|line| line == name), "{names}");
    }
    Ok(())
}

/// What cannot be read is named, with what can be done; nothing of it is fetched.
fn encrypted_layers_are_named() -> Outcome {
    let place = place("pull-encrypted")?;
    let registry = Registry::start().unwrap();
    let built = image("secret").build();
    registry.image("team/tool", "open", &built);
    let text = String::from_utf8(built.manifest.bytes.clone()).unwrap();
    let text = text.replace("layer.v1.tar+gzip\"", "layer.v1.tar+gzip+encrypted\"");
    assert_ne!(text.as_bytes(), built.manifest.bytes);
    let manifest = Blob::new(&built.manifest.media_type, text.into_bytes());
    registry.manifest("team/tool", "1", &manifest);
    let refused = place.run(&["pull", &format!("{}/team/tool:1", registry.host())]);
    let told = format!("the layer {} is encrypted", built.layers[0].digest);
    assert!(refused.expect(1).err().contains(&told), "{refused:?}");
    assert!(refused.err().contains("hint: decrypt the image first"), "{refused:?}");
    assert!(registry.asked(&built.layers[0].digest).is_empty());
    Ok(())
}
