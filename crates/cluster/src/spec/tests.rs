//! Tests of cluster files.

use std::path::Path;

use super::*;

fn read_text(text: &str) -> Result<Spec> {
    parse(Path::new("lab.toml"), text)
}

#[test]
fn the_five_uses_are_read() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let read = |name: &str| read(&files.join(name)).unwrap();
    let gateway = read("gateway.toml");
    let services: Vec<_> = gateway.services.iter().map(|service| &*service.name).collect();
    assert_eq!(services, ["db", "portal", "notebook"], "in the file's order");
    assert_eq!((gateway.nodes, &gateway.backends[0].kind), (0, &Kind::Local));
    assert_eq!(gateway.services[0].ready, Ready::Tcp(5432));
    assert_eq!(gateway.services[1].env, [("DB_HOST".to_owned(), "db".to_owned())]);
    let hpl = read("hpl.toml");
    let Kind::Slurm { partition, options } = &hpl.backends[0].kind else { panic!("{hpl:?}") };
    assert_eq!((partition.as_deref(), &options[..]), (Some("short"), &["--account=p7".into()][..]));
    assert_eq!(hpl.backends[0].time, Some(Duration::from_mins(30)));
    let run = hpl.run.unwrap();
    assert_eq!((&*run.on, run.launch, run.command.len()), ("node1", Launch::Inside, 4));
    let Replicas::Scaled(rule) = &read("site.toml").services[0].replicas else { panic!("a rule") };
    assert_eq!((rule.min, rule.max, rule.cool), (1, 8, Duration::from_secs(10)));
    let farm = read("farm.toml");
    let compute = &farm.batch.unwrap().compute;
    assert_eq!((compute[0].max, compute[0].idle), (16, Duration::from_mins(1)));
    let names: Vec<&str> = farm.services.iter().map(|service| &*service.name).collect();
    assert_eq!(names, ["control", "front", "compute"]);
    let comd = read("comd.toml");
    let kinds: Vec<_> = comd.backends.iter().map(|backend| backend.kind.word()).collect();
    assert_eq!(kinds, ["slurm", "qemu", "aws"]);
    assert_eq!(comd.checkpoint.unwrap().restart.tries, 5);
}

#[test]
fn an_error_shows_its_place() {
    let error = read_text("name = \"lab\"\n\n[service.db]\nimage = \"a\"\nreplica = 2\n");
    let error = error.unwrap_err();
    insta::assert_snapshot!(error.to_string(), @r#"
    unknown key "replica" in service.db
     --> lab.toml:5:1
      |
    5 | replica = 2
      | ^^^^^^^
    "#);
    assert_eq!(error.hint(), Some("did you mean replicas?"));
}

#[test]
fn ranks_have_the_network_of_the_hosts() {
    let file = |network: &str| {
        format!(
            "name = \"lab\"\nimage = \"a\"\n{network}\n[run]\nlaunch = \"ranks\"\n\
             command = [\"x\"]\n"
        )
    };
    for network in ["", "network = \"host\""] {
        let spec = parse(Path::new("lab.toml"), &file(network)).unwrap();
        assert_eq!(spec.network, Some(Network::Host));
    }
    for network in ["network = \"names\"", "network = \"overlay\""] {
        let error = parse(Path::new("lab.toml"), &file(network)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ranks cannot reach") && text.contains("lab.toml:3"), "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("inside")), "{error:?}");
    }
}

const DB: &str = "name = \"lab\"\n[service.db]\nimage = \"a\"\n";

/// Files with a mistake: the text, and parts of the error, of its place and of its hint.
fn are_told<const N: usize>(files: [(String, &str, &str, &str); N]) {
    for (text, fact, place, hint) in files {
        let error = read_text(&text).expect_err(&text);
        let shown = error.to_string();
        assert!(shown.contains(fact) && shown.contains(place), "{text}\n{shown}");
        assert!(error.hint().is_some_and(|own| own.contains(hint)), "{text}\n{:?}", error.hint());
    }
}

