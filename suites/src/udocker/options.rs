//! Tests of the options of `run`, each with its effect: for a new container, and for an existing
//! one.

use std::fs;

use testkit::command::{copy_program, find_program};
use testkit::skip::Outcome;

use crate::udocker::world::{Case, IMAGE, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("user_and_working_directory", user_and_working_directory),
    ("users_of_the_container", users_of_the_container),
    ("files_of_the_host", files_of_the_host),
    ("names_of_hosts", names_of_hosts),
    ("processors", processors),
    ("options_without_effect_are_accepted", options_without_effect_are_accepted),
    ("trees_outside", trees_outside),
    ("further_names", further_names),
    ("without_the_images_settings", without_the_images_settings),
    ("name_of_the_terminal", name_of_the_terminal),
];

/// By name, by number and by both; a program starts in its home unless told otherwise, and in `/`
/// if the container has no home for its user.
fn user_and_working_directory(w: &World) -> Outcome {
    for (flags, said) in [
        (&[][..], "0\n0\n/root\n"),
        (&["--user=root"], "0\n0\n/root\n"),
        (&["-u", "0"], "0\n0\n/root\n"),
        (&["--user=77"], "77\n0\n/\n"),
        (&["-u", "77:88", "-w", "/tmp"], "77\n88\n/tmp\n"),
        (&["--workdir=/opt/app"], "0\n0\n/opt/app\n"),
        (&["--workdir", "/made/here"], "0\n0\n/made/here\n"),
    ] {
        let done = w.sh(flags, "id -u; id -g; pwd");
        assert_eq!(done.ok().out(), said, "{flags:?}: {done:?}");
    }
    let done = w.sh(&["--workdir=here"], "true");
    assert!(done.expect(1).err().contains("absolute"), "{done:?}");
    Ok(())
}

