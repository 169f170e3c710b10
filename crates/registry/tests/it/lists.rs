//! Tests of tags, catalog and search.

use registry::Error;
use testkit::registry::Registry;

use crate::help::{client, reference};

#[test]
fn tags_over_pages() {
    let registry = Registry::start().unwrap();
    let host = registry.host();
    let link = r#"</v2/a/tags/list?last=b&n=1000>; rel="next""#;
    registry.page("/v2/a/tags/list?n=1000", &[("Link", link)], r#"{"name":"a","tags":["a","b"]}"#);
    registry.page("/v2/a/tags/list?last=b&n=1000", &[("Link", link)], r#"{"tags":["c\u001b"]}"#);
    let reference = reference(&host, "a");
    assert_eq!(client().tags(&reference, 0).unwrap(), ["a", "b", "c"]);
    assert_eq!(client().tags(&reference, 1).unwrap(), ["a"]);
    registry.page("/v2/a/tags/list?n=1000", &[], r#"{"name":"a","tags":null}"#);
    assert!(client().tags(&reference, 0).unwrap().is_empty());
    registry.page("/v2/a/tags/list?n=1000", &[], "<html>");
    assert!(matches!(client().tags(&reference, 0), Err(Error::Protocol { .. })));
    let missing = crate::help::reference(&host, "b");
    assert!(matches!(client().tags(&missing, 0), Err(Error::NotFound { .. })));
}

#[test]
fn search_by_version_1() {
    let registry = Registry::start().unwrap();
    let page = |n: usize, name: &str| {
        registry.page(
            &format!("/v1/search?q=a%20b&n={}&page={n}", 5 - (n - 1)),
            &[],
            &format!(
                r#"{{"num_pages":2,"results":[{{"name":"{name}","description":null,"star_count":3,"is_official":true}}]}}"#
            ),
        );
    };
    page(1, "one");
    page(2, "two");
    let host = registry.host();
    let found = client().search(&host, "a b", 5).unwrap();
    let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, [format!("{host}/one"), format!("{host}/two")]);
    assert!(found[0].official && found[0].stars == 3 && found[0].description.is_empty());
}

#[test]
fn search_through_the_catalog() {
    let registry = Registry::start().unwrap();
    let host = registry.host();
    let error = client().search(&host, "x", 5).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    registry.page("/v2/_catalog?n=1000", &[], r#"{"repositories":["a/tool","b","c/toolbox"]}"#);
    let found = client().search(&host, "Tool", 5).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].name, format!("{host}/a/tool"));
    assert_eq!(client().catalog(&host, 1).unwrap(), ["a/tool"]);
}
