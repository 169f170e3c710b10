//! Tests of `search`, `manifest inspect`, `images`, `rmi`: listing a registry and the store.

use serde_json::{Value, json};
use testkit::docker_registry::Options;
use testkit::image::{Flavour, index};
use testkit::registry::Registry;

use testkit::skip::Outcome;

use crate::cli::Case;

use super::{image, place, real};

pub(in crate::cli) const CASES: &[(&str, Case)] = &[
    ("search_and_tags", search_and_tags),
    ("manifests", manifests),
    ("images_are_found_and_removed", images_are_found_and_removed),
];

fn search_and_tags() -> Outcome {
    let place = place("search")?;
    let registry = Registry::start().unwrap();
    let host = registry.host();
    let found = json!({ "num_pages": 1, "num_results": 2, "results": [
        { "name": "team/tool", "description": "A tool\u{1b}[31m\nof long words, far more of them than a line of a table has room for", "star_count": 12, "is_official": true },
        { "name": "team/toy", "description": "", "star_count": 1 },
    ]});
    for size in ["25", "1", "100"] {
        registry.page(&format!("/v1/search?q=to&n={size}&page=1"), &[], &found.to_string());
    }
    let term = format!("{host}/to");
    let listed = place.run(&["search", &term]);
    let text = listed.ok().out();
    assert!(text.starts_with("NAME") && text.lines().count() == 3, "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let names = |words: &[&str]| {
        let listed = place.run(&[&["search", "--format", "{{.Name}}"], words, &[&term]].concat());
        listed.ok().out()
    };
    assert_eq!(names(&["--limit", "1"]).lines().count(), 1);
    assert!(!names(&["--filter", "stars=3"]).contains("toy"));
    assert!(!names(&["--filter", "is-official=true"]).contains("toy"));

    let real = real(Options::default())?;
    let host = real.host();
    for tag in ["1", "2"] {
        real.target().image("team/tool", tag, &image(tag).build()).unwrap();
    }
    let tags = place.run(&["search", "--list-tags", &format!("{host}/team/tool")]);
    let tags = tags.ok().out();
    let mut tags: Vec<&str> = tags.lines().collect();
    tags.sort_unstable();
    assert_eq!(tags, ["1", "2"]);
    let listed = place.run(&["search", &format!("{host}/tool")]);
    assert!(listed.ok().out().contains("team/tool"), "{listed:?}");
    place.run(&["search", "--list-tags", &format!("{host}/team/none")]).expect(1);
    Ok(())
}

fn manifests() -> Outcome {
    let place = place("manifest")?;
    let registry = Registry::start().unwrap();
    let host = registry.host();
    let (amd, arm) = (image("a").build(), image("b").platform("arm64", None).docker().build());
    let list = index(Flavour::Oci, &[&amd, &arm]);
    registry.image("team/tool", "amd", &amd);
    registry.image("team/tool", "arm", &arm);
    registry.manifest("team/tool", "all", &list);
    let all = format!("{host}/team/tool:all");
    let inspect = |words: &[&str]| -> Value {
        let shown = place.run(&[&["manifest", "inspect"], words].concat());
        serde_json::from_str(&shown.ok().out()).unwrap()
    };
    let told: Value = serde_json::from_slice(&list.bytes).unwrap();
    assert_eq!(inspect(&[&all]), told);
    let told: Value = serde_json::from_slice(&arm.manifest.bytes).unwrap();
    assert_eq!(inspect(&["--platform", "linux/arm64", &all]), told);
    assert_eq!(inspect(&[&format!("{host}/team/tool:arm")]), told);
    let verbose = inspect(&["-v", &format!("{host}/team/tool@{}", amd.manifest.digest)]);
    assert_eq!(verbose["Descriptor"]["digest"], Value::from(amd.manifest.digest.as_str()));
    let missing = place.run(&["manifest", "inspect", &format!("{host}/team/none")]);
    assert!(missing.expect(1).err().contains("team/none"), "{missing:?}");
    Ok(())
}

fn images_are_found_and_removed() -> Outcome {
    let place = place("images")?;
    let registry = Registry::start().unwrap();
    let host = registry.host();
    let first = image("first").config("Labels", json!({ "kind": "a" })).build();
    registry.image("team/first", "1", &first);
    registry.image("team/second", "2", &image("second").build());
    let names = [format!("{host}/team/first:1"), format!("{host}/team/second:2")];
    place.run(&["pull", "-q", &names[0], &names[1]]).ok();
    let list = |words: &[&str]| -> Vec<String> {
        let format = ["images", "--format", "{{.Repository}}:{{.Tag}}"];
        let shown = place.run(&[&format, words].concat());
        let mut lines: Vec<String> = shown.ok().out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list(&[]), names);
    let second = format!("{host}/team/second");
    for words in [
        &["--filter", "label=kind=a"][..],
        &["--filter", "label=kind"],
        &["--filter", "reference=*/team/first"],
        &["--filter", "dangling=false", "--filter", "reference=*/*/f*"],
    ] {
        assert_eq!(list(words), names[..1], "{words:?}");
    }
    assert_eq!(list(&[&second]), names[1..]);
    assert_eq!(list(&["--filter", "dangling=true"]), [] as [&str; 0]);
    place.run(&["images", "--filter", "odd=1"]).expect(1);
    let shown = place.run(&["images", "--digests", &format!("{host}/team/first")]);
    assert!(shown.ok().out().contains(&first.manifest.digest), "{shown:?}");
    let row = place.run(&["images", "--format", "json", &second]);
    let row: Value = serde_json::from_str(&row.ok().line()).unwrap();
    assert_eq!(row["Repository"], second);

    // Removed by id, by digest, and by the start of an id; two names of one id need force.
    place.run(&["tag", &names[0], "other:1"]).ok();
    let id = first.config.hex();
    let refused = place.run(&["rmi", &id[..12]]);
    assert!(refused.expect(1).err().contains("error: "), "{refused:?}");
    place.run(&["rmi", "other:1"]).ok();
    place.run(&["rmi", &id[..12]]).ok();
    place.run(&["pull", "-q", &names[0]]).ok();
    place.run(&["rmi", &format!("{host}/team/first@{}", first.manifest.digest)]).ok();
    place.run(&["pull", "-q", &names[0]]).ok();
    place.run(&["rmi", &format!("sha256:{id}")]).ok();
    assert_eq!(list(&[]), names[1..]);
    Ok(())
}
