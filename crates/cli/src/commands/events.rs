//! `events`: what happens, a line each.

use std::fmt::Write as _;

use containers::filter::Filters;
use containers::journal::{self, Entry, Query};
use serde_json::{Value, json};

use crate::args::containers::EventsArgs;
use crate::context::Context;
use crate::output::template::Template;
use crate::output::{self, time};
use crate::report::{Exit, Report};

/// Runs it.
pub(crate) fn run(context: &Context, args: &EventsArgs) -> Result<Exit, Report> {
    let EventsArgs { filter, since, until, format } = args;
    let query = Query {
        since: time::flag("--since", since.as_deref())?,
        until: time::flag("--until", until.as_deref())?,
        filters: Filters::parse(filter, journal::FILTERS)?,
    };
    let form = match format.as_deref() {
        None | Some("") => Form::Line,
        // The names in Docker's JSON are not those of its Go type.
        Some("json" | "{{json .}}" | "{{ json . }}") => Form::Json,
        Some(text) => Form::Template(Template::parse(text)?),
    };
    let mut failure = None;
    journal::follow(context.session()?, &query, &mut |entry| {
        let shown = form.show(entry).and_then(|line| output::offer(&format!("{line}\n")));
        *shown.as_ref().unwrap_or(&false) || {
            failure = shown.err();
            false
        }
    })?;
    failure.map_or(Ok(Exit::OK), Err)
}

enum Form {
    Line,
    Json,
    Template(Template),
}

impl Form {
    fn show(&self, entry: &Entry) -> Result<String, Report> {
        Ok(match self {
            Self::Line => line(entry),
            Self::Json => to_json(entry)?.to_string(),
            Self::Template(template) => template.render(&fields(entry)?)?,
        })
    }
}

/// Docker's line: the time, the object's kind, what happened, the id, and what is known.
fn line(entry: &Entry) -> String {
    let attributes: Vec<String> =
        entry.actor.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut line = format!("{:.9} {}", entry.at(), entry.kind.name());
    for word in [&entry.action, &entry.actor.id] {
        // `prune` has no object.
        if !word.is_empty() {
            line.push(' ');
            line.push_str(word);
        }
    }
    if !attributes.is_empty() {
        let _ = write!(line, " ({})", attributes.join(", "));
    }
    line
}

/// The fields of Docker's Go type, for templates.
fn fields(entry: &Entry) -> Result<Value, Report> {
    let json = to_json(entry)?;
    Ok(json!({
        "Status": json["status"],
        "ID": json["id"],
        "From": json["from"],
        "Type": json["Type"],
        "Action": json["Action"],
        "Actor": json["Actor"],
        "Scope": json["scope"],
        "Time": json["time"],
        "TimeNano": json["timeNano"],
    }))
}

fn to_json(data: &Entry) -> Result<Value, Report> {
    serde_json::to_value(data).map_err(|error| Report::new("cannot show the event").cause(error))
}
