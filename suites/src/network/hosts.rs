//! Networks of several hosts: each host has a store, a network and a loopback of its own, and its
//! user may not make namespaces.
//!
//! The programs of the suite that run as a pair are run on two hosts, one each, and must say what
//! they say in real namespaces. The sentinel runs them with the links cut, and they must fail: so
//! no case passes because the hosts share a kernel.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::hosts::Hosts;
use testkit::person::Person;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};
use testkit::users::Setting;

use crate::network::containers::SUBNET;
use crate::network::oracle::Oracle;
use crate::network::programs::{self, Program};
use crate::network::{compare, known};

const IMAGE: &str = "localhost/network:1";
const NETWORK: &str = "far";
/// Addresses of the slices of the first three hosts.
const FIRST: [&str; 3] = ["100.80.0.2", "100.80.0.17", "100.80.0.33"];
/// One beside the first host's first.
const BESIDE_FIRST: &str = "100.80.0.3";
const SOON: Duration = Duration::from_secs(20);

type Case = fn(&Far, &'static str);

/// Cases for each mode.
pub(crate) const CASES: &[(&str, Case)] =
    &[("far_names", names), ("far_networks", networks), ("far_cut", cut), ("far_agent", agent)];
/// Cases for modes without namespaces, whose containers share their host's ports.
pub(crate) const BESIDE: &[(&str, Case)] = &[("far_strangers", strangers)];

/// Three hosts with one network. Its cases run one after another.
pub(crate) struct Far {
    hosts: Hosts,
    people: Vec<Person>,
    meetings: std::path::PathBuf,
}

impl Far {
    /// Starts the hosts, and makes and joins the network on each.
    ///
    /// # Errors
    /// If this machine cannot have them.
    pub(crate) fn start(scratch: &Scratch, person: &Person, bin: &Path) -> Result<Self, Skip> {
        Ok(Self::on(Hosts::start(3, scratch.path())?, "host", (scratch, person, bin)))
    }

    fn on(hosts: Hosts, what: &str, (scratch, person, bin): (&Scratch, &Person, &Path)) -> Self {
        let owner = Some((person.user.uid, person.user.gid));
        let home = |number: usize| {
            let home = scratch.dir(&format!("home-{what}{number}"), owner, 0o755);
            person.at(&home.expect("a home"))
        };
        let people: Vec<Person> = (1..=3).map(home).collect();
        let meetings = scratch.dir(&format!("{what}-meetings"), owner, 0o777).expect("a directory");
        let far = Self { hosts, people, meetings };
        far.load(bin);
        far.join();
        far
    }

    /// Loads the image.
    fn load(&self, bin: &Path) {
        let image = programs::image(bin).expect("an image");
        for (host, person) in self.people.iter().enumerate() {
            let layout = person.home.join("layout");
            image.write_layout(&layout, IMAGE).expect("a layout");
            self.run(host, &["load", "-q", "-i", &layout.display().to_string()]).ok();
        }
    }

    /// Makes the network on each host, as a user does.
    fn join(&self) {
        let mut list = String::new();
        for host in 0..self.hosts.count() {
            let address = self.hosts.address(host).to_string();
            let create = ["network", "create", NETWORK, "--scope", "cluster"];
            let ranges = ["--subnet", SUBNET, "--ipv6", "--subnet", "fd00:80::/64"];
            let create = [&create[..], &ranges, &["--address", &address]].concat();
            self.run(host, &create).ok();
            list += &self.run(host, &["network", "invite", NETWORK]).ok().out();
        }
        for (host, person) in self.people.iter().enumerate() {
            let file = person.home.join("hosts.toml");
            let file = person.file(&file, &list);
            self.run(host, &["network", "join", NETWORK, "--member", &file]).ok();
        }
    }

    /// A command of the program on a host.
    fn command(&self, host: usize, words: &[&str]) -> Command {
        let person = &self.people[host];
        // Only a mode that is asked for may have namespaces.
        let no_namespaces = !words.contains(&"--execmode=N1");
        let setting = Setting { no_namespaces, ..Setting::default() };
        let mut command = person.user.command_in(&person.program, &person.home, &setting);
        command.args(words);
        self.hosts.command(host, &command)
    }

    fn run(&self, host: usize, words: &[&str]) -> Finished {
        run_with(&mut self.command(host, words), Input::Null, crate::network::LIMIT)
    }

    /// The command for a program in a new container of a host, which is called by its number.
    fn container(&self, host: usize, mode: &str, options: &[&str], words: &[&str]) -> Command {
        let mode = format!("--execmode={mode}");
        let first = ["run", &mode, "--network", NETWORK];
        self.command(host, &[&first[..], options, &[IMAGE], words].concat())
    }

    /// Runs a program in a new container to its end.
    fn once(&self, host: usize, mode: &str, words: &[&str]) -> Finished {
        let mut command = self.container(host, mode, &["--rm"], words);
        run_with(&mut command, Input::Null, crate::network::LIMIT)
    }

    /// Starts a container that goes on, and waits until it has said `ready`.
    fn serve(&self, host: usize, mode: &str, name: &str, words: &[&str]) -> Server<'_> {
        let options = ["-d", "--name", name, "--ip", FIRST[host]];
        let server = Server { far: self, host, name: name.to_owned() };
        run_with(
            &mut self.container(host, mode, &options, words),
            Input::Null,
            crate::network::LIMIT,
        )
        .ok();
        server.is_ready();
        server
    }

    /// An empty directory where containers of several hosts meet, and the option that binds it.
    fn meet(&self) -> String {
        let _ = std::fs::remove_dir_all(&self.meetings);
        std::fs::create_dir(&self.meetings).expect("a directory");
        self.people[0].give(&self.meetings);
        format!("{}:/meetings", self.meetings.display())
    }

    /// Runs a program as a pair on the first two hosts, or both on the first one.
    fn pair(&self, mode: &str, program: &Program, second: usize) -> Finished {
        let bind = self.meet();
        let path = format!("/bin/{}", program.name);
        let theirs = if second == 0 { BESIDE_FIRST } else { FIRST[second] };
        let named = format!("TWO={theirs}");
        let role = |host: usize, name: &str| {
            let options = ["--rm", "--name", name, "-v", &bind, "-e", "MEETINGS=/meetings"];
            let address = if name == "two" { theirs } else { FIRST[host] };
            let options = [&options[..], &["-e", &named, "--ip", address]].concat();
            let mut command = self.container(host, mode, &options, &[&path, name]);
            run_with(&mut command, Input::Null, crate::network::LIMIT)
        };
        let (mut one, two) = thread::scope(|scope| {
            let one = scope.spawn(|| role(0, "one"));
            let two = role(second, "two");
            (one.join().expect("a run"), two)
        });
        let both = format!("== one\n{}== two\n{}", one.out(), two.out());
        // The oracle's second member has another address.
        one.stdout = both.replace(theirs, BESIDE_FIRST).into_bytes();
        one.stderr.extend(&two.stderr);
        if one.code() == 0 {
            one.status = two.status;
        }
        one
    }

    /// The same lines as in real namespaces: of a pair on two hosts, or on one (`second` is 0).
    pub(crate) fn compare(
        &self,
        mode: &str,
        program: &Program,
        (oracle, second): (&Oracle, usize),
    ) {
        let right = oracle.lines(program);
        let here = compare::lines(&self.pair(mode, program, second));
        let mut known = known::of(program.name, mode == "N1");
        compare::expect_same(program, &mut known, (&right, &here));
    }

    /// What a program says alone in a container is what it says alone in a real namespace.
    pub(crate) fn alone(&self, mode: &str, program: &Program, oracle: &Oracle) {
        let right = oracle.lines(program);
        let path = format!("/bin/{}", program.name);
        let options = ["--rm", "--name", "one", "--ip", FIRST[0]];
        let mut command = self.container(0, mode, &options, &[&path]);
        let here = compare::lines(&run_with(&mut command, Input::Null, crate::network::LIMIT));
        let mut known = known::of(program.name, mode == "N1");
        compare::expect_same(program, &mut known, (&right, &here));
    }

    /// No pair meets when the links are cut: what it says otherwise does not come from what the
    /// simulated hosts share.
    pub(crate) fn sentinel(&self, mode: &str, program: &Program, oracle: &Oracle) {
        let right = oracle.lines(program);
        self.hosts.cut(1, true);
        let here = compare::lines(&self.pair(mode, program, 1));
        self.hosts.cut(1, false);
        let wrong = compare::differences(&right, &here);
        assert!(wrong.len() > 50, "with the link cut only {} lines differ", wrong.len());
    }

    /// How many descriptors the agents of all hosts have.
    fn agents(&self) -> Vec<usize> {
        let script = "for p in /proc/[0-9]*; do read name <$p/comm; \
                      case $name in coracle-names) ls $p/fd | wc -l;; esac; done";
        let count = |host: usize| {
            let mut count = Command::new("sh");
            count.args(["-c", script]);
            let done = run_with(&mut self.hosts.command(host, &count), Input::Null, SOON);
            done.out().trim().parse().unwrap_or_default()
        };
        (0..self.hosts.count()).map(count).collect()
    }

    /// Nothing is left on the hosts after the last case.
    pub(crate) fn ends_well(&self) {
        for host in 0..self.hosts.count() {
            let listed = self.run(host, &["ps", "-aq"]).ok().out();
            assert_eq!(listed, "", "containers of host {host}");
        }
        let left = self.hosts.end_well(SOON);
        assert_eq!(left, Ok(()), "processes are left");
        for (host, person) in self.people.iter().enumerate() {
            self.run(host, &["network", "rm", NETWORK]).ok();
            let place = person.store().join("networks").join(NETWORK);
            assert!(!place.exists(), "{} is left", place.display());
        }
    }
}

