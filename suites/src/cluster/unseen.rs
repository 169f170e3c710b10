//! What only its user may see is on no command line, and in no file that others can read.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use testkit::command::{Input, run_with, until};
use testkit::person::LIMIT;
use testkit::running::Running;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};
use crate::secrets::{Watch, command_lines, files, runtime_directories};

pub(crate) const CASES: &[Case] = &[
    ("unseen_variables", variables),
    ("unseen_in_messages", messages),
    ("unseen_when_typed", typed),
];

/// A value that nothing else has.
fn value(lab: &Lab<'_>, number: u32) -> String {
    let suffix: String = lab.dir.display().to_string().replace(['/', '.'], "-");
    format!("only{number}{}{suffix}", std::process::id())
}

/// The cluster file, which only its user can read.
fn file(lab: &Lab<'_>, text: &str) {
    let path = lab.file(text);
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a mode");
}

/// Checks the files that others can read, of the home and outside of it.
fn no_file_has(lab: &Lab<'_>, value: &str) {
    let person = &lab.world.person;
    let places = runtime_directories(person.user.uid).into_iter().chain([person.home.clone()]);
    let found: Vec<PathBuf> = places.flat_map(|place| files(&place, value)).collect();
    assert!(found.is_empty(), "others can read it in {found:#?}");
    // One would be found.
    let control = person.home.join("control");
    person.file(&control, value);
    fs::set_permissions(&control, Permissions::from_mode(0o644)).expect("a mode");
    assert_eq!(files(&person.home, value), [control.as_path()]);
    fs::remove_file(control).expect("it is removed");
}

/// Nodes, services, what waits for them, `[run]`, `cluster run` and `cluster exec`. The programs
/// say how long the values are that they got.
fn variables(lab: &Lab<'_>) {
    let value = value(lab, 1);
    let of_file = format!("{value} of the file\\nwith 'more'");
    let length = value.len() + " of the file\nwith 'more'".len();
    file(
        lab,
        &format!(
            "name = \"lab\"\nimage = \"{BOX}\"\nnodes = 2\nenv = {{ WORD = \"{of_file}\" }}\n\
             [service.db]\nenv = {{ WORD = \"{of_file}\", EMPTY = \"\" }}\nreplicas = 2\n\
             command = \"trap 'exit 0' TERM; echo ${{#WORD}} ${{#EMPTY}} > /tmp/length; \
             sleep 600 & wait\"\n\
             ready = {{ command = [\"sh\", \"-c\", \"test -s /tmp/length\"] }}\n\
             [run]\non = \"node2\"\nenv = {{ OWN = \"{value}\" }}\n\
             command = \"echo ${{#WORD}} ${{#OWN}}\"\n"
        ),
    );
    let watch = Watch::start(&value);
    lab.cluster("up", &["-d"]).ok();
    no_file_has(lab, &value);
    let got = lab.cluster("exec", &["db-2", "cat", "/tmp/length"]);
    assert_eq!(got.ok().out(), format!("{length} 0\n"));
    let of_run = format!("{length} {}\n", value.len());
    assert_eq!(lab.cluster("run", &[]).ok().out(), of_run);
    let with = |word: &str, words: &[&str]| {
        let file = lab.dir.join("lab.toml").display().to_string();
        let mut command = lab.command(&[&["cluster", "-f", &file, word], words].concat());
        command.env("GIVEN", &value);
        run_with(&mut command, Input::Null, LIMIT).ok().out()
    };
    let script = ["sh", "-c", "echo ${#GIVEN} $LAST"];
    let given = format!("{} of this\n", value.len());
    let words = ["-e", "GIVEN", "-e", "LAST=of this"];
    assert_eq!(with("exec", &[&words[..], &["node1"], &script].concat()), given);
    assert_eq!(with("run", &[&words[..], &["--"], &script].concat()), given);
    lab.cluster("down", &[]).ok();
    assert_eq!(lab.cluster("up", &[]).ok().out(), of_run);
    watch.ends_without();
    // Who may read the file still sees what it comes to.
    let explained = lab.cluster("explain", &[]).ok().out();
    assert!(explained.contains(&format!("-e OWN={value} ")), "{explained}");
    no_file_has(lab, &value);
}

/// An error names the command, and may go to a file of any mode.
fn messages(lab: &Lab<'_>) {
    let value = value(lab, 2);
    file(
        lab,
        &format!(
            "name = \"lab\"\nimage = \"{BOX}\"\nnodes = 1\nenv = {{ WORD = \"{value}\" }}\n\
             volume = [\"/no/such/directory:/data:rbind\"]\n"
        ),
    );
    let failed = lab.cluster("up", &[]);
    let said = failed.expect(125).err();
    assert!(said.contains(" -e WORD= ") && !said.contains(&value), "{said}");
}

/// What is typed is seen while a process begins, and then no more: neither of the process that was
/// started, nor of others that it has started.
fn typed(lab: &Lab<'_>) {
    let value = value(lab, 3);
    let gone = |what: &str| {
        let seen = until(Duration::from_secs(5), || command_lines(&value).is_empty().then_some(()));
        assert!(seen.is_some(), "{what}: {:#?}", command_lines(&value));
        // What is there now stays so.
        for _ in 0..20 {
            assert_eq!(command_lines(&value), [].into(), "{what}");
        }
    };
    let spelled = [format!("-eB={value}"), format!("--env=C={value}"), format!("D={value}")];
    let variable = format!("A={value}");
    let words = ["-e", &variable, &spelled[0], &spelled[1], "-e", &spelled[2]];
    let script = ["sh", "-c", "echo up $A $B $C $D; read end"];
    let expected = format!("up {value} {value} {value} {value}");
    let run = [&["run", "-i", "--rm"], &words[..], &[BOX], &script].concat();
    let attached = |words: &[&str], what: &str| {
        let mut running = Running::start(&mut lab.command(words));
        running.expect(&expected);
        gone(what);
        running.feed(b"end\n");
        assert_eq!(running.end(LIMIT), 0, "{what}");
    };
    attached(&run, "run");
    let detached = ["run", "-d", "--name", "typed", "--restart", "always"];
    let sleeps = ["sh", "-c", "until test -e /tmp/end; do sleep 0.1; done"];
    lab.run(&[&detached, &words[..], &[BOX], &sleeps].concat()).ok();
    gone("run -d");
    attached(&[&["exec", "-i"], &words[..], &["typed"], &script].concat(), "exec");
    no_file_has(lab, &value);
    // It is started again with the same variables.
    lab.run(&["restart", "-t", "0", "typed"]).ok();
    gone("restart");
    lab.run(&["rm", "-f", "typed"]).ok();
    // A registry that does not answer.
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    registry.set_nonblocking(true).expect("a listener that does not wait");
    let address = registry.local_addr().expect("an address").to_string();
    for words in [
        &["login", "-u", "me", "-p", &value, &address][..],
        &["login", "--username=me", &format!("--password={value}"), &address],
        &["pull", "--creds", &format!("me:{value}"), &format!("{address}/a:1")],
    ] {
        let mut login = Running::start(&mut lab.command(words));
        let connection = until(LIMIT, || registry.accept().ok());
        assert!(connection.is_some(), "{}", login.text());
        gone(words[0]);
        assert!(login.alive(), "{words:?}");
        login.signal(Signal::KILL);
        login.end(LIMIT);
        drop(connection);
    }
}
