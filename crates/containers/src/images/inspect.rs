//! Describes images in the form of Docker's `inspect`, as far as the fields mean something here.

use serde_json::{Map, Value, json};
use store::Image;

use super::list;
use crate::error::{Error, Result};

/// The time of images that do not say when they were made.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// An image in Docker's form. `driver`: how roots of containers are made of it.
pub fn describe(image: &Image, driver: rootfs::Driver) -> Result<Value> {
    let config = image.config()?;
    let manifest = image.manifest()?;
    let (tags, digests) = names(image)?;
    let platform = config.platform();
    let comment = config.history().last().and_then(|step| step.comment().clone());
    let diff_ids: Vec<String> = config.diff_ids().iter().map(ToString::to_string).collect();
    let size = manifest.layers_size() + manifest.config.size;
    Ok(json!({
        "Id": image.id()?.to_string(),
        "RepoTags": tags,
        "RepoDigests": digests,
        "Digest": image.digest().to_string(),
        "Comment": comment.unwrap_or_default(),
        "Created": config.created().unwrap_or(NEVER),
        "Author": config.author().unwrap_or_default(),
        "Architecture": platform.architecture,
        "Variant": platform.variant,
        "Os": platform.os,
        "Size": size,
        "VirtualSize": size,
        "Parent": "",
        "DockerVersion": docker_version(&config),
        "Metadata": {"LastTagTime": NEVER},
        "GraphDriver": {"Name": driver.name(), "Data": {}},
        "RootFS": {"Type": "layers", "Layers": diff_ids},
        "Config": settings(&config),
        "Manifest": layers(manifest),
    }))
}

/// The version of Docker that built the image, which is no part of OCI's configuration.
fn docker_version(config: &oci::ImageConfig) -> String {
    #[derive(serde::Deserialize)]
    struct Builder {
        #[serde(default)]
        docker_version: String,
    }
    let read = serde_json::from_slice::<Builder>(config.raw());
    read.map(|builder| builder.docker_version).unwrap_or_default()
}

/// The image's names with tags, and with the digest by which the registry knows it.
fn names(image: &Image) -> Result<(Vec<String>, Vec<String>)> {
    let references = image.references()?;
    let digest = list::known_as(image);
    let tagged = references.iter().filter(|reference| reference.tag().is_some());
    let tags = tagged.map(oci::Reference::familiar).collect();
    let mut digests: Vec<String> = references
        .iter()
        .map(|reference| format!("{}@{digest}", reference.familiar_name()))
        .collect();
    digests.sort();
    digests.dedup();
    Ok((tags, digests))
}

/// What the configuration says about running the image.
fn settings(config: &oci::ImageConfig) -> Value {
    let set = |names: &[String]| -> Value {
        names.iter().map(|name| (name.clone(), json!({}))).collect::<Map<String, Value>>().into()
    };
    let list = |words: &[String]| if words.is_empty() { Value::Null } else { json!(words) };
    json!({
        "Env": config.env(),
        "Cmd": list(config.cmd()),
        "Entrypoint": list(config.entrypoint()),
        "WorkingDir": config.working_dir().unwrap_or("/"),
        "User": config.user().unwrap_or_default(),
        "Labels": config.labels(),
        "ExposedPorts": set(config.exposed_ports()),
        "Volumes": set(config.volumes()),
        "StopSignal": config.stop_signal(),
        "Shell": list(config.shell()),
        "OnBuild": list(config.on_build()),
    })
}

fn layers(manifest: &oci::Manifest) -> Value {
    let layers: Vec<Value> = manifest
        .layers
        .iter()
        .map(|layer| {
            let (kind, digest) = (&layer.media_type, layer.digest.to_string());
            json!({"MediaType": kind, "Digest": digest, "Size": layer.size})
        })
        .collect();
    json!({"MediaType": manifest.descriptor().media_type, "Layers": layers})
}

/// The image's configuration alone, with its keys in order, as udocker shows it.
pub fn configuration(image: &Image) -> Result<Value> {
    let config = image.config()?;
    let mut value: Value = serde_json::from_slice(config.raw())
        .map_err(|error| Error::failed("the image's configuration is not JSON").cause(error))?;
    value.sort_all_objects();
    Ok(value)
}
