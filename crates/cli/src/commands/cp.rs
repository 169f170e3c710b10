//! `cp`: between a container and the host.

use std::io;
use std::path::PathBuf;

use containers::container::copy::{self, Into, Out};

use crate::args::archives::CpArgs;
use crate::context::Context;
use crate::report::{Exit, Report};

/// One end of a copy.
enum End {
    Container { name: String, path: String },
    Host(PathBuf),
    Stream,
}

/// `NAME:PATH`, a host path, or `-`. As in Docker, what begins with `/` or `.` is a host path
/// whatever it contains.
fn end(text: &str) -> End {
    if text == "-" {
        return End::Stream;
    }
    match text.split_once(':') {
        Some((name, path)) if !text.starts_with(['/', '.']) && !name.is_empty() => {
            End::Container { name: name.to_owned(), path: path.to_owned() }
        }
        _ => End::Host(text.into()),
    }
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &CpArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let (follow, keep_owners) = (args.follow_link, args.archive);
    match (end(&args.source), end(&args.target)) {
        (End::Container { name, path }, End::Host(target)) => {
            Out { session, name: &name, path: &path, follow }.to_host(&target)?;
        }
        (End::Container { name, path }, End::Stream) => {
            if context.output_is_terminal() {
                return Err(Report::usage("an archive is not written to a terminal")
                    .hint("redirect it: coracle cp NAME:PATH - > files.tar"));
            }
            let out = Out { session, name: &name, path: &path, follow };
            out.write(&mut io::stdout(), args.entry.as_deref())?;
        }
        (End::Host(source), End::Container { name, path }) => {
            let into = Into { name: &name, path: &path, follow, keep_owners };
            copy::from_host(session, &source, into)?;
        }
        (End::Stream, End::Container { name, path }) => {
            let into = Into { name: &name, path: &path, follow, keep_owners };
            copy::archive(session, &mut io::stdin(), into)?;
        }
        (End::Container { .. }, End::Container { .. }) => {
            return Err(Report::usage("one of the two must be on the host")
                .hint("copy to the host first, or use '-' and a pipe"));
        }
        _ => {
            return Err(Report::usage("none of the two is in a container")
                .hint("write CONTAINER:PATH for one of them"));
        }
    }
    Ok(Exit::OK)
}
