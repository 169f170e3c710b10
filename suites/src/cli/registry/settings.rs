//! Tests of settings from files and variables, unusual environments, completions and manual pages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use testkit::command::{Input, find_program, run, run_with};
use testkit::person::LIMIT;
use testkit::registry::Registry;
use testkit::terminal::Terminal;

use testkit::skip::{Outcome, need_program};

use crate::cli::Case;

use super::{image, place, text};

pub(in crate::cli) const CASES: &[(&str, Case)] = &[
    ("every_value_says_where_it_comes_from", every_value_says_where_it_comes_from),
    ("homes_that_are_missing_or_read_only", homes_that_are_missing_or_read_only),
    ("colour_is_for_terminals_that_want_it", colour_is_for_terminals_that_want_it),
    ("completions_load", completions_load),
    ("manual_pages_are_well_formed", manual_pages_are_well_formed),
];

fn every_value_says_where_it_comes_from() -> Outcome {
    let place = place("config")?;
    let file = place.file(
        ".config/coracle/config.toml",
        "[registry]\nretries = 2\ntimeout = \"7s\"\n[store]\ndir = \"~/my store\"\n",
    );
    let shown = place.with(
        &[("CORACLE_RETRIES", "3"), ("NO_COLOR", "1")],
        &["--store", "/tmp/elsewhere", "config", "--format", "json"],
    );
    let all: Value = serde_json::from_str(&shown.ok().out()).unwrap();
    let find = |key: &str| {
        let rows = all.as_array().unwrap();
        rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {all}")).clone()
    };
    assert_eq!(find("registry.retries")["origin"]["name"], "CORACLE_RETRIES");
    assert_eq!(find("registry.timeout")["origin"]["path"], text(&file));
    assert_eq!(find("registry.timeout")["origin"]["line"], 3);
    assert_eq!(find("store.dir")["origin"]["name"], "--store");
    assert_eq!(find("registry.default")["origin"]["from"], "default");
    // The file sets a store at a path with a space.
    place.run(&["create", "--name", "first", "hello"]).ok();
    assert!(place.person.home.join("my store/containers/first").exists());
    // An error names its position; a misspelt name gets a suggestion.
    let wrong = place.with(&[("CORACLE_RETRIES", "many")], &["images"]);
    assert!(wrong.expect(1).err().contains("CORACLE_RETRIES"), "{wrong:?}");
    let near = place.with(&[("CORACLE_RETRIE", "1")], &["images"]);
    assert!(near.ok().err().contains("CORACLE_RETRIES"), "{near:?}");
    place.file(".config/coracle/config.toml", "[registry]\nretries = \"x\"\n");
    let wrong = place.run(&["images"]);
    assert!(wrong.expect(1).err().contains("config.toml:2"), "{wrong:?}");
    place.file(".config/coracle/config.toml", "[registry\n");
    let wrong = place.run(&["images"]);
    assert!(wrong.expect(1).err().contains("config.toml"), "{wrong:?}");
    place.run(&["--help"]).ok();
    Ok(())
}