/// A container that is removed with its value.
struct Server<'f> {
    far: &'f Far,
    host: usize,
    name: String,
}

impl Server<'_> {
    fn log(&self) -> String {
        self.far.run(self.host, &["logs", &self.name]).out()
    }

    fn is_ready(&self) {
        let ready = until(SOON, || self.log().contains("ready\n").then_some(()));
        assert!(ready.is_some(), "{} is not ready: {}", self.name, self.log());
    }

    fn kill(&self) {
        self.far.run(self.host, &["kill", "-s", "KILL", &self.name]).ok();
        self.far.run(self.host, &["wait", &self.name]);
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.far.run(self.host, &["rm", "-f", &self.name]);
    }
}

/// For so many seconds a network with faults is under load; `CORACLE_TEST_MINUTES` makes it longer.
const LOAD: u64 = 12;

static TRIES: AtomicUsize = AtomicUsize::new(0);

/// Links that lose and delay frames, and are cut for seconds, under load: no call hangs, no answer
/// comes from another than the one who was called, and nothing is left over.
pub(crate) fn faults(scratch: &Scratch, person: &Person, bin: &Path) -> Outcome {
    let minutes = std::env::var("CORACLE_TEST_MINUTES").ok().and_then(|text| text.parse().ok());
    let seconds = minutes.map_or(LOAD, |minutes: u64| 60 * minutes);
    let hosts = Hosts::start_bad(3, scratch.path(), 0.01, Duration::from_millis(50))?;
    // A second try has homes of its own.
    let what = format!("bad-{}-", TRIES.fetch_add(1, Ordering::Relaxed));
    let far = Far::on(hosts, &what, (scratch, person, bin));
    let mode = "I1";
    let servers = [
        far.serve(0, mode, "db", &["/bin/hammer", "serve", "5432"]),
        far.serve(1, mode, "web", &["/bin/hammer", "serve", "5432"]),
    ];
    let before = far.agents();
    let text = seconds.to_string();
    let call = |host: usize, to: usize| {
        let words = ["/bin/hammer", "call", FIRST[to], "5432", &text];
        let mut command = far.container(host, mode, &["--rm"], &words);
        run_with(&mut command, Input::Null, Duration::from_secs(seconds) + crate::network::LIMIT)
    };
    let ends: Vec<(usize, usize, Finished)> = thread::scope(|scope| {
        let pairs = [(2, 0), (2, 1), (1, 0), (0, 1), (0, 0)];
        let call = &call;
        let calls = pairs.map(|(host, to)| scope.spawn(move || (host, to, call(host, to))));
        // Each link in turn is cut for a while.
        for turn in 0..seconds / 12 {
            thread::sleep(Duration::from_secs(4));
            let host = turn as usize % far.hosts.count();
            far.hosts.cut(host, true);
            thread::sleep(Duration::from_secs(5));
            far.hosts.cut(host, false);
            thread::sleep(Duration::from_secs(3));
        }
        calls.into_iter().map(|call| call.join().expect("a caller")).collect()
    });
    let mut went_well = 0;
    for (host, to, done) in &ends {
        let text = done.ok().out();
        let good = text.lines().find_map(|line| line.strip_prefix("good ")).expect("a count");
        println!("faults: host {} to {}: {}", host + 1, to + 1, text.replace('\n', ", "));
        if host != to {
            went_well += good.parse::<u64>().expect("a number");
        }
    }
    assert!(went_well > seconds / 4, "only {went_well} calls to other hosts went well");
    let settled = || far.agents().iter().zip(&before).all(|(now, was)| *now <= was + 4);
    assert!(until(SOON, || settled().then_some(())).is_some(), "{before:?}, {:?}", far.agents());
    drop(servers);
    far.ends_well();
    Ok(())
}