#[test]
fn mistakes() {
    const NODES: &str = "name = \"lab\"\nimage = \"a\"\nnodes = 2\n";
    let nodes = |more: &str| format!("{NODES}{more}\n");
    are_told([
        ("name = ".to_owned(), "", "lab.toml:1", "TOML"),
        ("name = \"lab\"\n".into(), "the file starts nothing", "lab.toml:1", "[service.NAME]"),
        ("nodes = 2\n".into(), "the file has no key \"name\"", "lab.toml:1", "name = "),
        ("nam = \"lab\"\n".into(), "unknown key \"nam\"", "lab.toml:1:1", "name"),
        ("name = \"My Lab\"\n".into(), "is no host name", "lab.toml:1:8", "a-z"),
        ("name = 3\n".into(), "name: this is not a text", "lab.toml:1:8", "quotes"),
        (nodes("nodes = 3"), "duplicate key", "lab.toml:4", "once"),
        (nodes("network = \"overly\""), "there is no \"overly\"", "lab.toml:4", "overlay"),
        (nodes("subnet = \"100.80.0.0\""), "range of addresses", "lab.toml:4", "ADDRESS/BITS"),
        (
            nodes("network = \"host\"\nsubnet = \"100.80.0.0/20\""),
            "has no addresses of its own",
            "lab.toml:5",
            "names",
        ),
        ("name = \"lab\"\nnodes = 2\n".into(), "the nodes have no image", "lab.toml:1", "image"),
        (nodes("build = \".\""), "an image already", "lab.toml:4", "either"),
        (nodes("run = { command = [] }"), "the command is empty", "lab.toml:4", "PROGRAM"),
        (nodes("run = { command = [\"x\"], on = \"node3\" }"), "no node \"node3\"", ":4", "node2"),
        (
            nodes("run = { command = [\"x\"], on = \"node2\", launch = \"ranks\" }"),
            "ranks run on all nodes",
            "lab.toml:4",
            "inside",
        ),
        (nodes("run = { command = [\"x\"], time = 30 }"), "not a time", "lab.toml:4", "unit"),
        (nodes("backend = { kind = \"slrum\" }"), "no \"slrum\"", "lab.toml:4", "slurm"),
        (nodes("backend = { kind = \"ssh\" }"), "no key \"hosts\"", "lab.toml:4", "hosts"),
        (
            nodes("backend = { kind = \"pbs\", queue = \"a\\rb\" }"),
            "queue: this has the control character \\r",
            "lab.toml:4",
            "leave it out",
        ),
        (
            nodes("backend = { kind = \"pbs\", queue = \"a -A x\" }"),
            "queue: this has blanks",
            "lab.toml:4",
            "one word",
        ),
        (nodes("backend = []"), "backend: there is none", "lab.toml:4", "this machine"),
        (
            nodes("backend = { kind = \"ssh\", hosts = [\"a\"] }"),
            "1 hosts are too few for 2 nodes",
            "lab.toml:4",
            "add hosts",
        ),
        (
            nodes("backend = { kind = \"ssh\", hosts = [\"a\", \"a\"] }"),
            "a stands there twice",
            "lab.toml:4",
            "once",
        ),
        (
            nodes("backend = { kind = \"ssh\", hosts = [\"-oProxyCommand=x\", \"a\"] }"),
            "this is no host",
            "lab.toml:4",
            "user@host",
        ),
        (
            nodes("backend = { kind = \"local\", partition = \"x\" }"),
            "unknown key \"partition\"",
            "lab.toml:4",
            "kind",
        ),
        (nodes("input = \"deck\""), "\"deck\" is not FROM:TO", "lab.toml:4", "./here"),
        (format!("input = \"./a:/a\"\n{DB}"), "no node to copy it to", "lab.toml:1", "volume"),
        (nodes("output = \"/a:./a\""), "no [run] after which", "lab.toml:4", "add [run]"),
        (nodes("checkpoint = {}"), "no [run] that could go on", "lab.toml:4", "[run]"),
        (nodes("[service.node1]"), "a node has this name", "lab.toml:4", "node2"),
    ]);
}

