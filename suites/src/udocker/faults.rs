//! Tests of udocker's known faults.

use std::fs;

use testkit::command::{Input, run_with};
use testkit::docker_registry::DockerRegistry;
use testkit::layer::Layer;
use testkit::skip::Outcome;

use crate::udocker::world::{Case, IMAGE, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("arguments_pass_unchanged", arguments_pass_unchanged),
    ("short_options_together", short_options_together),
    ("volumes_have_modes", volumes_have_modes),
    ("volumes_at_the_same_place", volumes_at_the_same_place),
    ("nothing_of_an_image_is_lost", nothing_of_an_image_is_lost),
    ("options_of_dockers", options_of_dockers),
    ("missing_volumes_are_refused", missing_volumes_are_refused),
    ("signals_are_128_and_n", signals_are_128_and_n),
    ("output_is_whole", output_is_whole),
    ("entrypoints", entrypoints),
    ("variables", variables),
    ("registries_with_ports", registries_with_ports),
    ("archives_with_a_repeated_empty_layer", archives_with_a_repeated_empty_layer),
    ("many_runs_of_one_container", many_runs_of_one_container),
];

fn arguments_pass_unchanged(w: &World) -> Outcome {
    let done = w.udocker(&[
        "run",
        "--rm",
        IMAGE,
        "sh",
        "-c",
        "printf '<%s>' \"$@\"",
        "x",
        "",
        "a b",
        "$HOME",
        "'\"",
        "--rm",
        "",
    ]);
    assert_eq!(done.ok().out(), "<><a b><$HOME><'\"><--rm><>");
    Ok(())
}

/// A terminal is allocated if the caller has one; here it has none.
fn short_options_together(w: &World) -> Outcome {
    for flags in [&["-it"][..], &["-i", "-t"], &["-ti"], &["-t"]] {
        let mut words = vec!["run", "--rm"];
        words.extend(flags);
        words.extend([IMAGE, "cat"]);
        let input = Input::Bytes(b"through\n".to_vec());
        let done = run_with(&mut w.command(&[], &words), input, testkit::person::LIMIT);
        assert_eq!(done.ok().out(), "through\n");
    }
    Ok(())
}

fn volumes_have_modes(w: &World) -> Outcome {
    let dir = w.dir("volume with spaces");
    w.file(&dir.join("in put"), "text\n");
    let volume = format!("{}:/data:ro", dir.display());
    let done =
        w.sh(&["-v", &volume], "cat '/data/in put'; touch /data/new 2>/dev/null || echo refused");
    assert_eq!(done.ok().out(), "text\nrefused\n");
    let file = format!("--volume={}:/one file:rw", dir.join("in put").display());
    assert_eq!(
        w.sh(&[&file], "echo more >>'/one file'; cat '/one file'").ok().out(),
        "text\nmore\n"
    );
    Ok(())
}

fn volumes_at_the_same_place(w: &World) -> Outcome {
    let dir = w.dir("same");
    w.file(&dir.join("f"), "here\n");
    let place = dir.display().to_string();
    let done = w.sh(
        &["-v", &place, "-v", "/dev", "-v", "/proc", "-v", "/etc/hosts", "--nosysdirs"],
        &format!("cat {place}/f; test -c /dev/null && test -e /proc/self && echo well"),
    );
    assert_eq!(done.ok().out(), "here\nwell\n");
    Ok(())
}

fn nothing_of_an_image_is_lost(w: &World) -> Outcome {
    let done = w.sh(&[], "cat /opt/app/dev/x; stat -c %a /opt/app/setuid");
    assert_eq!(done.ok().out(), "kept\n4755\n");
    Ok(())
}

fn options_of_dockers(w: &World) -> Outcome {
    let dir = w.dir("mount");
    w.file(&dir.join("f"), "mounted\n");
    let mount = format!("type=bind,src={},dst=/m,ro", dir.display());
    assert_eq!(w.sh(&["--mount", &mount, "--network=host"], "cat /m/f").ok().out(), "mounted\n");
    // Each of these works, or is refused in one line with the reason.
    for flag in [
        "--shm-size=64m",
        "--memory=512m",
        "--hostname=other",
        "--gpus=1",
        "--kernel=3.10",
        "--volumes-from=none",
    ] {
        let done = w.sh(&[flag], "echo ran");
        if done.code() != 0 {
            done.expect(1);
            assert!(done.err().starts_with("error: ") && done.err().contains("hint: "), "{done:?}");
        }
    }
    Ok(())
}

/// As with udocker; Docker makes the directory.
fn missing_volumes_are_refused(w: &World) -> Outcome {
    let missing = w.dir("volume").join("missing");
    let done = w.sh(&["-v", &format!("{}:/m", missing.display())], "echo ran");
    done.expect(1);
    assert!(done.err().contains("missing"), "{done:?}");
    assert!(!missing.exists(), "the directory was made");
    Ok(())
}

fn signals_are_128_and_n(w: &World) -> Outcome {
    w.sh(&[], "kill -9 $$").expect(137);
    w.sh(&[], "kill -15 $$").expect(143);
    w.sh(&[], "exit 255").expect(255);
    Ok(())
}

