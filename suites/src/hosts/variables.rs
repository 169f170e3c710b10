//! Variables of nodes in the hosts' own network: what leads to the other hosts is found, whatever
//! other interfaces they have.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::command::{Finished, Input, run_with};
use testkit::skip::{Outcome, need_program};
use testkit::terminal::Terminal;

use crate::hosts::lab::{Case, IMAGE, LIMIT, Lab};
use crate::secrets::Watch;

pub(crate) const CASES: &[(&str, Case)] =
    &[("ssh::variables", found), ("ssh::ring", ring), ("ssh::unseen", unseen)];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/programs/guests/ring.c");
const HOSTS: [&str; 2] = ["host2", "host3"];
/// An image with a variable of its own.
const SETS: &str = "lab/sets:1";

/// Interfaces that lead nowhere, as long as this is there.
struct Misled<'l>(&'l Lab);

impl<'l> Misled<'l> {
    fn begin(lab: &'l Lab) -> Self {
        (0..3).for_each(|host| lab.hosts.mislead(host, true));
        Self(lab)
    }
}

impl Drop for Misled<'_> {
    fn drop(&mut self) {
        (0..3).for_each(|host| self.0.hosts.mislead(host, false));
    }
}

fn up(lab: &Lab, environment: &[(&str, &str)], text: &str) -> Finished {
    let file = lab.file("found.toml", text);
    let program = lab.people[0].program.display().to_string();
    let set = environment.iter().map(|(name, value)| format!("{name}={value}"));
    let words = ["cluster", "up", "-f", &file].map(str::to_owned);
    let words: Vec<String> = set.chain([program]).chain(words).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_with(&mut lab.command(0, Path::new("/usr/bin/env"), &words), Input::Null, LIMIT)
}

fn found(lab: &Lab) -> Outcome {
    let _misled = Misled::begin(lab);
    let tar = lab.shared.join("image.tar").display().to_string();
    let change = ["import", "--change", "ENV GLOO_SOCKET_IFNAME=of-image", &tar, SETS];
    lab.run(0, &change).ok();
    let show = "env | grep -E '_tcp_if_|prte_if_|IFACE|NET_DEVICES|IFNAME' | sort";
    let script = format!("{show}; /run/coracle/rsh node2 'printenv HYDRA_IFACE UCX_NET_DEVICES'");
    let text = |image: &str, more: &str| {
        format!(
            "name = \"found\"\nimage = {image:?}\nnodes = 2\nnetwork = \"host\"\n{more}{}\
             [run]\ncommand = [\"sh\", \"-c\", {script:?}]\n",
            lab.ssh(&HOSTS)
        )
    };
    let done = up(lab, &[], &text(IMAGE, ""));
    let all = "FI_TCP_IFACE=eth0\nGLOO_SOCKET_IFNAME=eth0\nHYDRA_IFACE=eth0\n\
               NCCL_SOCKET_IFNAME==eth0\nOMPI_MCA_btl_tcp_if_include=10.99.0.0/24\n\
               OMPI_MCA_oob_tcp_if_include=10.99.0.0/24\nPRTE_MCA_prte_if_include=10.99.0.0/24\n\
               UCX_NET_DEVICES=eth0\neth0\neth0\n";
    assert_eq!(done.ok().out(), all, "{done:?}");
    let said = done.err();
    for line in [
        "host2: 10.99.0.2 at eth0 leads to the other hosts\n",
        "host2, host3: OMPI_MCA_btl_tcp_if_include=10.99.0.0/24 ",
    ] {
        assert!(said.contains(line), "{said}");
    }
    // The image, the file and the user come before what was found.
    let own = "env = { OMPI_MCA_btl_tcp_if_exclude = \"lo\", HYDRA_IFACE = \"of-file\" }\n";
    let environment = [("FI_TCP_IFACE", "of-user"), ("GLOO_SOCKET_IFNAME", "of-user")];
    let done = up(lab, &environment, &text(SETS, own));
    let all = "FI_TCP_IFACE=of-user\nGLOO_SOCKET_IFNAME=of-image\nHYDRA_IFACE=of-file\n\
               NCCL_SOCKET_IFNAME==eth0\nOMPI_MCA_btl_tcp_if_exclude=lo\nUCX_NET_DEVICES=eth0\n\
               of-file\neth0\n";
    assert_eq!(done.ok().out(), all, "{done:?}");
    Ok(())
}

