use super::*;
use crate::identity::{Credentials, Groups};
use crate::task::Filters;
use crate::testing::tree::Body;
use crate::testing::{Bench, Fake, binding, read_only, string, task, text};
use crate::world::{Binding, Identity, Kind};
use crate::{Errno, Host, HostFd};
use proptest::prelude::*;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

const IDS: Identity = Identity { host_uid: 1000, host_gid: 1001, uid: 0, gid: 0 };
const TABLE: [Binding<'static>; 4] = [
    binding("/", "/home/u/c/ROOT", Kind::Tree),
    binding("/data", "/srv/my data", Kind::Host),
    binding("/proc", "/proc", Kind::Proc),
    read_only("/usr/share", "/srv/share", Kind::Host),
];
const TABLE_OF_MOUNTS: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
22 21 0:21 / /proc rw,nosuid,relatime shared:5 - proc proc rw
23 22 0:33 / /proc/sys/fs/binfmt_misc rw,relatime - binfmt_misc binfmt rw
24 21 0:40 /exports/srv /srv ro,nodev - nfs4 server:/exports ro,vers=4.2
25 24 0:41 / /srv/my\\040data/deep rw - tmpfs tmpfs rw,size=1k
";

fn fake() -> Fake {
    let mut fake = Fake::new();
    fake.file("/home/u/c/ROOT/bin/sh", "").file("/srv/my data/x", "").dir("/srv/share");
    fake.file("/proc/self/mountinfo", TABLE_OF_MOUNTS).dir("/proc/42/fd").dir("/proc/77/fd");
    fake.programs.insert(42, "/bin/sh".to_string());
    fake
}

/// What the guest reads from a file of process 42 with these contents on the host.
fn read(bench: &mut Bench<'_>, path: &str, contents: &str) -> Option<String> {
    bench.fake.file(path, contents);
    let host = text(path);
    let verdict = bench.context(|context| open(context, &host, 0)).unwrap()?;
    let Verdict::Give(HostFd(fd), 0) = verdict else { panic!("{verdict:?}") };
    let node = bench.fake.held.remove(&fd).unwrap().node;
    assert!(bench.fake.held.is_empty());
    let Body::File(bytes) = &bench.fake.tree.nodes[node].body else { panic!("no file") };
    Some(String::from_utf8(bytes.clone()).unwrap())
}

#[test]
fn names_in_maps_are_translated() {
    let mut bench = Bench::new(fake(), &TABLE);
    let maps = "\
558eb6de1000-558eb6de3000 r--p 00000000 fe:00 247278                     /home/u/c/ROOT/bin/sh
558eb6de3000-558eb6de4000 rw-p 00000000 00:00 0 
558eb6de4000-558eb6de5000 r--p 00000000 fe:00 2                          /srv/my data/a\\012b
558eb6de5000-558eb6de6000 r--p 00000000 fe:00 2                          /home/u/c/ROOT2/x
6a0000000000-6a0000004000 r-xp 00001000 fe:00 99                         /home/u/c/loader
7f0000000000-7f0000001000 rw-s 00000000 00:01 5                          /memfd:x (deleted)
7f0000001000-7f0000002000 rw-s 00000000 00:01 6                          /SYSV00000000 (deleted)
7f0000002000-7f0000003000 r--p 00000000 fe:00 8                          /home/u/c/ROOT/lib/old.so (deleted)
7ffd0aa00000-7ffd0aa21000 rw-p 00000000 00:00 0                          [stack]
";
    let seen = "\
558eb6de1000-558eb6de3000 r--p 00000000 fe:00 247278                     /bin/sh
558eb6de3000-558eb6de4000 rw-p 00000000 00:00 0 
558eb6de4000-558eb6de5000 r--p 00000000 fe:00 2                          /data/a\\012b
558eb6de5000-558eb6de6000 r--p 00000000 00:00 0 
6a0000000000-6a0000004000 r-xp 00000000 00:00 0 
7f0000000000-7f0000001000 rw-s 00000000 00:01 5                          /memfd:x (deleted)
7f0000001000-7f0000002000 rw-s 00000000 00:01 6                          /SYSV00000000 (deleted)
7f0000002000-7f0000003000 r--p 00000000 fe:00 8                          /lib/old.so (deleted)
7ffd0aa00000-7ffd0aa21000 rw-p 00000000 00:00 0                          [stack]
";
    assert_eq!(read(&mut bench, "/proc/42/maps", maps).unwrap(), seen);
    assert_eq!(read(&mut bench, "/proc/77/task/78/maps", maps).unwrap(), seen);
    let (maps, seen) = (maps.lines().next().unwrap(), seen.lines().next().unwrap());
    let more = "Size:  8 kB\nVmFlags: rd /home/u/c/ROOT\n";
    let smaps = read(&mut bench, "/proc/42/smaps", &format!("{maps}\n{more}")).unwrap();
    assert_eq!(smaps, format!("{seen}\n{more}"));
    let loader = "550100000000-550100044000 r-xp 00000000 fe:00 99      /home/u/c/stage\n";
    let heap = "550127000000-550127021000 rw-p 00000000 00:00 0       [heap]\n";
    let all = format!("{loader}{more}{heap}{loader}{maps}\n{more}{loader}{more}");
    let smaps = read(&mut bench, "/proc/42/smaps", &all).unwrap();
    assert_eq!(smaps, format!("{heap}{seen}\n{more}"));
    assert_eq!(read(&mut bench, "/proc/42/smaps", "").unwrap(), "");
    assert_eq!(read(&mut bench, "/proc/42/comm", "x"), None);
    assert_eq!(read(&mut bench, "/proc/meminfo", "x"), None);
}

