//! `save`: images to an archive or a layout that other tools read.

use std::io::BufWriter;

use containers::images::save::{Form, Selection};

use crate::args::archives::SaveArgs;
use crate::context::Context;
use crate::output::file::Target;
use crate::report::{Exit, Report};

/// Bytes that are kept before they are written.
const BUFFER: usize = 1 << 20;

/// Writes images.
pub(crate) fn run(context: &Context, args: &SaveArgs) -> Result<Exit, Report> {
    let selection = Selection::find(context.session()?, &args.images)?;
    let path = args.output.as_deref();
    let form = match args.format.as_str() {
        "oci-dir" => {
            let Some(path) = path else {
                return Err(Report::usage("--format oci-dir wants a directory")
                    .hint("use --output DIRECTORY"));
            };
            selection.write_layout(path)?;
            return Ok(Exit::OK);
        }
        "docker-archive" | "docker" => Form::Docker,
        "oci-archive" | "oci" => Form::Oci,
        other => {
            return Err(Report::usage(format!("--format '{other}' is not known"))
                .hint("there are docker-archive, oci-archive and oci-dir"));
        }
    };
    if let Some(path) =
        path.filter(|path| context.presentation().keeps_files && path.exists() && !args.force)
    {
        return Err(Report::new(format!("{} exists", path.display())));
    }
    let target = Target::open(path)?;
    let mut writer = BufWriter::with_capacity(BUFFER, target.writer()?);
    selection.write(form, &mut writer)?;
    drop(writer);
    target.finish()?;
    Ok(Exit::OK)
}
