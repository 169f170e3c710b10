//! System call filters: Docker's default profile, and profiles in its JSON form.
//!
//! Docker's file (moby, `profiles/seccomp/default.json`) is a list of allowed calls, some only with
//! a capability, an architecture or an argument, and `EPERM` for the rest. [`default`] holds what
//! of it concerns x86-64 and i386, [`Rule`]s of both sources are compiled alike: a linear list of
//! comparisons. The kernel (5.11 and later) remembers which numbers are always allowed, so the
//! length costs nothing after the filter has been installed.

use crate::error::{Error, Result};
use crate::plan::{Capabilities, parse_capability};
use abi::bpf::{self, Assembler, Compare, Instruction};
use abi::calls::{self, Arch, CALLS};
use abi::syscalls::{ARCH_I386, ARCH_X86_64, X32_BIT};
use serde::Deserialize;
use std::collections::HashMap;

mod default;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// One rule: these calls, if all the conditions hold, get the action.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    names: Vec<String>,
    conditions: Vec<Condition>,
    action: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    argument: u8,
    compare: Compare,
    value: u64,
}

/// Docker's default profile for a program with these capabilities (`None`: all).
pub(super) fn docker(capabilities: Option<Capabilities>) -> Vec<Instruction> {
    let has = |name: &str| {
        parse_capability(name)
            .is_some_and(|bit| capabilities.is_none_or(|sets| sets.bounding >> bit & 1 == 1))
    };
    let rules = default::rules(&has);
    // The table is checked by a test to fit.
    compile(&rules, bpf::ERRNO | EPERM).unwrap_or_default()
}

/// A profile that the user gave.
pub(super) fn custom(text: &str, capabilities: Option<Capabilities>) -> Result<Vec<Instruction>> {
    let invalid = |why: String| Error::Invalid {
        what: "--security-opt".into(),
        value: "seccomp profile".into(),
        why,
    };
    let profile: Profile =
        serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let action = |name: &str, errno: Option<u32>| {
        action_of(name, errno).ok_or_else(|| invalid(format!("action '{name}' is not known")))
    };
    let otherwise = action(&profile.default_action, profile.default_errno_ret)?;
    let mut rules = Vec::new();
    for entry in &profile.syscalls {
        if !entry.applies(capabilities) {
            continue;
        }
        let conditions = entry
            .args
            .iter()
            .flatten()
            .map(|condition| condition.read().ok_or_else(|| invalid(condition.op.clone())))
            .collect::<Result<_>>()?;
        rules.push(Rule {
            names: entry.names.iter().chain(&entry.name).cloned().collect(),
            conditions,
            action: action(&entry.action, entry.errno_ret)?,
        });
    }
    compile(&rules, otherwise)
        .ok_or_else(|| invalid("the profile does not fit into 4096 instructions".into()))
}

fn action_of(name: &str, errno: Option<u32>) -> Option<u32> {
    Some(match name {
        "SCMP_ACT_ALLOW" => bpf::ALLOW,
        "SCMP_ACT_LOG" => bpf::LOG,
        "SCMP_ACT_ERRNO" => bpf::ERRNO | (errno.unwrap_or(EPERM) & 0xffff),
        "SCMP_ACT_TRAP" => bpf::TRAP,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => bpf::KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => bpf::KILL_PROCESS,
        "SCMP_ACT_TRACE" => bpf::TRACE | (errno.unwrap_or(0) & 0xffff),
        _ => return None,
    })
}

/// Compiles rules; the first that fits decides. `None` if the program is too long.
///
/// Names that an architecture does not have are passed over, as libseccomp does.
fn compile(rules: &[Rule], otherwise: u32) -> Option<Vec<Instruction>> {
    let mut program = Assembler::new();
    let i386 = program.label();
    let unknown = program.label();
    // A conditional jump cannot reach over a whole table, so each is left by an unconditional one.
    let first = program.label();
    let not_first = program.label();
    program.load_architecture();
    program.unless_equal(ARCH_X86_64, not_first);
    program.jump(first);
    program.place(not_first);
    program.jump(i386);
    program.place(first);
    program.load_number();
    let normal = program.label();
    let x32 = program.label();
    program.if_at_least(X32_BIT, x32);
    program.jump(normal);
    program.place(x32);
    // x32 has the numbers of x86-64 with a bit set; its own numbers above 512 are for calls with
    // other layouts. No image needs them.
    program.ret(bpf::ERRNO | ENOSYS);
    program.place(normal);
    let calls: Calls = CALLS.iter().map(|entry| (entry.name, entry)).collect();
    table(&mut program, rules, otherwise, &calls, Arch::X86_64);
    program.place(i386);
    program.unless_equal(ARCH_I386, unknown);
    let second = program.label();
    program.jump(second);
    program.place(unknown);
    program.ret(bpf::KILL_PROCESS);
    program.place(second);
    program.load_number();
    table(&mut program, rules, otherwise, &calls, Arch::I386);
    program.finish().ok()
}

/// Calls by name: a profile names hundreds.
type Calls = HashMap<&'static str, &'static calls::Entry>;

/// The rules for one architecture. The number is loaded.
fn table(
    program: &mut Assembler,
    rules: &[Rule],
    otherwise: u32,
    calls: &Calls,
    architecture: Arch,
) {
    for rule in rules {
        for name in &rule.names {
            let entry = calls.get(name.as_str());
            let Some(number) = entry.and_then(|entry| entry.number(architecture)) else { continue };
            if rule.conditions.is_empty() {
                program.ret_if(number, rule.action);
                continue;
            }
            let next = program.label();
            let reload = program.label();
            program.unless_equal(number, next);
            for condition in &rule.conditions {
                program.argument(condition.argument, condition.compare, condition.value, reload);
            }
            program.ret(rule.action);
            program.place(reload);
            program.load_number();
            program.place(next);
        }
    }
    program.ret(otherwise);
}

