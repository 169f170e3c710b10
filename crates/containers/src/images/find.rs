//! Finding images: in the store, in the binary itself, or by pulling them.

use oci::Platform;
use store::Image;

use crate::args::images::RegistryFlags;
use crate::config::PullPolicy;
use crate::context::Context;
use crate::output;
use crate::progress::{Progress, Style};
use crate::pull::{self, Road};
use crate::remote;
use crate::report::Report;

/// How an image is to be found.
pub(crate) struct Wish<'a> {
    /// Name or id.
    pub name: &'a str,
    /// When to pull.
    pub policy: PullPolicy,
    /// For which platform; the host's where none.
    pub platform: Option<Platform>,
    /// How to talk to the registry.
    pub registry: &'a RegistryFlags,
    /// No progress.
    pub quiet: bool,
}

/// The image that a name or id means, if it is in the store.
pub(crate) fn local(context: &Context, name: &str) -> Result<Option<Image>, Report> {
    let images = context.store()?;
    // An id is never a reference, and a reference may lack the configured registry.
    let canonical = remote::reference(context, name).map(|reference| reference.to_string());
    if let Ok(canonical) = &canonical
        && let Some(found) = absent(images.images().find(canonical))?
    {
        return Ok(Some(found));
    }
    match absent(images.images().find(name))? {
        Some(image) => Ok(Some(image)),
        None => crate::udocker::legacy::image(context, name),
    }
}

fn absent(found: store::Result<Image>) -> Result<Option<Image>, Report> {
    match found {
        Ok(image) => Ok(Some(image)),
        Err(store::Error::NoImage { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The image that a name or id means; an error if it is not in the store.
pub(crate) fn stored(context: &Context, name: &str) -> Result<Image, Report> {
    local(context, name)?.ok_or_else(|| {
        Report::new(format!("there is no image '{name}'"))
            .hint("'coracle images' lists what is there, 'coracle pull' fetches")
    })
}

/// Finds or pulls.
pub(crate) fn get(context: &Context, wish: &Wish<'_>) -> Result<Image, Report> {
    let found = local(context, wish.name)?;
    let fits = |image: &Image| -> Result<bool, Report> {
        match &wish.platform {
            None => Ok(true),
            Some(platform) => Ok(platform.accepts(&image.config()?.platform())),
        }
    };
    match (wish.policy, found) {
        (PullPolicy::Missing | PullPolicy::Never, Some(image)) if fits(&image)? => Ok(image),
        (PullPolicy::Never, found) => {
            let report = Report::new(format!("there is no image '{}'", wish.name));
            Err(match found {
                Some(image) => report
                    .because(format!("the one in the store is for {}", image.config()?.platform())),
                None => report,
            }
            .hint("--pull never keeps it from being pulled"))
        }
        (PullPolicy::Missing, None) if super::hello::is_name(wish.name) => {
            super::hello::image(context)
        }
        (PullPolicy::Newer, Some(image)) if fits(&image)? && !is_newer(context, wish, &image) => {
            Ok(image)
        }
        _ => fetch(context, wish),
    }
}

/// Whether the registry has another image by this name. A registry that cannot be reached has none.
fn is_newer(context: &Context, wish: &Wish<'_>, image: &Image) -> bool {
    let head = || -> Result<oci::Descriptor, Report> {
        let reference = remote::reference(context, wish.name)?;
        Ok(remote::client(context, wish.registry, reference.registry())?.head(&reference)?)
    };
    match head() {
        Ok(descriptor) => {
            let index = image.descriptor().annotations.get(store::ANNOTATION_KNOWN_AS);
            descriptor.digest != *image.digest() && index != Some(&descriptor.digest.to_string())
        }
        Err(report) => {
            tracing::warn!("cannot ask for a newer {}: {report}", wish.name);
            false
        }
    }
}

fn fetch(context: &Context, wish: &Wish<'_>) -> Result<Image, Report> {
    let settings = context.settings()?;
    let reference = remote::reference(context, wish.name)?;
    let client = remote::client(context, wish.registry, reference.registry())?;
    let style = Style::choose(wish.quiet || context.is_quiet(), settings.progress);
    let progress = Progress::new(style);
    let road = Road::new(context.store()?, settings, &progress);
    pull::pull(&road, &client, &reference, wish.platform.as_ref(), true)?;
    context.store()?.images().get(&reference)?.ok_or_else(|| {
        Report::new(format!(
            "the image {} was removed while it was being pulled",
            reference.familiar()
        ))
    })
}

/// The first twelve digits of an id.
pub(crate) fn short(digest: &oci::Digest) -> String {
    digest.hex().chars().take(12).collect()
}

/// When an image was built, in words.
pub(crate) fn age(created: Option<&str>) -> String {
    match created.filter(|time| !time.starts_with("0001-")) {
        Some(time) => output::time::ago(time),
        None => "N/A".to_owned(),
    }
}
