//! `manifest inspect`.

use oci::Document;
use serde_json::{Value, json};

use crate::args::images::ManifestInspectArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::images::remote;

/// Prints what a name points to: the index or manifest of the registry, or, where that cannot be reached, of the store.
pub(crate) fn run(context: &Context, args: &ManifestInspectArgs) -> Result<Exit, Report> {
    let mut registry = crate::args::request::registry(&args.registry);
    if args.insecure {
        registry.tls_verify = Some(false);
    }
    let reference = remote::reference(context.session()?, &remote::named(&registry, &args.image))?;
    let client = remote::client(context.session()?, &registry, reference.registry())?;
    let platform =
        args.platform.as_deref().map(containers::request::options::platform).transpose()?;
    let fetched = match &platform {
        Some(platform) => client
            .resolve(&reference, Some(platform))
            .map(|resolved| (Document::Manifest(resolved.manifest), resolved.descriptor)),
        None => client.manifest(&reference).map(|fetched| (fetched.document, fetched.descriptor)),
    };
    let (document, descriptor) = match fetched {
        Ok(found) => found,
        Err(error) => match containers::images::find::local(context.session()?, &args.image)? {
            Some(image) => {
                tracing::info!("the registry does not answer, the store does: {error}");
                let manifest = image.manifest()?.clone();
                (Document::Manifest(manifest), image.descriptor().clone())
            }
            None => {
                return Err(Report::from(error)
                    .within(format!("cannot find the manifest of {}", reference.familiar())));
            }
        },
    };
    let value: Value = serde_json::from_slice(document.raw())
        .map_err(|error| Report::new("the manifest is no JSON").cause(error))?;
    if args.verbose {
        let descriptor = json!({
            "mediaType": descriptor.media_type, "digest": descriptor.digest.to_string(), "size": descriptor.size,
        });
        output::line(output::pretty(
            &json!({"Ref": reference.to_string(), "Descriptor": descriptor, "Manifest": value}),
        ))?;
    } else {
        output::line(output::pretty(&value))?;
    }
    Ok(Exit::OK)
}
