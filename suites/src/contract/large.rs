//! Tests of large programs as they are installed and run every day: databases under users of their
//! own, accounts and passwords, package managers, copies by root, and jobs that run as the caller.
//!
//! They run once in each kind of mode: namespaces with one id and with a range, a runtime of the
//! host's, inside the process, by tracing, and by changed text alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip, need_program};

use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("postgresql", postgresql),
    ("redis", redis),
    ("accounts", accounts),
    ("copies", copies),
    ("caller_by_number", caller_by_number),
    ("packages", packages),
];

const IMAGE: &str = "localhost/debian:services";
/// Time limit of a script that installs packages on a busy machine.
const LONG: Duration = Duration::from_mins(8);

/// True for the worlds of this group: one of each kind, because the others share its code.
pub(crate) fn is_asked(w: &World) -> bool {
    let worlds = ["N1::plain", "N1::range", "R1::range", "I1::plain", "P1::plain", "F2::plain"];
    let all = testkit::share::is_whole() && w.has_ids();
    all || worlds.contains(&format!("{}::{}", w.engine, w.user.kind()).as_str())
}

/// Makes the image in the user's store, once.
fn image(w: &World) -> Result<&'static str, Skip> {
    static ONE: Mutex<()> = Mutex::new(());
    let tree = testkit::trees::services()?;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if w.coracle(&["inspect", "--type=image", IMAGE]).code() != 0 {
        let mut import = w.command(&["import", "-q", "-", IMAGE]);
        import.stdin(fs::File::open(tree).expect("the tree"));
        run_with(&mut import, Input::AsIs, LONG).ok();
    }
    Ok(IMAGE)
}

/// A container whose programs run one after the other.
struct Runs<'w> {
    world: &'w World,
    container: Container<'w>,
}

impl<'w> Runs<'w> {
    fn new(w: &'w World, stem: &str) -> Result<Self, Skip> {
        let image = image(w)?;
        let container = Container::named(w, &w.name(stem));
        w.coracle(&["create", "--name", &container.name, &w.mode(), image, "sh"]).ok();
        Ok(Self { world: w, container })
    }

    /// Runs a script as root; it stops at the first failure.
    fn sh(&self, script: &str) -> Finished {
        let (w, mode) = (self.world, self.world.mode());
        let words = ["run", &mode, &self.container.name, "sh", "-euc", script];
        run_with(&mut w.command(&words), Input::Null, LONG)
    }
}

