//! Lists tags and repositories, searches, and logs in.

use std::collections::BTreeSet;

use oci::Reference;
use serde::Deserialize;

use super::authorize::Purpose;
use super::session::Ask;
use super::{Client, Endpoint, HUB, Inner, Login, SearchResult, response_text};
use crate::auth::Credential;
use crate::http::Response;
use crate::url::{Url, encode};
use crate::{Error, limits};

/// Docker Hub's searches are on other hosts than its registry: version 1, and the one of its
/// pages.
const HUB_SEARCH: &str = "index.docker.io";
const HUB_PAGES: &str = "hub.docker.com";
const PAGE_SIZE: usize = 1000;
/// Maximum number of results in one page of a version 1 search.
const SEARCH_PAGE: usize = 100;
const DESCRIPTION_MAX: usize = 1000;

#[derive(Deserialize)]
struct Tags {
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Catalog {
    repositories: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    results: Vec<Found>,
    #[serde(default)]
    num_pages: usize,
}

#[derive(Deserialize)]
struct Found {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    star_count: u64,
    #[serde(default)]
    is_official: bool,
    #[serde(default)]
    is_automated: bool,
}

/// A page of the search on Docker Hub's own site.
#[derive(Deserialize)]
struct HubSearch {
    #[serde(default)]
    results: Vec<HubFound>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct HubFound {
    repo_name: String,
    #[serde(default)]
    short_description: Option<String>,
    #[serde(default)]
    star_count: u64,
    #[serde(default)]
    is_official: bool,
    #[serde(default)]
    is_automated: bool,
}

impl From<HubFound> for Found {
    fn from(found: HubFound) -> Self {
        Found {
            name: found.repo_name,
            description: found.short_description,
            star_count: found.star_count,
            is_official: found.is_official,
            is_automated: found.is_automated,
        }
    }
}

impl Client {
    /// The repository's tags in the registry's order, at most `limit` (0: all).
    pub fn tags(&self, reference: &Reference, limit: usize) -> Result<Vec<String>, Error> {
        self.inner.first(reference, |endpoint| {
            let path = format!("/v2/{}/tags/list?n={PAGE_SIZE}", endpoint.repository);
            let what = reference.familiar_name();
            self.inner.pages(endpoint, path, &endpoint.pull_scope(), &what, limit, |body| {
                serde_json::from_slice::<Tags>(body).map(|page| page.tags.unwrap_or_default())
            })
        })
    }

    /// The registry's repositories, at most `limit` (0: all). Many registries refuse to list them.
    pub fn catalog(&self, registry: &str, limit: usize) -> Result<Vec<String>, Error> {
        let endpoint = self.inner.registry(registry);
        let path = format!("/v2/_catalog?n={PAGE_SIZE}");
        let scope = "registry:catalog:*";
        self.inner.pages(&endpoint, path, scope, registry, limit, |body| {
            serde_json::from_slice::<Catalog>(body)
                .map(|page| page.repositories.unwrap_or_default())
        })
    }

    /// Searches a registry (`docker.io` for Docker Hub), at most `limit` results: by the version 1
    /// search if the registry has it, else by Docker Hub's own search or by filtering the catalog.
    pub fn search(
        &self,
        registry: &str,
        term: &str,
        limit: usize,
    ) -> Result<Vec<SearchResult>, Error> {
        match self.search_v1(registry, term, limit) {
            Err(first) if registry == HUB.0 => {
                self.search_hub(term, limit).map_err(|second| match (first, second) {
                    // Neither is there: what a 404 says of an image does not fit a search.
                    (Error::NotFound { .. }, Error::NotFound { .. }) => {
                        Error::Unsupported { registry: registry.to_owned(), what: "search" }
                    }
                    (Error::NotFound { .. } | Error::Unsupported { .. }, second) => second,
                    (first, _) => first,
                })
            }
            Err(
                Error::NotFound { .. }
                | Error::Unsupported { .. }
                | Error::Protocol { .. }
                | Error::Unauthorized { .. }
                | Error::Denied { .. }
                | Error::Status { status: 400..=499, .. },
            ) => self.search_catalog(registry, term, limit),
            other => other,
        }
    }

    fn search_v1(
        &self,
        registry: &str,
        term: &str,
        limit: usize,
    ) -> Result<Vec<SearchResult>, Error> {
        let mut endpoint = self.inner.registry(registry);
        if registry == HUB.0 {
            HUB_SEARCH.clone_into(&mut endpoint.authority);
        }
        let mut results = Vec::new();
        for page in 1..=limits::PAGES {
            let size = limit.saturating_sub(results.len()).clamp(1, SEARCH_PAGE);
            let path = format!("/v1/search?q={}&n={size}&page={page}", encode(term));
            let found: Search = self.search_page(&endpoint, path, registry)?;
            let empty = found.results.is_empty();
            results.extend(found.results.into_iter().map(|f| result(registry, f)));
            if empty || results.len() >= limit || page >= found.num_pages {
                break;
            }
        }
        results.truncate(limit);
        Ok(results)
    }

