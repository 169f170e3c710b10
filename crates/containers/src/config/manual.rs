//! The settings as a section of the manual page, in roff, from their declaration.

use std::fmt::Write;

use super::settings::{SETTINGS, Settings};

/// The section CONFIGURATION: each setting with its kind, default, variable and description.
pub fn section() -> String {
    let defaults = Settings::default();
    let mut page = String::from(
        ".SH CONFIGURATION\n\
         Settings are read from /etc/coracle/config.toml, then $XDG_CONFIG_HOME/coracle/config.toml, then the file named\n\
         by CORACLE_CONFIG, then the environment, then flags; later ones win.\n\
         .B coracle config\nshows each value and where it comes from.\n",
    );
    for setting in SETTINGS {
        let default = (setting.text)(&defaults);
        page.push_str(".TP\n");
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "\\fB{}\\fR ({})",
            escape(setting.key),
            escape(&setting.kind.describe())
        );
        page.push_str(&escape(&setting.description()));
        page.push('\n');
        if !default.is_empty() {
            let _ = writeln!(page, "Default: {}.", escape(&default));
        }
        let variables = variables(setting.environment);
        if !variables.is_empty() {
            let _ = writeln!(page, "Environment: {}.", escape(&variables.join(", ")));
        }
    }
    page
}

/// The section ENVIRONMENT: each variable and the setting that it gives.
pub fn environment() -> String {
    let mut page = String::from(
        ".SH ENVIRONMENT\n.TP\n\\fBCORACLE_CONFIG\\fR\nA further configuration file, which must exist.\n",
    );
    for setting in SETTINGS {
        for variable in variables(setting.environment) {
            let _ = writeln!(
                page,
                ".TP\n\\fB{}\\fR\nSetting \\fB{}\\fR. {}",
                escape(&variable),
                escape(setting.key),
                escape(setting.summary())
            );
        }
    }
    page
}

fn variables(declared: &[&str]) -> Vec<String> {
    declared.iter().map(|name| name.split('=').next().unwrap_or(name).to_owned()).collect()
}

/// Text for roff: backslashes and leading dots mean something there, and a plain `-` becomes a
/// hyphen.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
