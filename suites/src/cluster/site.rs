//! A site whose accounts are in an LDAP directory: a user whom no file of the host knows.
//!
//! The directory is `slapd`'s, and the host asks it by `nslcd` and the NSS module of the same
//! package. They are unpacked over `/usr` in a mount namespace of the case, with an `/etc` of its
//! own: nothing is installed on this machine, and nothing of its configuration changes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::command::{Input, run_with, until};
use testkit::person::{LIMIT, Person};
use testkit::running::Running;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip, need_program};
use testkit::users::User;

use crate::cluster::batch;
use crate::cluster::world::{Lab, World, port};

/// A case that needs Slurm's image.
type Case = (&'static str, fn(&Lab<'_>) -> Outcome);

pub(crate) const CASES: &[Case] = &[("directory", directory)];

/// The user's primary group, which is in the directory, too.
const GROUP: u32 = 70001;
/// How long a daemon may take to answer.
const SOON: Duration = Duration::from_secs(20);

/// Makes the place of the site, `$1`, from package files. `lib` is a link there as on the host.
const UNPACK: &str = r#"
cd "$1"; shift
mkdir -p tree/usr/lib etc db
ln -s usr/lib tree/lib
for package; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C tree
done
sed 's/^\(passwd\|group\):.*/\1: files ldap/' /etc/nsswitch.conf >etc/nsswitch.conf
"#;

/// Becomes the host of that place. Other directories of its `/run` are not wanted.
const ENTER: &str = r#"
mount -t overlay overlay -o "lowerdir=$1/tree/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$1/etc:/etc" /etc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/nslcd
echo ready
exec sleep infinity
"#;

/// `slapd.conf(5)` and `nslcd.conf(5)`, with the place and the socket's address.
const SERVER: &str = "\
include PLACE/tree/etc/ldap/schema/core.schema
include PLACE/tree/etc/ldap/schema/cosine.schema
include PLACE/tree/etc/ldap/schema/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix dc=site
directory PLACE/db
";
const CLIENT: &str = "uid root\ngid root\nuri ADDRESS\nbase dc=site\n";

/// The directory: one user with two groups.
const ENTRIES: &str = "\
dn: dc=site
objectClass: dcObject
objectClass: organization
dc: site
o: site

dn: uid=ada,dc=site
objectClass: account
objectClass: posixAccount
uid: ada
cn: Ada
uidNumber: UID
gidNumber: 70001
homeDirectory: HOME
loginShell: /bin/sh

dn: cn=research,dc=site
objectClass: posixGroup
cn: research
gidNumber: 70001

dn: cn=analysts,dc=site
objectClass: posixGroup
cn: analysts
gidNumber: 70007
memberUid: ada
memberUid: bob
";

/// A host that asks a directory. Its processes end with it, the last field at last.
struct Site {
    client: Option<Running>,
    _server: Running,
    holder: Running,
    _place: Scratch,
}

impl Site {
    /// The account of a person is taken out of the host's files, and is `ada` in the directory.
    fn start(person: &Person) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            testkit::skip!("a mount namespace with another /etc needs root");
        }
        for program in ["unshare", "nsenter", "dpkg-deb"] {
            need_program(program)?;
        }
        let packages = testkit::trees::directory()?;
        let scratch = Scratch::new("site").expect("a directory");
        let place = scratch.path();
        let mut unpack = Command::new("sh");
        unpack.args(["-euc", UNPACK, "sh"]).arg(place).args(packages);
        run_with(&mut unpack, Input::Null, LIMIT).ok();
        let address =
            format!("ldapi://{}%2fldapi", place.display().to_string().replace('/', "%2f"));
        configure(place, &address, person);

        let mut enter = Command::new("unshare");
        enter.args(["--mount", "--propagation=private", "sh", "-euc", ENTER, "sh"]).arg(place);
        let mut holder = Running::start(&mut enter);
        let mut is_over = || !holder.alive() || holder.text().contains("ready\n");
        until(SOON, || is_over().then_some(()));
        if !holder.text().contains("ready\n") {
            testkit::skip!("no host with a directory: {}", holder.text().trim());
        }
        let inside = |words: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(entry(&holder)).args(words);
            command
        };
        let [server, entries] =
            ["slapd.conf", "ldif"].map(|name| place.join(name).display().to_string());
        run_with(
            &mut inside(&["slapadd", "-q", "-f", &server, "-l", &entries]),
            Input::Null,
            LIMIT,
        )
        .ok();
        let server =
            Running::start(&mut inside(&["slapd", "-d", "0", "-f", &server, "-h", &address]));
        until(SOON, || place.join("ldapi").exists().then_some(())).expect("the server's socket");
        let client = Running::start(&mut inside(&["nslcd", "--nofork"]));
        let is_known = || {
            let done = run_with(&mut inside(&["getent", "passwd", "ada"]), Input::Null, LIMIT);
            (done.code() == 0).then_some(())
        };
        let texts = || format!("{} {}", server.text(), client.text());
        assert!(until(SOON, is_known).is_some(), "nobody is known: {}", texts());
        Ok(Self { client: Some(client), _server: server, holder, _place: scratch })
    }

    /// A world there, with the same home.
    fn world(&self, world: &World) -> World {
        let user = User { name: "ada".to_owned(), gid: GROUP, ..world.person.user.clone() };
        let person = Person { user, ..world.person.clone() };
        world.entered(person, entry(&self.holder).to_vec())
    }
}

