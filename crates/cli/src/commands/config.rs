//! `config`: each setting, its value, and where it comes from.
//!
//! A list of all goes into bug reports, so it has no passwords of proxies; `config KEY` says what
//! is asked for.

use serde_json::json;

use crate::args::system::ConfigArgs;
use crate::args::system::NoArgs;
use crate::context::Context;
use crate::output;
use crate::output::table::{cell, columns, shorten};
use crate::report::{Exit, Report};
use containers::config::{Config, Entry, Origin, SETTINGS};

/// Runs it.
pub(crate) fn run(context: &Context, args: &ConfigArgs) -> Result<Exit, Report> {
    let config = context.config()?;
    let json = match args.format.as_deref() {
        None | Some("table") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Report::usage(format!("unknown format {other:?}")).hint("table or json"));
        }
    };
    match (args.key.as_deref(), json) {
        (Some(key), false) => output::line(config.entry(key)?.text),
        (Some(key), true) => output::line(output::pretty(&machine(&config.entry(key)?))),
        (None, false) => output::print(&table(config)),
        (None, true) => {
            let entries: Vec<serde_json::Value> =
                config.entries().map(|entry| machine(&public(entry))).collect();
            output::line(output::pretty(&entries.into()))
        }
    }?;
    Ok(Exit::OK)
}

/// `showconf`: what udocker's users look for, in its form.
pub(crate) fn showconf(context: &Context, _: &NoArgs) -> Result<Exit, Report> {
    crate::udocker::listing::configuration(context)?;
    Ok(Exit::OK)
}

/// A setting for machines.
fn machine(entry: &Entry) -> serde_json::Value {
    let origin = serde_json::to_value(&entry.origin).unwrap_or_default();
    let setting = SETTINGS.iter().find(|setting| setting.key == entry.key);
    let description = setting.map(containers::config::Setting::description);
    json!({"key": entry.key, "value": entry.value, "origin": origin, "description": description})
}

/// The setting without user and password of a URL.
fn public(mut entry: Entry) -> Entry {
    let url = entry.text.split_once("://").zip(entry.text.rsplit_once('@'));
    if entry.key.ends_with("-proxy")
        && let Some(((scheme, _), (_, host))) = url
    {
        entry.text = format!("{scheme}://***@{host}");
        entry.value = json!(entry.text);
    }
    entry
}

/// Aligned lines; what is not set has a dash. Long values are cut here, `config KEY` shows them
/// whole.
fn table(config: &Config) -> String {
    const WIDEST: usize = 48;
    let shown = |entry: &Entry| match (entry.text.as_str(), &entry.origin) {
        ("", Origin::Default) => "-".to_owned(),
        ("", _) => "(empty)".to_owned(),
        (text, _) => cell(&shorten(text, WIDEST)),
    };
    let lines = config
        .entries()
        .map(public)
        .map(|entry| format!("{}\t{}\t{}", entry.key, shown(&entry), entry.origin));
    let lines: Vec<String> = std::iter::once("KEY\tVALUE\tFROM".to_owned()).chain(lines).collect();
    columns(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use containers::config::Sources;

    #[test]
    fn values_and_origins_are_aligned() {
        let environment = [("CORACLE_DIR".into(), "/scratch/ada".into())].into();
        let sources = Sources { environment, ..Sources::default() };
        let config = Config::load(&sources).unwrap();
        let text: Vec<String> = table(&config).lines().take(3).map(str::to_owned).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        KEY                           VALUE                   FROM
        store.dir                     /scratch/ada            environment CORACLE_DIR
        store.read-only               -                       default
        ");
        let secret = [("HTTPS_PROXY".into(), "http://me:pass@word@proxy:3128".into())].into();
        let sources = Sources { environment: secret, ..Sources::default() };
        let proxied = Config::load(&sources).unwrap();
        let text = table(&proxied);
        assert!(text.contains("http://***@proxy:3128") && !text.contains("word"), "{text}");
        let entry = machine(&config.entry("store.dir").unwrap());
        insta::assert_snapshot!(entry, @r#"{"key":"store.dir","value":"/scratch/ada","origin":{"from":"environment","name":"CORACLE_DIR"},"description":"Where images and containers are kept. The default is `$XDG_DATA_HOME/coracle`, else `~/.local/share/coracle`."}"#);
    }
}