/// The database makes its files as its own user, and finds them in a later run. It refuses files of
/// others and files that others may read.
fn postgresql(w: &World) -> Outcome {
    let c = Runs::new(w, "postgresql")?;
    let begin = "export LC_ALL=C.UTF-8 PATH=/usr/lib/postgresql/15/bin:$PATH; mkdir -p /srv/pg
        as() { setpriv --reuid postgres --regid postgres --init-groups \"$@\"; }
        up() { su postgres -c \"PATH=$PATH pg_ctl -D /srv/pg/data -w -l /srv/pg/log \
            -o '-F -c listen_addresses=' start\" >/tmp/log || cat /tmp/log /srv/pg/log; }
        sql() { runuser -u postgres -- psql -qAt \"$@\"; }
        down() { as pg_ctl -D /srv/pg/data -w -m fast stop >/dev/null; }";
    let done = c.sh(&format!(
        "{begin}
        chown postgres:postgres /srv/pg; install -d -m 2775 -o postgres -g postgres /run/postgresql
        cd /srv/pg; as initdb -D data -E UTF8 -N >/tmp/log 2>&1 || cat /tmp/log
        stat -c '%U:%G %a' . data data/base data/PG_VERSION; up
        sql -c 'create table t(a int primary key, b text)' \
            -c 'insert into t select i, md5(i::text) from generate_series(1,1000) i' \
            -c 'select count(*), sum(a) from t'
        stat -c '%U %a' /run/postgresql/.s.PGSQL.5432; down"
    ));
    let owners = "postgres:postgres 755\npostgres:postgres 700\npostgres:postgres 700\n\
        postgres:postgres 600\n";
    assert_eq!(done.ok().out(), format!("{owners}1000|500500\npostgres 777\n"), "{done:?}");
    let done = c.sh(&format!(
        "{begin}
        cd /srv/pg; stat -c '%U:%G %a' data; ! pg_ctl -D data start 2>&1
        ! setpriv --reuid 33 --regid 33 --clear-groups postgres -D data 2>&1 | grep -o denied
        chmod 755 data; ! as postgres -D data 2>&1 | grep -o 'invalid permissions'; chmod 700 data
        chown 33 data; ! as postgres -D data 2>&1 | grep -o denied; chmod 755 data
        ! as postgres -D data 2>&1 | grep -o 'wrong ownership'; chmod 700 data; chown postgres data
        up; sql -c 'select count(*), sum(a) from t' -c 'vacuum full t' -c 'drop table t'; down
        find . ! -user postgres -o ! -group postgres"
    ));
    let text = done.ok().out();
    let refusals: Vec<&str> = text.lines().filter(|line| !line.starts_with("Try ")).collect();
    let expected = [
        "postgres:postgres 700",
        "pg_ctl: cannot be run as root",
        "Please log in (using, e.g., \"su\") as the (unprivileged) user that will",
        "own the server process.",
        "denied",
        "invalid permissions",
        "denied",
        "wrong ownership",
        "1000|500500",
    ];
    assert_eq!(refusals, expected, "{done:?}");
    Ok(())
}

/// The package's own script starts the server, which becomes its user; a child of it saves the
/// data, and a later run has them.
fn redis(w: &World) -> Outcome {
    let c = Runs::new(w, "redis")?;
    let begin = "cli() { redis-cli -s /run/redis/s \"$@\"; }
        wait_for() { n=0; until \"$@\" >/dev/null 2>&1; do n=$((n+1)); test $n -lt 300; sleep 0.1
            done; }";
    let done = c.sh(&format!(
        "{begin}
        install -d -m 2755 -o redis -g redis /run/redis; cd /var/lib/redis
        sed -i 's,^# *unixsocket .*,unixsocket /run/redis/s,; s/^port .*/port 0/' \
            /etc/redis/redis.conf
        stat -c '%U:%G %a' /etc/redis/redis.conf . /var/log/redis
        service redis-server start >/tmp/log 2>&1 || cat /tmp/log; wait_for cli ping
        stat -c '%U %F' /run/redis/s; cli set key value; cli get key
        cli bgsave; wait_for grep -q 'saving terminated' /var/log/redis/redis-server.log
        stat -c '%U:%G %a' dump.rdb
        cli set second 2; cli shutdown nosave"
    ));
    let expected = "redis:redis 640\nredis:redis 750\nredis:adm 2750\nredis socket\nOK\nvalue\n\
        Background saving started\nredis:redis 660\nOK\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    let done = c.sh(&format!(
        "{begin}
        su -s /bin/sh redis -c 'redis-server /etc/redis/redis.conf --daemonize yes' >/dev/null
        wait_for cli ping; cli get key; cli exists second
        stat -c %U /var/log/redis/redis-server.log
        grep -c 'saving terminated with success' /var/log/redis/redis-server.log
        service redis-server stop >/dev/null 2>&1; ! cli ping 2>/dev/null"
    ));
    assert_eq!(done.ok().out(), "value\n0\nredis\n1\n", "{done:?}");
    Ok(())
}

/// Users who are made inside work under their names, and set-id programs check their passwords.
fn accounts(w: &World) -> Outcome {
    let c = Runs::new(w, "accounts")?;
    let done = c.sh("
        useradd -m -s /bin/sh u; useradd -m -s /bin/sh -G mail v
        su - u -c 'id; touch f; stat -c %U:%G f; pwd; echo $HOME $USER'
        su u -c 'cat /etc/shadow 2>/dev/null; touch /etc/x 2>/dev/null; mkdir ~/d; chmod 700 ~/d
            stat -c \"%U %a\" ~/d'
        echo v:first1 | chpasswd; printf 'second2\\nsecond2\\n' | passwd v 2>/dev/null
        printf 'u:third3\\n' | chpasswd
        su u -c 'echo second2 | su v -c \"id -un; id -G\"' 2>/dev/null
        ! su u -c 'echo first1 | su v -c id' 2>/dev/null
        su u -c 'printf \"third3\\nFourth4.\\nFourth4.\\n\" | passwd' >/dev/null 2>&1
        su v -c 'echo Fourth4. | su u -c \"id -un\"' 2>/dev/null
        stat -c '%U:%G %a %n' /etc/shadow /etc/shadow- /etc/gshadow /etc/passwd ~u ~u/.profile");
    let expected = "uid=1000(u) gid=1000(u) groups=1000(u)\nu:u\n/home/u\n/home/u u\nu 700\n\
        v\n1001 8\nu\nroot:shadow 640 /etc/shadow\nroot:shadow 640 /etc/shadow-\n\
        root:shadow 640 /etc/gshadow\nroot:root 644 /etc/passwd\nu:u 755 /home/u\n\
        u:u 644 /home/u/.profile\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    let done = c.sh("
        su - v -c 'touch again; stat -c %U again'; usermod -l w -d /home/w -m u
        stat -c %U:%G /home/w/f; userdel -r v 2>/dev/null; ls /home; pwck -rq; grpck -r
        find / -xdev \\( -nouser -o -nogroup \\)");
    assert_eq!(done.ok().out(), "v\nw:u\nw\n", "{done:?}");
    Ok(())
}

/// Copies by root keep all owners, bits, times and kinds, and the tools agree that they did.
fn copies(w: &World) -> Outcome {
    if !rustix::process::getuid().is_root() {
        testkit::skip!("without root, mmdebstrap gives the files of PostgreSQL to root");
    }
    let c = Runs::new(w, "copies")?;
    // With a range the kernel itself judges `mknod` of a device, and refuses it.
    let devices = !(w.user.range && w.has_overlay());
    let make =
        if devices { "mknod -m 666 null c 1 3; mknod disk b 8 1; chown 0:6 disk" } else { "" };
    let done = c.sh(&format!(
        "mkdir /a; cd /a; mkdir -m 2775 shared; chown 5:6 shared; mkdir -m 0 closed; echo x >closed/x
        echo x >plain; chown 1:2 plain; cp plain setid; chown 3:4 setid; chmod 6755 setid
        echo x >none; chmod 0 none; chown 65534:65534 none; ln -s plain link; chown -h 7:8 link
        ln plain hard; mkfifo -m 640 pipe; chown 9:10 pipe; chown -R 33:33 closed
        touch -d 2001-02-03T04:05:06.789 plain; touch -hd 2002-02-03 link; {make}
        cp -a /etc/ssl /var/lib/redis /var/lib/postgresql/15/main .
        cp -a /usr/bin/passwd /usr/bin/chage /usr/bin/expiry .; touch -d 2003-01-01 shared
        show() {{ find . -type d -printf '%P %m %U %G %T@\\n' -o \
            -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort; }}
        show >/want; cd /; wc -l </want
        rsync -aHX --modify-window=-1 /a/ /r/; rsync -aHXn --modify-window=-1 --itemize-changes /a/ /r/
        cp -a /a /c; mkdir /t; tar cf - -C /a --format=posix . | tar xpf - -C /t
        for copy in /r /c /t; do cd $copy; show | diff /want - || echo $copy differs; done
        cd /a; stat -c '%n %F %t:%T' null disk 2>/dev/null || true
        find . -user www-data | sort; find . -perm /6000 -group shadow | sort; find . -nouser
        for f in *; do test ! -b $f -a ! -c $f || echo $f; done; find . -user postgres | wc -l; find main ! -user postgres
        rsync -a /usr/share/perl /copy; rsync -an --itemize-changes /usr/share/perl /copy
        rsync -a --chown=7:8 /usr/share/perl/ /e/; find /e ! -uid 7 -o ! -gid 8"
    ));
    let text = done.ok().out();
    let mut lines = text.lines();
    let count: usize = lines.next().and_then(|line| line.parse().ok()).unwrap_or_default();
    let kinds = "null character special file 1:3\ndisk block special file 8:1\n";
    let found = "./closed\n./closed/x\n./chage\n./expiry\n";
    let expected = if devices { format!("{kinds}{found}disk\nnull\n") } else { found.to_owned() };
    let rest: Vec<&str> = lines.collect();
    let (postgres, rest) = rest.split_last().unwrap_or((&"", &[]));
    assert_eq!(rest.join("\n") + "\n", expected, "{done:?}");
    let postgres: usize = postgres.parse().unwrap_or_default();
    assert!(count > 900 && postgres > 900, "{done:?}");
    Ok(())
}

/// Jobs of continuous integration: the caller's directory and number, so what is made is the
/// caller's, and the image's files are not.
fn caller_by_number(w: &World) -> Outcome {
    let image = image(w)?;
    let git = need_program("git")?;
    let me = format!("{}:{}", w.user.uid, w.user.gid);
    for user in [vec!["-u", &me], vec!["--userns=keep-id"]] {
        let dir = w.dir("job");
        w.file(&dir, "given", "of the host\n");
        let bind = format!("{}:/w", dir.display());
        let script = "touch out; id -u; id -g; stat -c %u:%g out given .; pwd; echo $HOME
            cp given copy; chmod 750 copy; ln -s given link; mkdir -m 700 made; rm given
            export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b
            git init -q . 2>/dev/null; git add .; git commit -qm one; git status --porcelain
            stat -c %u:%g /usr/bin /etc/shadow; touch /tmp/x; stat -c %u:%g /tmp/x
            may() { \"$@\" 2>/dev/null && echo may \"$@\" || true; }
            may cat /etc/shadow; may touch /etc/x; may chown 0 copy; may rm /usr/bin/git";
        // With a range the map makes the caller the owner of most of what is root's in the image.
        let denied = "may touch /x; may chmod 777 /usr/share/doc; may touch /usr/share/doc/x";
        let script = if w.user.range { script.to_owned() } else { format!("{script}; {denied}") };
        let mode = w.mode();
        let mut words = vec!["run", "--rm", &mode, "-v", &bind, "-w", "/w"];
        words.extend(&user);
        words.extend([image, "sh", "-euc", &script]);
        let done = run_with(&mut w.command(&words), Input::Null, LIMIT * 4);
        let (uid, gid) = (w.user.uid, w.user.gid);
        let expected = format!("{uid}\n{gid}\n{me}\n{me}\n{me}\n/w\n/\n0:0\n0:42\n{me}\n");
        assert_eq!(done.ok().out(), expected, "{user:?}: {done:?}");
        for (name, mode) in [("out", 0o644), ("copy", 0o750), ("made", 0o700), (".git", 0o755)] {
            let meta = fs::symlink_metadata(dir.join(name)).expect("what the job made");
            let seen = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
            assert_eq!(seen, (uid, gid, mode), "{name}, {user:?}");
        }
        // Git refuses directories of other owners.
        let mut log = w.user.command(&git, &w.home);
        log.arg("-C").arg(&dir).args(["log", "--format=%s %an"]);
        assert_eq!(run_with(&mut log, Input::Null, LIMIT).ok().out(), "one a\n");
    }
    Ok(())
}

/// What `packages` installs: set-id programs, users and groups of their own, capabilities of files.
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    apt-get install -qq -y --no-install-recommends -o DPkg::Options::=--force-unsafe-io \
        openssh-server cron at ssl-cert sudo dbus iputils-ping libcap2-bin >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; rm /tmp/log";
/// What differs between any two machines.
const APART: [&str; 6] = ["proc", "sys", "dev", "etc/hosts", "etc/hostname", "etc/resolv.conf"];

/// `apt-get` with its own user installs packages, and every file is as real root makes it: in the
/// container, and in what `export` writes.
fn packages(w: &World) -> Outcome {
    let real = chroot()?;
    let c = Runs::new(w, "packages")?;
    // Methods of `apt-get` run as a user of their own, unless that user cannot be had.
    let done = c.sh("apt-get update -q 2>&1 | grep -i -e warn -e unsandboxed -e '^E:' || true
        stat -c %U:%a /var/lib/apt/lists/partial /var/lib/apt/lists/lock");
    assert_eq!(done.ok().out(), "_apt:700\nroot:640\n", "{done:?}");
    assert_eq!(c.sh(INSTALL).ok().out(), "");
    let done = c.sh("dpkg --audit; dpkg --verify; apt-get check -qq
        stat -c '%U:%G %a' /usr/bin/sudo /usr/bin/ssh-agent /usr/bin/at /usr/bin/crontab
        getcap /usr/bin/ping; echo x >>/etc/crontab; dpkg --verify || true");
    let expected = "root:root 4755\nroot:_ssh 2755\ndaemon:daemon 6755\nroot:crontab 2755\n\
        /usr/bin/ping cap_net_raw=ep\n??5?????? c /etc/crontab\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    let done = c.sh(&listing("/"));
    same(&lines(&done.ok().out()), &real.listing, "in the container");
    let mut export = w.user.command("sh", &w.home);
    let pipe = "\"$1\" export \"$2\" | tar --numeric-owner -tvf -";
    export.args(["-euc", pipe, "sh"]).arg(&w.coracle).arg(&c.container.name);
    let done = run_with(&mut export, Input::Null, LONG);
    same(&archived(&done.ok().out()), &real.archived, "in the archive");
    Ok(())
}

/// What packages look like where real root has installed them.
#[derive(Clone)]
struct Real {
    listing: BTreeMap<String, String>,
    archived: BTreeMap<String, String>,
}

/// Installs the packages in a plain `chroot`, once.
fn chroot() -> Result<Real, Skip> {
    static REAL: OnceLock<Result<Real, Skip>> = OnceLock::new();
    REAL.get_or_init(|| {
        if !rustix::process::getuid().is_root() {
            testkit::skip!("it compares with a chroot of real root's");
        }
        let scratch = Scratch::new("large").expect("a directory");
        let tree = scratch.path().join("tree");
        let run = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation=private", "sh", "-euc", script, "sh"]);
            command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            run_with(command.arg(&tree), Input::Null, LONG)
        };
        let tar = testkit::trees::services()?;
        let unpack = format!("umask 022; mkdir \"$1\"; tar xpf '{}' -C \"$1\"", tar.display());
        run(&unpack).ok();
        let update = "cp /etc/resolv.conf /etc/hosts \"$1/etc\"; chroot \"$1\" apt-get update -qq";
        if run(update).code() != 0 {
            testkit::skip!("no package mirror can be reached from this machine");
        }
        let inside = format!(
            "mount -t proc none \"$1/proc\"; umask 022; chroot \"$1\" sh -euc '{INSTALL}'
            echo x >>\"$1/etc/crontab\""
        );
        run(&inside).ok();
        let listing = run(&listing("$1"));
        let archived_ = run("tar -C \"$1\" -cf - . 2>/dev/null | tar --numeric-owner -tvf -");
        Ok(Real { listing: lines(&listing.ok().out()), archived: archived(&archived_.ok().out()) })
    })
    .clone()
}

/// A script that lists a tree. Of what was made today, size and time differ between any two
/// installations.
fn listing(root: &str) -> String {
    let skip = APART.map(|path| format!("-path ./{path}")).join(" -o ");
    format!(
        "cd \"{root}\"; find . -xdev \\( {skip} \\) -prune -o \
            -type d -printf '%P %y %m %U %G\\n' -o \
            -newermt '3 days ago' -printf '%P %y %m %U %G %l\\n' -o \
            -printf '%P %y %m %U %G %l %s %T@\\n'"
    )
}

/// Names are all that stands before the first space.
fn lines(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(path, rest)| (path.to_owned(), rest.to_owned())).collect()
}

/// Mode, owner and target of each name of an archive, but for files with several names: which of
/// them comes first differs.
fn archived(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut several = BTreeSet::new();
    for line in text.lines() {
        let mut rest = line;
        let mut words = [""; 5];
        for word in &mut words {
            let cut = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
            (*word, rest) = cut;
        }
        let bare = |name: &str| name.trim_start_matches("./").trim_end_matches('/').to_owned();
        if let Some((name, target)) = rest.split_once(" link to ") {
            several.extend([bare(name), bare(target)]);
            continue;
        }
        let (name, target) = rest.split_once(" -> ").unwrap_or((rest, ""));
        all.insert(bare(name), format!("{} {} {target}", words[0], words[1]));
    }
    all.retain(|name, _| !several.contains(name));
    all
}

#[track_caller]
fn same(seen: &BTreeMap<String, String>, real: &BTreeMap<String, String>, place: &str) {
    let is_apart = |path: &str| {
        APART.iter().any(|apart| Path::new(path).starts_with(apart)) || path.is_empty()
    };
    let names: BTreeSet<&String> = seen.keys().chain(real.keys()).collect();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|path| !is_apart(path) && seen.get(*path) != real.get(*path))
        .map(|path| format!("{path}: {:?}, real root has {:?}", seen.get(path), real.get(path)))
        .collect();
    let shown = &differing[..differing.len().min(30)];
    assert!(differing.is_empty(), "{place} {} differ: {shown:#?}", differing.len());
    assert!(seen.len() > 10_000, "{place} {} files", seen.len());
}
