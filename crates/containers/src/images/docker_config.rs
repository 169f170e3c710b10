//! Builds an image's configuration from one in Docker's own form, of which udocker keeps parts.

use oci::{Digest, ImageConfig, Platform};
use serde_json::{Value, json};

use crate::error::Result;

/// The platform that a configuration names; the host's for parts that it does not name.
pub fn platform(config: &Value) -> Platform {
    let part = |key: &str, usual: &str| config[key].as_str().unwrap_or(usual).to_owned();
    let host = Platform::host();
    let text = format!("{}/{}", part("os", &host.os), part("architecture", &host.architecture));
    text.parse().unwrap_or(host)
}

/// An image's configuration, made of the parts that udocker keeps.
pub fn image_config(old: &Value, diff_ids: &[Digest]) -> Result<ImageConfig> {
    let digests: Vec<String> = diff_ids.iter().map(ToString::to_string).collect();
    let platform = platform(old);
    let running = [&old["config"], &old["container_config"]];
    let running = running.into_iter().find(|value| value.is_object()).unwrap_or(&Value::Null);
    let mut made = json!({
        "architecture": platform.architecture,
        "os": platform.os,
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    if let Some(created) = old["created"].as_str() {
        made["created"] = json!(created);
    }
    if running.is_object() {
        made["config"] = running.clone();
    }
    Ok(ImageConfig::parse(made.to_string().into_bytes())?)
}