/// The hosts of all modes.
pub(crate) fn far<'s>(
    place: &'s OnceLock<Result<Far, Skip>>,
    scratch: &Scratch,
    person: &Person,
    bin: &Path,
) -> Result<&'s Far, Skip> {
    place.get_or_init(|| Far::start(scratch, person, bin)).as_ref().map_err(Clone::clone)
}

/// Whether a text names a port of a container of a host.
fn is_of(host: usize, text: &str) -> bool {
    let rest = text.split_once("100.80.0.").map_or("", |parts| parts.1);
    let number = rest.split_once(":ephemeral").and_then(|parts| parts.0.parse::<usize>().ok());
    number.is_some_and(|number| number / 16 == host)
}

/// Members are found by their names, forwards and backwards, and a client is known by its address.
fn names(far: &Far, mode: &'static str) {
    let server = far.serve(0, mode, "db", &["/bin/tool", "serve", "0.0.0.0", "80"]);
    let other = far.serve(1, mode, "web", &["/bin/tool", "receive", "0.0.0.0", "69"]);
    // A name reaches other hosts a moment after its container has started. A container that starts
    // in this moment may find a name by the server of names and not yet in its /etc/hosts.
    let settled = |host: usize, asked: &str, wanted: &dyn Fn(&[&str]) -> bool| {
        let mut text = String::new();
        let found = until(SOON, || {
            text = far.once(host, mode, &["/bin/tool", "names", asked, "0"]).ok().out();
            wanted(&text.lines().collect::<Vec<_>>()).then_some(())
        });
        assert!(found.is_some(), "host {host} asks for {asked}: {text}");
    };
    for host in 0..3 {
        settled(host, "db,web,db.far,100.80.0.2,100.80.0.17,nobody", &|lines| {
            lines[..2] == ["db is 100.80.0.2", "web is 100.80.0.17"]
                && lines[2..5] == ["db.far is 100.80.0.2", "100.80.0.2 is db", "100.80.0.17 is web"]
                && lines[5].starts_with("nobody is ")
                && !lines[5].contains("100.80")
        });
    }
    let caller = |host: usize| {
        let text = far.once(host, mode, &["/bin/tool", "call", "100.80.0.2", "80"]).ok().out();
        assert!(is_of(host, &text), "host {host}: {text}");
        let asked = far.once(host, mode, &["/bin/tool", "ask", "100.80.0.17", "69"]).ok().out();
        assert!(is_of(host, &asked), "host {host}: {asked}");
    };
    (0..3).for_each(caller);
    // To join the same list once more changes nothing, not for a moment. A host without a container
    // would forget the others after five seconds, and hear of them again a moment later.
    let third = far.serve(2, mode, "idle", &["/bin/tool", "serve", "0.0.0.0", "81"]);
    settled(2, "db,web", &|lines| lines == ["db is 100.80.0.2", "web is 100.80.0.17"]);
    for host in 0..3 {
        let file = far.people[host].home.join("hosts.toml").display().to_string();
        far.run(host, &["network", "join", NETWORK, "--member", &file]).ok();
    }
    let text = far.once(2, mode, &["/bin/tool", "names", "db,web", "0"]).ok().out();
    assert_eq!(text, "db is 100.80.0.2\nweb is 100.80.0.17\n");
    far.run(0, &["rename", "db", "sql"]).ok();
    settled(2, "sql,db", &|lines| lines[0] == "sql is 100.80.0.2" && !lines[1].contains("is 100."));
    far.run(0, &["rename", "sql", "db"]).ok();
    drop((server, other, third));
    let text = far.once(2, mode, &["/bin/tool", "call", "100.80.0.2", "80"]).ok().out();
    // By packets a host may not have heard of it yet.
    let late = if mode == "N1" { "EINPROGRESS\n" } else { "EHOSTUNREACH\n" };
    assert!([late, "EHOSTUNREACH\n"].contains(&&*text), "its container has ended: {text}");
}

