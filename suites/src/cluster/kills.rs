//! Drivers that are killed in the middle of everything, and several at once.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::person::LIMIT;
use testkit::running::Running;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};

pub(crate) const CASES: &[Case] = &[
    ("killed_up", killed_up),
    ("killed_down", killed_down),
    ("killed_in_its_run", killed_in_its_run),
    ("two_drivers", two_drivers),
    ("up_and_down_at_once", up_and_down_at_once),
];

/// How often each command is killed, each time a little later; and where all is to be tried.
const TIMES: u32 = 10;
const MANY: u32 = 100;
/// So long after each other the longest and the shortest of these times are.
const SPAN: Duration = Duration::from_millis(650);

const NAMES: [&str; 4] = ["kill-db-1", "kill-node1", "kill-node2", "kill-web-1"];

fn start(lab: &Lab<'_>) -> Vec<String> {
    let file = lab.file(&format!(
        "name = \"kill\"\nimage = \"{BOX}\"\nnodes = 2\n\
         [service.db]\ncommand = \"exec httpd -f -p 81 -h /www\"\nready = {{ tcp = 81 }}\n\
         [service.web]\nafter = [\"db\"]\ncommand = \"exec httpd -f -p 80 -h /www\"\n\
         ready = {{ http = \"80\" }}\n"
    ));
    ["cluster", "up", "-d", "-f", &file].map(str::to_owned).to_vec()
}

/// Checks that all is up, as if nothing had happened.
fn is_whole(lab: &Lab<'_>) {
    assert_eq!(lab.containers(), NAMES);
    let page = lab.cluster("exec", &["node1", "wget", "-qO-", "http://web:80/"]);
    assert_eq!(page.ok().out(), "page\n");
}

/// The times after which a command is killed.
fn times() -> impl Iterator<Item = (usize, Duration)> {
    let count = if testkit::share::is_whole() { MANY } else { TIMES };
    (0..count).map(move |number| SPAN * number / count).enumerate()
}

fn killed_up(lab: &Lab<'_>) {
    let words = start(lab);
    for (number, time) in times() {
        let mut up = Running::start(&mut lab.command(&words));
        thread::sleep(time);
        up.signal(Signal::KILL);
        up.end(LIMIT);
        if number % 2 == 0 {
            lab.cluster("down", &[]).ok();
        } else {
            lab.run(&words).ok();
            is_whole(lab);
            lab.cluster("down", &[]).ok();
        }
        lab.is_clean();
    }
}

fn killed_down(lab: &Lab<'_>) {
    let words = start(lab);
    for (number, time) in times().step_by(2) {
        lab.run(&words).ok();
        let mut down = Running::start(&mut lab.command(&["cluster", "down", "kill"]));
        thread::sleep(time / 2);
        down.signal(Signal::KILL);
        down.end(LIMIT);
        if number % 4 == 0 {
            lab.run(&words).ok();
            is_whole(lab);
        }
        lab.cluster("down", &[]).ok();
        lab.is_clean();
    }
}

fn killed_in_its_run(lab: &Lab<'_>) {
    let file = lab.file(&format!(
        "name = \"kill\"\nimage = \"{BOX}\"\nnodes = 2\n[run]\ncommand = \"echo go; sleep 600\"\n"
    ));
    let mut up = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
    up.expect("go\n");
    up.signal(Signal::KILL);
    assert_eq!(up.end(LIMIT), 137);
    assert_eq!(lab.containers(), ["kill-node1", "kill-node2"]);
    lab.cluster("down", &[]).ok();
}

fn two_drivers(lab: &Lab<'_>) {
    let words = start(lab);
    let (one, two) = thread::scope(|scope| {
        let two = scope.spawn(|| lab.run(&words));
        (lab.run(&words), two.join().expect("a second driver"))
    });
    one.ok();
    two.ok();
    // The second one waits, and finds that all is done.
    let idle = [&one, &two].iter().filter(|done| done.err().contains("up already")).count();
    assert_eq!(idle, 1, "{one:?} {two:?}");
    is_whole(lab);
    lab.cluster("down", &[]).ok();
}

fn up_and_down_at_once(lab: &Lab<'_>) {
    let words = start(lab);
    for time in 0..4 {
        let mut up = Running::start(&mut lab.command(&words));
        thread::sleep(SPAN / 4 * time);
        lab.cluster("down", &[]).ok();
        assert_eq!(up.end(LIMIT), 0, "{}", up.text());
        lab.cluster("down", &[]).ok();
        lab.is_clean();
    }
}
