//! Tests of `--gpus`, `--nvidia`, `setup --nvidia` and CDI names, with a simulated driver. No real
//! GPU is used.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use testkit::command::{copy_program, find_program};
use testkit::person::LIMIT;
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::integration::driver::{self, Layout};
use crate::integration::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("debian", |w| whole(w, Layout::Debian)),
    ("run_file", |w| whole(w, Layout::Run)),
    ("rhel", |w| whole(w, Layout::Rhel)),
    ("prefix", |w| whole(w, Layout::Prefix)),
    ("setup_is_kept", setup_is_kept),
    ("selected_gpus", selected_gpus),
    ("concurrent_runs_have_their_own_devices", concurrent_runs_have_their_own_devices),
    ("by_cdi", by_cdi),
    ("image_without_a_c_library", image_without_a_c_library),
    ("none_here", none_here),
    ("others", others),
];

const VERSION: &str = "550.54.15";

/// A driver root, and directories of CDI files, without anything of this machine.
struct Place {
    top: PathBuf,
    root: String,
    cdi: String,
}

impl Place {
    fn new(w: &World) -> Self {
        let top = w.dir("gpus");
        let [root, cdi] = ["root", "cdi"].map(|name| {
            fs::create_dir_all(top.join(name)).expect("a directory");
            top.join(name).display().to_string()
        });
        Self { top, root, cdi }
    }

    fn variables(&self) -> [(&str, &str); 2] {
        [("CORACLE_DRIVER_ROOT", &self.root), ("CORACLE_CDI_DIRS", &self.cdi)]
    }
}

