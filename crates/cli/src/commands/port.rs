//! `port`.

use crate::args::containers::PortArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::container::record;

/// Prints the published ports: `80/tcp -> 0.0.0.0:8080`, or the host's side of one port alone.
pub(crate) fn run(context: &Context, args: &PortArgs) -> Result<Exit, Report> {
    let config = record::read(&record::find(context.session()?, &args.container)?)?.config;
    let wanted = args.port.as_deref().map(|text| text.split_once('/').unwrap_or((text, "tcp")));
    let mut found = false;
    for publish in &config.network.publish {
        let protocol = if publish.udp { "udp" } else { "tcp" };
        for offset in 0..publish.count.max(1) {
            let (inside, host) = (publish.inside + offset, publish.host + offset);
            let address =
                publish.address.map_or_else(|| "0.0.0.0".to_owned(), |address| address.to_string());
            match wanted {
                None => output::line(format!("{inside}/{protocol} -> {address}:{host}"))?,
                Some((port, kind)) if port == inside.to_string() && kind == protocol => {
                    output::line(format!("{address}:{host}"))?;
                    found = true;
                }
                Some(_) => {}
            }
        }
    }
    match wanted {
        Some((port, kind)) if !found => {
            Err(Report::new(format!("port {port}/{kind} of {} is not published", args.container))
                .exit(Exit(1)))
        }
        _ => Ok(Exit::OK),
    }
}
