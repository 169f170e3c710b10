//! Options of Docker's that have no effect here: what is done in their place, and where `inspect`
//! shows them. They are recorded, and each says so when a container is made.

use engine::spec::ContainerConfig;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// How Docker writes the value in its JSON.
enum Form {
    Text,
    Number,
    Truth,
    List,
    /// Part of `Config.Healthcheck`.
    Health,
}

struct Known {
    flag: &'static str,
    /// Its field of `HostConfig`, or of `Config.Healthcheck`.
    field: &'static str,
    form: Form,
    /// Why it has no effect and what to do instead; empty where nothing is missing.
    advice: &'static str,
}

const fn option(
    flag: &'static str,
    field: &'static str,
    form: Form,
    advice: &'static str,
) -> Known {
    Known { flag, field, form, advice }
}

const DISKS: &str = "there are no limits on input and output; use 'ionice' before coracle";
const CPUS: &str = "it needs the first version of control groups; use --cpus";
const MEMORY: &str = "control groups of version 2 have no such setting; use --memory";
const HEALTH: &str =
    "health checks are not run; run the check from a timer: 'coracle exec NAME COMMAND'";

const OPTIONS: &[Known] = &[
    option("--blkio-weight", "BlkioWeight", Form::Number, DISKS),
    option("--blkio-weight-device", "BlkioWeightDevice", Form::List, DISKS),
    option("--device-read-bps", "BlkioDeviceReadBps", Form::List, DISKS),
    option("--device-write-bps", "BlkioDeviceWriteBps", Form::List, DISKS),
    option("--device-read-iops", "BlkioDeviceReadIOps", Form::List, DISKS),
    option("--device-write-iops", "BlkioDeviceWriteIOps", Form::List, DISKS),
    option(
        "--device-cgroup-rule",
        "DeviceCgroupRules",
        Form::List,
        "the host's permissions of devices decide; name the devices: --device",
    ),
    option("--cpu-rt-period", "CpuRealtimePeriod", Form::Number, CPUS),
    option("--cpu-rt-runtime", "CpuRealtimeRuntime", Form::Number, CPUS),
    option("--cpuset-mems", "CpusetMems", Form::Text, "use 'numactl --membind' before coracle"),
    option("--kernel-memory", "KernelMemory", Form::Text, MEMORY),
    option("--memory-swappiness", "MemorySwappiness", Form::Number, MEMORY),
    option("--oom-kill-disable", "OomKillDisable", Form::Truth, MEMORY),
    option(
        "--cgroup-parent",
        "CgroupParent",
        Form::Text,
        "limits go to the delegated control group of the session",
    ),
    option("--storage-opt", "StorageOpt", Form::List, "your quota holds"),
    option("--isolation", "Isolation", Form::Text, "--isolate gives Docker's isolation"),
    option(
        "--runtime",
        "Runtime",
        Form::Text,
        "--execmode names a mode, as R1 for the host's runc or crun; GPUs need --gpus all alone",
    ),
    option("--health-cmd", "Test", Form::Health, HEALTH),
    option("--health-interval", "Interval", Form::Health, ""),
    option("--health-timeout", "Timeout", Form::Health, ""),
    option("--health-start-period", "StartPeriod", Form::Health, ""),
    option("--health-start-interval", "StartInterval", Form::Health, ""),
    option("--health-retries", "Retries", Form::Health, ""),
    option("--no-healthcheck", "None", Form::Health, ""),
];

fn known(flag: &str) -> Option<&'static Known> {
    OPTIONS.iter().find(|option| option.flag == flag)
}

/// Why an option has no effect, and what to do instead.
pub fn advice(flag: &str) -> Option<&'static str> {
    known(flag).map(|option| option.advice).filter(|advice| !advice.is_empty())
}

/// The runtimes that hosts with Docker have. Here they are a mode's to name.
const RUNTIMES: [&str; 4] = ["runc", "crun", "nvidia", "io.containerd.runc.v2"];

