//! Through proxies.
