//! Tests of `login` and `logout`, and that passwords are not shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::command::{Input, find_program, run_with};
use testkit::docker_registry::Options;
use testkit::person::LIMIT;
use testkit::registry::{Auth, Registry};
use testkit::terminal::Terminal;
use testkit::users::Setting;

use testkit::skip::Outcome;

use crate::cli::Case;

use super::{image, place, real, text};

pub(in crate::cli) const CASES: &[(&str, Case)] = &[
    ("a_login_is_kept_as_docker_and_podman_keep_it", a_login_is_kept_as_docker_and_podman_keep_it),
    ("a_password_is_asked_for_and_not_shown", a_password_is_asked_for_and_not_shown),
    (
        "without_a_terminal_nobody_waits_for_an_answer",
        without_a_terminal_nobody_waits_for_an_answer,
    ),
    ("the_files_of_docker_and_podman_are_read", the_files_of_docker_and_podman_are_read),
    ("helpers_keep_passwords", helpers_keep_passwords),
    ("passwords_and_tokens_are_not_told", passwords_and_tokens_are_not_told),
];

const PASSWORD: &str = "hush-hush";

fn closed() -> Registry {
    let registry = Registry::start_with(Auth::Basic("ada".into(), PASSWORD.into())).unwrap();
    registry.image("team/tool", "1", &image("tool").build());
    registry
}