/// A port that a member of another host has left may be a stranger's at once.
fn strangers(far: &Far, mode: &'static str) {
    let server = far.serve(0, mode, "db", &["/bin/tool", "serve", "0.0.0.0", "9432"]);
    let call = || far.once(1, mode, &["/bin/tool", "call", "100.80.0.2", "9432"]).ok().out();
    let text = call();
    assert!(text.contains("100.80.0."), "the caller hears {text}, the server: {}", server.log());
    server.kill();
    let mut stranger = Child::on(far, 0, "9432");
    assert!(["ECONNREFUSED\n", "EHOSTUNREACH\n"].contains(&call().as_str()), "{}", call());
    far.run(0, &["start", "db"]).ok();
    server.is_ready();
    let again = || call().contains("100.80.0.").then_some(());
    assert!(until(SOON, again).is_some(), "beside a stranger: {}", call());
    stranger.end();
    // A process of a host that calls a member's real port is shown as what it is.
    let was = server.log();
    let inspect = far.run(0, &["network", "inspect", NETWORK]).ok().out();
    assert!(inspect.contains("10.99.0.1"), "{inspect}");
    assert!(!was.contains("10.99.0.2"), "{was}");
}

/// A process of a host that is in no container.
trait OnHost {
    fn on(far: &Far, host: usize, port: &str) -> Self;
    fn end(&mut self);
}

