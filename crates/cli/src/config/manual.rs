//! The settings as a section of the manual page, in roff, from their declaration.

use super::settings::{SETTINGS, Settings};

/// The section CONFIGURATION: each setting with its kind, default, variable and description.
pub(crate) fn section() -> String {
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
        page.push_str(&format!(
            "\\fB{}\\fR ({})\n",
            escape(setting.key),
            escape(&setting.kind.describe())
        ));
        page.push_str(&escape(&setting.description()));
        page.push('\n');
        if !default.is_empty() {
            page.push_str(&format!("Default: {}.\n", escape(&default)));
        }
        let variables = variables(setting.environment);
        if !variables.is_empty() {
            page.push_str(&format!("Environment: {}.\n", escape(&variables.join(", "))));
        }
    }
    page
}

/// The section ENVIRONMENT: each variable and the setting that it gives.
pub(crate) fn environment() -> String {
    let mut page = String::from(
        ".SH ENVIRONMENT\n.TP\n\\fBCORACLE_CONFIG\\fR\nA further configuration file, which must exist.\n",
    );
    for setting in SETTINGS {
        for variable in variables(setting.environment) {
            page.push_str(&format!(
                ".TP\n\\fB{}\\fR\nSetting \\fB{}\\fR. {}\n",
                escape(&variable),
                escape(setting.key),
                escape(setting.summary())
            ));
        }
    }
    page
}

fn variables(declared: &[&str]) -> Vec<String> {
    declared.iter().map(|name| name.split('=').next().unwrap_or(name).to_owned()).collect()
}

/// Text for roff: backslashes and leading dots mean something there, and a plain `-` becomes a hyphen.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
