//! Hosts that are not as they should be.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::fs;

use testkit::command::Finished;
use testkit::skip::Outcome;

use crate::hosts::lab::{Case, HOME, IMAGE, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("mistakes::a_host_asks_for_a_password", password),
    ("mistakes::a_changed_host_key", changed_key),
    ("mistakes::no_shared_memory", no_shared_memory),
    ("mistakes::home_without_programs", home_without_programs),
    ("mistakes::home_over_quota", home_over_quota),
    ("mistakes::a_tag_that_is_another_image", another_image),
    ("mistakes::input_and_output", input_and_output),
];

/// A cluster of two nodes, on the second and the third host, whose run writes the name of each.
fn file(lab: &Lab, config: &str, hosts: &[&str], run: &str) -> String {
    let text = format!(
        "name = \"bad\"\nsubnet = \"100.90.0.0/16\"\nimage = {IMAGE:?}\nnodes = {}\n{}[run]\ncommand = [\"sh\", \"-c\", {run:?}]\n",
        hosts.len(),
        lab.ssh_as(config, hosts)
    );
    lab.file("bad.toml", &text)
}

fn up(lab: &Lab, config: &str, hosts: &[&str], run: &str) -> Finished {
    lab.run(0, &["cluster", "up", "-f", &file(lab, config, hosts, run)])
}

/// One error, and what to do about it.
fn refused(done: &Finished, facts: &[&str]) {
    let said = done.expect(125).err();
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    for fact in facts.iter().chain(&["hint: "]) {
        assert!(said.contains(fact), "no {fact:?}: {said}");
    }
}

/// A key that the host does not know: it would take a password.
fn password(lab: &Lab) -> Outcome {
    let done = up(lab, "stranger", &["host1"], "true");
    refused(&done, &["node host1 asks for a password", "ssh-copy-id host1"]);
    Ok(())
}

fn changed_key(lab: &Lab) -> Outcome {
    let other = fs::read_to_string(lab.shared.join("other.pub")).expect("a key");
    let key = other.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    lab.file("known-changed", &format!("[127.0.0.1]:2222 {key}\n"));
    let config = fs::read_to_string(lab.shared.join("unknown")).expect("a file");
    lab.file("changed", &config.replace("/nobody\n", "/known-changed\n"));
    let done = up(lab, "changed", &["host1"], "true");
    refused(&done, &["node host1 has another host key than", "ssh-keygen -R host1"]);
    Ok(())
}

/// Does something while a file system covers a directory of the third host.
fn covered(lab: &Lab, place: &str, options: &str, work: impl Fn()) {
    let person = &lab.people[2];
    let owner = format!("uid={},gid={}", person.user.uid, person.user.gid);
    lab.root(2, &format!("mount -t tmpfs -o {owner},{options} tmpfs {place}")).ok();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    lab.root(2, &format!("umount -l {place}"));
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

const BOTH: [&str; 2] = ["host2", "host3"];
const NAMES: &str = "for n in node1 node2; do /run/coracle/rsh $n hostname; done";

fn no_shared_memory(lab: &Lab) -> Outcome {
    covered(lab, "/dev/shm", "mode=000,size=4k", || {
        let done = up(lab, "config", &BOTH, NAMES);
        assert_eq!(done.ok().out(), "node1\nnode2\n", "{done:?}");
    });
    Ok(())
}

fn home_without_programs(lab: &Lab) -> Outcome {
    covered(lab, HOME, "mode=700,noexec", || {
        let done = up(lab, "config", &BOTH, NAMES);
        refused(&done, &["bad-node2 on host3", "mounted noexec", "CORACLE_DIR"]);
    });
    Ok(())
}

fn home_over_quota(lab: &Lab) -> Outcome {
    covered(lab, HOME, "mode=700,size=20m", || {
        let done = up(lab, "config", &BOTH, NAMES);
        refused(&done, &["host3", "170MB", "make room there"]);
        let left = lab.root(2, &format!("ls -A {HOME}/.local/share/coracle/clusters || true"));
        assert_eq!(left.out(), "", "{left:?}");
    });
    Ok(())
}

/// A host has another image under the name.
fn another_image(lab: &Lab) -> Outcome {
    let archive = lab.shared.join("image.tar").display().to_string();
    let words = ["import", "-c", "ENV WHICH=other", &archive, IMAGE];
    lab.run(2, &words).ok();
    let which = "for n in node1 node2; do /run/coracle/rsh $n 'echo it is ${WHICH:-right}'; done";
    let done = up(lab, "config", &BOTH, which);
    assert_eq!(done.ok().out(), "it is right\nit is right\n", "{done:?}");
    Ok(())
}

/// Every node gets the input over its own link, also when it was cut in the middle.
fn input_and_output(lab: &Lab) -> Outcome {
    let deck = lab.shared.join("deck");
    let _ = fs::create_dir(&deck);
    lab.file("deck/large", &"x".repeat(3_000_000));
    lab.file("deck/words", "some words\n");
    let place = lab.shared.join("deck-ranks");
    let text = format!(
        "name = \"deck\"\nimage = {IMAGE:?}\nnodes = 3\n{}input = \"./deck:/job/in\"\n\
         output = [\"/job/rank:{}/{{node}}\", \"/job/all:./deck-ranks/all\"]\n[run]\ncommand = '''\
         for n in node1 node2 node3; do /run/coracle/rsh $n \"hostname > /job/rank; \
         wc -c < /job/in/large; cat /job/in/words\"; done; seq 100000 > /job/all; exit 3'''\n",
        lab.ssh(&["host1", "host2", "host3"]),
        place.display()
    );
    let file = lab.file("deck.toml", &text);
    let _ = fs::create_dir(&place);
    lab.people[0].give(&place);
    let done = lab.run(0, &["cluster", "up", "-f", &file]);
    assert_eq!(done.expect(3).out(), "3000000\nsome words\n".repeat(3), "{done:?}");
    for node in ["node1", "node2", "node3"] {
        let text = fs::read_to_string(place.join(node)).expect("the output");
        assert_eq!(text, format!("{node}\n"));
    }
    let all = fs::read_to_string(place.join("all")).expect("the output");
    assert!(all.starts_with("1\n2\n") && all.ends_with("\n100000\n"), "{} bytes", all.len());
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 4, "parts are left");
    Ok(())
}
