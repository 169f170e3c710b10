//! `protect` and `unprotect`: what is protected is not removed by `rm` and `rmi`, whatever `--force` says, nor by `run --rm`,
//! `create --force` and `prune`.

use crate::args::containers::ProtectArgs;
use crate::context::Context;
use crate::report::{Exit, Report};
use containers::container::{protection, record};
use containers::images::find as image;

/// `protect`.
pub(crate) fn protect(context: &Context, args: &ProtectArgs) -> Result<Exit, Report> {
    mark(context, &args.name, true)
}

/// `unprotect`.
pub(crate) fn unprotect(context: &Context, args: &ProtectArgs) -> Result<Exit, Report> {
    mark(context, &args.name, false)
}

fn mark(context: &Context, name: &str, on: bool) -> Result<Exit, Report> {
    let yes = "true".to_owned();
    if let Some(container) = record::find_some(context.session()?, name)? {
        let _lock = container.lock_exclusive()?;
        let mut record = record::read(&container)?;
        let labels = &mut record.config.labels;
        if on {
            labels.insert(protection::CONTAINER_LABEL.to_owned(), yes);
        } else {
            labels.remove(protection::CONTAINER_LABEL);
        }
        container.write(&record)?;
        return Ok(Exit::OK);
    }
    let image = image::stored(context.session()?, name)?;
    let mut descriptor = image.descriptor().clone();
    if on {
        descriptor.annotations.insert(protection::IMAGE_ANNOTATION.to_owned(), yes);
    } else {
        descriptor.annotations.remove(protection::IMAGE_ANNOTATION);
    }
    let reference = image.reference().ok_or_else(|| {
        Report::new(format!("the image {name} has no name"))
            .hint("only names are protected; give it one: coracle tag")
    })?;
    context.store()?.images().tag(&reference, &descriptor)?;
    Ok(Exit::OK)
}
