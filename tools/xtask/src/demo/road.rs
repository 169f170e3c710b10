//! The commands that a user types first, with what they print.

use testkit::users::{self, Setting};

use super::prepare::Kind;
use super::{Demo, time};

/// How many lines of a command's output are shown.
const SHOWN: usize = 8;

/// Runs the commands; gives how many failed.
pub(super) fn show(demo: &Demo) -> usize {
    let image = demo.kind.name();
    let home = demo.home.display();
    let registry = &demo.registry;
    println!("$ export CORACLE_REGISTRY={registry} CORACLE_INSECURE_REGISTRIES={registry}");
    println!("$ export HOME={home}");
    let mut failed = 0;
    let mut step = |words: &[&str]| failed += usize::from(!command(demo, words));
    step(&["pull", image]);
    if demo.kind == Kind::Guest {
        step(&["run", "--rm", image, "/bin/guest", "say", "hello"]);
        return failed;
    }
    step(&["run", "--rm", image, "sh", "-c", "id -un; grep NAME /etc/os-release"]);
    step(&["run", "--name=work", image, "sh", "-c", "echo kept > /root/note"]);
    step(&["run", "work", "cat", "/root/note"]);
    step(&["diff", "work"]);
    step(&["run", "-d", "--name=service", image, "sleep", "100"]);
    step(&["exec", "service", "sh", "-c", "echo process $$ beside the service"]);
    step(&["ps", "-a", "--format", r"table {{.Names}}\t{{.Image}}\t{{.Status}}"]);
    step(&["stop", "-t", "0", "service"]);
    step(&["system", "df"]);
    failed
}

/// Runs the image where user namespaces are forbidden.
pub(super) fn without_namespaces(demo: &Demo) -> usize {
    if let Err(reason) = users::no_namespaces() {
        println!("      Not shown: {reason}.");
        return 0;
    }
    let setting = Setting { no_namespaces: true, ..Setting::default() };
    let mut failed = 0;
    let name = demo.kind.name();
    let program: &[&str] = match demo.kind {
        Kind::Guest => &["/bin/guest", "say", "hello"],
        _ => &["sh", "-c", "touch /etc/mine && chown www-data /etc/mine && ls -l /etc/mine"],
    };
    let words = [&["run", "--rm", name], program].concat();
    failed += usize::from(!command_in(demo, &words, &setting));
    let words = ["run", "--rm", "--execmode=N1", name, "true"];
    println!("$ {}", describe(&words));
    let (done, _) = demo.coracle(&words, &setting);
    println!("{}", indented(&done.err()));
    failed
}

/// Runs a command and shows it; says whether it succeeded.
fn command(demo: &Demo, words: &[&str]) -> bool {
    command_in(demo, words, &Setting::default())
}

fn command_in(demo: &Demo, words: &[&str], setting: &Setting) -> bool {
    let (done, seconds) = demo.coracle(words, setting);
    println!("$ {}   # {}", describe(words), time(seconds));
    let text = if done.code() == 0 { done.out() } else { done.out() + &done.err() };
    if !text.trim().is_empty() {
        println!("{}", indented(&text));
    }
    if done.code() != 0 {
        println!("    FAILED with exit code {}", done.code());
    }
    done.code() == 0
}

/// A command line as a user would type it.
fn describe(words: &[&str]) -> String {
    let quoted = |word: &&str| {
        let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:".contains(c));
        if is_plain { (*word).to_owned() } else { format!("'{word}'") }
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("coracle {}", words.join(" "))
}

fn indented(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let shown = lines.iter().take(SHOWN).map(|line| format!("    {line}"));
    let more = (lines.len() > SHOWN).then(|| "    ...".to_owned());
    shown.chain(more).collect::<Vec<_>>().join("\n")
}
