//! Tests of the sources of settings, and of those that have an effect here.

use testkit::skip::Outcome;

use crate::udocker::world::{Case, IMAGE, World};

pub(crate) const CASES: &[(&str, Case)] =
    &[("modes", modes), ("files", files), ("without_meaning", without_meaning)];

/// The mode of a new container: the key, the variable above it, and `setup` above both.
fn modes(w: &World) -> Outcome {
    let text = "[DEFAULT]\noverride_default_execution_mode = 'P2'\n";
    let file = w.file(&w.dir("modes").join("udocker.conf"), text);
    let config = format!("--config={file}");
    let mode = |variables: &[(&str, &str)], flags: &[&str], target: &[&str]| {
        let words = ["sh", "-c", "echo $container_execmode"];
        w.udocker_with(variables, &[flags, &["run"], target, &words].concat())
    };
    let variable = |mode: &'static str| [("UDOCKER_DEFAULT_EXECUTION_MODE", mode)];
    let new = ["--rm", IMAGE];
    assert_eq!(mode(&[], &[&config], &new).ok().line(), "P2");
    assert_eq!(mode(&variable("F1"), &[], &new).ok().line(), "F1");
    assert_eq!(mode(&variable("P1"), &[&config], &new).ok().line(), "P1");
    let wrong = mode(&variable("X9"), &[], &new);
    assert!(wrong.expect(1).err().contains("'X9'"), "{wrong:?}");
    let name = w.unique("kept-mode");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["setup", "--execmode=F2", &name]).ok();
    assert_eq!(mode(&variable("P1"), &[&config], &[&name]).ok().line(), "F2");
    w.udocker(&["rm", &name]).ok();
    // The runtime of the R modes; udocker's word for its own one is not a path.
    let r1 = ("UDOCKER_DEFAULT_EXECUTION_MODE", "R1");
    let other = mode(&[r1, ("UDOCKER_USE_RUNC_EXECUTABLE", "/no/such/runc")], &[], &new);
    assert!(!other.out().contains("R1"), "{other:?}");
    let usual = mode(&[r1], &[], &new);
    let named = mode(&[r1, ("UDOCKER_USE_RUNC_EXECUTABLE", "UDOCKER")], &[], &new);
    assert_eq!((named.code(), named.out()), (usual.code(), usual.out()), "{named:?}");
    Ok(())
}

/// Precedence of files: the user's, udocker's directory's, the one given by option, and variables
/// above all.
fn files(w: &World) -> Outcome {
    let home = w.dir("home-of-settings");
    let top = w.dir("top-of-settings");
    let dotted = w.below(&home, ".udocker").join("udocker.conf");
    w.file(&dotted, "verbose_level = 1\nhttp_insecure = yes\n");
    w.file(&top.join("udocker.conf"), "[DEFAULT]\nverbose_level = 2\n");
    let named = w.file(&top.join("named.conf"), "Config.verbose_level: \"4\"\n");
    let config = format!("--config={named}");
    let home = ("HOME", home.to_str().expect("a path"));
    let top = ("UDOCKER_DIR", top.to_str().expect("a path"));
    let level = ("UDOCKER_LOGLEVEL", "5");
    for (variables, flags, wanted) in [
        (&[home][..], &[][..], "1"),
        (&[home, top], &[], "2"),
        (&[home, top], &[config.as_str()], "4"),
        (&[home, top, level], &[config.as_str()], "5"),
    ] {
        let shown = w.udocker_with(variables, &[flags, &["showconf"]].concat()).ok().out();
        assert!(shown.contains(&format!("verbose_level = {wanted}\n")), "{wanted}: {shown}");
        assert!(shown.contains("http_insecure = True\n"), "{shown}");
    }
    Ok(())
}

/// Settings that only concern udocker's own tools are accepted.
fn without_meaning(w: &World) -> Outcome {
    let dir = w.dir("meaningless");
    let text = "[DEFAULT]
homedir = /no/such
bindir = /no/such
tarball = https://example.org/tools.tar
autoinstall = False
installretry = 3
sysdirs_list = [\"/dev\", \"/proc\"]
default_execution_modes = {'x86_64': 'P1'}
proot_noseccomp = True
proot_killonexit = False
fakechroot_so = [\"/no/such.so\"]
access_files = ('/no/such',
  '/nor/this')
runc_capabilities = []
use_proot_executable = /no/such
cpu_affinity_exec_tools = ()
download_timeout = 1800
http_agent = agent
of_nobody = 1
";
    let config = format!("--config={}", w.file(&dir.join("udocker.conf"), text));
    let variables = [
        ("UDOCKER_BIN", "/no/such"),
        ("UDOCKER_LIB", "/no/such"),
        ("UDOCKER_DOC", "/no/such"),
        ("UDOCKER_TARBALL", ""),
        ("UDOCKER_INDEX", "https://index.example.org"),
        ("UDOCKER_USE_CURL_EXECUTABLE", "/no/such"),
        ("UDOCKER_USE_PROOT_EXECUTABLE", "UDOCKER"),
        ("UDOCKER_USE_PATCHELF_EXECUTABLE", "/no/such"),
        ("UDOCKER_FAKECHROOT_SO", "/no/such.so"),
        ("UDOCKER_FAKECHROOT_LIBC", "/no/such.so"),
        ("UDOCKER_FAKECHROOT_CMD_SUBST", "x"),
        ("UDOCKER_FAKECHROOT_EXPAND_SYMLINKS", "true"),
        ("PROOT_NO_SECCOMP", "1"),
        ("PROOT_NEW_SECCOMP", "1"),
        ("PROOT_TMP_DIR", "/no/such"),
        ("TMPDIR", "/no/such"),
    ];
    for mode in ["--execmode=P1", "--execmode=F1"] {
        let words = [config.as_str(), "run", "--rm", mode, IMAGE, "echo", "ran"];
        assert_eq!(w.udocker_with(&variables, &words).ok().out(), "ran\n", "{mode}");
    }
    Ok(())
}
