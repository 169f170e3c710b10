//! Lists the images of the store, the newest first.

use oci::Reference;
use store::{Image, Summary};

use super::find;
use crate::error::Result;
use crate::filter::{self, Filters};
use crate::session::Session;
use crate::time;

/// The filters that a list of images knows.
pub const FILTERS: &[&str] = &["dangling", "reference", "before", "since", "label", "until"];

/// Which images to list.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only images of this name, which may be a pattern with `*` and `?`.
    pub name: Option<String>,
    /// Only images that these filters match; see [`FILTERS`].
    pub filters: Filters,
}

/// An image with what a list shows of it.
#[derive(Debug)]
pub struct Listed {
    /// The entry in the index.
    pub image: Image,
    /// The facts of its configuration.
    pub summary: Summary,
}

/// The images of the store; equal times keep the order of the index. An image that cannot be read
/// is told as a warning, so that it does not hide the others.
pub fn list(session: &Session, request: &ListRequest) -> Result<Vec<Listed>> {
    let summaries = session.store()?.images().summaries()?;
    let bounds = Bounds::find(session, &request.filters)?;
    let mut listed = Vec::new();
    for (image, summary) in summaries {
        session.cancel().check()?;
        match summary {
            Ok(summary) => {
                if matches(&image, &summary, request, &bounds) {
                    listed.push(Listed { image, summary });
                }
            }
            Err(error) => {
                tracing::warn!("{error}");
                session.warn(&error.to_string());
            }
        }
    }
    listed.sort_by(|a, b| b.summary.created.cmp(&a.summary.created));
    Ok(listed)
}

/// The times of the images that `before=` and `since=` name.
struct Bounds {
    before: Option<String>,
    since: Option<String>,
}

impl Bounds {
    fn find(session: &Session, filters: &Filters) -> Result<Self> {
        let time_of = |key: &str| -> Result<Option<String>> {
            let Some(name) = filters.last(key) else { return Ok(None) };
            let summary = find::stored(session, name)?.summary()?;
            Ok(Some(summary.created.unwrap_or_default()))
        };
        Ok(Self { before: time_of("before")?, since: time_of("since")? })
    }
}

fn matches(image: &Image, summary: &Summary, request: &ListRequest, bounds: &Bounds) -> bool {
    let filters = &request.filters;
    let reference = image.reference();
    let created = summary.created.as_deref().unwrap_or_default();
    let dangling = reference.is_none();
    let is_named = |pattern: &str| {
        reference.as_ref().is_some_and(|reference| matches_name(reference, pattern))
    };
    request.name.as_deref().is_none_or(is_named)
        && filters.all("dangling", |value| filter::truth(value) == dangling)
        && filters.any("reference", is_named)
        && filters.all("label", |label| filter::label(&summary.labels, label))
        && bounds.before.as_deref().is_none_or(|before| created < before)
        && bounds.since.as_deref().is_none_or(|since| created > since)
        && filters.all("until", |until| {
            time::point(until)
                .is_some_and(|until| time::parse(created).is_some_and(|created| created < until))
        })
}

/// `debian`, `debian:stable`, `*/tools`, `docker.io/library/debian`: a repository, or a repository
/// and a tag.
fn matches_name(reference: &Reference, pattern: &str) -> bool {
    let familiar = reference.familiar_name();
    let full = reference.name();
    let tagged = |name: &str| format!("{name}:{}", reference.tag().unwrap_or_default());
    [familiar.clone(), full.clone(), tagged(&familiar), tagged(&full)]
        .iter()
        .any(|name| filter::glob(pattern, name))
}

/// The digest by which the registry knows the image: that of the index, if it came from one.
pub fn known_as(image: &Image) -> String {
    let index = image.descriptor().annotations.get(store::ANNOTATION_KNOWN_AS);
    index.cloned().unwrap_or_else(|| image.digest().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_with_and_without_a_tag() {
        let reference = Reference::parse("debian:stable").unwrap();
        for pattern in ["debian", "deb*", "debian:stable", "docker.io/library/debian"] {
            assert!(matches_name(&reference, pattern), "{pattern}");
        }
        for pattern in ["stable", "debian:testing", "library/debian"] {
            assert!(!matches_name(&reference, pattern), "{pattern}");
        }
    }
}
