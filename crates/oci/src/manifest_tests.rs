//! Tests with documents as registries serve them.

use super::*;
use crate::Digest;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn manifest_json(media_type: &str, config_type: &str) -> String {
    format!(
        r#"{{"schemaVersion":2,{media_type}"config":{{"mediaType":"{config_type}","size":2,"digest":"sha256:{HEX}"}},"layers":[{{"mediaType":"{}","size":3,"digest":"sha256:{HEX}"}}]}}"#,
        media::OCI_LAYER_GZIP
    )
}

fn entry(platform: &str) -> String {
    format!(
        r#"{{"mediaType":"{}","size":1,"digest":"{}","platform":{platform}}}"#,
        media::OCI_MANIFEST,
        Digest::of(platform.as_bytes())
    )
}

fn index_json(platforms: &[&str]) -> String {
    let entries: Vec<String> = platforms.iter().map(|p| entry(p)).collect();
    format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","))
}

#[test]
fn keeps_the_bytes() {
    let text = manifest_json("", media::OCI_CONFIG).replace("\"config\"", "\n \"x\":1, \"config\"");
    let Document::Manifest(manifest) = Document::parse(text.as_bytes(), "").unwrap() else {
        panic!("not a manifest");
    };
    assert_eq!(manifest.raw(), text.as_bytes());
    assert_eq!(manifest.descriptor().digest, Digest::of(text.as_bytes()));
    assert_eq!(manifest.media_type, media::OCI_MANIFEST);
    assert_eq!(manifest.layers_size(), 3);
    assert!(manifest.check_is_image().is_ok());
}

#[test]
fn the_outer_type_fills_in() {
    let text = manifest_json("", media::DOCKER_CONFIG);
    let document = Document::parse(text.as_bytes(), media::DOCKER_MANIFEST).unwrap();
    assert_eq!(document.media_type(), media::DOCKER_MANIFEST);
    let document = Document::parse(text.as_bytes(), "application/json").unwrap();
    assert_eq!(document.media_type(), media::OCI_MANIFEST);
}

#[test]
fn refuses_contradicting_types() {
    let text = manifest_json("", media::OCI_CONFIG);
    assert!(Document::parse(text.as_bytes(), media::OCI_INDEX).is_err());
    let inner =
        manifest_json(&format!(r#""mediaType":"{}","#, media::OCI_INDEX), media::OCI_CONFIG);
    assert!(Document::parse(inner.as_bytes(), "").is_err());
    let both = text.replacen('{', r#"{"manifests":[],"#, 1);
    assert!(Document::parse(both.as_bytes(), "").is_err());
    assert!(matches!(Document::parse(&b"{}"[..], "text/html"), Err(Error::MediaType { .. })));
    assert!(matches!(Document::parse(&b"<html>"[..], ""), Err(Error::Malformed { .. })));
}

#[test]
fn refuses_schema_1() {
    let text = br#"{"schemaVersion":1,"name":"x","fsLayers":[{"blobSum":"sha256:0"}]}"#;
    assert_eq!(Document::parse(&text[..], "").unwrap_err(), Error::Schema1);
    let served = Document::parse(&b"x"[..], media::DOCKER_SCHEMA1_SIGNED).unwrap_err();
    assert_eq!(served, Error::Schema1);
    assert!(served.hint().is_some());
}

#[test]
fn refuses_too_much() {
    let big = vec![b' '; DOCUMENT_MAX as usize + 1];
    assert!(matches!(Document::parse(big, ""), Err(Error::TooLarge { .. })));
}

#[test]
fn artifacts_are_refused_by_type() {
    let text = manifest_json("", "application/vnd.cncf.helm.config.v1+json");
    let manifest = Manifest::parse(text.as_bytes(), "").unwrap();
    assert!(matches!(manifest.check_is_image(), Err(Error::Artifact { .. })));
}

#[test]
fn chooses_a_platform() {
    let text = index_json(&[
        r#"{"architecture":"unknown","os":"unknown"}"#,
        r#"{"architecture":"amd64","os":"windows","os.version":"10"}"#,
        r#"{"architecture":"arm","os":"linux","variant":"v5"}"#,
        r#"{"architecture":"arm","os":"linux","variant":"v6"}"#,
        r#"{"architecture":"arm64","os":"linux","variant":"v8"}"#,
        r#"{"architecture":"amd64","os":"linux","variant":"v3"}"#,
        r#"{"architecture":"amd64","os":"linux"}"#,
    ]);
    let index = Index::parse(text.as_bytes(), media::OCI_INDEX).unwrap();
    let chosen = |want: &str| {
        let entry = index.choose(&want.parse().unwrap()).unwrap();
        entry.platform.as_ref().unwrap().to_string()
    };
    assert_eq!(chosen("linux/amd64"), "linux/amd64");
    assert_eq!(chosen("linux/amd64/v4"), "linux/amd64/v3");
    assert_eq!(chosen("linux/amd64/v2"), "linux/amd64");
    assert_eq!(chosen("linux/arm/v7"), "linux/arm/v6");
    assert_eq!(chosen("linux/arm64"), "linux/arm64/v8");
    let error = index.choose(&"linux/s390x".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("linux/arm/v6"));
    assert!(!error.to_string().contains("unknown"));
    assert!(error.hint().unwrap().contains("--platform"));
}

#[test]
fn an_entry_without_platform_is_the_last_resort() {
    let text = index_json(&["null"]);
    let index = Index::parse(text.as_bytes(), "").unwrap();
    assert!(index.choose(&Platform::host()).is_ok());
    let text = index_json(&["null", r#"{"architecture":"amd64","os":"linux"}"#]);
    let index = Index::parse(text.as_bytes(), "").unwrap();
    assert!(index.choose(&"linux/amd64".parse().unwrap()).unwrap().platform.is_some());
}

#[test]
fn builds_what_it_reads() {
    let config = Descriptor::of(media::OCI_CONFIG, b"{}");
    let built = Manifest::build(media::OCI_MANIFEST, config.clone(), vec![config]);
    let back = Manifest::parse(built.raw(), "").unwrap();
    assert_eq!(back.config, built.config);
    let index = Index::build(vec![built.descriptor()]);
    assert_eq!(Index::parse(index.raw(), "").unwrap().manifests, index.manifests);
}

#[test]
fn translates_docker() {
    let config = Descriptor::of(media::DOCKER_CONFIG, b"{}");
    let layers = [media::DOCKER_LAYER, media::DOCKER_LAYER_GZIP].map(|t| Descriptor::of(t, b"x"));
    let docker = Manifest::build(media::DOCKER_MANIFEST, config.clone(), layers.to_vec());
    let oci = Manifest::parse(docker.to_oci().raw(), media::OCI_MANIFEST).unwrap();
    assert_eq!(oci.config.media_type, media::OCI_CONFIG);
    assert_eq!(oci.config.digest, config.digest);
    assert_eq!(oci.layers[0].media_type, media::OCI_LAYER);
    assert_eq!(oci.layers[1].media_type, media::OCI_LAYER_GZIP);
    assert_eq!(oci.to_oci().raw(), oci.raw());
}
