//! Simulated hosts with a server of SSH on each, which the measured user runs, and a host that
//! drives them.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use testkit::command::find_program;
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::users::no_namespaces;

use crate::Bench;
use crate::net::cluster::Cluster;
use crate::net::place::{Running, own, run, words};
use xtask::shell::{Outcome, read};

const PORT: u16 = 2222;
/// In each host's own `/tmp`.
const HOME: &str = "/tmp/home";
/// The image of clusters whose programs do nothing: busybox.
pub(super) const IMAGE: &str = "localhost/bench/box:1";
const APPLETS: [&str; 3] = ["sh", "sleep", "true"];

/// Whether hosts have homes of their own, or see one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Own,
    Shared,
}

/// The first host drives, the others are those of clusters.
pub(super) struct Lab<'b> {
    pub(super) cluster: Cluster<'b>,
    /// A directory that all hosts see.
    at: PathBuf,
    home: PathBuf,
    /// They end with this value.
    servers: Vec<Running>,
}

/// What the start of a cluster took.
#[derive(Default)]
pub(super) struct Up {
    pub(super) seconds: f64,
    /// Processors' seconds of the driver and of what it has started on its host.
    pub(super) processors: f64,
    /// Names and seconds.
    pub(super) phases: Vec<(String, f64)>,
}

impl<'b> Lab<'b> {
    /// Starts a driver and so many hosts. Where that is possible, users of these may not make
    /// namespaces.
    pub(super) fn start(bench: &'b Bench, count: usize, home: Home) -> Outcome<Self> {
        let text = |error: std::io::Error| error.to_string();
        let cluster = Cluster::start(bench, count + 1)?;
        let owner = Some((bench.user.uid, bench.user.gid));
        let at = bench.scratch.dir(&format!("lab-{count}"), owner, 0o755).map_err(text)?;
        let shared = home == Home::Shared;
        let home = if shared { bench.home.clone() } else { PathBuf::from(HOME) };
        let mut lab = Self { cluster, at, home, servers: Vec::new() };
        lab.keys()?;
        for host in 0..=count {
            let make = ["install", "-d", "-m", "700", "-o", &bench.user.name, HOME];
            run(&lab.cluster.on(host, &own(&make)))?;
        }
        // A namespace is new for each command that is forbidden to make others, and facts of the
        // host are kept for each namespace: so the servers are forbidden, and not the driver.
        let forbidden = no_namespaces().map(|program| own(&[&program.display().to_string()]));
        let forbidden = forbidden.unwrap_or_else(|error| {
            println!("SKIP bench cluster, hosts without namespaces for users: {error}");
            Vec::new()
        });
        for host in 1..=count {
            lab.serve(host, &forbidden)?;
        }
        for host in 1..=count {
            lab.cluster
                .wait(0, &lab.user(&own(&["ssh", "-F", &lab.config(), &name(host), "true"])))?;
        }
        if !shared {
            lab.load()?;
        }
        Ok(lab)
    }

