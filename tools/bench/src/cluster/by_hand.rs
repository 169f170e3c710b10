//! What `cluster scale` does, by hand: Podman starts a container, and HAProxy on the host gets it
//! at its admin socket.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use testkit::users;

use super::{free_port, get};
use crate::Bench;
use crate::net::place::Running;
use crate::places::as_measured;
use crate::podman::Podman;
use xtask::shell::Outcome;

const IMAGE: &str = "localhost/bench/by-hand:1";
/// The container's pages tell its name.
const COMMAND: &str = "hostname >/var/www/html/index.html; exec nginx -g 'daemon off;'";
/// With the checks of the balancers of clusters.
const CHECK: &str = "check inter 250ms fall 2 rise 1";
/// It has failed after so long.
const LIMIT: Duration = Duration::from_mins(1);
const GLANCE: Duration = Duration::from_millis(2);

/// A container behind a balancer, to which a second one can be added.
pub(super) struct ByHand {
    podman: Podman,
    admin: PathBuf,
    port: u16,
    second: u16,
    _balancer: Running,
}

impl ByHand {
    /// Starts both; `tree` is that of the image.
    pub(super) fn start(bench: &Bench, tree: &str) -> Outcome<Self> {
        let text = |error: std::io::Error| error.to_string();
        let user = users::all().into_iter().find(|user| user.range);
        let user = user.ok_or("Podman needs subordinate ids, and no user has some")?;
        let podman = Podman::new(bench, &user)?;
        podman.run(&["import", "-q", tree, IMAGE])?;
        let [first, second, port] = [free_port()?, free_port()?, free_port()?];
        let owner = Some((bench.user.uid, bench.user.gid));
        let at = bench.scratch.dir("h", owner, 0o755).map_err(text)?;
        let admin = at.join("admin");
        let file = format!(
            "global\n stats socket {} level admin\ndefaults\n mode http\n timeout connect 2s\n \
             timeout client 10s\n timeout server 10s\nlisten web\n bind 127.0.0.1:{port}\n \
             balance leastconn\n option httpchk\n \
             http-check send meth GET uri /\n server web-1 127.0.0.1:{first} {CHECK}\n",
            admin.display()
        );
        fs::write(at.join("haproxy.cfg"), file).map_err(text)?;
        let mut words = as_measured(bench);
        words.extend(["/usr/sbin/haproxy", "-db", "-f"].map(str::to_owned));
        words.push(at.join("haproxy.cfg").display().to_string());
        let by_hand = Self { podman, admin, port, second, _balancer: Running::start(&words)? };
        by_hand.run("web-1", first)?;
        by_hand.until("web-1")?;
        Ok(by_hand)
    }

    /// Seconds from the start of the second container until it answers behind the balancer. It is
    /// removed again.
    pub(super) fn further(&self) -> Outcome<f64> {
        let began = Instant::now();
        self.run("web-2", self.second)?;
        self.tell(&format!("add server web/web-2 127.0.0.1:{} {CHECK}", self.second))?;
        self.tell("enable health web/web-2")?;
        self.tell("set server web/web-2 state ready")?;
        self.until("web-2")?;
        let took = began.elapsed().as_secs_f64();
        self.tell("set server web/web-2 state maint")?;
        self.podman.run(&["rm", "-f", "-t", "0", "web-2"])?;
        self.tell("del server web/web-2")?;
        Ok(took)
    }

    fn run(&self, name: &str, port: u16) -> Outcome {
        let publish = format!("127.0.0.1:{port}:80");
        let words = ["run", "-d", "--name", name, "--hostname", name, "-p", &publish, IMAGE];
        self.podman.run(&[&words[..], &["sh", "-c", COMMAND]].concat()).map(drop)
    }

    /// Waits for a page of a container.
    fn until(&self, name: &str) -> Outcome {
        let began = Instant::now();
        while !get(self.port).is_some_and(|page| page.contains(name)) {
            if began.elapsed() > LIMIT {
                return Err(format!("{name} does not answer"));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Says a command to the balancer.
    fn tell(&self, command: &str) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", self.admin.display());
        let mut stream = UnixStream::connect(&self.admin).map_err(failed)?;
        stream.write_all(format!("{command}\n").as_bytes()).map_err(failed)?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map_err(failed)?;
        let is_good = said.trim().is_empty() || said.contains("New server registered");
        let is_good = is_good || said.contains("Server deleted");
        if is_good { Ok(()) } else { Err(format!("HAProxy, {command}: {}", said.trim())) }
    }
}
