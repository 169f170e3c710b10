//! Images and volumes in the form of Docker's `inspect`, as far as the fields have a meaning here.

use serde_json::{Map, Value, json};
use store::{Image, Volume};

use crate::commands::images;
use crate::report::Report;

const NEVER: &str = "0001-01-01T00:00:00Z";

/// An image.
pub(crate) fn image(image: &Image) -> Result<Value, Report> {
    let config = image.config()?;
    let manifest = image.manifest()?;
    let references = image.references()?;
    let digest = images::digest(image);
    let tags: Vec<String> = references
        .iter()
        .filter(|reference| reference.tag().is_some())
        .map(oci::Reference::familiar)
        .collect();
    let mut digests: Vec<String> = references
        .iter()
        .map(|reference| format!("{}@{digest}", reference.familiar_name()))
        .collect();
    digests.sort();
    digests.dedup();
    let platform = config.platform();
    let set = |names: &[String]| -> Value {
        names.iter().map(|name| (name.clone(), json!({}))).collect::<Map<String, Value>>().into()
    };
    let list = |words: &[String]| if words.is_empty() { Value::Null } else { json!(words) };
    Ok(json!({
        "Id": image.id()?.to_string(),
        "RepoTags": tags,
        "RepoDigests": digests,
        "Digest": image.digest().to_string(),
        "Comment": config.history().last().and_then(|step| step.comment().clone()).unwrap_or_default(),
        "Created": config.created().unwrap_or(NEVER),
        "Author": config.author().unwrap_or_default(),
        "Architecture": platform.architecture,
        "Variant": platform.variant,
        "Os": platform.os,
        "Size": manifest.layers_size() + manifest.config.size,
        "RootFS": {"Type": "layers", "Layers": config.diff_ids().iter().map(ToString::to_string).collect::<Vec<_>>()},
        "Config": {
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
        },
        "Manifest": {"MediaType": manifest.descriptor().media_type, "Layers": manifest.layers.iter().map(|layer| json!({
            "MediaType": layer.media_type, "Digest": layer.digest.to_string(), "Size": layer.size,
        })).collect::<Vec<_>>()},
    }))
}

/// A volume.
pub(crate) fn volume(volume: &Volume) -> Result<Value, Report> {
    let info = volume.info()?;
    Ok(json!({
        "Name": volume.name(),
        "Driver": "local",
        "Mountpoint": volume.data(),
        "CreatedAt": info.created,
        "Labels": info.labels,
        "Options": info.options,
        "Scope": "local",
        "Anonymous": info.anonymous,
    }))
}