fn a_login_is_kept_as_docker_and_podman_keep_it() -> Outcome {
    let place = place("login")?;
    let password = Options { password: true, ..Options::default() };
    let registry = real(password)?;
    let host = registry.host();
    let words = ["login", "-u", "tester", "--password-stdin", &host];
    let refused = place.reading("wrong\n", &words);
    refused.expect(1);
    assert!(refused.err().contains("does not accept the credentials"), "{refused:?}");
    assert!(!place.auth_file().exists());

    let setting = Setting { umask: Some(0), ..Setting::default() };
    let mut open_handed =
        place.person.user.command_in(&place.person.program, &place.person.home, &setting);
    open_handed.args(words);
    let accepted = run_with(&mut open_handed, Input::Bytes(b"secret\n".to_vec()), LIMIT);
    assert_eq!(accepted.ok().out(), "Login Succeeded\n");
    let mode = fs::metadata(place.auth_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let kept: serde_json::Value =
        serde_json::from_str(&place.read(".config/coracle/auth.json")).unwrap();
    assert_eq!(kept["auths"][&host]["auth"], "dGVzdGVyOnNlY3JldA==");
    assert_eq!(place.run(&["login", "--get-login", &host]).line(), "tester");

    registry.target().image("team/tool", "1", &image("tool").build()).unwrap();
    let name = format!("{host}/team/tool:1");
    place.run(&["pull", &name]).ok();
    let file = place.auth_file();
    let ours = [("REGISTRY_AUTH_FILE", text(&file))];
    for (program, words) in [
        ("skopeo", &["inspect", "--tls-verify=false", &format!("docker://{name}")][..]),
        ("podman", &["login", "--get-login", &host]),
    ] {
        if find_program(program).is_some() {
            place.other(&ours, program, words).ok();
        } else {
            testkit::skip::note("login", &format!("{program} is not installed"));
        }
    }

    place.run(&["logout", &host]).ok();
    let again = place.run(&["logout", &host]);
    assert_eq!(again.ok().out(), format!("Not logged in to {host}\n"));
    let refused = place.run(&["pull", &name]);
    assert!(refused.expect(1).err().contains(&format!("coracle login {host}")), "{refused:?}");
    for host in [&host, &format!("{host}/team")] {
        place.reading("secret", &["login", "-u", "tester", "--password-stdin", host]).ok();
    }
    assert_eq!(place.run(&["logout", "--all"]).ok().out().lines().count(), 2);
    assert!(!place.read(".config/coracle/auth.json").contains(&host));
    Ok(())
}

fn a_password_is_asked_for_and_not_shown() -> Outcome {
    let place = place("login-asked")?;
    let registry = closed();
    let host = registry.host();
    let script = "\"$0\" login \"$1\"; echo status=$?; stty -a | grep -o -e '-*echo ' -e '-*isig'";
    let asking = || {
        let mut shell = place.person.user.command("sh", &place.person.home);
        shell.args(["-c", script, text(&place.person.program), &host]);
        let mut terminal = Terminal::spawn(&shell, 24, 100).unwrap();
        terminal.expect(&format!("Username for {host}: "));
        terminal.type_in(b"ada\n").unwrap();
        terminal.expect("Password for ada: ");
        terminal
    };
    let mut terminal = asking();
    terminal.type_in(format!("{PASSWORD}\n").as_bytes()).unwrap();
    terminal.expect("status=0");
    terminal.end();
    let shown = terminal.text();
    assert!(shown.contains("Login Succeeded") && !shown.contains("hush"), "{shown}");

    // Ctrl-C ends it, and the terminal is as before.
    let mut terminal = asking();
    terminal.type_in(b"hus\x03").unwrap();
    terminal.expect("status=130");
    terminal.end();
    let shown = terminal.text();
    assert!(!shown.contains("-echo") && !shown.contains("-isig"), "{shown}");
    assert!(shown.contains("echo") && !shown.contains("hus"), "{shown}");
    Ok(())
}

fn without_a_terminal_nobody_waits_for_an_answer() -> Outcome {
    let place = place("login-unasked")?;
    let host = closed().host();
    let told = place.run(&["login", "-u", "ada", &host]);
    assert!(told.expect(1).err().contains("hint: use --password-stdin"), "{told:?}");
    place.run(&["login", &host]).expect(1);
    place.run(&["login", "-u", "ada", "--password-stdin", &host]).expect(1);
    let closed = Setting { closed_stdin: true, ..Setting::default() };
    let mut command =
        place.person.user.command_in(&place.person.program, &place.person.home, &closed);
    command.args(["login", "-u", "ada", "--password-stdin", &host]);
    run_with(&mut command, Input::Null, LIMIT).expect(1);
    for odd in ["", "a b", "http://", "/x"] {
        let told = place.reading("x", &["login", "-u", "ada", "--password-stdin", odd]);
        assert!(told.expect(1).err().contains("is not the name of a registry"), "{told:?}");
    }
    assert!(!place.auth_file().exists());
    Ok(())
}

fn the_files_of_docker_and_podman_are_read() -> Outcome {
    let place = place("login-files")?;
    let registry = closed();
    let host = registry.host();
    let name = format!("{host}/team/tool:1");
    // ada:hush-hush
    let entry = format!(r#"{{"auths": {{"{host}": {{"auth": "YWRhOmh1c2gtaHVzaA=="}}}}}}"#);
    let pull = ["pull", "-q", &name];
    place.run(&pull).expect(1);
    for file in [".docker/config.json", ".config/containers/auth.json"] {
        let file = place.file(file, &entry);
        place.run(&pull).ok();
        fs::remove_file(file).unwrap();
        place.run(&pull).expect(1);
    }
    place.file("run/containers/auth.json", &entry);
    place.file("other/config.json", &entry);
    for (variable, directory) in [("XDG_RUNTIME_DIR", "run"), ("DOCKER_CONFIG", "other")] {
        let directory = place.person.home.join(directory);
        place.with(&[(variable, text(&directory))], &pull).ok();
    }
    let file = place.person.home.join("other/config.json");
    place.run(&["pull", "-q", "--authfile", text(&file), &name]).ok();
    place.with(&[("REGISTRY_AUTH_FILE", text(&file))], &pull).ok();
    // A malformed file is reported, without its content.
    place.file(".docker/config.json", &format!("{{\"auths\": \"{PASSWORD}"));
    let told = place.run(&pull);
    assert!(told.expect(1).err().contains("config.json"), "{told:?}");
    assert!(!told.err().contains(PASSWORD), "{told:?}");
    Ok(())
}

/// A helper that stores credentials in a file, and logs its own and its parent's command line.
const HELPER: &str = r#"#!/bin/sh
tr '\0' ' ' </proc/self/cmdline >>"$HOME/seen"; tr '\0' ' ' </proc/$PPID/cmdline >>"$HOME/seen"
case $1 in
store) cat >"$HOME/vault" ;;
erase) rm -f "$HOME/vault" ;;
get) cat >>"$HOME/asked"; cat "$HOME/vault" 2>/dev/null || { echo 'credentials not found in native keychain'; exit 1; } ;;
esac
"#;