    /// Keys of the hosts and of the user, and the configurations of `ssh` and `sshd`.
    fn keys(&self) -> Outcome {
        let at = self.at.display();
        let user = &self.cluster.bench.user;
        let write = |name: &str, text: &str| {
            fs::write(self.at.join(name), text).map_err(|error| error.to_string())
        };
        for name in ["user", "host"] {
            let mut keygen = Command::new("ssh-keygen");
            read(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.at.join(name)))?;
        }
        let public = fs::read_to_string(self.at.join("host.pub")).map_err(|e| e.to_string())?;
        let public = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let (mut config, mut known) = (String::new(), String::new());
        for host in 1..self.cluster.hosts.count() {
            let address = self.cluster.hosts.address(host);
            let _ = writeln!(known, "[{address}]:{PORT} {public}");
            let _ = write!(config, "Host {}\n HostName {address}\n", name(host));
        }
        let _ = write!(
            config,
            "Host *\n Port {PORT}\n IdentityFile {at}/user\n IdentitiesOnly yes\n \
             UserKnownHostsFile {at}/known\n GlobalKnownHostsFile /dev/null\n"
        );
        write("known", &known)?;
        write("config", &config)?;
        let home = self.home.display();
        let sshd = format!(
            "Port {PORT}\nHostKey {at}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
             AuthorizedKeysFile {at}/user.pub\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nSetEnv HOME={home}\n"
        );
        write("sshd", &sshd)?;
        let owner = format!("{}:{}", user.uid, user.gid);
        read(Command::new("chown").args(["-R", &owner]).arg(&self.at)).map(drop)
    }

    fn serve(&mut self, host: usize, forbidden: &[String]) -> Outcome {
        let file = self.at.join("sshd");
        let sshd = find_program("sshd").ok_or("sshd is not installed")?;
        let serve = own(&[&sshd.display().to_string(), "-D", "-f", &file.display().to_string()]);
        self.servers.push(Running::start(
            &self.cluster.on(host, &words(&[forbidden, &self.user(&serve)])),
        )?);
        Ok(())
    }

    /// Puts the small image into the driver's store.
    fn load(&self) -> Outcome {
        let layer = Layer::busybox(&APPLETS).map_err(|skip| skip.to_string())?;
        let image = Image::new().layer(layer).env("PATH", "/bin").build();
        let layout = self.at.join("layout");
        image.write_layout(&layout, IMAGE).map_err(|error| error.to_string())?;
        self.coracle(&["load", "-q", "-i", &layout.display().to_string()]).map(drop)
    }

    /// The configuration of `ssh`.
    pub(super) fn config(&self) -> String {
        self.at.join("config").display().to_string()
    }

    /// The words of a command of the measured user.
    pub(super) fn user(&self, command: &[String]) -> Vec<String> {
        let user = &self.cluster.bench.user;
        let mut all = own(&["setpriv", &format!("--reuid={}", user.uid)]);
        all.extend(own(&[&format!("--regid={}", user.gid), "--clear-groups", "env", "-i"]));
        all.extend(own(&["PATH=/usr/bin:/bin", "LANG=C.UTF-8"]));
        all.extend([format!("USER={}", user.name), format!("HOME={}", self.home.display())]);
        words(&[&all, command])
    }

    /// The words of a command of Coracle on the host that drives.
    pub(super) fn driver(&self, command: &[&str]) -> Vec<String> {
        let program = self.cluster.bench.coracle.display().to_string();
        self.cluster.on(0, &self.user(&words(&[&own(&[&program]), &own(command)])))
    }

    /// Runs Coracle on the host that drives.
    pub(super) fn coracle(&self, command: &[&str]) -> Outcome<String> {
        run(&self.driver(command))
    }

    /// Writes a cluster file, with its backend: so many of the hosts, or the one that drives.
    pub(super) fn file(&self, cluster: &str, hosts: Option<usize>, text: &str) -> Outcome<String> {
        let all: Vec<String> =
            (1..=hosts.unwrap_or(0)).map(|host| format!("{:?}", name(host))).collect();
        let backend = hosts.map_or_else(String::new, |_| {
            format!(
                "backend = {{ kind = \"ssh\", hosts = [{}], options = [\"-F\", {:?}] }}\n",
                all.join(", "),
                self.config()
            )
        });
        let path = self.at.join(format!("{cluster}.toml"));
        fs::write(&path, format!("name = {cluster:?}\n{backend}{text}"))
            .map_err(|error| error.to_string())?;
        Ok(path.display().to_string())
    }

    /// Starts a cluster.
    pub(super) fn up(&self, file: &str) -> Outcome<Up> {
        let all = self.driver(&["cluster", "up", "-d", "-f", file]);
        let before = time_of_children()?;
        let began = Instant::now();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", all[0]))?;
        let stream = child.stderr.take().ok_or("no stream")?;
        let (mut said, mut begins) = (String::new(), Vec::new());
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // Phases are names; other lines tell what was found.
            if !line.contains(": ") {
                begins.push((line.clone(), began.elapsed().as_secs_f64()));
            }
            let _ = writeln!(said, "{line}");
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let seconds = began.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("cluster up: {said}"));
        }
        let ends = begins.iter().skip(1).map(|(_, time)| *time).chain([seconds]);
        let phases = begins.iter().zip(ends).map(|((name, from), to)| (name.clone(), to - from));
        let phases = phases.collect();
        Ok(Up { seconds, processors: time_of_children()? - before, phases })
    }

    /// Ends a cluster.
    pub(super) fn down(&self, cluster: &str) -> Outcome {
        self.coracle(&["cluster", "down", cluster]).map(drop)
    }

    /// Seconds until `ssh` has run `true` on so many hosts, all at once.
    pub(super) fn ssh(&self, hosts: usize) -> Outcome<f64> {
        let script = "for host; do ssh -F \"$0\" $host true & done; wait";
        let mut all = own(&["sh", "-c", script, &self.config()]);
        all.extend((1..=hosts).map(name));
        timed(&self.cluster.on(0, &self.user(&all)))
    }
}

/// The name of a host for `ssh`.
pub(super) fn name(host: usize) -> String {
    format!("n{host}")
}

/// Seconds of a command.
pub(super) fn timed(all: &[String]) -> Outcome<f64> {
    let began = Instant::now();
    run(all)?;
    Ok(began.elapsed().as_secs_f64())
}

/// Processors' seconds of all children that have ended, and of theirs that they have waited for:
/// fields 16 and 17 of `proc_pid_stat`(5), in hundredths.
fn time_of_children() -> Outcome<f64> {
    let text = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(13).take(2);
    Ok(times.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0)
}
