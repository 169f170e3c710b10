//! A simulated GPU driver: files at the paths of packages, libraries that return their version, and
//! a program that calls them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use testkit::command::{Input, run_with};
use testkit::person::LIMIT;
use testkit::skip::{Skip, need_program};

/// Layout of a driver's files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// Debian's packages: real files in a separate directory, names by `/etc/alternatives`.
    Debian,
    /// NVIDIA's `.run` file on Debian or Ubuntu, and Ubuntu's packages.
    Run,
    /// RHEL and its derivatives.
    Rhel,
    /// All in `/usr/local/nvidia`, and scripts in `/usr/bin` that start the programs from there.
    Prefix,
}

/// Libraries, the names by which programs look for them, and true if they have one for the linker.
const LIBRARIES: [(&str, &str, bool); 5] = [
    ("libcuda", "libcuda.so.1", true),
    ("libnvidia-ml", "libnvidia-ml.so.1", true),
    ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1", false),
    ("libEGL_nvidia", "libEGL_nvidia.so.0", false),
    // Found by its full name only.
    ("libnvidia-glcore", "", false),
];

/// `cuInit` loads a second library, in the same way as the driver.
const LIBRARY: &str = r#"
#include <dlfcn.h>
#include <string.h>
const char *nvmlVersion(void) { return VERSION; }
int cuInit(unsigned flags)
{
    const char *names[] = {"libnvidia-ptxjitcompiler.so.1", "libnvidia-glcore.so." VERSION};
    for (int i = 0; i < 2; i++) {
        void *other = dlopen(names[i], RTLD_NOW);
        if (!other || strcmp(((const char *(*)(void))dlsym(other, "nvmlVersion"))(), VERSION)) return 100 + i;
    }
    return 0;
}
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *egl = dlopen("libEGL_nvidia.so.0", RTLD_NOW);
    void *ml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!cuda || !egl || !ml) return puts(dlerror()), 1;
    printf("cuInit %d\n", ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0));
    printf("driver %s\n", ((const char *(*)(void))dlsym(ml, "nvmlVersion"))());
    return 0;
}
"#;

const SMI: &str = r#"
#include <stdio.h>
int main(void)
{
    puts("nvidia-smi " VERSION);
    return 0;
}
"#;

/// Compiles a program that calls the driver.
pub(crate) fn program(directory: &Path, wide: bool) -> Result<PathBuf, Skip> {
    need_program("gcc")?;
    let bits = if wide { "-m64" } else { "-m32" };
    let program = directory.join(format!("cuda{bits}"));
    compile(&directory.join("cuda.c"), PROGRAM, &program, &[bits, "-ldl"])?;
    Ok(program)
}

/// Results of the compiler by source and arguments: the file, or the error.
type Compiled = BTreeMap<Vec<String>, Result<Vec<u8>, String>>;

/// A cache, since the compiler takes longer than everything else.
static MADE: Mutex<Compiled> = Mutex::new(BTreeMap::new());

fn compile(source: &Path, text: &str, into: &Path, words: &[&str]) -> Result<(), Skip> {
    let key = std::iter::once(&text).chain(words).map(|&word| word.to_owned()).collect();
    let mut known = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = known.entry(key).or_insert_with(|| {
        fs::write(source, text).expect("a source");
        let mut build = Command::new("gcc");
        build.args(["-O1", "-o"]).arg(into).arg(source).args(words);
        let done = run_with(&mut build, Input::Null, LIMIT);
        if done.code() != 0 {
            return Err(format!("gcc {words:?}: {done:?}"));
        }
        Ok(fs::read(into).expect("what was compiled"))
    });
    let bytes = bytes.as_ref().map_err(|why| Skip(why.clone()))?;
    fs::write(into, bytes).expect("a copy");
    fs::set_permissions(into, fs::Permissions::from_mode(0o755)).expect("its mode");
    Ok(())
}