fn output_is_whole(w: &World) -> Outcome {
    let done = w.sh(&[], "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done");
    let wanted: Vec<String> = (0..2000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(done.ok().out(), wanted.concat());
    Ok(())
}

fn entrypoints(w: &World) -> Outcome {
    let dir = w.dir("script");
    w.file(&dir.join("s.sh"), "echo script \"$@\"\n");
    let volume = format!("--volume={}:/s", dir.display());
    let done = w.udocker(&["run", "--rm", &volume, "--entrypoint=/bin/sh /s/s.sh", IMAGE, "a b"]);
    assert_eq!(done.ok().out(), "script a b\n");
    assert_eq!(w.udocker(&["run", "--rm", "--entrypoint=", IMAGE, "echo", "x"]).ok().out(), "x\n");
    let bare = w.udocker(&[
        "run",
        "--rm",
        "--nometa",
        "-e",
        "PATH=/bin",
        IMAGE,
        "sh",
        "-c",
        "echo ${OF_IMAGE-unset}",
    ]);
    assert_eq!(bare.ok().out(), "unset\n");
    Ok(())
}

fn variables(w: &World) -> Outcome {
    let dir = w.dir("variables");
    let file = format!("--env-file={}", w.file(&dir.join("env"), "# none\nB=b c\nEMPTY=\n"));
    let words = [
        "run",
        "--rm",
        "--env=A=1 2",
        "-e",
        "COPIED",
        &file,
        IMAGE,
        "sh",
        "-c",
        "echo \"$A|$B|${EMPTY-unset}|$COPIED\"",
    ];
    assert_eq!(w.udocker_with(&[("COPIED", "yes")], &words).ok().out(), "1 2|b c||yes\n");
    let host = w.udocker_with(
        &[("OF_HOST", "1")],
        &["run", "--rm", "--hostenv", IMAGE, "sh", "-c", "echo $OF_HOST"],
    );
    assert_eq!(host.ok().out(), "1\n");
    // The container's name and id are in it too.
    let name = w.unique("named");
    let id = w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok().line();
    let script = "echo \"$container_uuid|$container_names|$container_ruser|$SHLVL|$PS1|${container_root##*/}\"; [ -n \"$container_execmode\" ]";
    let done = w.udocker(&["run", &name, "busybox", "sh", "-c", script]);
    let user = &w.person.user.name;
    assert_eq!(done.ok().out(), format!("{id}|{name}|{user}|1|{}# |ROOT\n", &id[..8]), "{done:?}");
    w.udocker(&["rm", &name]).ok();
    // The user's name in the environment is correct, whatever the image says.
    assert_eq!(w.sh(&[], "echo $USER $LOGNAME").ok().out(), "root root\n");
    assert_eq!(w.sh(&["-e", "USER=me"], "echo $USER $HOME").ok().out(), "me /root\n");
    let hidden = w.udocker_with(
        &[("OF_HOST", "1")],
        &["run", "--rm", IMAGE, "sh", "-c", "echo ${OF_HOST-hidden}"],
    );
    assert_eq!(hidden.ok().out(), "hidden\n");
    Ok(())
}

/// `HOST:PORT/NAME`, and `--registry=URL` with a bare name.
fn registries_with_ports(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    let layer = Layer::new().file("x", 0o644, w.unique("x")).finish();
    registry.target().image("sci/ports", "1", &image(&layer)).expect("pushing");
    let name = format!("{}/sci/ports:1", registry.host());
    w.udocker(&["--insecure", "pull", &name]).ok();
    assert!(w.udocker(&["images"]).ok().out().contains(&format!("{name}    .\n")));
    w.udocker(&["rmi", &name]).ok();
    let url = format!("http://{}", registry.host());
    w.udocker(&["pull", &format!("--registry={url}"), "sci/ports:1"]).ok();
    w.udocker(&["rmi", &name]).ok();
    w.udocker_with(&[("UDOCKER_REGISTRY", &url)], &["pull", "sci/ports:1"]).ok();
    let tags = w.udocker(&["search", "--list-tags", &format!("--registry={url}"), "sci/ports"]);
    assert_eq!(tags.ok().out(), "1\n");
    let manifest = w.udocker(&["--insecure", "manifest", "inspect", &name]);
    assert!(manifest.ok().out().contains("\"layers\""), "{manifest:?}");
    w.udocker(&["rmi", &name]).ok();
    Ok(())
}

/// An archive in the form of `docker save` since version 25: a layout, with a layer that is in the
/// manifest twice.
fn archives_with_a_repeated_empty_layer(w: &World) -> Outcome {
    let dir = w.dir("repeated");
    let first = Layer::new().file("first", 0o644, w.unique("one")).finish();
    let empty = Layer::new().finish();
    let built = testkit::image::Image::new()
        .packed(first, testkit::image::Pack::Plain)
        .packed(empty.clone(), testkit::image::Pack::Plain)
        .packed(empty, testkit::image::Pack::Plain)
        .build();
    let layout = dir.join("layout");
    let name = format!("localhost/sci/{}:25", w.unique("repeated"));
    built.write_layout(&layout, &name).expect("a layout");
    let archive = dir.join("saved.tar");
    let packed = std::process::Command::new("tar")
        .args(["-C", &layout.display().to_string(), "-cf", &archive.display().to_string(), "."])
        .status();
    assert!(packed.is_ok_and(|status| status.success()));
    let done = w.udocker(&["load", "-i", &archive.display().to_string()]);
    assert_eq!(done.ok().out(), format!("{name}\n"));
    let id = w.udocker(&["create", &name]).ok().line();
    let root = w.udocker(&["inspect", "-p", &id]).ok().line();
    assert!(fs::metadata(format!("{root}/first")).is_ok());
    w.udocker(&["rm", &id]).ok();
    Ok(())
}

fn many_runs_of_one_container(w: &World) -> Outcome {
    let name = w.unique("shared");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8)
            .map(|n| {
                let name = &name;
                scope.spawn(move || {
                    w.udocker(&["run", name, "sh", "-c", &format!("exit {n}")]).code()
                })
            })
            .collect();
        let codes: Vec<i32> = runs.into_iter().map(|run| run.join().expect("a run")).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
    });
    w.udocker(&["rm", &name]).ok();
    Ok(())
}
