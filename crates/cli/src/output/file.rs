//! Files that a command writes: whole, or not at all.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::report::Report;

/// Where an archive is written: standard output, or a file that appears under its name when it is
/// whole.
pub(crate) struct Target {
    file: Option<(File, std::path::PathBuf, std::path::PathBuf)>,
}

impl Target {
    /// `-` and nothing mean standard output, which must not be a terminal.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Report> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if io::stdout().is_terminal() {
                return Err(Report::usage("an archive is not written to a terminal")
                    .hint("use --output FILE, or redirect"));
            }
            return Ok(Self { file: None });
        };
        if !path.metadata().is_ok_and(|meta| !meta.is_file()) {
            let failed = |error: io::Error| {
                Report::new(format!("cannot write {}", path.display())).cause(error)
            };
            let mut temporary = path.as_os_str().to_owned();
            temporary.push(format!(".{}", sys::random::suffix().map_err(failed)?));
            let temporary = std::path::PathBuf::from(temporary);
            let file = File::create_new(&temporary).map_err(failed)?;
            return Ok(Self { file: Some((file, temporary, path.to_owned())) });
        }
        // A pipe or a device is written as it is.
        let file = File::options().write(true).open(path).map_err(|error| {
            Report::new(format!("cannot write {}", path.display())).cause(error)
        })?;
        Ok(Self { file: Some((file, path.to_owned(), path.to_owned())) })
    }

    /// Something to write to.
    pub(crate) fn writer(&self) -> Result<Box<dyn Write + Send>, Report> {
        match &self.file {
            None => Ok(Box::new(io::stdout())),
            Some((file, _, path)) => match file.try_clone() {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => {
                    Err(Report::new(format!("cannot write {}", path.display())).cause(error))
                }
            },
        }
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<(), Report> {
        match self.file.take() {
            Some((_, temporary, path)) if temporary != path => std::fs::rename(&temporary, &path)
                .map_err(|error| {
                    Report::new(format!("cannot write {}", path.display())).cause(error)
                }),
            _ => Ok(()),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((_, temporary, path)) = &self.file
            && temporary != path
        {
            let _ = std::fs::remove_file(temporary);
        }
    }
}
