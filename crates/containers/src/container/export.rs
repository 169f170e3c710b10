//! `export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rootfs::pack;

use crate::args::archives::ExportArgs;
use crate::container::{cloned, ids, record, root};
use crate::context::Context;
use crate::progress;
use crate::report::{Exit, Report};

/// Room for what is written at once.
const BUFFER: usize = 1 << 20;

/// Writes a container's whole tree as tar, with its true owners.
pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let name = match &args.container[..] {
        [name] => name,
        [stream, name] if stream == "-" && args.output.is_none() => name,
        _ => return Err(Report::usage("only one container can be written at a time")),
    };
    let container = record::find(context, name)?;
    let record = record::read(&container)?;
    let trees = match record.config.rootfs {
        Some(_) => None,
        None => Some(root::trees(context, store, &record)?),
    };
    let root = root::prepare(context, store, &record, &container.path())?;
    let described = args.clone.then(|| cloned::describe(&record)).transpose()?;
    let target = Target::open(context, args.output.as_deref())?;
    ids::within_record(context, &record, &root, |ids| {
        let mut writer = BufWriter::with_capacity(BUFFER, target.writer()?);
        let (trees, root) = (trees.as_ref(), Some(&root));
        let packed = if let Some(beside) = &described {
            pack::cloned(trees, root, ids, beside, &mut writer)?
        } else {
            pack::export(trees, root, ids, pack::Options::default(), &mut writer)?
        };
        writer.flush().map_err(|error| Report::new("cannot write the archive").cause(error))?;
        for path in &packed.skipped {
            progress::note(&format!("left out: socket /{}", String::from_utf8_lossy(path)));
        }
        Ok(())
    })?;
    target.finish()?;
    Ok(Exit::OK)
}

/// Where an archive is written: standard output, or a file that appears under its name when it is whole.
pub(crate) struct Target {
    file: Option<(File, std::path::PathBuf, std::path::PathBuf)>,
}

impl Target {
    /// `-` and nothing mean standard output, which must not be a terminal.
    pub(crate) fn open(context: &Context, path: Option<&Path>) -> Result<Self, Report> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if context.output_is_terminal() {
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