/// All files of a driver are found.
fn whole(w: &World, layout: Layout) -> Outcome {
    let place = Place::new(w);
    driver::tree(Path::new(&place.root), layout, VERSION, 1)?;
    let program = driver::program(&place.top, true)?;
    let bind = format!("{}:/cuda:ro", program.display());
    let script = "/cuda; nvidia-smi; cat /etc/OpenCL/vendors/nvidia.icd; ls TOP/vulkan/icd.d; ls /usr/share/glvnd/egl_vendor.d
        cat /lib/firmware/nvidia/*/gsp_ga10x.bin; echo; ls -d /dev/nvidia*; env | grep LD_LIBRARY_PATH || :
        stat -L -c %i /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so; ls /usr/lib/i386-linux-gnu 2>&1 || :";
    let top = if matches!(layout, Layout::Prefix) { "/usr/share" } else { "/etc" };
    let script = script.replace("TOP", top);
    let done = w.sh(&place.variables(), &["--gpus", "all", "-v", &bind], &script);
    let library = fs::metadata(real_library(&place, layout)).expect("the library").ino();
    let expected = format!(
        "cuInit 0\ndriver {VERSION}\nnvidia-smi {VERSION}\nlibnvidia-opencl.so.1\n\
         nvidia_icd.json\n10_nvidia.json\nfirmware\n/dev/nvidia-uvm\n/dev/nvidia0\n/dev/nvidiactl\n{library}\n{library}\n\
         ls: cannot access '/usr/lib/i386-linux-gnu': No such file or directory\n"
    );
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn real_library(place: &Place, layout: Layout) -> PathBuf {
    let directory = match layout {
        Layout::Debian => "usr/lib/x86_64-linux-gnu/nvidia/current",
        Layout::Run => "usr/lib/x86_64-linux-gnu",
        Layout::Rhel => "usr/lib64",
        Layout::Prefix => "usr/local/nvidia/lib64",
    };
    Path::new(&place.root).join(directory).join(format!("libcuda.so.{VERSION}"))
}

/// A container that was set up once gets the driver that exists at its start, and none after the
/// setting is removed.
fn setup_is_kept(w: &World) -> Outcome {
    let place = Place::new(w);
    let program = driver::program(&place.top, true)?;
    let bind = format!("{}:/cuda:ro", program.display());
    let name = w.unique("c");
    let mode = format!("--execmode={}", w.engine);
    let image = crate::integration::world::IMAGE;
    w.coracle(&[], &["create", "--name", &name, &mode, "-v", &bind, image, "/cuda"]).ok();
    w.coracle(&[], &["setup", "--nvidia", &name]).ok();
    for version in [VERSION, "570.86.10"] {
        let _ = fs::remove_dir_all(&place.root);
        fs::create_dir(&place.root).expect("a directory");
        driver::tree(Path::new(&place.root), Layout::Debian, version, 1)?;
        let done = w.coracle(&place.variables(), &["run", &name]);
        assert_eq!(done.ok().out(), format!("cuInit 0\ndriver {version}\n"), "{done:?}");
    }
    w.coracle(&[], &["setup", "--gpus=none", &name]).ok();
    let done = w.coracle(&place.variables(), &["run", &name]);
    assert_eq!(done.code(), 1, "{done:?}");
    let done = w.coracle(&place.variables(), &["run", "--nvidia", &name]);
    assert_eq!(done.ok().out(), "cuInit 0\ndriver 570.86.10\n", "{done:?}");
    w.coracle(&[], &["rm", &name]).ok();
    Ok(())
}

/// A number, an index, a UUID: the other GPUs are absent.
fn selected_gpus(w: &World) -> Outcome {
    let place = Place::new(w);
    driver::tree(Path::new(&place.root), Layout::Run, VERSION, 3)?;
    for (gpus, seen) in [("2", "0 1"), ("device=2", "2"), ("\"device=GPU-11111,0\"", "0 1")] {
        let script = "cd /dev; echo $(ls -d nvidia[0-9]* | tr -d a-z); ls null tty nvidiactl";
        let done = w.sh(&place.variables(), &["--gpus", gpus], script);
        assert_eq!(done.ok().out(), format!("{seen}\nnull\nnvidiactl\ntty\n"), "{gpus}: {done:?}");
    }
    for gpus in ["4", "device=3", "several"] {
        let done = w.sh(&place.variables(), &["--gpus", gpus], "true");
        assert_eq!(done.code(), 125, "{gpus}: {done:?}");
        assert!(done.err().contains("hint: "), "{gpus}: {done:?}");
    }
    Ok(())
}

/// Concurrent runs in one container have their own devices, and share their memory.
fn concurrent_runs_have_their_own_devices(w: &World) -> Outcome {
    if w.engine == "N1" {
        testkit::skip!("who comes later is in the mounts of who was first");
    }
    let place = Place::new(w);
    driver::tree(Path::new(&place.root), Layout::Run, VERSION, 3)?;
    let name = w.container();
    let words =
        |gpus, script| ["run", "-i", "--tmpfs=/t", "--gpus", gpus, &name, "sh", "-euc", script];
    let waits = words(
        "device=0",
        "touch /t/first; echo ready; read -r line; echo still $(ls -d /dev/nvidia[0-9]) seen",
    );
    let mut first = Running::start(&mut w.command(&place.variables(), &waits));
    first.expect("ready");
    for (gpus, seen) in [("device=2", "/dev/nvidia2\n"), ("2", "/dev/nvidia0\n/dev/nvidia1\n")] {
        let script = "ls -d /dev/nvidia[0-9] /t/first";
        let done = w.coracle(&place.variables(), &words(gpus, script));
        assert_eq!(done.ok().out(), format!("{seen}/t/first\n"), "{done:?}");
    }
    first.feed(b"go on\n");
    first.expect("still /dev/nvidia0 seen");
    assert_eq!(first.end(LIMIT), 0, "{}", first.text());
    Ok(())
}

/// A file in the form of NVIDIA's generator, for a host with another layout than the image.
fn by_cdi(w: &World) -> Outcome {
    let place = Place::new(w);
    driver::tree(Path::new(&place.root), Layout::Rhel, VERSION, 1)?;
    let root = &place.root;
    let mut text = String::from(
        "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  hooks:\n  \
         - args: [nvidia-cdi-hook, create-symlinks, --link, 'libcuda.so.1::/usr/lib64/libcuda.so']\n    hookName: createContainer\n    \
         path: /usr/bin/nvidia-cdi-hook\n  - args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64]\n    hookName: createContainer\n    \
         path: /usr/bin/nvidia-cdi-hook\n  - hookName: poststop\n    path: /usr/bin/special\n  mounts:\n",
    );
    for name in
        ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libEGL_nvidia", "libnvidia-glcore"]
    {
        let path = format!("/usr/lib64/{name}.so.{VERSION}");
        let _ = writeln!(
            text,
            "  - hostPath: {root}{path}\n    containerPath: {path}\n    options: [ro, nosuid, nodev, rbind, rprivate]"
        );
    }
    let _ = writeln!(
        text,
        "  - containerPath: /usr/bin/nvidia-smi\n    hostPath: {root}/usr/bin/nvidia-smi\n    options:\n    - ro"
    );
    for name in ["0", "all"] {
        let start = if name == "0" { "devices:\n" } else { "" };
        let _ = writeln!(
            text,
            "{start}- name: \"{name}\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n      hostPath: {root}/dev/nvidia0"
        );
    }
    w.file(&Path::new(&place.cdi).join("nvidia.yaml"), text);
    let program = driver::program(&place.top, true)?;
    let bind = format!("{}:/cuda:ro", program.display());
    let script = "/cuda; nvidia-smi; ls -d /dev/nvidia*; echo $NVIDIA_VISIBLE_DEVICES; ls /usr/lib64/libcuda*";
    for flag in ["--device=nvidia.com/gpu=0", "--gpus=all", "--gpus=1", "--gpus=device=0"] {
        let done = w.sh(&place.variables(), &[flag, "-v", &bind], script);
        let expected = format!(
            "cuInit 0\ndriver {VERSION}\nnvidia-smi {VERSION}\n/dev/nvidia0\nvoid\n\
             /usr/lib64/libcuda.so\n/usr/lib64/libcuda.so.1\n/usr/lib64/libcuda.so.{VERSION}\n"
        );
        assert_eq!(done.ok().out(), expected, "{flag}: {done:?}");
        assert!(done.err().contains("not run: /usr/bin/special"), "{done:?}");
    }
    let done = w.sh(&place.variables(), &["--device=nvidia.com/gpu=7"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(
        done.err().contains("hint: described devices: nvidia.com/gpu=0, nvidia.com/gpu=all"),
        "{done:?}"
    );
    fs::remove_file(Path::new(root).join("usr/bin/nvidia-smi")).expect("it was there");
    let done = w.sh(&place.variables(), &["--device=nvidia.com/gpu=0"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.err().contains("nvidia-ctk cdi generate"), "{done:?}");
    Ok(())
}

/// A tree of static programs gets libraries in a separate directory, and the variable that names
/// it.
fn image_without_a_c_library(w: &World) -> Outcome {
    let Some(busybox) = find_program("busybox") else {
        testkit::skip!("busybox is not installed");
    };
    let place = Place::new(w);
    driver::tree(Path::new(&place.root), Layout::Run, VERSION, 1)?;
    let tree = w.dir("tree");
    for name in ["bin", "dev", "etc", "proc", "sys", "usr"] {
        fs::create_dir(tree.join(name)).expect("a directory");
        w.person.give(&tree.join(name));
    }
    copy_program(&busybox, &tree.join("bin/sh"));
    let mode = format!("--execmode={}", w.engine);
    let tree = tree.display().to_string();
    let script = "echo $LD_LIBRARY_PATH; cd /usr/local/nvidia/lib64; echo libcuda*";
    let words = [
        "run",
        "--rm",
        &mode,
        "--gpus=all",
        "-e",
        "LD_LIBRARY_PATH=/own",
        "--rootfs",
        &tree,
        "/bin/sh",
        "-c",
        script,
    ];
    let done = w.coracle(&place.variables(), &words);
    let expected =
        format!("/usr/local/nvidia/lib64:/own\nlibcuda.so libcuda.so.1 libcuda.so.{VERSION}\n");
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn none_here(w: &World) -> Outcome {
    if Path::new("/dev/dri").exists() {
        testkit::skip!("this machine has a GPU");
    }
    let place = Place::new(w);
    let done = w.sh(&place.variables(), &["--gpus=all"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    let told = done.err();
    assert!(told.contains("no GPU was found on this host") && told.contains("hint: "), "{told}");
    // A driver whose module is not loaded is another case.
    driver::tree(Path::new(&place.root), Layout::Run, VERSION, 0)?;
    fs::remove_dir_all(Path::new(&place.root).join("dev")).expect("it was there");
    let done = w.sh(&place.variables(), &["--gpus=all"], "true");
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.err().contains("none of its device nodes"), "{done:?}");
    Ok(())
}

/// AMD's and Intel's libraries are in the image: only nodes are needed.
fn others(w: &World) -> Outcome {
    let place = Place::new(w);
    let devices = Path::new(&place.root).join("dev/dri");
    fs::create_dir_all(&devices).expect("a directory");
    for path in [devices.join("renderD128"), devices.join("card0"), devices.join("../kfd")] {
        std::os::unix::fs::symlink("/dev/zero", path).expect("a node");
    }
    let script = "ls /dev/dri /dev/kfd; head -c1 /dev/kfd | od -An -tx1";
    let done = w.sh(&place.variables(), &["--gpus=all"], script);
    assert_eq!(done.ok().out(), "/dev/kfd\n\n/dev/dri:\nrenderD128\n 00\n", "{done:?}");
    Ok(())
}
