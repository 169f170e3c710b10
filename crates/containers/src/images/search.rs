//! Looks for images in registries.

use registry::SearchResult;

use super::remote;
use crate::error::{Error, Result};
use crate::filter::{self, Filters};
use crate::request::RegistryRequest;
use crate::session::Session;

/// The filters that a search knows.
pub const FILTERS: &[&str] = &["is-official", "is-automated", "stars"];

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    /// `[HOST[:PORT]/]TERM`.
    pub term: String,
    /// Only results that these match; see [`FILTERS`].
    pub filters: Filters,
    /// The largest number of results that the registry is asked for.
    pub limit: usize,
    /// How the registry is reached.
    pub registry: RegistryRequest,
}

/// Looks for repositories.
pub fn search(session: &Session, request: &SearchRequest) -> Result<Vec<SearchResult>> {
    let SearchRequest { term, filters, limit, registry: access } = request;
    let (registry, term) = place(session, &remote::named(access, term));
    let client = remote::client(session, access, &registry)?;
    let mut results = client
        .search(&registry, &term, *limit)
        .map_err(|error| Error::from(error).within(format!("cannot search {registry}")))?;
    results.retain(|result| {
        let least = |value: &str| value.parse().is_ok_and(|least: u64| result.stars >= least);
        filters.all("is-official", |value| filter::truth(value) == result.official)
            && filters.all("is-automated", |value| filter::truth(value) == result.automated)
            && filters.all("stars", least)
    });
    Ok(results)
}

/// The tags of a repository.
pub fn tags(session: &Session, name: &str, access: &RegistryRequest) -> Result<Vec<String>> {
    let reference = remote::reference(session, &remote::named(access, name))?;
    let client = remote::client(session, access, reference.registry())?;
    Ok(client.tags(&reference, 0)?)
}

/// The registry to ask and the term to look for.
fn place(session: &Session, term: &str) -> (String, String) {
    if let Some((host, rest)) = term.split_once('/')
        && (host.contains(['.', ':']) || host == "localhost")
    {
        return (host.to_owned(), rest.to_owned());
    }
    (session.settings().default_registry.clone(), term.to_owned())
}
