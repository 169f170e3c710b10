//! `port`.

use containers::container::look::{self, PublishedPort};

use crate::args::containers::PortArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Prints the published ports: `80/tcp -> 0.0.0.0:8080`, or the host's side of one port alone.
pub(crate) fn run(context: &Context, args: &PortArgs) -> Result<Exit, Report> {
    let ports = look::ports(context.session()?, &args.container)?;
    let Some(wanted) = args.port.as_deref() else {
        for port in &ports {
            let (inside, protocol) = (port.inside, protocol(port));
            output::line(format!("{inside}/{protocol} -> {}", host_side(port)))?;
        }
        return Ok(Exit::OK);
    };
    let (number, kind) = wanted.split_once('/').unwrap_or((wanted, "tcp"));
    let is_it = |port: &&PublishedPort| number == port.inside.to_string() && kind == protocol(port);
    let mut found = ports.iter().filter(is_it).peekable();
    if found.peek().is_none() {
        let name = &args.container;
        return Err(
            Report::new(format!("port {number}/{kind} of {name} is not published")).exit(Exit(1))
        );
    }
    found.try_for_each(|port| output::line(host_side(port)))?;
    Ok(Exit::OK)
}

fn protocol(port: &PublishedPort) -> &'static str {
    if port.udp { "udp" } else { "tcp" }
}

fn host_side(port: &PublishedPort) -> String {
    let address = port.address.map_or_else(|| "0.0.0.0".to_owned(), |address| address.to_string());
    format!("{address}:{}", port.host)
}
