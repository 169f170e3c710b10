//! Writes the small files of one container that every engine shows under `/etc`.

use crate::error::{Error, Result};
use crate::plan::EtcFile;

/// Writes one of the container's `/etc` files.
pub(crate) fn write_file(file: &EtcFile) -> Result<()> {
    let failed = |doing: &'static str, path: &std::path::Path| {
        let path = path.to_path_buf();
        move |error: std::io::Error| Error::File {
            doing: doing.into(),
            path: path.clone(),
            errno: error.into(),
        }
    };
    let mut text = String::new();
    if let Some(base) = &file.base {
        let lines = std::fs::read_to_string(base).unwrap_or_default();
        for line in lines.lines() {
            let word = line.split_whitespace().next().unwrap_or_default();
            if !file.without.iter().any(|left_out| left_out == word) {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text.push_str(&file.text);
    if let Some(directory) = file.path.parent() {
        std::fs::create_dir_all(directory).map_err(failed("make", directory))?;
    }
    std::fs::write(&file.path, text).map_err(failed("write", &file.path))
}