/// Checks a value that stands for nothing but a known name.
///
/// # Errors
/// A `--runtime` that is neither one of Docker's hosts nor a mode of execution, which is what
/// `info` lists.
pub fn check(flag: &str, value: &str) -> Result<()> {
    if flag != "--runtime" || RUNTIMES.contains(&value) || engine::choose::by_name(value).is_some()
    {
        return Ok(());
    }
    Err(Error::invalid(format!("unknown or invalid runtime name: {value}"))
        .with_hint("'coracle doctor' lists the modes of execution, which --execmode names"))
}

/// What was given, as fields of Docker's `HostConfig`.
pub fn host_config(config: &ContainerConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    for (flag, value) in &config.ineffective {
        let Some(option) = known(flag) else { continue };
        let text = || Value::from(value.as_str());
        let one = match option.form {
            Form::Health => continue,
            Form::Text => text(),
            Form::Number => value.parse::<i64>().map_or_else(|_| text(), Value::from),
            Form::Truth => Value::from(true),
            Form::List => {
                let list = fields.entry(option.field).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(text()));
                continue;
            }
        };
        fields.insert(option.field.to_owned(), one);
    }
    fields
}

/// The health check that was given, as Docker's `Config.Healthcheck`; `null` without one.
pub fn health(config: &ContainerConfig) -> Value {
    let mut fields = Map::new();
    for (flag, value) in &config.ineffective {
        let Some(option) = known(flag).filter(|option| matches!(option.form, Form::Health)) else {
            continue;
        };
        let (field, value) = match option.field {
            "None" => ("Test", json!(["NONE"])),
            "Test" => ("Test", json!(["CMD-SHELL", value])),
            "Retries" => ("Retries", value.parse::<i64>().map_or(json!(value), Value::from)),
            field => (field, nanoseconds(value).map_or(json!(value), Value::from)),
        };
        fields.insert(field.to_owned(), value);
    }
    if fields.is_empty() { Value::Null } else { fields.into() }
}

/// A length of time as Go writes it: `1m30s`, `500ms`.
fn nanoseconds(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 6] =
        [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    (!text.is_empty()).then_some(sum as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> ContainerConfig {
        let pair = |(flag, value): &(&str, &str)| ((*flag).to_owned(), (*value).to_owned());
        ContainerConfig {
            ineffective: pairs.iter().map(pair).collect(),
            ..ContainerConfig::default()
        }
    }

    #[test]
    fn options_are_shown_as_docker_shows_them() {
        let config = given(&[
            ("--blkio-weight", "300"),
            ("--storage-opt", "size=1G"),
            ("--storage-opt", "x=y"),
            ("--oom-kill-disable", "true"),
            ("--health-cmd", "true"),
        ]);
        let expected = json!({
            "BlkioWeight": 300,
            "StorageOpt": ["size=1G", "x=y"],
            "OomKillDisable": true,
        });
        assert_eq!(Value::from(host_config(&config)), expected);
    }

    #[test]
    fn a_health_check_is_shown() {
        let config = given(&[
            ("--health-cmd", "curl x"),
            ("--health-interval", "1m30s"),
            ("--health-timeout", "500ms"),
            ("--health-retries", "3"),
        ]);
        let expected = json!({
            "Test": ["CMD-SHELL", "curl x"],
            "Interval": 90_000_000_000_i64,
            "Timeout": 500_000_000,
            "Retries": 3,
        });
        assert_eq!(health(&config), expected);
        assert_eq!(health(&given(&[("--no-healthcheck", "true")])), json!({"Test": ["NONE"]}));
        assert_eq!(health(&given(&[])), Value::Null);
    }

    #[test]
    fn runtimes_have_known_names() {
        for known in ["runc", "nvidia", "N1", "i1"] {
            check("--runtime", known).unwrap();
        }
        check("--cgroup-parent", "nosuch").unwrap();
        let text = check("--runtime", "nosuch").unwrap_err().to_string();
        assert_eq!(text, "unknown or invalid runtime name: nosuch");
    }

    #[test]
    fn each_option_has_advice_or_belongs_to_one_that_has() {
        for option in OPTIONS {
            assert!(!option.advice.is_empty() || matches!(option.form, Form::Health));
        }
    }
}