#[test]
fn other_files_that_name_files_are_translated() {
    let mut bench = Bench::new(fake(), &TABLE);
    let maps = "55 default file=/srv/my\\040data/l\\075 mapped=2 N0=2\n56 default heap anon=1\n57 default file=/opt/l mapped=1\n550401000000 default anon=1\n";
    let seen =
        "55 default file=/data/l\\075 mapped=2 N0=2\n56 default heap anon=1\n57 default mapped=1\n";
    assert_eq!(read(&mut bench, "/proc/42/numa_maps", maps).unwrap(), seen);
    let sockets = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 12345 /home/u/c/ROOT/run/my s
0000000000000000: 00000003 00000000 00000000 0001 03 12346
0000000000000000: 00000002 00000000 00010000 0001 01 12347 @/tmp/.X11-unix/X0
";
    let seen = sockets.replace("/home/u/c/ROOT/run/my s", "/run/my s");
    assert_eq!(read(&mut bench, "/proc/42/net/unix", sockets).unwrap(), seen);
}

#[test]
fn mounts_are_the_bindings() {
    let mut bench = Bench::new(fake(), &TABLE);
    let info = "\
1000000 999999 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro
1000001 1000000 0:40 /exports/srv/my\\040data /data ro,nodev - nfs4 server:/exports ro,vers=4.2
1000002 1000000 0:21 / /proc rw,nosuid,relatime - proc proc rw
1000003 1000000 0:40 /exports/srv/share /usr/share ro,nodev - nfs4 server:/exports ro,vers=4.2
23 1000002 0:33 / /proc/sys/fs/binfmt_misc rw,relatime - binfmt_misc binfmt rw
25 1000001 0:41 / /data/deep rw - tmpfs tmpfs rw,size=1k
";
    assert_eq!(read(&mut bench, "/proc/42/mountinfo", "").unwrap(), info);
    let mounts = "\
/dev/sda1 / ext4 rw,relatime,errors=remount-ro 0 0
server:/exports /data nfs4 ro,nodev,vers=4.2 0 0
proc /proc proc rw,nosuid,relatime 0 0
server:/exports /usr/share nfs4 ro,nodev,vers=4.2 0 0
binfmt /proc/sys/fs/binfmt_misc binfmt_misc rw,relatime 0 0
tmpfs /data/deep tmpfs rw,size=1k 0 0
";
    assert_eq!(read(&mut bench, "/proc/42/task/42/mounts", "").unwrap(), mounts);
    let stats = read(&mut bench, "/proc/42/mountstats", "").unwrap();
    assert!(stats.starts_with("device /dev/sda1 mounted on / with fstype ext4\n"), "{stats}");
    bench.task.root.set(b"/usr").unwrap();
    let inside = read(&mut bench, "/proc/42/mounts", "").unwrap();
    assert_eq!(inside, "server:/exports /share nfs4 ro,nodev,vers=4.2 0 0\n");
}

