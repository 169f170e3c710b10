//! Tests of the output and exit codes that udocker's users know.

use testkit::docker_registry::{DockerRegistry, Options};
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::udocker::world::{Case, IMAGE, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("general_options", general_options),
    ("images", images),
    ("create_prints_the_id_alone", create_prints_the_id_alone),
    ("ps", ps),
    ("inspect", inspect),
    ("output_belongs_to_the_program", output_belongs_to_the_program),
    ("banner", banner),
    ("names_and_clones", names_and_clones),
    ("protection", protection),
    ("setup", setup),
    ("archives", archives),
    ("repositories", repositories),
    ("settings", settings),
    ("credentials", credentials),
    ("errors_are_1", errors_are_1),
    ("one_container_again", one_container_again),
];

fn general_options(w: &World) -> Outcome {
    for words in [&["--allow-root", "--version"][..], &["-V"], &["version"], &["-q", "version"]] {
        let text = w.udocker(words).ok().out();
        assert!(text.starts_with("version: 1.3.") && text.contains("\ntarball:"), "{text}");
    }
    assert!(w.coracle(&["version"]).ok().out().starts_with("coracle version"));
    assert!(w.udocker(&[]).ok().out().contains("COMMAND"));
    assert!(w.udocker(&["run", "--help"]).ok().out().contains("--volume"));
    assert!(w.udocker(&["help", "ps"]).ok().out().contains("containers"));
    let done = w.udocker(&["install", "--force", "--purge"]);
    assert!(done.ok().out().starts_with("Info: "), "{done:?}");
    let quiet = w.udocker(&["--quiet", "--insecure", "-D", "install"]);
    assert_eq!(quiet.ok().out(), "");
    Ok(())
}

fn images(w: &World) -> Outcome {
    let text = w.udocker(&["images"]).ok().out();
    assert!(text.starts_with("REPOSITORY\n"), "{text}");
    assert!(text.contains(&format!("\n{IMAGE}    .\n")), "{text}");
    let long = w.udocker(&["images", "-l"]).ok().out();
    assert!(long.contains("    sha256:") && long.contains(" MB)"), "{long}");
    let platforms = w.udocker(&["images", "-p", "--no-trunc"]).ok().out();
    assert!(platforms.contains(&format!("linux/amd64        . {IMAGE}\n")), "{platforms}");
    Ok(())
}

fn create_prints_the_id_alone(w: &World) -> Outcome {
    let name = w.unique("made");
    let done = w.udocker(&["create", &format!("--name={name}"), IMAGE]);
    let id = done.ok().out();
    assert!(id.ends_with('\n') && is_uuid(id.trim()), "{done:?}");
    let by_id = w.udocker(&["run", id.trim(), "echo", "by id"]);
    assert_eq!(by_id.ok().out(), "by id\n");
    assert_eq!(w.udocker(&["create", &format!("--name={name}"), IMAGE]).code(), 1);
    let again = w.udocker(&["create", "--force", &format!("--name={name}"), IMAGE]).ok().out();
    assert_ne!(again, id);
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// 8-4-4-4-12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn ps(w: &World) -> Outcome {
    let name = w.unique("seen");
    let id = w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok().line();
    let text = w.udocker(&["ps"]).ok().out();
    let line = text.lines().find(|line| line.contains(&name)).expect("its line");
    assert!(text.starts_with("CONTAINER ID                         P M NAMES"), "{text}");
    assert!(line.starts_with(&format!("{id} . W ['{name}']")), "{line}");
    assert!(line.ends_with(IMAGE), "{line}");
    let text = w.udocker(&["ps", "-m", "-s", "-p"]).ok().out();
    assert!(text.contains(" MOD SIZE  PLATFORM     NAMES"), "{text}");
    let line = text.lines().find(|line| line.contains(&name)).expect("its line");
    assert!(line.starts_with(&format!("{id} . W P1 ")), "{line}");
    w.udocker(&["rm", "-f", &name]).ok();
    assert!(!w.udocker(&["ps"]).ok().out().contains(&name));
    Ok(())
}