/// Users that a program adds to the image's own list count from then on.
fn users_of_the_container(w: &World) -> Outcome {
    let name = w.unique("users");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    let add = "mkdir -p /home/ada; echo 'lab:x:88:' >>/etc/group; echo 'ada:x:77:88::/home/ada:/bin/sh' >>/etc/passwd";
    w.udocker(&["run", "--containerauth", &name, "sh", "-c", add]).ok();
    for flag in ["--user=ada", "--user=77"] {
        let script = "id -u; id -un; id -gn; pwd; echo $HOME";
        let done = w.udocker(&["run", "--containerauth", flag, &name, "sh", "-c", script]);
        assert_eq!(done.ok().out(), "77\nada\nlab\n/home/ada\n/home/ada\n", "{flag}: {done:?}");
    }
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

fn files_of_the_host(w: &World) -> Outcome {
    let file = w.file(&w.person.home.join(w.unique("of-home")), "mine\n");
    let script = format!("cat {file}");
    w.sh(&[], &script).expect(1);
    assert_eq!(w.sh(&["--bindhome"], &script).ok().out(), "mine\n");
    // These are not mounts that could be left out, and every container keeps its basic ones.
    let flags = ["--novol=/proc", "--novol", "/sys", "--novol=/etc/resolv.conf", "--nosysdirs"];
    let script = "test -e /proc/self/exe && test -c /dev/null && test -d /sys/kernel && echo well";
    assert_eq!(w.sh(&flags, script).ok().out(), "well\n");
    let flags = ["--device=/dev/zero", "--device", "/dev/null:/dev/nothing"];
    let done = w.sh(&flags, "head -c 3 /dev/zero | wc -c; test -c /dev/nothing && echo node");
    assert_eq!(done.ok().out(), "3\nnode\n", "{done:?}");
    w.sh(&["--device=/dev/no-such-device"], "true").expect(1);
    // A host without a screen is no error.
    assert_eq!(w.sh(&["--dri"], "echo ran").ok().out(), "ran\n");
    Ok(())
}

fn names_of_hosts(w: &World) -> Outcome {
    let flags = ["--dns=192.0.2.1", "--dns", "192.0.2.2", "--dns-search=example.org"];
    let text = w.sh(&flags, "cat /etc/resolv.conf").ok().out();
    for line in ["nameserver 192.0.2.1", "nameserver 192.0.2.2", "search example.org"] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    Ok(())
}

fn processors(w: &World) -> Outcome {
    let name = w.unique("processors");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    for target in [&["--rm", IMAGE][..], &[&name]] {
        let grep = ["grep", "Cpus_allowed_list", "/proc/self/status"];
        let done = w.udocker(&[&["run", "--cpuset-cpus=0"][..], target, &grep].concat());
        assert_eq!(done.ok().out(), "Cpus_allowed_list:\t0\n", "{done:?}");
    }
    w.sh(&["--cpuset-cpus=none"], "true").expect(1);
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// Options without effect, here or in udocker, are accepted, also for an existing container.
fn options_without_effect_are_accepted(w: &World) -> Outcome {
    let name = w.unique("taken");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    for flags in [
        &["-i", "-t", "-a"][..],
        &["-ita"],
        &["--attach"],
        &["--dns=192.0.2.1", "--dns-search=example.org"],
        &["--volumes-from=nobody"],
        &["--novol=/dev", "--nosysdirs"],
        &["--netcoop"],
        &["-P"],
        &["--publish-all"],
        &["-p", "18099:18099"],
        &["--publish=18099:18099"],
        &["--dri"],
        &["--containerauth", "--nobanner"],
        &["--platform=linux/amd64"],
        &["--pull=missing"],
        &["--pull=never"],
        &["--pull=reuse"],
        &["--index=https://index.example.org", "--registry=https://registry.example.org"],
        &["--httpproxy=socks5://127.0.0.1:1"],
    ] {
        for target in [&["--rm", IMAGE][..], &[&name]] {
            let words = [&["run"][..], flags, target, &["echo", "a", "ran"]].concat();
            let done = w.udocker(&words);
            assert_eq!(done.ok().out(), "a ran\n", "{done:?}");
        }
    }
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// `--location`: a tree outside of the store, with all other options; nothing of it is stored.
fn trees_outside(w: &World) -> Outcome {
    let Some(busybox) = find_program("busybox") else { testkit::skip!("busybox is not installed") };
    let dir = w.dir("trees");
    let tree = w.below(&dir, "tree");
    copy_program(&busybox, &w.below(&tree, "bin").join("busybox"));
    let place = format!("--location={}", tree.display());
    let data = format!("--volume={}:/data", dir.display());
    let script = "pwd; /bin/busybox id -u; echo $A; /bin/busybox ls /data; echo changed >/made";
    let flags = ["run", &place, &data, "--workdir=/tmp", "--env=A=b c", "--nobanner"];
    let done = w.udocker(&[&flags[..], &["/bin/busybox", "sh", "-c", script]].concat());
    assert_eq!(done.ok().out(), "/tmp\n0\nb c\ntree\n", "{done:?}");
    assert_eq!(fs::read_to_string(tree.join("made")).expect("a file"), "changed\n");
    let seen = fs::canonicalize(&tree).expect("its path").display().to_string();
    let shown = w.udocker(&["ps"]).ok().out();
    assert!(!shown.contains(&seen), "{shown}");
    // With a name it is stored as such a tree.
    let name = w.unique("tree");
    let named = format!("--name={name}");
    w.udocker(&["run", &place, &named, "/bin/busybox", "true"]).ok();
    let shown = w.udocker(&["ps"]).ok().out();
    let line = shown.lines().find(|line| line.contains(&name)).expect("its line");
    assert!(line.ends_with(&seen), "{line}");
    let done = w.udocker(&["run", &name, "/bin/busybox", "cat", "/made"]);
    assert_eq!(done.ok().out(), "changed\n");
    w.udocker(&["rm", &name]).ok();
    assert!(tree.join("made").exists());
    w.udocker(&["run", "--location=/no/such/tree", "/bin/true"]).expect(1);
    Ok(())
}

/// `--name` of an existing container is a further name of it.
fn further_names(w: &World) -> Outcome {
    let (first, second, other) = (w.unique("first"), w.unique("second"), w.unique("other"));
    let id = w.udocker(&["create", &format!("--name={first}"), IMAGE]).ok().line();
    w.udocker(&["create", &format!("--name={other}"), IMAGE]).ok();
    for _ in 0..2 {
        w.udocker(&["run", &format!("--name={second}"), &first, "true"]).ok();
    }
    for name in [&first, &second] {
        let done = w.udocker(&["run", name, "sh", "-c", "echo $container_uuid"]);
        assert_eq!(done.ok().line(), id, "{name}");
    }
    let taken = w.udocker(&["run", &format!("--name={other}"), &first, "true"]);
    assert!(taken.expect(1).err().contains(&other), "{taken:?}");
    w.udocker(&["rm", &first, &other]).ok();
    Ok(())
}

/// `--nometa` of an existing container: for that run alone.
fn without_the_images_settings(w: &World) -> Outcome {
    let name = w.unique("bare");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    let script = "echo ${OF_IMAGE-unset} $USER";
    let words = ["run", "--nometa", "-e", "PATH=/bin", &name, "sh", "-c", script];
    assert_eq!(w.udocker(&words).ok().out(), "unset root\n");
    assert_eq!(w.udocker(&["run", &name, "sh", "-c", script]).ok().out(), "yes root\n");
    // No command is left either, so a shell is started, which has no input.
    let done = w.udocker(&["run", "--nometa", "-e", "PATH=/bin", &name]);
    assert!(!done.ok().out().contains("from the image"), "{done:?}");
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// This variable of the host is passed on by default, since programs need it to draw.
fn name_of_the_terminal(w: &World) -> Outcome {
    let name = w.unique("terminal");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    let script = ["sh", "-c", "echo ${TERM-none}"];
    for target in [&["--rm", IMAGE][..], &[&name]] {
        let words = [&["run"][..], target, &script].concat();
        let done = w.udocker_with(&[("TERM", "vt220")], &words);
        assert_eq!(done.ok().out(), "vt220\n", "{target:?}");
        assert_eq!(w.udocker(&words).ok().out(), "none\n", "{target:?}");
    }
    w.udocker(&["rm", &name]).ok();
    Ok(())
}