const STATUS: &str = "\
Name:\tsh
Umask:\t0022
Pid:\t42
TracerPid:\t99
Uid:\t1000\t1000\t1000\t1000
Gid:\t1001\t1001\t1001\t7
Groups:\t27 1001 
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t000001ffffffffff
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t3
Threads:\t1
";

#[test]
fn status_shows_the_emulated_ids() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(IDS);
    let seen = read(&mut bench, "/proc/42/status", STATUS).unwrap();
    let all = format!("{:016x}", crate::identity::capabilities::ALL);
    let line =
        |key: &str| seen.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_string();
    assert_eq!(line("Uid:"), "\t0\t0\t0\t0");
    assert_eq!(line("Groups:"), "\t ");
    assert_eq!(line("CapEff:\t"), all);
    assert_eq!((line("TracerPid:"), line("NoNewPrivs:")), ("\t0".into(), "\t0".into()));
    assert_eq!((line("Seccomp:"), line("Seccomp_filters:")), ("\t0".into(), "\t0".into()));
    assert_eq!(seen.lines().count(), STATUS.lines().count());

    let mut other = task();
    other.creds = Credentials::new(33, 44, Groups::new([44, 9]).unwrap());
    other.creds.no_new_privileges = true;
    other.filters = Filters { mode: 2, count: 1, synchronised: false };
    bench.fake.tasks.insert(78, other);
    let seen = read(&mut bench, "/proc/77/task/78/status", STATUS).unwrap();
    for line in [
        "Uid:\t33\t33\t33\t33",
        "Gid:\t44\t44\t44\t44",
        "Groups:\t9 44 ",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Seccomp_filters:\t1",
        "CapEff:\t0000000000000000",
    ] {
        assert!(seen.lines().any(|seen| seen == line), "{line} in {seen}");
    }
    // A process outside of the container under the caller's id.
    let seen = read(&mut bench, "/proc/5/status", STATUS).unwrap();
    let wanted = STATUS
        .replace("Uid:\t1000\t1000\t1000\t1000", "Uid:\t0\t0\t0\t0")
        .replace("Gid:\t1001\t1001\t1001\t7", "Gid:\t0\t0\t0\t7");
    assert_eq!(seen, wanted);
    bench.world.identity = None;
    let seen = read(&mut bench, "/proc/42/status", STATUS).unwrap();
    assert!(seen.contains("Uid:\t1000\t1000") && seen.contains("TracerPid:\t0\n"), "{seen}");
    assert_eq!(read(&mut bench, "/proc/5/status", STATUS).unwrap(), STATUS);
}

#[test]
fn only_the_login_id_is_accepted_without_the_kernel() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.fake.file("/proc/42/loginuid", "4294967295").file("/proc/42/mounts", "");
    let ask = |bench: &mut Bench<'_>, path: &str, flags: u32| {
        let host = text(path);
        bench.context(|context| open(context, &host, flags)).unwrap()
    };
    assert_eq!(ask(&mut bench, "/proc/42/loginuid", 1), None);
    bench.world.identity = Some(IDS);
    assert!(matches!(ask(&mut bench, "/proc/42/loginuid", 2), Some(Verdict::Give(_, 2))));
    assert_eq!(ask(&mut bench, "/proc/42/loginuid", 0), None);
    assert_eq!(ask(&mut bench, "/proc/42/mounts", 1), None);
    assert_eq!(ask(&mut bench, "/proc/42/mounts", raw::O_PATH), None);
    let cloexec = raw::O_CLOEXEC | raw::O_NOFOLLOW;
    assert!(matches!(
        ask(&mut bench, "/proc/42/mounts", cloexec),
        Some(Verdict::Give(_, raw::O_CLOEXEC))
    ));
}

fn link(bench: &mut Bench<'_>, path: &str) -> crate::errno::Result<(Target, String)> {
    let mut into = Text::EMPTY;
    let found = bench.context(|context| {
        follow(context.backend, context.world, context.task, path.as_bytes(), &mut into)
    });
    found.map(|target| (target, string(&into)))
}