fn inspect(w: &World) -> Outcome {
    let name = w.unique("looked");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    for what in [name.as_str(), IMAGE] {
        let text = w.udocker(&["inspect", what]).ok().out();
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["config"]["Cmd"][0], "sh", "{text}");
        assert!(value["config"]["Env"].to_string().contains("OF_IMAGE=yes"), "{text}");
    }
    // The tree is there, and files that are put into it are in the container.
    let root = w.udocker(&["inspect", "-p", &name]).ok().line();
    assert!(root.ends_with("/ROOT"), "{root}");
    w.file(&std::path::Path::new(&root).join("put"), "by hand\n");
    assert_eq!(
        w.udocker(&["run", &name, "cat", "/put", "/opt/app/dev/x"]).ok().out(),
        "by hand\nkept\n"
    );
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

fn output_belongs_to_the_program(w: &World) -> Outcome {
    let done = w.udocker(&["run", "--rm", IMAGE]);
    assert_eq!(done.ok().out(), "from the image\n", "no banner into a pipe");
    let done = w.udocker(&[
        "--quiet",
        "run",
        "--nobanner",
        "--rm",
        IMAGE,
        "sh",
        "-c",
        "echo o; echo e >&2; exit 42",
    ]);
    done.expect(42);
    assert_eq!((done.out().as_str(), done.err().as_str()), ("o\n", "e\n"));
    Ok(())
}

/// On a terminal, unless it is disabled.
fn banner(w: &World) -> Outcome {
    for (variables, words, wanted) in [
        (&[][..], &["run", "--rm", "-it", IMAGE, "echo", "said"][..], true),
        (&[], &["run", "--rm", "--nobanner", IMAGE, "echo", "said"], false),
        (&[], &["-q", "run", "--rm", IMAGE, "echo", "said"], false),
        (&[("UDOCKER_LOGLEVEL", "1")], &["run", "--rm", IMAGE, "echo", "said"], false),
    ] {
        let mut terminal =
            Terminal::spawn(&w.command(variables, words), 24, 80).expect("a terminal");
        let ended = terminal.end().expect("its end");
        let text = terminal.text();
        assert!(ended.success() && text.contains("said"), "{text}");
        assert_eq!(text.contains("STARTING"), wanted, "{words:?}: {text}");
        assert_eq!(text.contains("executing: echo"), wanted, "{words:?}: {text}");
    }
    Ok(())
}

fn names_and_clones(w: &World) -> Outcome {
    let (first, second, third) = (w.unique("first"), w.unique("second"), w.unique("third"));
    let id = w.udocker(&["create", IMAGE]).ok().line();
    w.udocker(&["name", &id, &first]).ok();
    w.udocker(&["run", &first, "touch", "/changed"]).ok();
    w.udocker(&["rename", &first, &second]).ok();
    let copy = w.udocker(&["clone", &second, &format!("--name={third}")]).ok().line();
    assert_ne!(copy, id);
    w.udocker(&["run", &third, "test", "-e", "/changed"]).ok();
    w.udocker(&["rmname", &second]).ok();
    w.udocker(&["run", &second, "true"]).expect(1);
    w.udocker(&["rm", &id, &third]).ok();
    Ok(())
}

fn protection(w: &World) -> Outcome {
    let name = w.unique("safe");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["protect", &name]).ok();
    w.udocker(&["rm", "-f", &name]).expect(1);
    assert!(w.udocker(&["ps"]).ok().out().contains(&format!(" P W ['{name}']")));
    w.udocker(&["unprotect", &name]).ok();
    w.udocker(&["rm", &name]).ok();
    let tag = format!("localhost/sci/{name}:2");
    w.udocker(&["tag", IMAGE, &tag]).ok();
    w.udocker(&["tag", IMAGE, &tag]).expect(1);
    w.udocker(&["protect", &tag]).ok();
    w.udocker(&["rmi", &tag]).expect(1);
    assert!(w.udocker(&["images"]).ok().out().contains(&format!("{tag}    P\n")));
    w.udocker(&["unprotect", &tag]).ok();
    w.udocker(&["rmi", &tag]).ok();
    Ok(())
}

