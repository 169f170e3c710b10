//! `cluster run`, `exec`, `logs`, `attach` and `cp`: what works on a cluster that is up.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use cluster::driver::{self, Attach, Copies, Exec, Hosts, Inside, Logs, Reader};
use cluster::spec::{self, Launch, Run, Spec};
use containers::request::environment::Change;
use remote::channel::Stream;

use super::{Interrupted, ended_with, ending, setting};
use crate::args::cluster::{
    ClusterAttachArgs, ClusterCpArgs, ClusterExecArgs, ClusterLogsArgs, ClusterRunArgs,
};
use crate::args::request;
use crate::context::Context;
use crate::report::{Exit, Report};

/// The hosts of a cluster that is up.
fn reach(context: &Context, cluster: &str) -> Result<Hosts, Report> {
    Ok(driver::reach(&setting(context)?, cluster)?)
}

/// `cluster run`.
pub(crate) fn run(context: &Context, args: &ClusterRunArgs) -> Result<Exit, Report> {
    let mut spec = spec::read_to_start(&args.file)?;
    if spec.nodes == 0 {
        let fact = format!("{} has no nodes to run on", args.file.display());
        let hint = "use: coracle cluster exec -f FILE SERVICE COMMAND";
        return Err(Report::usage(fact).hint(hint));
    }
    spec.run = Some(wanted(context, args, &spec)?);
    if !args.command.is_empty() {
        // It is that of the file's own [run].
        spec.output = Vec::new();
    }
    let directory = context.session()?.absolute(spec.directory())?;
    let attach = Attach { input: true, terminal: context.on_terminal() && !args.no_tty };
    let (setting, session) = (setting(context)?, context.session()?);
    ended_with(&driver::run_again(&spec, (&setting, session), &directory, attach)?)
}

/// `[run]` of the file, with what the options say.
fn wanted(context: &Context, args: &ClusterRunArgs, spec: &Spec) -> Result<Run, Report> {
    let mut run = match &spec.run {
        Some(run) if args.command.is_empty() => run.clone(),
        None if args.command.is_empty() => {
            let fact = "there is nothing to run";
            return Err(Report::usage(fact).hint("give a command behind --, or [run] in the file"));
        }
        of_file => Run {
            on: "node1".to_owned(),
            launch: Launch::Inside,
            command: args.command.clone(),
            slots: of_file.as_ref().and_then(|run| run.slots),
            env: Vec::new(),
            directory: None,
            time: None,
        },
    };
    if let Some(node) = &args.on {
        let number = node.strip_prefix("node").and_then(|rest| rest.parse::<u32>().ok());
        if !number.is_some_and(|number| (1..=spec.nodes).contains(&number)) {
            let hint = format!("there are node1 to node{}", spec.nodes);
            return Err(Report::usage(format!("there is no node {node:?}")).hint(hint));
        }
        run.on.clone_from(node);
    }
    let (files, flags) = request::variables(&args.env_file, &args.env, context.surroundings())?;
    for change in files.into_iter().chain(flags) {
        let (Change::Set(name, _) | Change::Unset(name)) = &change;
        run.env.retain(|(other, _)| other != name);
        if let Change::Set(name, value) = change {
            run.env.push((name, value));
        }
    }
    run.directory = args.workdir.clone().or(run.directory);
    Ok(run)
}

/// `cluster exec`.
pub(crate) fn exec(context: &Context, args: &ClusterExecArgs) -> Result<Exit, Report> {
    let (cluster, words) = cluster_of(args.file.as_deref(), &args.words)?;
    let [node, command @ ..] = words else {
        return Err(Report::wrong_words("which node?").hint("see 'coracle cluster exec --help'"));
    };
    if node.starts_with('-') {
        return Err(Report::usage(format!("{node} is not a node"))
            .hint("options stand before the cluster and the node"));
    }
    if command.is_empty() {
        return Err(Report::wrong_words("there is no command")
            .hint(format!("write it behind the node: coracle cluster exec {cluster} {node} sh")));
    }
    let process = &args.process;
    let (files, flags) =
        request::variables(&process.env_file, &process.env, context.surroundings())?;
    let word = |change: Change| match change {
        Change::Set(name, value) => format!("{name}={value}"),
        Change::Unset(name) => name,
    };
    let how = Exec {
        input: process.interactive,
        terminal: process.tty,
        env: files.into_iter().chain(flags).map(word).collect(),
        user: process.user.clone(),
        directory: process.workdir.clone(),
    };
    Ok(Exit(driver::exec(&cluster, node, &setting(context)?, &how, command)?))
}