#[test]
fn links_lead_to_guest_paths() {
    let mut fake = fake();
    fake.magic("/proc/42/exe", "/proc").magic("/proc/42/cwd", "/srv/my data");
    fake.magic("/proc/42/root", "/").magic("/proc/77/root", "/").magic("/proc/5/root", "/");
    fake.magic("/proc/42/fd/0", "/home/u/c/ROOT/bin/sh").magic("/proc/42/fd/1", "/home/u");
    fake.link("/proc/42/fd/2", "pipe:[7]").link("/proc/42/fd/3", "/srv/my data/gone (deleted)");
    fake.link("/proc/42/fd/4", "/memfd:a (deleted)").link("/proc/42/ns/mnt", "mnt:[1]");
    fake.link("/proc/mounts", "self/mounts").link("/proc/5/exe", "/home/u/c/ROOT/bin/sh");
    fake.file("/srv/my data/is (deleted)", "").magic("/proc/42/fd/5", "/srv/my data/is (deleted)");
    fake.link("/proc/77/task/78/cwd", "/home/u/c/ROOT").file("/proc/42/stat", "");
    let mut other = task();
    other.root = text("/jail");
    fake.tasks.insert(77, other);
    fake.ids = (42, 43);
    let mut bench = Bench::new(fake, &TABLE);
    bench.task.root = text("/data");
    let cases = [
        ("/proc/self", Target::Text, "42"),
        ("/proc/thread-self", Target::Text, "42/task/43"),
        ("/proc/mounts", Target::Text, "self/mounts"),
        ("/proc/42/exe", Target::Jump, "/bin/sh"),
        ("/proc/42/cwd", Target::Jump, "/data"),
        ("/proc/self/cwd", Target::Jump, "/data"),
        ("/proc/77/task/78/cwd", Target::Jump, "/"),
        ("/proc/42/root", Target::Jump, "/data"),
        ("/proc/77/root", Target::Jump, "/jail"),
        ("/proc/42/fd/0", Target::Jump, "/bin/sh"),
        ("/proc/42/fd/1", Target::Kernel, "/home/u"),
        ("/proc/42/fd/2", Target::Kernel, "pipe:[7]"),
        ("/proc/42/fd/3", Target::Kernel, "/data/gone (deleted)"),
        ("/proc/42/fd/4", Target::Kernel, "/memfd:a (deleted)"),
        ("/proc/42/fd/5", Target::Jump, "/data/is (deleted)"),
        ("/proc/42/ns/mnt", Target::Kernel, "mnt:[1]"),
    ];
    for (path, target, name) in cases {
        if path == "/proc/self/cwd" {
            bench.fake.magic("/proc/self/cwd", "/srv/my data");
        }
        assert_eq!(link(&mut bench, path), Ok((target, name.to_string())), "{path}");
    }
    bench
        .fake
        .magic("/proc/42/map_files/1-2", "/home/u")
        .magic("/proc/42/map_files/2-3", "/srv/my data/x");
    assert_eq!(link(&mut bench, "/proc/42/map_files/1-2"), Err(Errno::ENOENT));
    assert_eq!(link(&mut bench, "/proc/42/map_files/2-3"), Ok((Target::Jump, "/data/x".into())));
    assert_eq!(link(&mut bench, "/proc/42/stat"), Err(Errno::EINVAL));
    assert_eq!(link(&mut bench, "/proc/6/exe"), Err(Errno::ENOENT));
    // A process outside of the container.
    assert_eq!(link(&mut bench, "/proc/5/exe"), Err(Errno::EACCES));
    assert_eq!(link(&mut bench, "/proc/5/root"), Err(Errno::EACCES));
    bench.fake.programs.insert(5, "/bin/other".into());
    assert_eq!(link(&mut bench, "/proc/5/exe"), Ok((Target::Jump, "/bin/other".into())));
}

