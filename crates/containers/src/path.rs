//! Turns paths into text for records and configurations.

use std::path::Path;

use crate::error::{Error, Result};

/// A path that has to go into a record as text.
pub fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Error::invalid(format!("the path {} is not UTF-8", path.display()))
            .with_hint("rename it, or reach it by a link")
    })
}
