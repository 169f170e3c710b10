//! A tour with the embedded image, which needs no network: create, list, inspect, copy, save, load,
//! remove.

use std::path::Path;

use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] =
    &[("containers", containers), ("images", images), ("trees_in_and_out", trees_in_and_out)];

/// Ids and times differ from run to run.
fn filters() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter("[0-9a-f]{64}", "<id>");
    settings.add_filter("[0-9a-f]{12}", "<short>");
    settings.add_filter(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>");
    settings
}

/// Another home with the same image.
fn image(home: &Path) {
    printed(home, &["create", "--name", "first", "hello"]);
}

fn containers() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    image(home);
    filters().bind(|| {
        insta::assert_snapshot!(
            printed(home, &["ps", "-a", "--format", "{{.ID}} {{.Image}} {{.Command}} {{.Status}} {{.Names}}"]),
            @r#"<short> hello "/hello" Created first"#
        );
        insta::assert_snapshot!(printed(home, &["create", "--label", "a=b", "-e", "X=1", "hello", "/hello", "", "-x"]), @"<id>");
    });
    assert_eq!(
        printed(home, &["ps", "-a", "--filter", "label=a=b", "--format", "{{.Label \"a\"}}"]),
        "b\n"
    );
    assert_eq!(printed(home, &["ps", "-aq", "--filter", "name=first"]).trim().len(), 12);
    assert_eq!(
        printed(home, &["inspect", "-f", "{{.Name}} {{.State.Status}}", "first"]),
        "/first created\n"
    );
    let inspect = |format: &str| printed(home, &["inspect", "-f", format, "first"]);
    assert_eq!(inspect("{{.ID}}"), inspect("{{.Id}}"));
    assert_eq!(inspect("{{range .NetworkSettings.Networks}}<{{.IPAddress}}>{{end}}"), "<>\n");
    assert_eq!(inspect("<{{.NetworkSettings.IPAddress}}{{.AppArmorProfile}}>"), "<>\n");
    assert_eq!(inspect("<{{.State.Error}}> {{json .ExecIDs}}"), "<> null\n");
    assert_eq!(inspect("{{.HostConfig.PidMode}} {{.HostConfig.IpcMode}}"), "host host\n");
    assert_eq!(inspect("{{eq .GraphDriver.Name .Driver}}"), "true\n");
    let bytes = |field: &str| -> u64 { inspect(field).trim().parse().expect("a number of bytes") };
    assert!(bytes("{{.SizeRootFs}}") > bytes("{{.SizeRw}}"), "the image's files count too");
    let listed =
        |filter: &str| printed(home, &["ps", "-a", "--filter", filter]).lines().count() - 1;
    assert_eq!((listed("network=host"), listed("network=none")), (2, 0));
    assert_eq!((listed("health=none"), listed("health=healthy")), (2, 0));
    assert_eq!((listed("publish=80"), listed("expose=1-65535/udp")), (0, 0));
    for wrong in ["publish=x", "expose=9-8", "health=ill"] {
        let text = transcript(&coracle(home, &["ps", "--filter", wrong]));
        assert!(text.contains("hint:") && text.contains("--filter"), "{text}");
    }
    let newest = printed(home, &["ps", "-ql", "--no-trunc"]);
    let arguments =
        printed(home, &["inspect", "-f", "{{json .Args}} {{json .Config.Env}}", newest.trim()]);
    assert_eq!(arguments, "[\"\",\"-x\"] [\"X=1\"]\n");
    printed(home, &["rename", "first", "second"]);
    printed(home, &["name", "second", "third"]);
    assert_eq!(
        printed(home, &["inspect", "-f", "{{join .Names \",\"}}", "third"]),
        "second,third\n"
    );
    printed(home, &["rmname", "third"]);
    insta::assert_snapshot!(transcript(&coracle(home, &["create", "--name", "second", "hello"])).lines().last().unwrap_or_default(), @"status 125");
    insta::assert_snapshot!(transcript(&coracle(home, &["rm", "second", "nobody"])), @r#"
    second
    error: no container "nobody"
      hint: 'coracle ps -a' lists all containers
    status 1
    "#);
    printed(home, &["rm", "--all"]);
    assert_eq!(printed(home, &["ps", "-aq"]), "");
    Ok(())
}

fn images() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    image(home);
    printed(home, &["tag", "coracle/hello", "my/hello:1"]);
    insta::assert_snapshot!(
        printed(home, &["images", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}"]),
        @r"
    coracle/hello:latest 2.37kB
    my/hello:1 2.37kB
    "
    );
    assert_eq!(
        printed(home, &["images", "--filter", "reference=my/*", "--format", "{{.Repository}}"]),
        "my/hello\n"
    );
    assert_eq!(
        printed(home, &["inspect", "-f", "{{json .Config.Cmd}}", "my/hello:1"]),
        "[\"/hello\"]\n"
    );
    let inspect = |format: &str| printed(home, &["image", "inspect", "-f", format, "my/hello:1"]);
    assert_eq!(inspect("{{.ID}}"), inspect("{{.Id}}"));
    assert_eq!(inspect("{{.VirtualSize}}"), inspect("{{.Size}}"));
    assert_eq!(inspect("<{{.Parent}}{{.DockerVersion}}>"), "<>\n");
    assert!(inspect("{{.Metadata.LastTagTime}}").starts_with("0001-01-01T"));
    filters().bind(|| {
        insta::assert_snapshot!(printed(home, &["history", "--format", "{{.CreatedBy}} {{.Comment}}", "coracle/hello"]), @"coracle embedded in the program");
    });
    printed(home, &["save", "-o", "hello.tar", "my/hello:1"]);
    let other = TempDir::new().unwrap();
    let archive = home.join("hello.tar");
    let text = printed(other.path(), &["load", "-i", archive.to_str().unwrap()]);
    assert_eq!(text, "Loaded image: my/hello:1\n");
    assert!(printed(home, &["verify"]).contains("nothing is wrong"));
    insta::assert_snapshot!(transcript(&coracle(home, &["rmi", "coracle/hello", "no/such"])), @r"
    Untagged: coracle/hello:latest
    error: there is no image 'no/such'
      hint: 'coracle images' lists what is there, 'coracle pull' fetches
    status 1
    ");
    Ok(())
}

fn trees_in_and_out() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    std::fs::create_dir_all(home.join("tree/etc")).unwrap();
    std::fs::write(home.join("tree/etc/name"), "a tree\n").unwrap();
    printed(
        home,
        &["import", "-q", "-c", "CMD [\"/x\"]", "-c", "ENV A=\"b c\"", "tree", "my/tree:1"],
    );
    assert_eq!(
        printed(home, &["inspect", "-f", "{{json .Config.Cmd}} {{.Config.Env}}", "my/tree:1"]),
        "[\"/x\"] [A=b c]\n"
    );
    printed(home, &["create", "--name", "tree", "my/tree:1"]);
    assert_eq!(printed(home, &["cp", "tree:/etc/name", "out"]), "");
    assert_eq!(std::fs::read_to_string(home.join("out")).unwrap(), "a tree\n");
    printed(home, &["export", "-o", "tree.tar", "tree"]);
    let listed =
        std::process::Command::new("tar").arg("tf").arg(home.join("tree.tar")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("etc/name"));
    assert_eq!(printed(home, &["diff", "tree"]), "");
    Ok(())
}