fn setup(w: &World) -> Outcome {
    let name = w.unique("mode");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    let mode = w.udocker(&["setup", &name]).ok().out();
    assert_eq!(mode, "execmode: P1\nnvidiamode: False\n");
    // What cannot be used here now may be usable where the container runs next.
    let done = w.udocker(&["setup", "--execmode=R1", &name]);
    assert_eq!(done.ok().out(), "", "{done:?}");
    assert!(w.name != "forbidden" || done.err().contains("it is set anyway"), "{done:?}");
    assert!(w.udocker(&["setup", &name]).ok().out().starts_with("execmode: R1\n"));
    w.udocker(&["setup", "--execmode=P1", &name]).ok();
    assert!(w.udocker(&["setup", &name]).ok().out().starts_with("execmode: P1\n"));
    assert_eq!(w.udocker(&["run", &name, "echo", "traced"]).ok().out(), "traced\n");
    assert_eq!(w.udocker(&["setup", "--execmode=X9", &name]).code(), 1);
    w.udocker(&["setup", "--nvidia", &name]).ok();
    assert_eq!(w.udocker(&["setup", &name]).ok().out(), "execmode: P1\nnvidiamode: True\n");
    w.udocker(&["setup", "--gpus=none", &name]).ok();
    assert_eq!(w.udocker(&["setup", &name]).ok().out(), "execmode: P1\nnvidiamode: False\n");
    assert_eq!(w.udocker(&["setup", "--purge", "--fixperm", &name]).ok().out(), "");
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

fn archives(w: &World) -> Outcome {
    let dir = w.dir("archives");
    let place = |name: &str| dir.join(name).display().to_string();
    let name = w.unique("packed");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["export", "-o", &place("tree.tar"), &name]).ok();
    let streamed = w.udocker(&["export", "-", &name]);
    assert!(streamed.ok().stdout.len() > 100_000);
    let made = w.unique("imported");
    let words = [
        "import",
        "--tocontainer",
        &format!("--name={made}"),
        "--mv",
        &place("tree.tar"),
        "mine:1",
    ];
    let id = w.udocker(&words).ok().line();
    assert!(!dir.join("tree.tar").exists());
    assert!(is_uuid(&id) && w.udocker(&["ps"]).ok().out().contains(&id));
    w.udocker(&["run", &made, "cat", "/opt/app/dev/x"]).ok();
    w.udocker(&["save", "-o", &place("image.tar"), IMAGE]).ok();
    w.udocker(&["save", "-o", &place("image.tar"), IMAGE]).expect(1);
    assert_eq!(w.udocker(&["load", "-i", &place("image.tar")]).ok().out(), format!("{IMAGE}\n"));
    let told = format!("Info: verifying: {IMAGE}\nInfo: image Ok\n");
    assert_eq!(w.udocker(&["verify", IMAGE]).ok().out(), told);
    assert_eq!(w.udocker(&["-q", "verify", IMAGE]).ok().out(), "");
    w.udocker(&["rm", &name, &made]).ok();
    Ok(())
}

fn repositories(w: &World) -> Outcome {
    let dir = w.dir("repositories").join("one");
    let place = dir.display().to_string();
    let archive = w.archive.display().to_string();
    let repo = format!("--repo={place}");
    w.udocker(&[&repo, "images"]).expect(1);
    w.udocker(&["mkrepo", &place]).ok();
    w.udocker(&["mkrepo", &place]).expect(1);
    assert_eq!(w.udocker(&[&repo, "images"]).ok().out(), "REPOSITORY\n");
    w.udocker(&["--repo", &place, "load", "-i", &archive]).ok();
    assert_eq!(
        w.udocker_with(&[("UDOCKER_DIR", &place)], &["run", "--rm", IMAGE]).ok().line(),
        "from the image"
    );
    Ok(())
}