    /// The search of Docker Hub's own site.
    fn search_hub(&self, term: &str, limit: usize) -> Result<Vec<SearchResult>, Error> {
        let mut endpoint = self.inner.registry(HUB.0);
        HUB_PAGES.clone_into(&mut endpoint.authority);
        let mut results = Vec::new();
        // Pages are counted by their size, which therefore stays the same.
        let size = limit.clamp(1, SEARCH_PAGE);
        for page in 1..=limits::PAGES {
            let term = encode(term);
            let path =
                format!("/v2/search/repositories/?query={term}&page={page}&page_size={size}");
            let found: HubSearch = self.search_page(&endpoint, path, HUB.0)?;
            let last = found.results.is_empty() || found.next.is_none_or(|next| next.is_empty());
            results.extend(found.results.into_iter().map(|f| result(HUB.0, f.into())));
            if last || results.len() >= limit {
                break;
            }
        }
        results.truncate(limit);
        Ok(results)
    }

    fn search_page<T: serde::de::DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        path: String,
        registry: &str,
    ) -> Result<T, Error> {
        let mut answer = self.inner.ask(endpoint, &Ask::get(path, String::new()), registry)?;
        let url = answer.response.url.to_string();
        let body = self.inner.document(&mut answer.response, limits::PAGE, || url.clone())?;
        serde_json::from_slice(&body)
            .map_err(|_| Error::Unsupported { registry: registry.to_owned(), what: "search" })
    }

    fn search_catalog(
        &self,
        registry: &str,
        term: &str,
        limit: usize,
    ) -> Result<Vec<SearchResult>, Error> {
        let names = self.catalog(registry, 0).map_err(|error| match error {
            Error::NotFound { .. } | Error::Status { status: 400..=499, .. } => {
                Error::Unsupported { registry: registry.to_owned(), what: "search" }
            }
            other => other,
        })?;
        let term = term.to_lowercase();
        let matching = names.into_iter().filter(|name| name.contains(&term)).take(limit);
        Ok(matching
            .map(|name| SearchResult {
                name: format!("{registry}/{name}"),
                description: String::new(),
                stars: 0,
                official: false,
                automated: false,
            })
            .collect())
    }

    /// Checks that a registry accepts these credentials (`None`: checks if it requires any).
    pub fn login(&self, registry: &str, credential: Option<&Credential>) -> Result<Login, Error> {
        let endpoint = self.inner.registry(registry);
        let mut ask = Ask::get("/v2/".to_owned(), String::new());
        ask.purpose = Purpose::Login;
        ask.credential = credential;
        match self.inner.ask(&endpoint, &ask, registry) {
            Ok(answer) => {
                Ok(Login { required: answer.challenged, identity_token: answer.refresh_token })
            }
            Err(Error::NotFound { .. }) => Err(Error::Protocol {
                url: format!("{registry}/v2/"),
                reason: "this is not a registry".to_owned(),
            }),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    /// Follows `Link: <...>; rel="next"` until there is no next page or the limit is reached.
    fn pages(
        &self,
        endpoint: &Endpoint,
        first: String,
        scope: &str,
        what: &str,
        limit: usize,
        parse: impl Fn(&[u8]) -> Result<Vec<String>, serde_json::Error>,
    ) -> Result<Vec<String>, Error> {
        let mut items = Vec::new();
        let mut seen = BTreeSet::new();
        let mut path = first;
        let mut size = 0;
        for _ in 0..limits::PAGES {
            let mut answer = self.ask(endpoint, &Ask::get(path.clone(), scope.to_owned()), what)?;
            let next = next_page(&answer.response);
            let url = answer.response.url.to_string();
            let body = self.document(&mut answer.response, limits::PAGE, || url.clone())?;
            size += body.len() as u64;
            if size > limits::LIST {
                let what = format!("the list at {url}");
                return Err(Error::TooLarge { what, limit: limits::LIST });
            }
            let page = parse(&body).map_err(|e| Error::Protocol { url, reason: e.to_string() })?;
            items.extend(page.into_iter().map(|item| response_text::clean(&item, DESCRIPTION_MAX)));
            seen.insert(path);
            if limit > 0 && items.len() >= limit {
                items.truncate(limit);
                break;
            }
            // Stops at a page that was read already, which would loop.
            match next {
                Some(next) if !seen.contains(&next) => path = next,
                _ => break,
            }
        }
        Ok(items)
    }
}

/// The path of the next page; a link to another host is not followed, since the token is not for
/// that host.
fn next_page(response: &Response) -> Option<String> {
    for link in response.headers("link") {
        for part in link.split(", <") {
            let (target, parameters) = part.trim_start_matches('<').split_once('>')?;
            if parameters.to_ascii_lowercase().replace(['"', ' '], "").contains("rel=next") {
                let url: Url = response.url.join(target)?;
                // Registries behind proxies write their inner address: only the path is used.
                return Some(url.path);
            }
        }
    }
    None
}

fn result(registry: &str, found: Found) -> SearchResult {
    let name = response_text::clean(&found.name, DESCRIPTION_MAX);
    SearchResult {
        name: if registry == HUB.0 { name } else { format!("{registry}/{name}") },
        description: response_text::clean(&found.description.unwrap_or_default(), DESCRIPTION_MAX),
        stars: found.star_count,
        official: found.is_official,
        automated: found.is_automated,
    }
}