fn helpers_keep_passwords() -> Outcome {
    let place = place("login-helper")?;
    let registry = closed();
    let host = registry.host();
    let name = format!("{host}/team/tool:1");
    let helper = place.file("bin/docker-credential-vault", HELPER);
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    place.file(
        ".config/coracle/auth.json",
        &format!(r#"{{"credHelpers": {{"{host}": "vault"}}, "mine": 1}}"#),
    );
    let path = format!("{}:/usr/bin:/bin", place.person.home.join("bin").display());
    let path = [("PATH", path.as_str())];
    place.with(&path, &["pull", &name]).expect(1);
    let mut login = place.command(&["login", "-u", "ada", "--password-stdin", &host]);
    login.envs(path);
    run_with(&mut login, Input::Bytes(PASSWORD.into()), LIMIT).ok();
    assert!(place.read("vault").contains(PASSWORD));
    let file = place.read(".config/coracle/auth.json");
    assert!(file.contains("\"mine\"") && !file.contains("auths"), "{file}");
    let pulled = place.with(&path, &["-l", "trace", "pull", &name]);
    pulled.ok();
    assert!(!pulled.err().contains(PASSWORD), "{pulled:?}");
    assert!(place.read("seen").contains("docker-credential-vault get"));
    assert!(!place.read("seen").contains(PASSWORD));
    place.with(&path, &["logout", &host]).ok();
    assert_eq!(place.read("vault"), "");
    // Docker's file, with one helper for everything.
    place.file(".config/coracle/auth.json", "{}");
    place.file(".docker/config.json", r#"{"credsStore": "vault"}"#);
    place.file("vault", &format!(r#"{{"Username": "ada", "Secret": "{PASSWORD}"}}"#));
    place.with(&path, &["pull", &name]).ok();
    // A helper that is not installed is named in the error.
    place.file(".docker/config.json", r#"{"credsStore": "nowhere"}"#);
    let told = place.with(&path, &["pull", &name]);
    assert!(told.expect(1).err().contains("nowhere"), "{told:?}");
    Ok(())
}

fn passwords_and_tokens_are_not_told() -> Outcome {
    let place = place("login-secret")?;
    let registry = Registry::start_with(Auth::Bearer("ada".into(), PASSWORD.into())).unwrap();
    registry.image("team/tool", "1", &image("tool").build());
    let host = registry.host();
    let name = format!("{host}/team/tool:1");
    let right = format!("ada:{PASSWORD}");
    let wrong = format!("eve:{PASSWORD}");
    let login = ["-l", "trace", "login", "-u", "ada", "--password-stdin", &host];
    let all = [
        place.run(&["-l", "trace", "pull", "--creds", &wrong, &name]),
        place.run(&["-l", "trace", "pull", "--creds", &right, &name]),
        place.run(&["-D", "login", "-u", "ada", "-p", PASSWORD, &host]),
        place.reading(PASSWORD, &login),
        place.run(&["-l", "trace", "pull", "--all-tags", &format!("{host}/team/tool")]),
        place.run(&[
            "-D",
            "pull",
            "--proxy",
            &format!("http://ada:{PASSWORD}@127.0.0.1:1"),
            "registry.test/x",
        ]),
        place.with(
            &[("HTTPS_PROXY", &format!("socks5://ada:{PASSWORD}@127.0.0.1:1"))],
            &["-D", "pull", "registry.test/x"],
        ),
        place.with(
            &[("HTTPS_PROXY", &format!("odd://ada:{PASSWORD}@h"))],
            &["-D", "pull", "registry.test/x"],
        ),
        place.with(&[("HTTPS_PROXY", &format!("http://ada:{PASSWORD}@h:x"))], &["config"]),
    ];
    let codes: Vec<i32> = all.iter().map(testkit::command::Finished::code).collect();
    assert_eq!(codes, [1, 0, 0, 0, 1, 1, 1, 1, 0], "{all:?}");
    let tokens: Vec<String> = registry
        .log()
        .iter()
        .filter_map(|asked| Some(asked.header("authorization")?.split_once(' ')?.1.to_owned()))
        .collect();
    assert!(tokens.len() > 3);
    for done in all {
        let told = done.out() + &done.err();
        assert!(!told.contains(PASSWORD), "{done:?}");
        assert!(!tokens.iter().any(|token| told.contains(token)), "{done:?}");
    }
    Ok(())
}