fn settings(w: &World) -> Outcome {
    let dir = w.dir("settings");
    let text = format!(
        "[DEFAULT]\nhttp_insecure = False\nverbose_level = '5'\ntopdir = {}\n",
        dir.display()
    );
    let file = w.file(&dir.join("my.conf"), text);
    let config = format!("--config={file}");
    let shown = w.udocker(&[&config, "showconf"]).ok().out();
    assert!(shown.contains(&format!("topdir = {}\n", dir.display())), "{shown}");
    assert!(
        shown.contains("http_insecure = False\n") && shown.contains("verbose_level = 5\n"),
        "{shown}"
    );
    let shown =
        w.udocker_with(&[("UDOCKER_DIR", "/of/variable")], &[&config, "showconf"]).ok().out();
    assert!(shown.contains("topdir = /of/variable\n"), "{shown}");
    w.file(&dir.join("wrong.conf"), "http_insecure = maybe\n");
    let wrong = format!("--config={}", dir.join("wrong.conf").display());
    let done = w.udocker(&[&wrong, "images"]);
    done.expect(1);
    assert!(done.err().contains("wrong.conf:1"), "{done:?}");
    Ok(())
}

/// No registry is contacted: a login on a machine without network is stored for later.
fn credentials(w: &World) -> Outcome {
    let registry = "--registry=https://127.0.0.1:1";
    w.udocker(&["login", "--username=me", "--password=secret", registry]).ok();
    w.udocker(&["logout", registry]).ok();
    w.udocker(&["logout", registry]).expect(1);
    let options = Options { password: true, ..Options::default() };
    let Ok(private) = DockerRegistry::start_with(options) else {
        testkit::skip!("no docker-registry here")
    };
    private.target().image("sci/private", "1", &image(&w.layer)).expect("pushing");
    let name = format!("{}/sci/private:1", private.host());
    w.udocker(&["--insecure", "pull", &name]).expect(1);
    // Credentials that udocker has stored count too: base64 of `tester:secret`.
    let entry = serde_json::json!({"auth": "dGVzdGVyOnNlY3JldA==", "email": ""});
    let text = serde_json::json!({ format!("http://{}", private.host()): entry }).to_string();
    let keystore = w.file(&w.dir("keys").join("keystore"), text);
    let variables = [("UDOCKER_KEYSTORE", keystore.as_str())];
    w.udocker_with(&variables, &["--insecure", "pull", &name]).ok();
    w.udocker(&["rmi", &name]).ok();
    Ok(())
}

fn errors_are_1(w: &World) -> Outcome {
    for words in [
        &["no-such-command"][..],
        &["run", "--no-such-option", IMAGE],
        &["run", "--pull=never", "no/such:image"],
        &["rm", "no-such-container"],
        &["inspect", "no-such-thing"],
        &["run", "-v", "/no/such/place:/x", IMAGE, "true"],
        &["--config=/no/such/file", "images"],
    ] {
        let done = w.udocker(words);
        done.expect(1);
        assert!(done.err().starts_with("error: ") && done.out().is_empty(), "{done:?}");
    }
    w.udocker(&["run", "--rm", IMAGE, "no-such-program"]).expect(127);
    Ok(())
}

fn one_container_again(w: &World) -> Outcome {
    let name = format!("--name={}", w.unique("again"));
    let words = ["run", &name, "--pull=reuse", IMAGE, "sh", "-c", "echo x >>/count; wc -l </count"];
    assert_eq!(w.udocker(&words).ok().line().trim(), "1");
    assert_eq!(w.udocker(&words).ok().line().trim(), "2");
    w.udocker(&["rm", name.trim_start_matches("--name=")]).ok();
    Ok(())
}
