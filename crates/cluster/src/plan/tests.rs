//! What the five uses come to.

use std::path::Path;

use super::*;

fn explained(name: &str) -> String {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let spec = crate::spec::read(&files.join(name)).unwrap();
    let sites = match spec.backends[0].kind {
        Kind::Local => vec![Site {
            host: None,
            program: "/bin/coracle".into(),
            directory: "/lab".into(),
            kept: "/store/clusters/x".into(),
            sees_driver: true,
            processors: 8,
            memory: 8 << 30,
            user: "1000".into(),
            ..Site::default()
        }],
        _ => unknown_sites(&spec, "/lab"),
    };
    plan(&spec, &sites).to_string()
}

#[test]
fn gateway() {
    insta::assert_snapshot!(explained("gateway.toml"));
}

#[test]
fn hpl() {
    insta::assert_snapshot!(explained("hpl.toml"));
}

#[test]
fn site() {
    insta::assert_snapshot!(explained("site.toml"));
}

#[test]
fn farm() {
    insta::assert_snapshot!(explained("farm.toml"));
}

#[test]
fn comd() {
    insta::assert_snapshot!(explained("comd.toml"));
}

#[test]
fn packed_images_are_read_in_no_shared_store() {
    let line = |pack: &str| {
        let text = format!(
            "name = \"a\"\nimage = \"b:1\"\n{pack}\nnodes = 1\nbackend = {{ kind = \"ssh\", hosts = [\"h\"] }}\n"
        );
        let spec = crate::spec::parse(Path::new("a.toml"), &text).unwrap();
        let text = plan(&spec, &unknown_sites(&spec, "/")).to_string();
        text.lines().find(|line| line.contains("b:1 to h")).unwrap().to_owned()
    };
    assert!(line("").contains("by a store that they see"), "{}", line(""));
    assert!(!line("pack = true").contains("store that they see"), "{}", line("pack = true"));
}

/// The line that starts the ranks, without variables that are found on hosts.
fn ranks_of(backend: &str) -> String {
    let text = format!(
        "name = \"ring\"\nimage = \"lab/mpi:1\"\nnodes = 3\nenv = {{ A = \"b c\" }}\n\
         volume = [\"./in:/in\"]\n{backend}\n[run]\nlaunch = \"ranks\"\nslots = 4\n\
         directory = \"/job\"\ncommand = [\"./ring\", \"-n\", \"3\"]\n"
    );
    let spec = crate::spec::parse(Path::new("ring.toml"), &text).unwrap();
    let text = plan(&spec, &unknown_sites(&spec, "/lab")).to_string();
    assert!(!text.contains("network create"), "{text}");
    assert!(!text.contains("coracle exec"), "{text}");
    let line = text.lines().find(|line| line.contains("coracle run --rm")).unwrap_or_default();
    assert!(line.contains("OMPI_MCA_btl_tcp_if_include="), "{line}");
    let mut words: Vec<&str> = line.split(' ').collect();
    while let Some(at) = words.iter().position(|word| *word == "--env-default") {
        words.drain(at..at + 2);
    }
    words.join(" ")
}

#[test]
fn ranks() {
    let run = "coracle run --rm --pull never --label coracle.cluster=ring --network host \
               -e 'A=b c' -v /lab/./in:/in --workdir /job --entrypoint ./ring lab/mpi:1 -n 3";
    let srun = "srun --overlap --quiet --kill-on-bad-exit=1 --input=0 --chdir=/ --mpi=pmix \
                --nodes=3 --ntasks=12 --ntasks-per-node=4";
    assert_eq!(
        ranks_of("backend = { kind = \"slurm\" }"),
        format!("  {srun} {run}    # --mpi=pmi2 where the image has MPICH")
    );
    assert_eq!(
        ranks_of("backend = { kind = \"ssh\", hosts = [\"a\", \"b\", \"c\"] }"),
        format!("  mpiexec --hostfile $CLUSTER/ranks.hosts -n 12 {run}    # of the image's MPI")
    );
    // The batch system gives as many tasks as there are ranks.
    let text = "name = \"ring\"\nimage = \"a\"\nnodes = 2\nbackend = { kind = \"slurm\" }\n\
                [run]\nlaunch = \"ranks\"\nslots = 4\ncommand = [\"x\"]\n";
    let spec = crate::spec::parse(Path::new("ring.toml"), text).unwrap();
    assert!(sbatch::words(&spec, &[]).contains(&"--ntasks-per-node=4".to_owned()));
}

