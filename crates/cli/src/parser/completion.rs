//! `completion` and `__man`: generated from the same declarations as the parser.

use std::fs;
use std::path::Path;

use clap_complete::Shell;

use super::help::tree;
use crate::args::system::{CompletionArgs, ManArgs};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `completion`.
pub(crate) fn run(_: &Context, args: &CompletionArgs) -> Result<Exit, Report> {
    let shell: Shell = args.shell.parse().map_err(Report::new)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), "coracle", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::OK)
}

/// `__man`: one page for coracle and one for each command.
pub(crate) fn man(_: &Context, args: &ManArgs) -> Result<Exit, Report> {
    fs::create_dir_all(&args.directory).map_err(|error| {
        Report::new(format!("cannot make {}", args.directory.display())).cause(error)
    })?;
    let mut tree = tree();
    tree.build();
    let mut root = clap_mangen::Man::new(tree.clone());
    root = root.date("").source(format!("coracle {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    root.render(&mut page)
        .map_err(|error| Report::new("cannot make the manual page").cause(error))?;
    page.extend_from_slice(containers::config::manual_section().as_bytes());
    page.extend_from_slice(containers::config::manual_environment().as_bytes());
    write(&args.directory.join("coracle.1"), &page)?;
    pages(&tree, "coracle", &args.directory)?;
    Ok(Exit::OK)
}

fn pages(parent: &clap::Command, prefix: &str, directory: &Path) -> Result<(), Report> {
    for command in parent
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        let name = format!("{prefix}-{}", command.get_name());
        let mut page = Vec::new();
        let man =
            clap_mangen::Man::new(command.clone().name(&*Box::leak(name.clone().into_boxed_str())));
        man.source(format!("coracle {}", env!("CARGO_PKG_VERSION")))
            .render(&mut page)
            .map_err(|error| Report::new("cannot make the manual page").cause(error))?;
        write(&directory.join(format!("{name}.1")), &page)?;
        pages(command, &name, directory)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Report> {
    fs::write(path, bytes)
        .map_err(|error| Report::new(format!("cannot write {}", path.display())).cause(error))
}