/// Values are on no command line of any host, nor in a file that another user of it can read, also
/// where a terminal has a stream of its own.
fn unseen(lab: &Lab) -> Outcome {
    let value = format!("only{}of-this-case", std::process::id());
    let text = format!(
        "name = \"unseen\"\nimage = {IMAGE:?}\nnodes = 2\nenv = {{ WORD = {value:?} }}\n{}\
         [service.db]\nenv = {{ WORD = {value:?} }}\ncommand = \"sleep 600\"\n\
         [run]\nenv = {{ OWN = {value:?} }}\n\
         command = [\"sh\", \"-c\", \"echo ${{#WORD}} ${{#OWN}}; sleep 1\"]\n",
        lab.ssh(&HOSTS)
    );
    let file = lab.file("unseen.toml", &text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    let length = value.len();
    let watch = Watch::start(&value);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let readable = || {
        // A pattern that is not the value.
        let (user, pattern) = (lab.site.user.uid, value.replacen('o', "[o]", 1));
        let script = format!(
            "cd /; {nobody} find /tmp /home /run -user {user} -type f -readable \
             -exec grep -ls -- '{pattern}' {{}} +"
        );
        (0..3).map(|host| lab.root(host, &script).out()).collect::<String>()
    };
    assert_eq!(readable(), "");
    let run = lab.run(0, &["cluster", "run", "-f", &file]);
    assert_eq!(run.ok().out(), format!("{length} {length}\n"));
    // The variable is copied from the environment of the command.
    let program = lab.people[0].program.display();
    for words in ["cluster exec -it -e GIVEN unseen db", "cluster exec -e GIVEN unseen node2"] {
        let script = format!("{program} {words} sh -c 'echo got ${{#GIVEN}}; sleep 1'");
        let mut command = lab.command(0, Path::new("/bin/sh"), &["-c", &script]);
        let terminal = Terminal::spawn(command.env("GIVEN", &value), 33, 101);
        let terminal = terminal.expect("a terminal");
        terminal.expect_within(&format!("got {length}"), LIMIT);
        assert_eq!(readable(), "", "{words}");
    }
    lab.run(0, &["cluster", "down", "unseen"]).ok();
    watch.ends_without();
    Ok(())
}

/// Open MPI of the hosts, in the containers of two nodes.
fn ring(lab: &Lab) -> Outcome {
    need_program("mpirun.openmpi")?;
    let compiler = need_program("mpicc.openmpi")?;
    let (source, ring) = (lab.shared.join("ring.c"), lab.shared.join("ring"));
    fs::copy(SOURCE, &source).expect("a copy");
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-o"]).args([&ring, &source]);
    run_with(&mut compile, Input::Null, LIMIT).ok();
    let _misled = Misled::begin(lab);
    let run = "mpirun.openmpi --hostfile /etc/coracle/hosts --mca mpi_yield_when_idle 1 -n 2";
    let script = format!("{run} hostname | sort; exec {run} {}", ring.display());
    let text = format!(
        "name = \"ring\"\nimage = {IMAGE:?}\nnodes = 2\nnetwork = \"host\"\n\
         volume = [\"/usr:/usr:ro\", \"/etc/openmpi:/etc/openmpi:ro\", \
         \"/etc/alternatives:/etc/alternatives:ro\", \"{shared}:{shared}\"]\n{}\
         [run]\nslots = 1\ncommand = [\"sh\", \"-c\", {script:?}]\n",
        lab.ssh(&HOSTS),
        shared = lab.shared.display(),
    );
    let done = up(lab, &[], &text);
    let out = "node1\nnode2\ntoken 2 of 2 ranks, in the container: 0\n";
    assert!(done.ok().out().starts_with(out), "{done:?}");
    assert!(done.out().ends_with("1048576 bytes right\n"), "{done:?}");
    Ok(())
}