#[test]
fn terminals_get_printable_characters_alone() {
    let text = "name = \"lab\"\n[service.db]\nimage = \"a\"\n\
                env = { A = \"it's\\u001b[2J\\n\\u009b\", B = \"it's\" }\n\
                command = [\"\\r\\\\\"]\n";
    let spec = crate::spec::parse(Path::new("lab.toml"), text).unwrap();
    let shown = plan(&spec, &unknown_sites(&spec, "/lab")).to_string();
    for word in [r"$'A=it\'s\033[2J\n\u009b'", r"'B=it'\''s'", r"$'\r\\'"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
}

#[test]
fn what_probes_a_service_is_a_member_of_its_kind() {
    for (network, mode) in [("names", "--execmode=I1"), ("overlay", "--execmode=N1")] {
        let text = format!(
            "name = \"lab\"\nimage = \"a\"\nnetwork = {network:?}\n[service.db]\n\
             ready = {{ tcp = 80 }}\n"
        );
        let spec = crate::spec::parse(Path::new("lab.toml"), &text).unwrap();
        let plan = plan(&spec, &unknown_sites(&spec, "/lab"));
        let mut steps = plan.phases.iter().flat_map(|phase| &phase.steps);
        let probe = steps.find_map(|step| match &step.act {
            Act::Ready { by: ReadyBy::Trying(words), .. } => Some(words),
            _ => None,
        });
        assert!(probe.unwrap().iter().any(|word| word == mode), "{probe:?}");
    }
}

#[test]
fn an_address_moves_between_balancers_with_packets() {
    let words = |network: &str| {
        let text = format!(
            "name = \"lab\"\nimage = \"a\"\nnetwork = {network:?}\n[service.web]\n\
             publish = [\"80\"]\nbalance = {{ by = \"haproxy\", pair = true, image = \"b\" }}\n"
        );
        let spec = crate::spec::parse(Path::new("lab.toml"), &text).unwrap();
        let plan = plan(&spec, &unknown_sites(&spec, "/lab"));
        let of = |act: &Act| match act {
            Act::Start { words, .. } => Some(words.join(" ")),
            Act::Network(words) | Act::Ready { by: ReadyBy::Trying(words), .. } => {
                Some(words.join(" "))
            }
            _ => None,
        };
        let steps = plan.phases.iter().flat_map(|phase| &phase.steps);
        steps.filter_map(|step| of(&step.act)).collect::<Vec<String>>()
    };
    let parts = [
        "--aux-address web",
        "b cluster vrrp --priority 100 web haproxy -W",
        "b cluster vrrp --priority 99 web haproxy -W",
        "tcp web:80",
    ];
    let (names, overlay) = (words("names"), words("overlay"));
    for part in parts {
        let count = |all: &[String]| all.iter().filter(|words| words.contains(part)).count();
        assert_eq!(count(&names), 0, "{part}: {names:#?}");
        assert!(count(&overlay) > 0, "{part}: {overlay:#?}");
    }
    let alias = |all: &[String]| all.iter().any(|words| words.contains("--network-alias web "));
    assert!(alias(&names) && !alias(&overlay), "{overlay:#?}");
}

#[test]
fn replicas_are_on_hosts_of_their_zones() {
    let text = "name = \"lab\"\nimage = \"a\"\nbackend = [{ kind = \"ssh\", hosts = [\"n\", \
                { host = \"e1\", zone = \"east\" }, { host = \"w\", zone = \"west\" }, \
                { host = \"e2\", zone = \"east\" }] }]\n[service.db]\nreplicas = 3\n\
                zone = \"east\"\n[service.web]\nreplicas = 2\n";
    let spec = crate::spec::parse(Path::new("lab.toml"), text).unwrap();
    let plan = plan(&spec, &unknown_sites(&spec, "/lab"));
    let steps = plan.phases.iter().flat_map(|phase| &phase.steps);
    let started = steps.filter_map(|step| match &step.act {
        Act::Start { container, .. } => Some(format!("{container} {}", step.host.as_ref()?)),
        _ => None,
    });
    let expected = ["lab-db-1 e1", "lab-db-2 e2", "lab-db-3 e1", "lab-web-1 n", "lab-web-2 e1"];
    assert_eq!(started.collect::<Vec<_>>(), expected);
}

#[test]
fn containers_behind_a_balancer_have_the_numbers_of_hosts_that_answer() {
    let text = "name = \"lab\"\nimage = \"a\"\nbackend = [{ kind = \"ssh\", hosts = [\"a\", \"b\", \
                \"c\"] }]\n[service.web]\npublish = [\"80\"]\n\
                balance = { by = \"haproxy\", image = \"a\" }\n[service.db]\n";
    let spec = crate::spec::parse(Path::new("lab.toml"), text).unwrap();
    let mut sites = unknown_sites(&spec, "/lab");
    let service = |name: &str| spec.services.iter().find(|one| one.name == name).unwrap();
    let (web, db) = (service("web"), service("db"));
    assert_eq!(numbers(&spec, &sites, web, 4).unwrap(), [1, 2, 3, 4]);
    sites[1] = Site::lost("b".to_owned(), None);
    assert_eq!(numbers(&spec, &sites, web, 4).unwrap(), [1, 3, 4, 6]);
    // Nobody knows whether it still runs.
    assert_eq!(numbers(&spec, &sites, db, 2).unwrap(), [1, 2]);
    let balanced = balance::of(&spec, &sites, web).unwrap();
    let away =
        ["web-1", "web-2", "web-5", "web-6", "web"].map(|name| balanced.is_on_lost_host(name));
    assert_eq!(away, [false, true, true, false, false]);
    for site in &mut sites {
        site.is_lost = true;
    }
    assert_eq!(numbers(&spec, &sites, web, 1).unwrap_err().to_string(), "web: all hosts are lost");
}
