//! Tests that arguments, environment, working directory, limits and descriptors reach the program.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};
use testkit::command::{Input, copy_program, run_with};
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::contract::world::{Case, LIMIT, World, json as parse};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("variables", variables),
    ("order_and_overrides", order_and_overrides),
    ("env_file", env_file),
    ("nothing_of_the_host_leaks", nothing_of_the_host_leaks),
    ("arguments_are_exact", arguments_are_exact),
    ("arguments_need_not_be_utf8", arguments_need_not_be_utf8),
    ("words_after_the_image_are_the_commands", words_after_the_image_are_the_commands),
    ("command_and_entrypoint", command_and_entrypoint),
    ("scripts_run_with_their_interpreter", scripts_run_with_their_interpreter),
    ("working_directory", working_directory),
    ("umask", umask),
    ("limits", limits),
    ("descriptors_pass_and_none_leak", descriptors_pass_and_none_leak),
    ("signal_mask_is_clean", signal_mask_is_clean),
    ("own_name_and_path", own_name_and_path),
    ("a_long_environment", a_long_environment),
    // Also for the engine that runs no cases about isolation.
    ("host_name", crate::contract::isolation::host_name),
    ("host_name_variable", host_name_variable),
];

fn list(value: &Value) -> Vec<String> {
    let items = value.as_array().cloned().unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn variables(w: &World) -> Outcome {
    let env =
        list(&w.json(&["-e", "A=1", "-e", "EMPTY=", "--env", "SPACE=a b", "-eQ='\"$x"], &["env"]));
    for wanted in ["A=1", "EMPTY=", "SPACE=a b", "Q='\"$x", "FROM_IMAGE=yes", "PATH=/usr/bin:/bin"]
    {
        assert!(env.iter().any(|item| item == wanted), "{wanted} in {env:?}");
    }
    assert!(env.iter().any(|item| item == "HOME=/root"), "HOME from the image's passwd: {env:?}");
    Ok(())
}

/// As in Docker, each program finds the host name in its environment, unless it is set otherwise.
fn host_name_variable(w: &World) -> Outcome {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let seen = |flags: &[&str]| w.json(flags, &["getenv", "HOSTNAME"]);
    assert_eq!(seen(&[]), json!(host));
    assert_eq!(seen(&["-h", "box"]), json!("box"));
    assert_eq!(seen(&["-h", "box", "-e", "HOSTNAME=mine"]), json!("mine"));
    for (flags, name) in [(&[][..], host.as_str()), (&["-h", "box"], "box")] {
        let c = w.detached(flags, &["sleep", "300"]);
        assert_eq!(parse(&c.exec(&[], &["getenv", "HOSTNAME"])), json!(name));
    }
    if w.has_overlay() {
        let c = w.detached(&["-h", "box", "--network=none"], &["sleep", "300"]);
        assert_eq!(seen(&["--network", &format!("container:{}", c.name)]), json!("box"));
        assert_eq!(seen(&["--join", &c.name]), json!("box"));
        let own = w.guest(&["--network=none"], &["getenv", "HOSTNAME", ";", "hostname"]).ok().out();
        let lines: Vec<&str> = own.lines().collect();
        assert_eq!(lines[0], format!("\"{}\"", lines[1]));
    }
    Ok(())
}

fn order_and_overrides(w: &World) -> Outcome {
    let env = list(
        &w.json(&["-e", "FROM_IMAGE=no", "-e", "Z=1", "-e", "Z=2", "-e", "HOME=/x"], &["env"]),
    );
    for (name, value) in [("FROM_IMAGE", "no"), ("Z", "2"), ("HOME", "/x")] {
        let found: Vec<_> =
            env.iter().filter(|item| item.starts_with(&format!("{name}="))).collect();
        assert_eq!(found, [&format!("{name}={value}")], "once, with the last value: {env:?}");
    }
    Ok(())
}

fn env_file(w: &World) -> Outcome {
    let dir = w.dir("env");
    let text =
        "# comment\n\nONE=1\nEMPTY=\nQUOTED=\"kept\"\nSPACED= a \nHOSTSIDE\nNOT_SET_ANYWHERE\n";
    let file = w.file(&dir, "env file", text);
    let path = file.display().to_string();
    let words = w.words(&["--env-file", &path, "-e", "ONE=over"], &["env"]);
    let mut command = w.command(&words);
    command.env("HOSTSIDE", "copied");
    let env = list(&parse(&run_with(&mut command, Input::Null, LIMIT)));
    for wanted in ["ONE=over", "EMPTY=", "QUOTED=\"kept\"", "HOSTSIDE=copied"] {
        assert!(env.iter().any(|item| item == wanted), "{wanted} in {env:?}");
    }
    assert!(!env.iter().any(|item| item.starts_with("NOT_SET")), "{env:?}");
    w.coracle(&w.words(&["--env-file", "/no/such/file"], &["env"])).expect(125);
    Ok(())
}

fn nothing_of_the_host_leaks(w: &World) -> Outcome {
    let words = w.words(&["-e", "WANTED", "-e", "UNSET_HERE"], &["env"]);
    let mut command = w.command(&words);
    command.env("WANTED", "yes").env("SECRET_OF_THE_HOST", "1").env("LD_PRELOAD", "");
    let env = list(&parse(&run_with(&mut command, Input::Null, LIMIT)));
    assert!(env.contains(&"WANTED=yes".to_owned()), "{env:?}");
    for name in ["SECRET_OF_THE_HOST", "UNSET_HERE", "USER=coracle", "LOGNAME=coracle", "CORACLE_"]
    {
        assert!(!env.iter().any(|item| item.starts_with(name)), "{name} in {env:?}");
    }
    Ok(())
}

fn arguments_are_exact(w: &World) -> Outcome {
    let odd = [
        "", "a b", "'q'", "\"d\"", "-x", "--", "--rm", "$HOME", "`id`", "\n", "\\", "*", "ünï", "",
    ];
    let mut guest = vec!["args"];
    guest.extend(odd);
    let seen = list(&w.json(&[], &guest));
    let latin = |text: &str| text.bytes().map(char::from).collect::<String>();
    let wanted: Vec<String> = ["/bin/guest", "args"].into_iter().chain(odd).map(latin).collect();
    assert_eq!(seen, wanted);
    Ok(())
}

fn arguments_need_not_be_utf8(w: &World) -> Outcome {
    let mut words: Vec<OsString> =
        w.words(&[], &["args"]).into_iter().map(OsString::from).collect();
    words.push(OsString::from_vec(vec![0xff, b'x', 0x80]));
    let seen = list(&parse(&run_with(&mut w.command(&words), Input::Null, LIMIT)));
    assert_eq!(seen[2], "\u{ff}x\u{80}");
    Ok(())
}

fn words_after_the_image_are_the_commands(w: &World) -> Outcome {
    let seen = list(&w.json(&[], &["args", "-e", "X=1", "--name=n", "-it", "--help", "-h"]));
    assert_eq!(seen[2..], ["-e", "X=1", "--name=n", "-it", "--help", "-h"]);
    Ok(())
}

fn command_and_entrypoint(w: &World) -> Outcome {
    let mode = w.mode();
    let image = w.image.as_str();
    let run = |words: &[&str]| {
        let mut all = vec!["run", "--rm", &mode];
        all.extend(words);
        list(&parse(&w.coracle(&all)))
    };
    assert_eq!(run(&[image]), ["/bin/guest", "args", "default"]);
    assert_eq!(
        run(&["--entrypoint", "/bin/guest", image, "args", "x"]),
        ["/bin/guest", "args", "x"]
    );
    // A new entry point drops the image's command.
    assert_eq!(w.coracle(&["run", "--rm", &mode, "--entrypoint=/bin/guest", image]).ok().out(), "");
    assert_eq!(run(&["--entrypoint=", image, "/bin/guest", "args"]), ["/bin/guest", "args"]);
    // Found by the image's PATH, and called by the typed name.
    assert_eq!(run(&[image, "guest", "args"]), ["guest", "args"]);
    Ok(())
}

fn scripts_run_with_their_interpreter(w: &World) -> Outcome {
    let done = w.coracle(&["run", "--rm", &w.image, "/bin/script", "one", "two words"]);
    assert_eq!(list(&parse(&done)), ["/bin/guest", "args", "/bin/script", "one", "two words"]);
    Ok(())
}

fn working_directory(w: &World) -> Outcome {
    assert_eq!(w.json(&[], &["facts"])["cwd"], json!("/"));
    assert_eq!(w.json(&["-w", "/data/sub"], &["facts"])["cwd"], json!("/data/sub"));
    assert_eq!(w.json(&["-w", "/var/link-to-etc"], &["facts"])["cwd"], json!("/etc"));
    assert_eq!(w.json(&["--workdir=/made/by/this"], &["facts"])["cwd"], json!("/made/by/this"));
    w.guest(&["-w", "/etc/passwd"], &["facts"]).expect(125);
    w.guest(&["-w", "relative"], &["facts"]).expect(125);
    Ok(())
}

/// Docker's mask, whatever the caller's is; a rank of a job keeps the caller's.
fn umask(w: &World) -> Outcome {
    let mask = |callers, flags: &[&str], before: &str| {
        let before = before.to_owned();
        let setting = Setting { umask: Some(callers), before, ..Setting::default() };
        let mut command = w.command_in(&setting, &w.words(flags, &["status", "Umask"]));
        run_with(&mut command, Input::Null, LIMIT).ok().line()
    };
    for callers in [0o077, 0o002] {
        assert_eq!(mask(callers, &[], ""), "0022");
        let rank = "export SLURM_STEP_ID=0; ";
        assert_eq!(mask(callers, &[], rank), format!("{callers:04o}"));
        assert_eq!(mask(callers, &["--umask=027"], rank), "0027");
    }
    let made = w.json(&["--umask", "0777"], &["write", "/tmp/x", "", ";", "stat", "/tmp/x"]);
    assert_eq!(made["mode"], json!("0"));
    w.guest(&["--umask=8"], &["facts"]).expect(125);
    Ok(())
}

fn limits(w: &World) -> Outcome {
    let line = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let flags = ["--ulimit", "nofile=100:200", "--ulimit", "core=0", "--ulimit=stack=4194304"];
    let text = w.guest(&flags, &["limits"]).ok().out();
    assert_eq!(line(&text, "Max open files"), ["100", "200"]);
    assert_eq!(line(&text, "Max core file size"), ["0", "0"]);
    assert_eq!(line(&text, "Max stack size")[0], "4194304");
    let setting =
        Setting { before: "ulimit -n 77; ulimit -S -f 4096; ".to_owned(), ..Setting::default() };
    let mut command = w.command_in(&setting, &w.words(&[], &["limits"]));
    let text = run_with(&mut command, Input::Null, LIMIT).ok().out();
    assert_eq!(line(&text, "Max open files"), ["77", "77"], "the caller's limit");
    // In blocks of 512 or 1024 bytes, depending on the shell.
    let size = line(&text, "Max file size");
    assert!(["2097152", "4194304"].contains(&size[0].as_str()), "the caller's limit: {size:?}");
    // Above the caller's hard limit that is taken.
    let before = "ulimit -n 77; ulimit -c 0; ".to_owned();
    let setting = Setting { before, ..Setting::default() };
    let flags = ["--ulimit", "nofile=100:200", "--ulimit=core=-1"];
    let mut command = w.command_in(&setting, &w.words(&flags, &["limits"]));
    let done = run_with(&mut command, Input::Null, LIMIT);
    let text = done.ok().out();
    assert_eq!(line(&text, "Max open files"), ["77", "77"]);
    assert_eq!(line(&text, "Max core file size"), ["0", "0"]);
    for flag in ["--ulimit nofile", "--ulimit core"] {
        assert!(done.err().contains(flag), "{done:?}");
    }
    let strict = [&flags[..], &["--strict"]].concat();
    let mut command = w.command_in(&setting, &w.words(&strict, &["limits"]));
    run_with(&mut command, Input::Null, LIMIT).expect(125);
    w.guest(&["--ulimit", "nofile=300:200"], &["limits"]).expect(125);
    w.guest(&["--ulimit", "nothing=1"], &["limits"]).expect(125);
    Ok(())
}

/// MPI passes its process manager's socket by number: descriptors must be inherited.
fn descriptors_pass_and_none_leak(w: &World) -> Outcome {
    let dir = w.dir("fd");
    let file = w.file(&dir, "five", "through descriptor five");
    let guest = dir.join("guest");
    copy_program(testkit::guest::program(), &guest);
    let before = format!("exec 5<'{}'; ", file.display());
    let setting = Setting { before, ..Setting::default() };
    for verb in [["run"].as_slice(), &["run", "--rm"]] {
        let words = w.words_for(verb, &[], &["read-fd", "5"]);
        let done = run_with(&mut w.command_in(&setting, &words), Input::Null, LIMIT);
        assert_eq!(done.ok().out(), "through descriptor five", "{verb:?}");
        let words = w.words_for(verb, &[], &["fds"]);
        let done = run_with(&mut w.command_in(&setting, &words), Input::Null, LIMIT);
        // The tests may have inherited open descriptors.
        let mut plain = w.user.command_in(&guest, &w.home, &setting);
        let plain = parse(&run_with(plain.arg("fds"), Input::Null, LIMIT));
        let names =
            |fds: &Value| fds.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        assert_eq!(names(&parse(&done)), names(&plain), "{verb:?}: {done:?}");
    }
    Ok(())
}

/// Signals 32 and 33, which `posix_spawn` makes ignored.
pub(crate) const OF_THE_C_LIBRARY: u64 = 0b11 << 31;

/// Signals that a container's program may ignore: those that any program which this suite starts
/// ignores, and the two of the C library itself.
pub(crate) fn may_be_ignored(w: &World) -> u64 {
    let mut shown = w.user.command("cat", &w.home);
    let status = run_with(shown.arg("/proc/self/status"), Input::Null, LIMIT).ok().out();
    OF_THE_C_LIBRARY | mask(&status, "SigIgn:")
}

/// A mask of `/proc/PID/status`.
pub(crate) fn mask(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name)).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a hexadecimal number")
}

