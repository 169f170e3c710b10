//! Tests of errors on the command line: one clear line, a hint, and Docker's status.

use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, coracle, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("unknown_options_and_commands", unknown_options_and_commands),
    ("statuses_are_dockers", statuses_are_dockers),
    ("what_docker_has_and_we_have_not", what_docker_has_and_we_have_not),
    ("values", values),
    ("passwords_do_not_show", passwords_do_not_show),
];

fn mistake(words: &[&str]) -> String {
    let home = TempDir::new().unwrap();
    transcript(&coracle(home.path(), words))
}

fn unknown_options_and_commands() -> Outcome {
    insta::assert_snapshot!(mistake(&["run", "--nmae", "x", "img"]), @r"
    error: coracle run: unknown option '--nmae'
      hint: did you mean '--name'? see 'coracle run --help'
    status 125
    ");
    insta::assert_snapshot!(mistake(&["pul", "debian"]), @r#"
    error: unknown command "pul"; did you mean "pull"?
      hint: see 'coracle --help'
    status 1
    "#);
    insta::assert_snapshot!(mistake(&["image", "rmm", "debian"]), @r#"
    error: unknown command "image rmm"; did you mean "image rm"?
      hint: see 'coracle image --help'
    status 1
    "#);
    Ok(())
}

/// As in Docker: 125 is for options, and for what fails in commands that run a program.
fn statuses_are_dockers() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    coracle(home, &["create", "--name", "here", "hello"]);
    coracle(home, &["create", "--name", "mute", "--log-driver=none", "hello"]);
    for (status, words) in [
        // Operands.
        (1, &["run"][..]),
        (1, &["tag", "one"]),
        (1, &["tag", "a", "b", "c"]),
        (1, &["logs"]),
        (1, &["completion", "tcl"]),
        (1, &["nonsense"]),
        (1, &["help", "nonsense"]),
        (1, &["container", "nonsense"]),
        // Options.
        (125, &["ps", "--nonsense"]),
        (125, &["ps", "-n", "x"]),
        (125, &["logs", "--tail"]),
        // Objects that are absent.
        (1, &["logs", "none"]),
        (1, &["start", "none"]),
        (1, &["start", "-a", "none"]),
        (1, &["rename", "none", "other"]),
        (1, &["cp", "none:/x", "."]),
        (1, &["tag", "none", "other"]),
        (1, &["history", "none"]),
        (1, &["top", "none"]),
        (1, &["diff", "none"]),
        (1, &["port", "none"]),
        (1, &["volume", "rm", "none"]),
        (125, &["exec", "none", "true"]),
        (125, &["run", "--pull=never", "none"]),
        (125, &["create", "--pull=never", "none"]),
        // What cannot be done.
        (1, &["rename", "here", "here"]),
        (1, &["logs", "mute"]),
        (1, &["top", "here"]),
        (1, &["ps", "--filter", "odd=1"]),
        (1, &["inspect", "--type", "odd", "here"]),
        (1, &["image", "inspect", "--index", "none"]),
        (0, &["logs", "here"]),
        (0, &["logout", "127.0.0.1:1"]),
    ] {
        let done = coracle(home, words);
        assert_eq!(done.status.code(), Some(status), "{words:?}: {}", transcript(&done));
    }
    assert_eq!(crate::cli::printed(home, &["logout", "x.test"]), "Not logged in to x.test\n");
    Ok(())
}

fn what_docker_has_and_we_have_not() -> Outcome {
    for words in [&["buildx", "version"][..], &["context", "ls"]] {
        let text = mistake(words);
        assert!(text.starts_with("error: unknown command \"") && text.contains("hint:"), "{text}");
        assert!(text.ends_with("status 1") && !text.contains("see 'coracle"), "{text}");
    }
    insta::assert_snapshot!(mistake(&["run", "--link=db", "img"]), @r"
    error: coracle run has no option '--link'
      hint: containers share the host's network by default and reach each other at 127.0.0.1
    status 125
    ");
    insta::assert_snapshot!(mistake(&["push", "img"]), @r#"
    error: unknown command "push"
      hint: use 'coracle save --format oci-archive' and 'skopeo copy'
    status 1
    "#);
    Ok(())
}

fn values() -> Outcome {
    insta::assert_snapshot!(mistake(&["run", "--name"]), @r"
    error: coracle run: option '--name' wants a value (NAME)
      hint: see 'coracle run --help'
    status 125
    ");
    insta::assert_snapshot!(mistake(&["create", "--rootfs", "/", "--memory", "lots", "x"]), @r"
    error: --memory 'lots' is not a size
      hint: write a number with b, k, m or g, as 512m
    status 125
    ");
    insta::assert_snapshot!(mistake(&["create", "--rootfs", "/", "-v", "a/b:/c", "x"]), @r"
    error: --volume 'a/b:/c': 'a/b' is neither an absolute path nor a volume's name; for a path from here write './a/b'
      hint: write -v HOST_PATH:PATH[:ro] or -v VOLUME:PATH[:ro]; for paths with ':' use --mount
    status 125
    ");
    let missing = "type=bind,src=/no/such,dst=/c";
    insta::assert_snapshot!(mistake(&["create", "--rootfs", "/", "--mount", missing, "x"]), @r"
    error: cannot mount /no/such
      cause: there is no such file or directory on the host
      hint: make it first: mkdir -p /no/such
    status 125
    ");
    insta::assert_snapshot!(mistake(&["create", "--rootfs", "/", "--restart", "often", "x"]), @r"
    error: --restart 'often': unknown policy
      hint: there are no, on-failure[:N], always and unless-stopped
    status 125
    ");
    Ok(())
}

fn passwords_do_not_show() -> Outcome {
    let home = TempDir::new().unwrap();
    let secret = "hunter2-never-shown";
    for (words, status) in [
        (&["--debug", "login", "-u", "me", "-p", secret, "127.0.0.1:1"][..], "status 1"),
        (&["--debug", "pull", "--creds", &format!("me:{secret}"), "127.0.0.1:1/x/y:1"], "status 1"),
        (&["login", "--creds", &format!("me:{secret}"), "--nonsense", "127.0.0.1:1"], "status 125"),
    ] {
        let text = transcript(&coracle(home.path(), words));
        assert!(text.ends_with(status), "{text}");
        assert!(!text.contains(secret), "{text}");
    }
    Ok(())
}
