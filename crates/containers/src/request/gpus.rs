//! Reads `--gpus` and the qualified names among `--device`.

use host::cdi;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuRequest {
    /// `--gpus`, as it was written; empty for none.
    pub gpus: String,
    /// Devices by their qualified names.
    pub devices: Vec<String>,
    /// They are for this run alone, so it starts beside the programs that run in the container.
    #[serde(skip)]
    pub now: bool,
}

/// Which GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All of them.
    All,
    /// So many.
    Count(usize),
    /// By index, UUID or CDI name.
    Named(Vec<String>),
}

impl GpuRequest {
    /// From the words of a command line.
    pub fn new(gpus: Option<&str>, nvidia: bool, devices: &[String]) -> Result<Self> {
        let gpus = gpus.unwrap_or(if nvidia { "all" } else { "" });
        let gpus = if choice(gpus)?.is_some() { gpus } else { "" };
        let names = devices.iter().filter(|text| cdi::is_name(text));
        Ok(Self { gpus: gpus.to_owned(), devices: names.cloned().collect(), now: false })
    }

    /// Nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.gpus.is_empty()
    }
}

/// `all`, a number, `device=0,1`, and Docker's list of fields; `None` for none.
pub fn choice(text: &str) -> Result<Option<Choice>> {
    let wrong = || {
        Error::invalid(format!("--gpus '{text}' is not understood")).with_hint(
            "write --gpus all, --gpus 2 for so many, or --gpus device=0,1 for some of them",
        )
    };
    let (mut chosen, mut names) = (None, None::<Vec<String>>);
    for field in text.split(',').map(|field| field.trim_matches('"')) {
        match (field.split_once('='), &mut names) {
            (None, Some(names)) => names.push(field.to_owned()),
            (None, None) if matches!(field, "" | "none" | "0") => {}
            (None, None) | (Some(("count", _)), _) => {
                let field = field.strip_prefix("count=").unwrap_or(field);
                chosen = Some(match field {
                    "all" | "-1" => Choice::All,
                    number => Choice::Count(number.parse().map_err(|_| wrong())?),
                });
            }
            (Some(("device", first)), _) => names = Some(vec![first.to_owned()]),
            // What the driver offers is bound whole, and there is one driver for each kind of GPU.
            (Some(("capabilities" | "driver" | "options", _)), _) => {}
            // A qualified name.
            (Some(_), _) if cdi::is_name(field) => {
                names.get_or_insert_default().push(field.to_owned());
            }
            _ => return Err(wrong()),
        }
    }
    Ok(names.map(Choice::Named).or(chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        let named = |names: &[&str]| {
            Some(Choice::Named(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        for (text, is) in [
            ("", None),
            ("none", None),
            ("all", Some(Choice::All)),
            ("2", Some(Choice::Count(2))),
            ("count=-1,capabilities=compute", Some(Choice::All)),
            ("device=0", named(&["0"])),
            ("\"device=GPU-1,0\",capabilities=utility", named(&["GPU-1", "0"])),
            ("nvidia.com/gpu=1", named(&["nvidia.com/gpu=1"])),
        ] {
            assert_eq!(choice(text).unwrap(), is, "{text}");
        }
        assert!(choice("many").is_err() && choice("x=1").is_err() && choice("count=x").is_err());
    }
}