impl OnHost for Child {
    fn on(far: &Far, host: usize, port: &str) -> Self {
        let script = "import socket,sys,time
for _ in range(100):
  try: s=socket.create_server(('0.0.0.0',int(sys.argv[1])));break
  except OSError: time.sleep(0.1)
print('on',flush=True)
sys.stdin.read()";
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script, port]);
        let mut command = far.hosts.command(host, &command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a stranger");
        let mut said = [0; 3];
        let out = child.stdout.as_mut().expect("its output");
        std::io::Read::read_exact(out, &mut said).expect("a stranger's port");
        child
    }

    // What it reads ends. A signal would reach only the program by which it came to the host.
    fn end(&mut self) {
        drop(self.stdin.take());
        let _ = self.wait();
    }
}

/// Members of another network of the same hosts are not reached.
fn networks(far: &Far, mode: &'static str) {
    let server = far.serve(0, mode, "db", &["/bin/tool", "serve", "0.0.0.0", "9432"]);
    far.run(1, &["network", "create", "apart", "--subnet", "100.81.0.0/24"]).ok();
    let mode = format!("--execmode={mode}");
    let words = ["run", "--rm", &mode, "--network", "apart", IMAGE];
    let call = ["/bin/tool", "call", "100.80.0.2,db", "9432"];
    let text = far.run(1, &[&words[..], &call].concat()).ok().out();
    far.run(1, &["network", "rm", "apart"]).ok();
    assert!(text.starts_with('E'), "another network's member hears {text}");
    assert!(!server.log().contains("called"), "{}", server.log());
}

