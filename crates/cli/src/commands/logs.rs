//! `logs`.

use std::io::{self, Write};
use std::time::SystemTime;

use containers::container::look::{self, Entry, Query, Stream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::args::containers::LogsArgs;
use crate::context::Context;
use crate::output::time;
use crate::report::{Exit, Report};

/// Prints what a container has written: its standard output to ours, its standard error to ours.
pub(crate) fn run(context: &Context, args: &LogsArgs) -> Result<Exit, Report> {
    let query = Query {
        tail: tail(&args.tail)?,
        since: point("--since", args.since.as_deref())?,
        until: point("--until", args.until.as_deref())?,
        follow: args.follow,
    };
    let mut failure = None;
    look::logs(context.session()?, &args.container, &query, &is_read, &mut |entry| {
        let written = write(&entry, args.timestamps);
        let on = written.is_ok();
        failure = written.err();
        on
    })?;
    match failure {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Report::new("cannot write the log").cause(error))
        }
        _ => Ok(Exit::OK),
    }
}

/// Whether standard output still has a reader: nothing is written to a log that does not grow, so
/// nothing else would tell.
pub(crate) fn is_read() -> bool {
    let out = io::stdout();
    let mut ready = [PollFd::new(&out, PollFlags::empty())];
    let _ = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    !ready[0].revents().intersects(PollFlags::ERR)
}

fn write(entry: &Entry, timestamps: bool) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(entry.bytes.len() + 40);
    if timestamps {
        bytes.extend_from_slice(entry.time.as_bytes());
        bytes.push(b' ');
    }
    bytes.extend_from_slice(&entry.bytes);
    match entry.stream {
        Stream::Stderr => io::stderr().write_all(&bytes),
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(&bytes)?;
            out.flush()
        }
    }
}

/// `--tail`.
pub(crate) fn tail(text: &str) -> Result<Option<usize>, Report> {
    match text {
        "all" | "" => Ok(None),
        // Negative numbers mean all, as in Docker.
        text if text.starts_with('-') && text[1..].parse::<u64>().is_ok() => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Report::usage(format!("--tail '{text}' is not a number"))
                .hint("write a number of lines, or all")
        }),
    }
}

fn point(flag: &str, text: Option<&str>) -> Result<Option<SystemTime>, Report> {
    Ok(time::flag(flag, text)?.map(SystemTime::from))
}