/// Makes the tree of a driver of this version with this many GPUs. It has 32-bit libraries if there
/// is a compiler for them.
pub(crate) fn tree(root: &Path, layout: Layout, version: &str, gpus: usize) -> Result<(), Skip> {
    need_program("gcc")?;
    let (wide, narrow) = match layout {
        Layout::Debian | Layout::Run => ("usr/lib/x86_64-linux-gnu", "usr/lib/i386-linux-gnu"),
        Layout::Rhel => ("usr/lib64", "usr/lib"),
        Layout::Prefix => ("usr/local/nvidia/lib64", "usr/local/nvidia/lib32"),
    };
    libraries(root, layout, wide, version, "-m64")?;
    let _ = libraries(root, layout, narrow, version, "-m32");
    let smi = "#!/bin/sh\necho nvidia-smi VERSION\n".replace("VERSION", version);
    let json = r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}"#;
    match layout {
        Layout::Debian => {
            file(root, "usr/lib/nvidia/current/nvidia-smi", &smi);
            alternative(
                root,
                "usr/bin/nvidia-smi",
                "nvidia--nvidia-smi",
                "/usr/lib/nvidia/current/nvidia-smi",
            );
        }
        Layout::Run | Layout::Rhel => file(root, "usr/bin/nvidia-smi", &smi),
        Layout::Prefix => {
            let real = "usr/local/nvidia/bin/nvidia-smi";
            file(root, "usr/bin/nvidia-smi", &format!("#!/bin/sh\nexec /{real}\n"));
            fs::create_dir_all(root.join("usr/local/nvidia/bin")).expect("a directory");
            let version = format!("-DVERSION=\"{version}\"");
            compile(&root.join("smi.c"), SMI, &root.join(real), &[&version])?;
        }
    }
    let (share, vulkan, firmware) = match layout {
        Layout::Prefix => {
            let prefix = "usr/local/nvidia";
            (format!("{prefix}/share"), format!("{prefix}/share"), format!("{prefix}/firmware"))
        }
        _ => ("usr/share".into(), "etc".into(), "usr/lib/firmware".into()),
    };
    file(root, &format!("{share}/glvnd/egl_vendor.d/10_nvidia.json"), json);
    file(root, "usr/share/glvnd/egl_vendor.d/50_mesa.json", json);
    file(root, &format!("{vulkan}/vulkan/icd.d/nvidia_icd.json"), json);
    file(root, "etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n");
    file(root, &format!("{firmware}/nvidia/{version}/gsp_ga10x.bin"), "firmware");
    file(
        root,
        "proc/driver/nvidia/version",
        &format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu\n"),
    );
    link(root, "dev/nvidiactl", "/dev/null");
    link(root, "dev/nvidia-uvm", "/dev/null");
    for gpu in 0..gpus {
        link(root, &format!("dev/nvidia{gpu}"), "/dev/zero");
        let text = format!(
            "Model: \t Played\nGPU UUID: \t GPU-{gpu}{gpu}{gpu}{gpu}{gpu}\nDevice Minor: \t {gpu}\n"
        );
        file(root, &format!("proc/driver/nvidia/gpus/0000:0{gpu}:00.0/information"), &text);
    }
    Ok(())
}

fn libraries(
    root: &Path,
    layout: Layout,
    place: &str,
    version: &str,
    bits: &str,
) -> Result<(), Skip> {
    let real = match layout {
        Layout::Debian => format!("{place}/nvidia/current"),
        Layout::Run | Layout::Rhel | Layout::Prefix => place.to_owned(),
    };
    for (name, known, for_linker) in LIBRARIES {
        let whole = format!("{name}.so.{version}");
        let soname = if known.is_empty() { &whole } else { known };
        let into = root.join(&real).join(&whole);
        fs::create_dir_all(into.parent().expect("a directory")).expect("a directory");
        let version = format!("-DVERSION=\"{version}\"");
        let soname_option = format!("-Wl,-soname,{soname}");
        let words = [bits, "-shared", "-fPIC", &version, &soname_option];
        compile(&root.join("library.c"), LIBRARY, &into, &words)?;
        if known.is_empty() {
            continue;
        }
        link(root, &format!("{real}/{known}"), &whole);
        let mut names = vec![known.to_owned()];
        if for_linker {
            link(root, &format!("{real}/{name}.so"), known);
            names.push(format!("{name}.so"));
        }
        if matches!(layout, Layout::Debian) {
            let machine = place.rsplit('/').next().unwrap_or_default();
            for one in names {
                let alias = format!("nvidia--{one}-{machine}");
                alternative(root, &format!("{place}/{one}"), &alias, &format!("/{real}/{one}"));
            }
        }
    }
    Ok(())
}

fn alternative(root: &Path, name: &str, alias: &str, to: &str) {
    link(root, name, &format!("/etc/alternatives/{alias}"));
    link(root, &format!("etc/alternatives/{alias}"), to);
}

fn link(root: &Path, name: &str, to: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    symlink(to, path).expect("a link");
}

fn file(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}