/// `cluster logs`.
pub(crate) fn logs(context: &Context, args: &ClusterLogsArgs) -> Result<Exit, Report> {
    let first = args.words.first().map_or("", String::as_str);
    if args.file.is_none() && args.follow && Path::new(first).is_file() {
        return Err(Report::usage(format!("{first} is not the name of a cluster"))
            .hint("here -f is --follow; write --file FILE, or: coracle cluster -f FILE logs"));
    }
    let (cluster, names) = cluster_of(args.file.as_deref(), &args.words)?;
    let logs = Logs {
        follow: args.follow,
        tail: crate::commands::logs::tail(&args.tail)?.map(|lines| lines as u64),
        timestamps: args.timestamps,
    };
    show(context, &cluster, names, &logs)
}

/// `cluster attach`.
pub(crate) fn attach(context: &Context, args: &ClusterAttachArgs) -> Result<Exit, Report> {
    let logs = Logs { follow: true, tail: Some(0), timestamps: false };
    show(context, &super::name(&args.which)?, &[], &logs)
}

fn show(context: &Context, cluster: &str, names: &[String], logs: &Logs) -> Result<Exit, Report> {
    let hosts = reach(context, cluster)?;
    let (_blocked, signals) = ending()?;
    let no_color = context.surroundings().environment.get(OsStr::new("NO_COLOR"));
    let plain = no_color.is_some_and(|value| !value.is_empty());
    let reader = Printer { interrupted: Interrupted::by(&signals), plain };
    logs.show(cluster, names, &hosts, &reader)?;
    Ok(reader.interrupted.exit().unwrap_or(Exit::OK))
}

/// Writes logs to the streams of this process.
struct Printer<'s> {
    interrupted: Interrupted<'s>,
    plain: bool,
}

impl Reader for Printer<'_> {
    fn take(&self, stream: Stream, lines: &[u8]) -> cluster::Result<bool> {
        let written = match stream {
            Stream::Output => {
                let mut out = io::stdout().lock();
                out.write_all(lines).and_then(|()| out.flush())
            }
            Stream::Errors => io::stderr().write_all(lines),
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(cluster::Error::new(format!("cannot write the logs: {error}"))),
        }
    }

    fn is_coloured(&self, stream: Stream) -> bool {
        !self.plain
            && match stream {
                Stream::Output => io::stdout().is_terminal(),
                Stream::Errors => io::stderr().is_terminal(),
            }
    }

    fn is_stopped(&self) -> bool {
        self.interrupted.is_so() || !crate::commands::logs::is_read()
    }
}

/// One end of a copy.
enum End<'w> {
    Inside(Inside<'w>),
    Host(&'w Path),
    Stream,
}

/// `NODE:PATH`, a host path, or `-`, as `coracle cp` tells them apart.
fn end(text: &str) -> End<'_> {
    if text == "-" {
        return End::Stream;
    }
    match text.split_once(':') {
        Some((node, path)) if !text.starts_with(['/', '.']) && !node.is_empty() => {
            End::Inside(Inside { node, path })
        }
        _ => End::Host(Path::new(text)),
    }
}

/// `cluster cp`.
pub(crate) fn cp(context: &Context, args: &ClusterCpArgs) -> Result<Exit, Report> {
    let (cluster, words) = cluster_of(args.file.as_deref(), &args.words)?;
    let [source, target] = words else {
        return Err(Report::wrong_words("a copy has a source and a target")
            .hint("see 'coracle cluster cp --help'"));
    };
    let hosts = reach(context, &cluster)?;
    let copies = Copies {
        cluster: &cluster,
        hosts: &hosts,
        session: context.session()?,
        follow: args.follow_link,
        keep_owners: args.archive,
    };
    match (end(source), end(target)) {
        (End::Inside(from), End::Host(target)) => copies.copy_out(from, target)?,
        (End::Inside(_), End::Stream) if context.output_is_terminal() => {
            return Err(Report::usage("an archive is not written to a terminal")
                .hint("redirect it: coracle cluster cp CLUSTER NODE:PATH - > files.tar"));
        }
        (End::Inside(from), End::Stream) => copies.archive_out(from, &mut io::stdout())?,
        (End::Host(source), End::Inside(to)) => copies.copy_in(source, to)?,
        (End::Stream, End::Inside(to)) => copies.archive_into(&mut io::stdin(), to)?,
        (End::Inside(from), End::Inside(to)) => copies.between(from, to)?,
        _ => {
            return Err(Report::usage("none of the two is in a container")
                .hint("write NODE:PATH for one of them"));
        }
    }
    Ok(Exit::OK)
}

/// The cluster of a file, or that whose name is the first word; and the words behind it.
fn cluster_of<'w>(
    file: Option<&Path>,
    words: &'w [String],
) -> Result<(String, &'w [String]), Report> {
    match (file, words) {
        (Some(file), words) => Ok((spec::read(file)?.name, words)),
        (None, [name, words @ ..]) => Ok((spec::name(name)?, words)),
        (None, []) => Err(super::no_cluster()),
    }
}