#[test]
fn mistakes_of_services() {
    let db = |more: &str| format!("{DB}{more}\n");
    are_told([
        (db("after = [\"bd\"]"), "there is no service \"bd\"", "lab.toml:4", "\"db\""),
        (db("after = \"db\""), "wait for each other: db -> db", "lab.toml:4", "take one"),
        (
            db("after = [\"web\"]\n[service.web]\nimage = \"b\"\nafter = [\"x\"]\n[service.x]\n\
                image = \"c\"\nafter = [\"web\"]"),
            "wait for each other: web -> x -> web",
            "lab.toml:7",
            "take one",
        ),
        (db("[service.db]"), "duplicate key", "lab.toml:4", "once"),
        (db("zone = \"east\""), "no host is in zone \"east\"", "lab.toml:4", "zone = "),
        (db("replicas = 2\npublish = \"80:80\""), "cannot share a port", "lab.toml:5", "haproxy"),
        (db("replicas = -1"), "whole number from 0 to 1000", "lab.toml:4", "without quotes"),
        (db("replicas = \"2\""), "whole number from 0 to 1000", "lab.toml:4", "without quotes"),
        (db("ready = { tcp = 0 }"), "whole number from 1 to 65535", "lab.toml:4", "without"),
        (db("ready = { tcp = 1, http = \"1\" }"), "one of tcp, http", "lab.toml:4", "tcp = 80"),
        (db("ready = { http = \"/x\" }"), "not PORT/PATH", "lab.toml:4", "80/health"),
        (db("env = { A = 1.5 }"), "service.db.env.A: this is not a text", ":4", "quotes"),
        (
            db(
                "balance = { by = \"haproxy\" }\nreplicas = { min = 2, max = 1, up = \"rate > 1 for 1s\", \
                down = \"rate < 1 for 1s\" }",
            ),
            "max is less than min",
            "lab.toml:5",
            "max = 8",
        ),
        (
            db("replicas = { min = 1, max = 2, up = \"p95 > 40 for 3s\", down = \"x\" }"),
            "this is not a condition",
            "lab.toml:4",
            "40ms",
        ),
    ]);
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"name = \"\xff\"").unwrap();
    let error = read(file.path()).unwrap_err().to_string();
    assert!(error.contains("byte 8 is not UTF-8"), "{error}");
    let error = read(Path::new("/nonexistent/lab.toml")).unwrap_err();
    assert!(error.to_string().contains("No such file") && error.hint().is_some(), "{error}");
}

#[test]
fn a_pair_needs_a_port_for_each() {
    let text = |publish: &str, more: &str| {
        format!(
            "name = \"lab\"\nimage = \"a\"\nnetwork = \"names\"\n{more}\n[service.web]\n\
             publish = [{publish:?}]\nbalance = {{ by = \"haproxy\", pair = true }}\n"
        )
    };
    let error = read_text(&text("8080:80", "")).unwrap_err().to_string();
    assert!(error.contains("two balancers on one host cannot share its port"), "{error}");
    read_text(&text("80", "")).unwrap();
    read_text(&text("8080:80", "backend = { kind = \"ssh\", hosts = [\"a\", \"b\"] }")).unwrap();
}

#[test]
fn a_batch_system_may_have_several_kinds_of_nodes() {
    let text = |compute: &str| {
        format!(
            "name = \"lab\"\n[batch]\nkind = \"slurm\"\nfront = \"f\"\ncontrol = \"c\"\n{compute}\n"
        )
    };
    let two = "compute = [{ image = \"a\" }, { name = \"large\", image = \"b\", max = 3 }]";
    let spec = read_text(&text(two)).unwrap();
    let found: Vec<_> =
        spec.batch.iter().flat_map(|batch| &batch.compute).map(|it| (&*it.name, it.max)).collect();
    assert_eq!(found, [("compute", 1), ("large", 3)]);
    let one = "compute = { image = \"a\" }";
    for (compute, more, fact) in [
        ("compute = { image = \"a\", min = 2 }", "", "max is less than min"),
        ("compute = [{ image = \"a\" }, { image = \"b\" }]", "", "another one has this name"),
        ("compute = []", "", "there are no nodes"),
        ("compute = { image = \"a\", name = \"front\" }", "", "of the name \"front\""),
        ("compute = { image = \"a\", name = \"default\" }", "", "means something else"),
        (one, "[service.control]\nimage = \"a\"", "of the name \"control\""),
        (one, "[service.compute-1]\nimage = \"a\"", "\"compute\" has this name"),
    ] {
        let error = read_text(&format!("{}{more}\n", text(compute))).unwrap_err().to_string();
        assert!(error.contains(fact), "{compute} {more}: {error}");
    }
    let error = read_text(&format!("network = \"host\"\n{}", text(two))).unwrap_err().to_string();
    assert!(error.contains("would share their ports"), "{error}");
}

