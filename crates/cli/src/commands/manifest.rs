//! `manifest inspect`.

use containers::images::manifest::{self, ManifestRequest};
use containers::request::options;
use serde_json::{Value, json};

use crate::args::images::ManifestInspectArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Prints the manifest or index that a name means.
pub(crate) fn run(context: &Context, args: &ManifestInspectArgs) -> Result<Exit, Report> {
    let mut registry = request::registry(&args.registry);
    if args.insecure {
        registry.tls_verify = Some(false);
    }
    let platform = args.platform.as_deref().map(options::platform).transpose()?;
    let request = ManifestRequest { name: args.image.clone(), platform, registry };
    let found = manifest::find(context.session()?, &request)?;
    let value: Value = serde_json::from_slice(found.document.raw())
        .map_err(|error| Report::new("the manifest is not JSON").cause(error))?;
    if !args.verbose {
        output::line(output::pretty(&value))?;
        return Ok(Exit::OK);
    }
    let descriptor = json!({
        "mediaType": found.descriptor.media_type,
        "digest": found.descriptor.digest.to_string(),
        "size": found.descriptor.size,
    });
    let reference = found.reference.to_string();
    output::line(output::pretty(
        &json!({"Ref": reference, "Descriptor": descriptor, "Manifest": value}),
    ))?;
    Ok(Exit::OK)
}