#[test]
fn processes_belong_to_their_users() {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.world.identity = Some(Identity { uid: 500, gid: 501, ..IDS });
    let mut other = task();
    other.creds = Credentials::new(33, 44, Groups::NONE);
    bench.fake.tasks.insert(77, other);
    let cases = [
        ("/proc/42/stat", (1000, 1001), (0, 0)),
        ("/proc/77", (1000, 1001), (33, 44)),
        ("/proc/5/fd", (1000, 1001), (500, 501)),
        ("/proc/1", (0, 0), (0, 0)),
        ("/proc/meminfo", (0, 0), (0, 0)),
    ];
    for (path, (uid, gid), seen) in cases {
        let owner = bench.context(|context| owner(context, path.as_bytes(), uid, gid));
        assert_eq!(owner, seen, "{path}");
    }
}

/// A host file of which each read returns only a few bytes.
fn reread(contents: &str) -> Vec<String> {
    let mut bench = Bench::new(fake(), &TABLE);
    bench.fake.file("/proc/42/x", contents);
    bench.context(|context| {
        let file = context.backend.open(Dir::Root, c"/proc/42/x", 0, 0, 0).unwrap();
        let mut lines = Lines::new(file);
        let mut found = Vec::new();
        let mut buffer = [0; 64];
        while let Some(line) = lines.next(context.backend, &mut buffer).unwrap() {
            found.push(String::from_utf8_lossy(&buffer[line]).to_string());
        }
        context.backend.close(file);
        found
    })
}

proptest! {
    /// However reads cut the text, every line comes once and whole, or cut to the buffer.
    #[test]
    fn lines_are_whole(lines in proptest::collection::vec("[a-z /]{0,90}", 0..40), ends in any::<bool>()) {
        let mut contents = lines.join("\n");
        if ends && !contents.is_empty() {
            contents.push('\n');
        }
        let wanted: Vec<String> = contents
            .split_inclusive('\n')
            .map(|line| line[..line.len().min(64)].to_string())
            .collect();
        prop_assert_eq!(reread(&contents), wanted);
    }

    /// Only the name changes, and names that the guest cannot have are hidden.
    #[test]
    fn mappings_keep_their_addresses(names in proptest::collection::vec("(/home/u/c/ROOT|/srv/my data|/x|)(/[ -~]{1,40}){0,3}", 1..60)) {
        let header = "7f0000001000-7f0000002000 r-xp 00001000 fe:00 8 ";
        let contents = names.iter().fold(String::new(), |text, name| text + header + name + "\n");
        let mut bench = Bench::new(fake(), &TABLE);
        let seen = read(&mut bench, "/proc/42/maps", &contents).unwrap();
        prop_assert_eq!(seen.lines().count(), names.len());
        for (line, name) in seen.lines().zip(&names) {
            prop_assert!(line.starts_with("7f0000001000-7f0000002000 r-xp "));
            prop_assert!(!line.contains("/home/u/c/ROOT/") || name.contains("ROOT/home/u/c/ROOT"));
        }
    }

    /// Unescaping an escaped path gives the path.
    #[test]
    fn escapes_are_undone(path in proptest::collection::vec(any::<u8>(), 0..200)) {
        let special = b" \t\n\\";
        let mut bench = Bench::new(fake(), &TABLE);
        let escaped = bench.context(|context| {
            let file = context.backend.memory_file(c"x").unwrap();
            let mut output = Output::new(file);
            let mut buffer = [0; 16];
            output.push_escaped(context.backend, &mut buffer, &path, special).unwrap();
            output.flush(context.backend, &buffer).unwrap();
            let node = context.backend.held[&file.0].node;
            context.backend.close(file);
            let Body::File(bytes) = context.backend.tree.nodes[node].body.clone() else { panic!() };
            bytes
        });
        prop_assert!(!escaped.iter().any(|byte| b" \t\n".contains(byte)));
        let mut plain = [0; 200];
        prop_assert_eq!(lines::unescape(&escaped, special, &mut plain).unwrap(), &path[..]);
    }

    /// The kernel's table may contain anything.
    #[test]
    fn odd_tables_of_mounts_are_harmless(table in "([0-9a-z:/\\\\ -]{0,60}\n){0,10}") {
        let mut bench = Bench::new(fake(), &TABLE);
        bench.fake.file("/proc/self/mountinfo", &table);
        let _ = read(&mut bench, "/proc/42/mountinfo", "");
        let _ = read(&mut bench, "/proc/42/status", &table);
        let _ = read(&mut bench, "/proc/42/maps", &table);
    }
}
