//! Tests with the kernel's overlay: mounted in a user namespace, it must show what the layers
//! define, and the owner layer must show true owners.

use crate::common::{Place, marks_on_disk};
use rootfs::owner_layer;
use rootfs::pack::{self, Options};
use rootfs::union::IdMap;
use rootfs::{Driver, ImageTrees, Plan, Root, image};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use testkit::layer::{Entry, Layer};

/// Runs a script with an overlay of these directories mounted at `$1`, in user and mount namespaces
/// with one id mapped.
fn in_overlay(place: &Place, root: &Root, script: &str) -> Option<String> {
    let Root::Overlay { lowers, upper, work, .. } = root else { panic!("{root:?}") };
    let lowers: Vec<_> = lowers.iter().map(|lower| lower.to_str().unwrap()).collect();
    let options = format!(
        "userxattr,volatile,lowerdir={},upperdir={},workdir={}",
        lowers.join(":"),
        upper.display(),
        work.display()
    );
    let mount = place.fresh();
    // A volatile mount leaves a mark that forbids the next; who mounts removes it.
    let clear = format!("rm -rf '{}/work/incompat'", work.display());
    let script = format!("{clear}; mount -t overlay overlay -o {options} $1 && cd $1 && {script}");
    let output =
        Command::new("unshare").args(["-Urm", "sh", "-ec", &script, "sh"]).arg(&mount).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIP overlay: unshare: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && (errors.contains("unshare") || errors.contains("mount")) {
        eprintln!("SKIP overlay: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn overlay_shows_the_layers() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let (base, _) = place.apply(
        &Layer::new()
            .entry(&Entry::new(b'5', "./").mode(0o755))
            .dir("d")
            .file("d/old", 0o644, "old")
            .dir("o")
            .file("o/hidden", 0o644, "x")
            .dir("w")
            .file("w/x", 0o644, "x")
            .dir("back")
            .file("back/hidden", 0o644, "x")
            .file("gone", 0o644, "x")
            .file("locked", 0o000, "secret")
            .entry(&Entry::new(b'5', "closed").mode(0o000))
            .finish(),
    );
    let (top, _) = place.apply(
        &Layer::new()
            .file("d/new", 0o644, "new")
            .dir("o")
            .file("o/seen", 0o644, "x")
            .opaque("o")
            .whiteout("w")
            .whiteout("gone")
            .dir("back")
            .whiteout("back")
            .file("back/seen", 0o644, "x")
            .finish(),
    );
    let Plan::Ready(image) = image::plan(vec![base, top]).unwrap() else { panic!() };
    let container = place.fresh();
    let root = rootfs::prepare(&container, &image, Driver::Overlay).unwrap();
    let script =
        "find . | sort; cat locked; rm d/old; echo changed > d/new; rm -r o; mkdir o; touch o/mine";
    let Some(seen) = in_overlay(&place, &root, script) else { return };
    let wanted = ". ./back ./back/seen ./closed ./d ./d/new ./d/old ./locked ./o ./o/seen secret";
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>().join(" "), wanted);

    // Reads what the kernel wrote to the upper directory, after a second mount of the same
    // container.
    let root = rootfs::prepare(&container, &image, Driver::Overlay).unwrap();
    in_overlay(&place, &root, "echo again > again").unwrap();
    let ids = IdMap::default();
    let changes = rootfs::diff::diff(&image, &root, &ids).unwrap();
    let lines: Vec<_> = changes
        .iter()
        .map(|change| format!("{} {}", change.kind.letter(), String::from_utf8_lossy(&change.path)))
        .collect();
    assert_eq!(lines, ["A again", "C d", "C d/new", "D d/old", "C o", "A o/mine", "D o/seen"]);
    let mut bytes = Vec::new();
    pack::layer(&image, &root, &ids, Options::default(), &mut bytes).unwrap();
    let (third, _) = place.apply(&bytes);
    let mut layers = vec![third];
    layers.extend(image.layers.clone());
    let committed = ImageTrees { layers, owner_layer: None };
    let (mut exported, mut merged) = (Vec::new(), Vec::new());
    pack::export(Some(&image), Some(&root), &ids, Options::default(), &mut exported).unwrap();
    pack::export(Some(&committed), None, &ids, Options::default(), &mut merged).unwrap();
    let entries = |bytes: &[u8]| {
        let mut archive = tar::Archive::new(bytes);
        let names =
            archive.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(entries(&exported), entries(&merged));
    sys::fs::remove_tree(File::open(&container).unwrap(), b"work").unwrap();
}

const DIRECTORY: &str = "ROOTFS_TEST_OWNER_LAYER";

/// The next test runs this inside a user namespace; by itself it does nothing.
#[test]
#[ignore = "the other half of a test"]
fn inside_a_user_namespace() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let layer = rootfs::Layer::open(&directory.join("layer")).unwrap();
    let staging = File::open(directory.join("staging")).unwrap();
    let built = owner_layer::build(&[layer], staging, owner_layer::Form::True).unwrap();
    std::fs::write(directory.join("staging/built"), format!("{built:?}")).unwrap();
}

#[test]
fn the_owner_layer_has_true_owners() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o755))
        .entry(&Entry::new(b'5', "home").mode(0o711).mtime(7))
        .entry(&Entry::new(b'5', "home/user").mode(0o700).owner(1000, 1000))
        .entry(&Entry::new(b'0', "home/user/f").mode(0o4755).owner(1000, 50).data("content"))
        .entry(&Entry::new(b'2', "home/user/l").owner(1000, 50).link("f"))
        .entry(&Entry::new(b'1', "home/hard").link("home/user/f"))
        .entry(&Entry::new(b'0', "far").owner(900_000, 0).data("x"))
        .file("plain", 0o644, "plain")
        .finish();
    let (layer, _) = place.apply(&tar);
    assert!(owner_layer::is_needed(std::slice::from_ref(&layer)));
    let directory = place.fresh();
    std::os::unix::fs::symlink(&layer.directory, directory.join("layer")).unwrap();
    std::fs::create_dir(directory.join("staging")).unwrap();
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["-U", "--map-root-user", "--map-auto"])
        .arg(program)
        .args(["--exact", "kernel::inside_a_user_namespace", "--ignored", "--nocapture"])
        .env(DIRECTORY, &directory)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIP owner layer: unshare: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare:") || errors.contains("newuidmap") {
        return eprintln!("SKIP owner layer: no subordinate ids: {errors}");
    }
    assert!(output.status.success(), "{errors}");
    let built = std::fs::read_to_string(directory.join("staging/built")).unwrap();
    assert!(built.contains("unmapped: [[102, 97, 114]]"), "{built}");
    let script = "cd $1; find . -printf '%p %U:%G %m %y %n\\n' | sort";
    let output = Command::new("unshare")
        .args(["-U", "--map-root-user", "--map-auto", "sh", "-c", script, "sh"])
        .arg(directory.join("staging/tree"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with(". ")).collect();
    assert_eq!(
        lines,
        [
            "./far 0:0 644 f 1",
            "./home 0:0 711 d 3",
            "./home/hard 1000:50 4755 f 2",
            "./home/user 1000:1000 700 d 2",
            "./home/user/f 1000:50 4755 f 2",
            "./home/user/l 1000:50 777 l 1",
        ]
    );
    // Only root of that namespace can delete it.
    let script = "rm -rf $1";
    let arguments = ["-U", "--map-root-user", "--map-auto", "sh", "-c", script, "sh"];
    Command::new("unshare").args(arguments).arg(directory.join("staging")).status().unwrap();
}