fn signal_mask_is_clean(w: &World) -> Outcome {
    for verb in [["run"].as_slice(), &["run", "--rm"], &["run", "--rm", "--init"]] {
        let facts = parse(&w.coracle(&w.words_for(verb, &[], &["facts"])));
        assert_eq!(facts["sig_blk"], json!("0000000000000000"), "{verb:?}");
        // Rust's runtime ignores SIGPIPE (bit 12) in the guest itself.
        let ignored = facts["sig_ign"].as_str().unwrap_or_default();
        let ignored = u64::from_str_radix(ignored, 16).unwrap_or(u64::MAX) & !(1 << 12);
        assert_eq!(ignored & !may_be_ignored(w), 0, "{verb:?}: {facts}");
    }
    Ok(())
}

fn own_name_and_path(w: &World) -> Outcome {
    let facts = w.json(&[], &["facts"]);
    assert_eq!(facts["exe"], json!("/bin/guest"));
    assert_eq!(facts["comm"], json!("guest"));
    Ok(())
}

fn a_long_environment(w: &World) -> Outcome {
    let long = format!("LONG={}", "x".repeat(100_000));
    let value = w.json(&["-e", &long], &["getenv", "LONG"]);
    assert_eq!(value.as_str().map(str::len), Some(100_000));
    Ok(())
}