#[test]
fn what_is_not_carried_out_is_refused_with_its_place() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    for name in ["gateway.toml", "hpl.toml", "farm.toml"] {
        read_to_start(&files.join(name)).unwrap();
    }
    for (name, fact, place) in [
        (
            "site.toml",
            "service.web.balance: a pair of balancers without network = \"names\" or",
            "site.toml:7:",
        ),
        ("comd.toml", "backend: a backend of kind qemu is not carried out yet", "comd.toml:7:"),
    ] {
        let error = read_to_start(&files.join(name)).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(fact) && shown.contains(place), "{shown}");
        assert!(error.hint().is_some_and(|hint| hint.contains("explain")));
    }
}

#[test]
fn a_service_is_not_called_as_a_container() {
    let text = "name = \"lab\"\nimage = \"a\"\n[service.db]\n[service.db-2]\n";
    let error = read_text(text).unwrap_err().to_string();
    assert!(error.contains("a container of service \"db\" has this name"), "{error}");
    assert!(error.contains("lab.toml:4"), "{error}");
    let text = text.replace("db-2", "db-a");
    assert!(read_text(&text).is_ok());
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let file = |rule: &str| {
        read_text(&format!(
            "name = \"lab\"\n[service.web]\nimage = \"a\"\npublish = [\"80\"]\n\
             balance = {{ by = \"haproxy\" }}\nreplicas = {{ {rule} }}\n"
        ))
    };
    let up = "up = \"p95 > 40ms for 3s\"";
    let down = "down = \"p95 < 15ms for 30s\"";
    file(&format!("min = 1, max = 8, {up}, {down}")).unwrap();
    for (rule, fact) in [
        (format!("min = 4, max = 2, {up}, {down}"), "max is less than min"),
        (format!("min = 0, max = 2, {up}, {down}"), "a service without containers"),
        (format!("min = 1, max = 2, {up}, down = \"p95 < 0s for 3s\""), "this can never hold"),
        (format!("min = 1, max = 2, {up}, down = \"p95 < 50ms for 3s\""), "can hold at once"),
        (format!("min = 1, max = 2, up = \"p95 < 9ms for 3s\", {down}"), "grows when it is slow"),
        (format!("min = 1, max = 2, {up}, down = \"rate > 9 for 3s\""), "shrinks when it is fast"),
        (format!("min = 1, max = 2, up = \"p95 above 9ms\", {down}"), "this is not a condition"),
    ] {
        let error = file(&rule).unwrap_err().to_string();
        assert!(error.contains(fact), "{error}");
    }
}

#[test]
fn balancers_that_cannot_work_are_refused() {
    let web = |more: &str| {
        let text = format!("name = \"lab\"\nimage = \"a\"\n{more}");
        read_text(&text).map(drop).map_err(|error| error.to_string())
    };
    let balance = "balance = { by = \"haproxy\" }\n";
    let rule =
        "replicas = { min = 1, max = 8, up = \"p95 > 40ms for 3s\", down = \"rate < 3 for 9s\" }";
    let publish = "publish = [\"127.0.0.1:8080:80/tcp\", \"443\"]\n";
    web(&format!("[service.web]\n{publish}{balance}{rule}\n")).unwrap();
    web(&format!("[service.web]\nready = {{ tcp = 80 }}\n{balance}")).unwrap();
    let tcp = "publish = [\"80\"]\nbalance = { by = \"haproxy\", mode = \"tcp\" }\n";
    for (text, fact) in [
        (format!("[service.web]\n{rule}\n"), "nothing measures what the rule asks for"),
        (format!("[service.web]\n{balance}"), "its ports are not known"),
        (format!("[service.web]\npublish = [\"53:53/udp\"]\n{balance}"), "no single ports of TCP"),
        (format!("[service.web]\npublish = [\"80-90\"]\n{balance}"), "no single ports of TCP"),
        (
            format!("network = \"host\"\n[service.web]\n{publish}{balance}"),
            "would share their ports",
        ),
        (format!("[service.web]\n{tcp}{rule}\n"), "there are no times of answers"),
        (
            format!("[service.web]\n{publish}{balance}[service.web-balance-1]\n"),
            "the balancer of web has this name",
        ),
    ] {
        let error = web(&text).unwrap_err();
        assert!(error.contains(fact) && error.contains("lab.toml:"), "{error}");
    }
}
