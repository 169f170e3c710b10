//! Docker's older archive format: `manifest.json`, configurations and layers by path.

use oci::{Compression, Descriptor, Digest, ImageConfig, Manifest, media};

use super::contents::{Contents, DockerImage, Stored};
use super::{Image, invalid, references};
use crate::{BlobSink, Error};

/// Returns the images; puts their new manifests into the sink.
pub(super) fn images(contents: &Contents, sink: &mut dyn BlobSink) -> Result<Vec<Image>, Error> {
    let listed = contents.docker_images()?;
    if listed.is_empty() {
        return Err(invalid("its manifest.json lists no image"));
    }
    listed.into_iter().map(|listed| image(contents, sink, listed)).collect()
}

fn image(
    contents: &Contents,
    sink: &mut dyn BlobSink,
    listed: DockerImage,
) -> Result<Image, Error> {
    let missing = |path: &str| invalid(format!("{path} is listed but missing"));
    let stored = contents.blob(&listed.config).ok_or_else(|| missing(&listed.config))?;
    let json = contents.json(&stored.digest).ok_or_else(|| missing(&listed.config))?;
    let config = ImageConfig::parse(json)
        .map_err(|source| Error::Document { what: listed.config.clone(), source })?;
    let paths = listed.layers.unwrap_or_default();
    if paths.len() != config.diff_ids().len() {
        return Err(invalid(format!(
            "{} lists {} layers and its configuration {}",
            listed.config,
            paths.len(),
            config.diff_ids().len()
        )));
    }
    let layers = paths
        .iter()
        .zip(config.diff_ids())
        .map(|(path, diff_id)| {
            layer(path, contents.blob(path).ok_or_else(|| missing(path))?, diff_id)
        })
        .collect::<Result<Vec<Descriptor>, Error>>()?;
    let descriptor = Descriptor::new(media::OCI_CONFIG, stored.digest.clone(), stored.size);
    let manifest = Manifest::build(media::OCI_MANIFEST, descriptor, layers);
    let descriptor = manifest.descriptor();
    sink.put(Some(&descriptor.digest), &mut manifest.raw()).map_err(|source| Error::Blob {
        action: "store",
        what: "the manifest".to_owned(),
        source,
    })?;
    let names = listed.repo_tags.unwrap_or_default();
    let references = references(&names);
    Ok(Image { names, references, manifest, descriptor, index: None, config })
}

fn layer(path: &str, stored: &Stored, diff_id: &Digest) -> Result<Descriptor, Error> {
    if stored.compression == Compression::None && stored.digest != *diff_id {
        return Err(Error::WrongDigest {
            what: path.to_owned(),
            expected: diff_id.clone(),
            found: stored.digest.clone(),
        });
    }
    let media_type = stored.compression.oci_layer_type().ok_or_else(|| {
        invalid(format!("{path} is compressed by {}, which is not supported", stored.compression))
    })?;
    Ok(Descriptor::new(media_type, stored.digest.clone(), stored.size))
}
