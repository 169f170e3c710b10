//! `network create`, `invite`, `join`, `ls`, `inspect`, `connect`, `disconnect`, `rm`.

use std::collections::BTreeMap;

use containers::container::networks as places;
use containers::filter::Filters;
use containers::networks::{self, Listed, NetworkRequest};
use containers::request::{networks as request, options};
use engine::spec::Membership;
use serde_json::{Value, json};

use crate::args::networks::{
    NetworkConnectArgs, NetworkCreateArgs, NetworkDisconnectArgs, NetworkInspectArgs,
    NetworkInviteArgs, NetworkJoinArgs, NetworkLsArgs, NetworkRmArgs,
};
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, template::Template, time};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] =
    &[("ID", "NETWORK ID"), ("Name", "NAME"), ("Driver", "DRIVER"), ("Scope", "SCOPE")];
const MORE: &[Column] = &[
    ("IPv4", "IPV4"),
    ("IPv6", "IPV6"),
    ("Internal", "INTERNAL"),
    ("Labels", "LABELS"),
    ("CreatedAt", "CREATED AT"),
];

/// `network create`.
pub(crate) fn create(context: &Context, args: &NetworkCreateArgs) -> Result<Exit, Report> {
    let pairs = |flag: &str, texts: &[String]| -> Result<BTreeMap<String, String>, Report> {
        let mut pairs = BTreeMap::new();
        for text in texts {
            options::add_pair(flag, &mut pairs, text)?;
        }
        Ok(pairs)
    };
    let request = NetworkRequest {
        name: args.name.clone(),
        driver: Some(args.driver.clone()),
        scope: Some(args.scope.clone()),
        address: args.address.clone(),
        ports: args.port,
        subnets: args.subnet.clone(),
        ipv6: args.ipv6,
        gateway: args.gateway.clone(),
        range: args.ip_range.clone(),
        auxiliary: args.aux_address.clone(),
        internal: args.internal,
        attachable: args.attachable,
        labels: pairs("--label", &args.label)?,
        options: pairs("--opt", &args.opt)?,
    };
    output::line(networks::create(context.session()?, request)?)?;
    Ok(Exit::OK)
}

/// `network invite`.
pub(crate) fn invite(context: &Context, args: &NetworkInviteArgs) -> Result<Exit, Report> {
    output::print(&networks::invite(context.session()?, &args.network)?)?;
    Ok(Exit::OK)
}

/// `network join`.
pub(crate) fn join(context: &Context, args: &NetworkJoinArgs) -> Result<Exit, Report> {
    let place = (args.address.as_deref(), args.port);
    let joined = networks::join(context.session()?, &args.network, &args.member, place)?;
    output::line(joined.name)?;
    Ok(Exit::OK)
}

/// `network ls`.
pub(crate) fn list(context: &Context, args: &NetworkLsArgs) -> Result<Exit, Report> {
    let filters = Filters::parse(&args.filter, networks::FILTERS)?;
    let listed = networks::list(context.session()?, &filters)?;
    let rows: Vec<Value> = listed.iter().map(|network| row(network, args.no_trunc)).collect();
    let listing = Listing {
        format: args.format.as_deref(),
        shown: COLUMNS,
        more: MORE,
        quiet: args.quiet.then_some("ID"),
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

fn row(network: &Listed, whole: bool) -> Value {
    let labels: Vec<String> =
        network.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    json!({
        "ID": if whole { &network.id } else { &network.id[..12] },
        "Name": network.name,
        "Driver": network.driver,
        "Scope": network.scope,
        "IPv4": "true",
        "IPv6": network.ipv6.to_string(),
        "Internal": network.internal.to_string(),
        "Labels": labels.join(","),
        "CreatedAt": time::full(&network.created),
        "@labels": network.labels,
    })
}

/// `network inspect`.
pub(crate) fn inspect(context: &Context, args: &NetworkInspectArgs) -> Result<Exit, Report> {
    let template = match args.format.as_deref() {
        None | Some("json" | "") => None,
        Some(format) => Some(Template::parse(format)?),
    };
    let session = context.session()?;
    let mut found = Vec::new();
    let ended = super::each(&args.names, |name| {
        let value = networks::inspect(session, name)?;
        if let Some(template) = &template {
            output::line(template.render(&value)?)
        } else {
            found.push(value);
            Ok(())
        }
    });
    if template.is_none() {
        output::line(output::pretty(&Value::Array(found)))?;
    }
    ended
}

/// `network rm`.
pub(crate) fn remove(context: &Context, args: &NetworkRmArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.names, |name| match networks::remove(session, name) {
        Ok(()) => output::line(name),
        Err(error) if args.force && error.kind() == containers::Kind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    })
}

/// `network connect`.
pub(crate) fn connect(context: &Context, args: &NetworkConnectArgs) -> Result<Exit, Report> {
    let aliases = args.alias.iter().map(|name| request::alias("--alias", name));
    let address = args.ip.as_deref().map(|text| request::address("--ip", text)).transpose()?;
    let ipv6 = args.ip6.as_deref().map(|text| request::ipv6("--ip6", text)).transpose()?;
    let membership = Membership {
        name: args.network.clone(),
        aliases: aliases.collect::<containers::Result<_>>()?,
        address,
        ipv6,
    };
    places::connect(context.session()?, &args.container, &membership)?;
    Ok(Exit::OK)
}

/// `network disconnect`.
pub(crate) fn disconnect(context: &Context, args: &NetworkDisconnectArgs) -> Result<Exit, Report> {
    let NetworkDisconnectArgs { force, network, container } = args;
    places::disconnect(context.session()?, network, container, *force)?;
    Ok(Exit::OK)
}
