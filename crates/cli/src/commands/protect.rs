//! `protect` and `unprotect`: what is protected is not removed by `rm` and `rmi`, whatever `--force` says, nor by `run --rm`,
//! `create --force` and `prune`.

use engine::spec::ContainerConfig;

use crate::args::containers::ProtectArgs;
use crate::container::record;
use crate::context::Context;
use crate::image;
use crate::report::{Exit, Report};
use crate::udocker::{self, listing};

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
    if let Some(container) = record::find_some(context, name)? {
        let _lock = container.lock_exclusive()?;
        let mut record = record::read(&container)?;
        let labels = &mut record.config.labels;
        if on {
            labels.insert(listing::PROTECTED_LABEL.to_owned(), yes);
        } else {
            labels.remove(listing::PROTECTED_LABEL);
        }
        container.write(&record)?;
        return Ok(Exit::OK);
    }
    let image = image::stored(context, name)?;
    let mut descriptor = image.descriptor().clone();
    if on {
        descriptor.annotations.insert(listing::PROTECTED.to_owned(), yes);
    } else {
        descriptor.annotations.remove(listing::PROTECTED);
    }
    let reference = image.reference().ok_or_else(|| {
        Report::new(format!("the image {name} has no name"))
            .hint("only names are protected; give it one: coracle tag")
    })?;
    context.store()?.images().tag(&reference, &descriptor)?;
    Ok(Exit::OK)
}

/// Whether a container is protected.
pub(crate) fn holds(config: &ContainerConfig) -> bool {
    config.labels.contains_key(listing::PROTECTED_LABEL)
}

/// Whether a container is removed when its program ends (`--rm`): not what is protected.
pub(crate) fn lets_go(config: &ContainerConfig) -> bool {
    config.auto_remove && !holds(config)
}

/// Whether an image's name is protected.
pub(crate) fn holds_image(image: &store::Image) -> bool {
    image.descriptor().annotations.contains_key(listing::PROTECTED)
}

/// Refuses a container that is protected.
pub(crate) fn check_container(container: &store::ContainerDir) -> Result<(), Report> {
    // A record that cannot be read protects nothing.
    if record::read(container).is_ok_and(|record| holds(&record.config)) {
        return Err(udocker::protected("container", &record::title(container)));
    }
    Ok(())
}

/// Refuses an image that is protected.
pub(crate) fn check_image(image: &store::Image, name: &str) -> Result<(), Report> {
    if holds_image(image) {
        return Err(udocker::protected("image", name));
    }
    Ok(())
}