/// The JSON form, as far as it has a meaning here. Architectures are those of this machine whatever
/// the file says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    #[serde(default)]
    default_errno_ret: Option<u32>,
    #[serde(default)]
    syscalls: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    name: Option<String>,
    action: String,
    #[serde(default)]
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Filter,
    #[serde(default)]
    excludes: Filter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Filter {
    caps: Vec<String>,
    arches: Vec<String>,
}

impl Entry {
    fn applies(&self, capabilities: Option<Capabilities>) -> bool {
        let has = |name: &String| {
            parse_capability(name)
                .is_some_and(|bit| capabilities.is_none_or(|sets| sets.bounding >> bit & 1 == 1))
        };
        let here = |arch: &String| matches!(arch.as_str(), "amd64" | "x32" | "x86" | "386");
        let included = self.includes.caps.iter().all(has)
            && (self.includes.arches.is_empty() || self.includes.arches.iter().any(here));
        included && !self.excludes.caps.iter().any(has) && !self.excludes.arches.iter().any(here)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

impl Argument {
    fn read(&self) -> Option<Condition> {
        let (compare, value) = match self.op.as_str() {
            "SCMP_CMP_EQ" => (Compare::Equal, self.value),
            "SCMP_CMP_NE" => (Compare::NotEqual, self.value),
            "SCMP_CMP_LT" => (Compare::Less, self.value),
            "SCMP_CMP_LE" => (Compare::LessOrEqual, self.value),
            "SCMP_CMP_GT" => (Compare::Greater, self.value),
            "SCMP_CMP_GE" => (Compare::GreaterOrEqual, self.value),
            "SCMP_CMP_MASKED_EQ" => (Compare::Masked(self.value), self.value_two),
            _ => return None,
        };
        (self.index < 6).then_some(Condition { argument: self.index, compare, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::bpf::{Data, run};

    fn ask(program: &[Instruction], name: &str, arguments: [u64; 6]) -> u32 {
        let number = abi::syscalls::x86_64(name).unwrap();
        run(program, &Data { number, architecture: ARCH_X86_64, arguments, ..Data::default() })
            .unwrap()
    }

    const NONE: [u64; 6] = [0; 6];
    const DENIED: u32 = bpf::ERRNO | EPERM;

    fn restricted() -> Vec<Instruction> {
        docker(Some(Capabilities { bounding: 0xa804_25fb, ambient: 0 }))
    }

    #[test]
    fn dockers_profile_says_what_docker_says() {
        let program = restricted();
        assert!(program.len() < bpf::LIMIT);
        for allowed in ["read", "openat", "execve", "chown", "chroot", "ptrace", "io_setup"] {
            assert_eq!(ask(&program, allowed, NONE), bpf::ALLOW, "{allowed}");
        }
        for denied in ["mount", "bpf", "reboot", "kexec_load", "keyctl", "setns", "io_uring_setup"]
        {
            assert_eq!(ask(&program, denied, NONE), DENIED, "{denied}");
        }
        assert_eq!(ask(&program, "clone3", NONE), bpf::ERRNO | ENOSYS);
        let clone = |flags| ask(&program, "clone", [flags, 0, 0, 0, 0, 0]);
        assert_eq!(clone(0x0120_0011), bpf::ALLOW);
        assert_eq!(clone(0x1000_0000), DENIED);
        let personality = |value| ask(&program, "personality", [value, 0, 0, 0, 0, 0]);
        assert_eq!(personality(0x0002_0000), bpf::ALLOW);
        assert_eq!(personality(0x0400_0000), DENIED);
        let socket = |family| ask(&program, "socket", [family, 0, 0, 0, 0, 0]);
        assert_eq!(socket(2), bpf::ALLOW);
        assert_eq!(socket(40), DENIED);
    }

    #[test]
    fn capabilities_open_calls() {
        let all = docker(None);
        for allowed in ["mount", "bpf", "setns", "clone3", "unshare", "syslog"] {
            assert_eq!(ask(&all, allowed, NONE), bpf::ALLOW, "{allowed}");
        }
    }

    #[test]
    fn other_architectures() {
        let program = restricted();
        let ask = |number, architecture| {
            run(&program, &Data { number, architecture, ..Data::default() }).unwrap()
        };
        // 3 is read on i386; 4 is write; 21 is mount.
        assert_eq!(ask(3, ARCH_I386), bpf::ALLOW);
        assert_eq!(ask(21, ARCH_I386), DENIED);
        assert_eq!(ask(X32_BIT, ARCH_X86_64), bpf::ERRNO | ENOSYS);
        assert_eq!(ask(0, abi::syscalls::ARCH_AARCH64), bpf::KILL_PROCESS);
    }

    #[test]
    fn profiles_of_the_users_own() {
        let text = r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],
            "syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":5},
            {"name":"kill","action":"SCMP_ACT_ERRNO","args":[{"index":1,"value":9,"op":"SCMP_CMP_EQ"}]}]}"#;
        let program = custom(text, None).unwrap();
        assert_eq!(ask(&program, "mkdir", NONE), bpf::ERRNO | 5);
        assert_eq!(ask(&program, "kill", [1, 9, 0, 0, 0, 0]), DENIED);
        assert_eq!(ask(&program, "kill", [1, 15, 0, 0, 0, 0]), bpf::ALLOW);
        assert!(custom("{", None).is_err());
        assert!(custom(r#"{"defaultAction":"SCMP_ACT_DANCE"}"#, None).is_err());
    }
}