/// Words of `nsenter`.
fn entry(holder: &Running) -> [String; 3] {
    ["--mount".to_owned(), format!("--target={}", holder.id()), "--".to_owned()]
}

/// Writes what the server, the client and the host read.
fn configure(place: &Path, address: &str, person: &Person) {
    let write = |name: &str, text: String| fs::write(place.join(name), text).expect("a file");
    let home = person.home.display().to_string();
    write("slapd.conf", SERVER.replace("PLACE", &place.display().to_string()));
    write("ldif", ENTRIES.replace("UID", &person.user.uid.to_string()).replace("HOME", &home));
    write("etc/nslcd.conf", CLIENT.replace("ADDRESS", address));
    let own = format!("{}:", person.user.name);
    for name in ["passwd", "group"] {
        let text = fs::read_to_string(Path::new("/etc").join(name)).expect("the host's accounts");
        let others = text.split_inclusive('\n').filter(|line| !line.starts_with(&own));
        write(&format!("etc/{name}"), others.collect());
    }
}

/// A user of a directory has its name, groups, home and shell in a container, and in a Slurm of
/// containers. Without the directory the name is that of the environment.
fn directory(lab: &Lab<'_>) -> Outcome {
    let image = lab.batch()?;
    let mut site = Site::start(&lab.world.person)?;
    let world = site.world(lab.world);
    let lab = &Lab { world: &world, dir: lab.dir.clone() };
    let Person { user, home, .. } = &world.person;
    let home = home.display();
    let run = |user: &str, script: &str| {
        lab.run(&["run", "--rm", "--hostauth", "--user", user, image, "sh", "-c", script])
    };
    let script = "id -un; id -Gn; getent passwd \"$(id -u)\" | cut -d : -f 1,6,7; echo $HOME";
    let shown = format!("ada\nresearch analysts\nada:{home}:/bin/sh\n{home}\n");
    for user in ["ada", &user.uid.to_string()] {
        let done = run(user, script);
        assert_eq!(done.ok().out(), shown, "{done:?}");
    }

    let (port, _) = port();
    batch::farm_of(lab, image, port);
    lab.cluster("up", &["-d"]).ok();
    let job = "#!/bin/sh\nid -un\nsrun id -un\nid -Gn\necho $HOME\n";
    fs::write(lab.dir.join("jobs/job.sh"), job).expect("a job");
    let done = batch::by_ssh(lab, port, "id -un; id -Gn; sbatch -Q -o out job.sh");
    assert_eq!(done.ok().out(), "ada\nresearch analysts\n", "{done:?}");
    let all = format!("ada\nada\nresearch analysts\n{home}\n");
    let done = until(batch::LONG, || (batch::written(lab, "out") == all).then_some(()));
    assert!(done.is_some(), "{}", batch::written(lab, "out"));
    lab.cluster("down", &[]).ok();

    // A session stays, also without the directory.
    let script = format!(
        "id -un; read go; exec $coracle run --rm --hostauth --user ada {image} \
         sh -c 'echo $(id -un) $(id -g) $HOME, alone'"
    );
    let mut session = Running::start(&mut lab.shell(&script));
    session.expect("ada\n");
    drop(site.client.take());
    session.feed(b"\n");
    session.expect(&format!("\nada {GROUP} {home}, alone\n"));
    assert_eq!(session.end(SOON), 0, "{}", session.text());
    Ok(())
}