/// Members by packets of two hosts reach each other by IPv6, too.
pub(crate) fn ipv6(far: &Far) -> Outcome {
    crate::network::ipv6::exists()?;
    let server = far.serve(0, "N1", "db", &["/bin/lan", "serve6"]);
    let first = crate::network::ipv6::FIRST;
    let words = ["/bin/lan", "ping6", first, "datagrams", first, "streams", first, "1048576"];
    let text = far.once(1, "N1", &words).ok().out();
    assert_eq!(text, "alive\n1 1400 9000 32000 65507 unchanged\nunchanged\n");
    let told = || {
        let text = far.once(2, "N1", &["/bin/lan", "aaaa", "db", "ping6", "db"]).out();
        (text == format!("{first}\nalive\n")).then_some(())
    };
    assert!(until(SOON, told).is_some(), "host 3 does not know it: {}", server.log());
    // Nobody has it, and no host's slice.
    let nobody = ["/bin/lan", "call", "fd00:80::6450:3", "7000"];
    assert_eq!(far.once(1, "N1", &nobody).out(), "connect: EHOSTUNREACH\n");
    let listed = far.run(1, &["network", "invite", NETWORK]).ok().out();
    assert!(listed.contains("ipv6 = \"fd00:80::/64\"\n"), "{listed}");
    Ok(())
}

/// A program that connects right after another one has bound its port does not come too early.
pub(crate) fn early(far: &Far) {
    const TIMES: &str = "1000";
    let bind = far.meet();
    for pipe in ["a", "b"] {
        let path = far.meetings.join(pipe).display().to_string();
        far.people[0].other("mkfifo", &[path]).ok();
    }
    let options = ["--rm", "-v", &bind, "-e", "MEETINGS=/meetings"];
    let role = |host: usize, words: &[&str]| {
        let options = [&options[..], &["--ip", FIRST[host]]].concat();
        run_with(
            &mut far.container(host, "I1", &options, words),
            Input::Null,
            crate::network::LIMIT,
        )
    };
    let (server, caller) = thread::scope(|scope| {
        let server = scope.spawn(|| role(0, &["/bin/race", "serve", TIMES]));
        let caller = role(1, &["/bin/race", "call", TIMES, FIRST[0]]);
        (server.join().expect("a run"), caller)
    });
    for done in [server, caller] {
        assert_eq!(done.ok().out(), format!("good {TIMES} of {TIMES}\n"));
    }
}

/// A cut link is told, and nothing of it stays when it is mended.
fn cut(far: &Far, mode: &'static str) {
    let server = far.serve(0, mode, "db", &["/bin/tool", "serve", "0.0.0.0", "9432"]);
    let call = |how| far.once(1, mode, &["/bin/tool", how, "100.80.0.2", "9432"]).out();
    assert!(call("call").contains("100.80.0."), "{}", server.log());
    far.hosts.cut(1, true);
    let text = call("call");
    far.hosts.cut(1, false);
    assert!(text.starts_with('E'), "over a cut link one hears {text}");
    let text = call("again");
    assert!(text.contains("100.80.0."), "after the cut: {text}");
}

/// An agent that is killed has a successor, and connections live on.
fn agent(far: &Far, mode: &'static str) {
    let server = far.serve(0, mode, "db", &["/bin/tool", "echo", "0.0.0.0", "9432"]);
    let words = ["/bin/tool", "stay", "100.80.0.2", "9432"];
    let options = ["-i", "--rm", "--name", "client"];
    let mut client = far.container(1, mode, &options, &words);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a client");
    let mut out = std::io::BufReader::new(client.stdout.take().expect("its output"));
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
        line
    };
    assert!(line().contains("100.80.0."));
    assert_eq!(line(), "ready\n");
    for host in [0, 1] {
        let mut kill = Command::new("sh");
        let script = "for p in /proc/[0-9]*; do read name <$p/comm; \
                      case $name in coracle-names) kill -9 ${p#/proc/};; esac; done";
        kill.args(["-c", script]);
        run_with(&mut far.hosts.command(host, &kill), Input::Null, SOON).ok();
    }
    let text = far.once(1, mode, &["/bin/tool", "again", "100.80.0.2", "9432"]).out();
    assert!(text.contains("100.80.0."), "after the agents' death: {text}");
    let mut input = client.stdin.take().expect("its input");
    std::io::Write::write_all(&mut input, b"still there\n").expect("a word");
    assert!(line().contains("still there"));
    drop(input);
    assert!(client.wait().is_ok_and(|status| status.success()));
    drop(server);
}
