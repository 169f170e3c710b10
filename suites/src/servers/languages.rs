//! Tests of servers and clients by the libraries of languages: Python, Node, Go without the C
//! library, Java. Each has its own way to look names up.
//!
//! The runtimes but Python's are this machine's, bound into the containers; without one the case is
//! skipped. A client knows from the servers' answers that they saw its address.

use std::sync::OnceLock;

use testkit::runtimes;
use testkit::skip::{Outcome, Skip};

use crate::servers::In;
use crate::servers::stage::{Case, Lab, World, guest};

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("java", In::First, java),
    ("go", In::All, go),
    ("python", In::All, python),
    ("node", In::First, node),
];

/// The output of a client, after its server has said `ready`. Both are the same program, with these
/// paths of the host bound into their containers (`-v`).
fn pair(
    lab: &Lab<'_>,
    (name, file, program): (&str, &str, &[u8]),
    bound: &[String],
    run: &str,
) -> String {
    let options: Vec<&str> = bound.iter().flat_map(|volume| ["-v", volume]).collect();
    // The program comes after the container has begun.
    let wait = |role: &str| format!("wait_for test -e /ready; exec {run} {role} {}", lab.network);
    lab.serve_with(name, &options, &wait("serve"));
    let client = format!("client-{name}");
    lab.serve_with(&client, &options, "sleep 1000");
    for container in [name, &client] {
        lab.write(container, &format!("/{file}"), program.to_vec());
        lab.exec(container, "touch /ready").ok();
    }
    lab.expect(name, "ready");
    lab.exec(&client, &format!("{run} call {}", lab.network)).ok().out()
}

fn python(w: &World) -> Outcome {
    let lab = w.lab();
    let out =
        pair(&lab, ("python", "service.py", &guest("service.py")), &[], "python3 /service.py");
    let expected = "True 40\n328350\nrefused\nConnectionRefusedError\ngaierror\n";
    assert_eq!(out, expected);
    Ok(())
}

fn node(w: &World) -> Outcome {
    let bound = runtimes::node()?;
    let lab = w.lab();
    let program = ("node", "service.js", &*guest("service.js"));
    let out = pair(&lab, program, &bound, "node /service.js");
    assert_eq!(out, "50\n1 ENODATA\nENOTFOUND\nECONNREFUSED\n");
    Ok(())
}

fn go(w: &World) -> Outcome {
    static PROGRAM: OnceLock<Result<Vec<u8>, Skip>> = OnceLock::new();
    let compiled = || runtimes::go_program(&guest("service.go"));
    let program = PROGRAM.get_or_init(compiled).clone()?;
    let lab = w.lab();
    let out = pair(&lab, ("go", "service", &program), &[], "/service");
    assert_eq!(out, "1 <nil>\n50\n1 <nil>\n1 <nil>\ntrue\ntrue\nudp <nil>\n");
    Ok(())
}

fn java(w: &World) -> Outcome {
    let bound = runtimes::java()?;
    let lab = w.lab();
    let program = ("java", "Service.java", &*guest("Service.java"));
    let out = pair(&lab, program, &bound, "/opt/java/bin/java /Service.java");
    assert_eq!(out, "50\ntrue 81\nrefused\nunknown\n");
    Ok(())
}