fn homes_that_are_missing_or_read_only() -> Outcome {
    let place = place("homes")?;
    let registry = Registry::start().unwrap();
    registry.image("team/tool", "1", &image("x").build());
    let name = format!("{}/team/tool:1", registry.host());
    let store = place.person.dir("elsewhere with spaces");
    let missing = [("HOME", "/nonexistent/home")];
    let refused = place.with(&missing, &["images"]);
    assert!(refused.expect(1).err().contains("/nonexistent"), "{refused:?}");
    assert!(refused.err().contains("hint: "), "{refused:?}");
    let named = [missing[0], ("CORACLE_DIR", text(&store))];
    place.with(&named, &["pull", "-q", &name]).ok();
    place.with(&named, &["create", "--name", "first", &name]).ok();
    let words = ["login", "-u", "ada", "-p", "x", &registry.host()];
    place.with(&named, &words).expect(1);
    let file = place.person.home.join("auth.json");
    place.with(&[named[0], ("REGISTRY_AUTH_FILE", text(&file))], &words).ok();

    if !rustix::process::getuid().is_root() {
        testkit::skip!("only root can mount a home read-only");
    }
    let home = place.person.home.display();
    let script = format!(
        "mount --bind '{home}' '{home}' && mount -o remount,ro,bind '{home}' && exec \"$@\""
    );
    let read_only = |words: &[&str]| {
        let inner = place.command(words);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
        run_with(&mut command, Input::Null, LIMIT)
    };
    let refused = read_only(&["pull", &name]);
    assert!(refused.expect(1).err().contains("ead-only"), "{refused:?}");
    let refused = read_only(&words);
    assert!(
        refused.expect(1).err().contains("auth.json") || refused.err().contains("ead-only"),
        "{refused:?}"
    );
    // The content can be read.
    place.run(&["pull", "-q", &name]).ok();
    assert!(read_only(&["images"]).ok().out().contains("team/tool"));
    read_only(&["inspect", &name]).ok();
    let refused = read_only(&["rmi", &name]);
    assert_ne!(refused.code(), 0);
    assert!(refused.err().contains("ead-only"), "{refused:?}");
    Ok(())
}

fn colour_is_for_terminals_that_want_it() -> Outcome {
    let place = place("colour")?;
    let shown = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["rmi", "no/such"]);
        command.envs(variables.iter().copied());
        let mut terminal = Terminal::spawn(&command, 24, 100).unwrap();
        terminal.expect("no/such");
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(1));
        terminal.text()
    };
    assert!(shown(&[]).contains('\x1b'));
    assert!(!shown(&[("NO_COLOR", "1")]).contains('\x1b'));
    assert!(!place.run(&["rmi", "no/such"]).err().contains('\x1b'));
    Ok(())
}

fn completions_load() -> Outcome {
    let place = place("completion")?;
    for (shell, check) in [
        ("bash", "bash -n \"$1\" && source \"$1\" && complete -p coracle"),
        ("zsh", "zsh -n \"$1\" && echo coracle"),
        ("fish", "fish --no-execute \"$1\" && echo coracle"),
    ] {
        let script = place.run(&["completion", shell]).ok().out();
        assert!(script.contains("coracle"), "{shell}");
        if find_program(shell).is_none() {
            testkit::skip::note("completion", &format!("{shell} is not installed"));
            continue;
        }
        let file = place.file(&format!("completion.{shell}"), &script);
        let loaded = place.other(&[], "bash", &["-c", check, "bash", text(&file)]);
        assert!(loaded.ok().out().contains("coracle"), "{loaded:?}");
        assert_eq!(loaded.err(), "", "{shell}");
    }
    // Bash's completions: commands, and the flags of one.
    let file = place.file("completion.bash", &place.run(&["completion", "bash"]).ok().out());
    let offer = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                 f=$(complete -p coracle | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
                 $f coracle \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[@]}\"";
    for (words, wanted) in [
        (&["coracle", "pu"][..], "pull"),
        (&["coracle", "pull", "--tls"], "--tls-verify"),
        (&["coracle", "volume", "cr"], "create"),
    ] {
        let words = [&["-c", offer, "bash", text(&file)], words].concat();
        let offered = place.other(&[], "bash", &words);
        assert!(offered.ok().out().contains(wanted), "{offered:?}");
    }
    place.run(&["completion", "tcl"]).expect(1);
    Ok(())
}

fn manual_pages_are_well_formed() -> Outcome {
    let place = place("man")?;
    let pages = place.person.home.join("man");
    place.run(&["__man", text(&pages)]).ok();
    let mut names: Vec<_> =
        fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 50, "{names:?}");
    for page in &names {
        assert_eq!(
            fs::metadata(page).unwrap().permissions().mode() & 0o444,
            0o444,
            "{}",
            page.display()
        );
    }
    let mut groff = Command::new(need_program("groff")?);
    groff.args(["-man", "-ww", "-z", "-Tutf8"]).args(&names);
    let checked = run(&mut groff);
    assert_eq!(checked.ok().err(), "");
    Ok(())
}
