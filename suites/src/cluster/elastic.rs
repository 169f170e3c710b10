//! Six services of a research group, and a web service with a batch system under random load.

use std::fs;
use std::time::{Duration, Instant};

use testkit::command::until;
use testkit::gateway;
use testkit::skip::Outcome;

use crate::cluster::batch::{follower, front, table, told_of, written};
use crate::cluster::web::{free_port, under_load};
use crate::cluster::world::Lab;

/// A case that needs images of servers.
type Case = (&'static str, fn(&Lab<'_>) -> Outcome);

pub(crate) const CASES: &[Case] = &[("gateway", six), ("elastic", elastic)];

const LONG: Duration = Duration::from_mins(2);
/// How long the random load lasts, unless `CORACLE_TEST_MINUTES` says so.
const SECONDS: u64 = 12;
/// A process that grows by more than so much in all that time leaks.
const GROWTH_KIB: u64 = 16 << 10;
const FILES_MORE: u64 = 16;

/// One of six services is replaced while others are asked, and they do not notice.
fn six(lab: &Lab<'_>) -> Outcome {
    let image = lab.servers()?;
    let (admin, web) = (free_port(), free_port());
    let ports = gateway::Ports { admin, files: free_port(), web };
    for (name, text) in gateway::FILES {
        let path = lab.dir.join(name);
        lab.world.person.dir(&path.parent().unwrap_or(&lab.dir).display().to_string());
        lab.world.person.file(&path, text);
    }
    lab.file(&gateway::file(image, "", &ports));
    lab.cluster("up", &["-d"]).ok();
    assert_eq!(lab.containers().len(), 6);
    let container = || lab.run(&["inspect", "--format", "{{.Id}}", "gateway-files-1"]).ok().out();
    let before = container();
    let pause = Duration::from_millis(20);
    under_load(admin, pause, || {
        under_load(web, pause, || {
            lab.cluster("replace", &["files"]).ok();
        });
    });
    assert_ne!(before, container());
    let page = lab.run(&["exec", "gateway-meter-1", "curl", "-sS", "http://files:8000/a"]);
    assert_eq!(page.ok().out(), "first\n");
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// Numbers that look random, the same for one seed (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Memory in KiB and open files of a process.
fn usage(pid: &str) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as u64;
    (memory, files)
}

/// A web service that follows a rule, and a batch system, while requests, jobs and commands come at
/// random: no request fails, no job is lost, nothing stays, and each decision has its reason.
fn elastic(lab: &Lab<'_>) -> Outcome {
    let (servers, batch) = (lab.servers()?, table(lab.batch()?, 2));
    let port = free_port();
    lab.world.person.dir(&lab.dir.join("jobs").display().to_string());
    lab.file(&format!(
        r#"
name = "elastic"
[service.web]
image = "{servers}"
publish = ["127.0.0.1:{port}:80"]
ready = {{ http = "80/" }}
balance = {{ by = "haproxy", image = "{servers}", drain = "5s" }}
command = ["nginx", "-g", "daemon off;"]
[service.web.replicas]
min = 1
max = 3
up = "rate/replica > 30 for 1s"
down = "rate/replica < 10 for 2s"
cool = "1s"
{batch}"#
    ));
    lab.cluster("up", &["-d"]).ok();
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = variable("CORACLE_TEST_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("elastic: CORACLE_TEST_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let time = variable("CORACLE_TEST_MINUTES").map_or(SECONDS, |minutes| 60 * minutes);
    let (end, pid) = (Instant::now() + Duration::from_secs(time), follower(lab));
    let (mut jobs, mut asked, mut first) = (0, 0, None);
    while Instant::now() < end {
        let mut rest = Duration::from_millis(500 + random.below(3000));
        let (mut act, mut pause) = (random.below(6), [2, 10, 40][random.below(3) as usize]);
        let nodes = 1 + random.below(2);
        // At least one job, and so many requests that the rule decides something.
        let is_first = first.is_none();
        if is_first {
            (act, pause, rest) = (2, 2, Duration::from_secs(4));
        }
        // Who follows the rule may be at work for longer than a command waits.
        let change = |word: &str, what: &str| {
            let done = lab.cluster(word, &[what]);
            let is_late = done.err().contains("is being changed by another process");
            assert!(done.code() == 0 || is_late, "{done:?}");
        };
        let mut work = || {
            let began = Instant::now();
            match act {
                0 => change("scale", &format!("web={}", 1 + nodes)),
                1 => change("replace", "web"),
                2 | 3 => {
                    jobs += 1;
                    let wrap = format!("srun true && echo done >job-{jobs}");
                    front(lab, &format!("sbatch -Q -N {nodes} -o log-{jobs} --wrap '{wrap}'")).ok();
                }
                _ => {}
            }
            // How soon the rule has been met for long enough depends on the machine.
            if is_first {
                let decided =
                    until(LONG, || told_of(lab, "elastic").contains(" -> ").then_some(()));
                assert!(decided.is_some(), "{}", told_of(lab, "elastic"));
            }
            while began.elapsed() < rest {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        if !is_first && random.below(3) == 0 {
            work();
        } else {
            asked += under_load(port, Duration::from_millis(pause), work);
        }
        first.get_or_insert_with(|| usage(&pid));
    }
    let at_rest =
        ["elastic-control-1", "elastic-front-1", "elastic-web-1", "elastic-web-balance-1"];
    let mut last = Vec::new();
    let done = until(LONG, || {
        last = lab.containers();
        (last == at_rest && front(lab, "squeue -h").out().is_empty()).then_some(())
    });
    let log = told_of(lab, "elastic");
    assert!(done.is_some(), "{last:?}: {log}");
    let undone = (1..=jobs).filter(|job| written(lab, &format!("job-{job}")) != "done\n").count();
    assert_eq!(undone, 0, "of {jobs} jobs: {log}");
    let decisions: Vec<&str> = log.lines().filter(|line| line.contains(" -> ")).collect();
    assert!(!decisions.is_empty(), "{log}");
    for line in decisions {
        assert!(line.contains(", because rate/replica"), "{line}");
    }
    let (begin, now) = (first.unwrap_or_default(), usage(&pid));
    println!("elastic: {asked} requests, {jobs} jobs; KiB and files {begin:?}, then {now:?}");
    let grown = now.0 > begin.0 + GROWTH_KIB || now.1 > begin.1 + FILES_MORE;
    assert!(begin.0 > 0 && now.0 > 0 && !grown, "{begin:?} {now:?}");
    lab.cluster("down", &[]).ok();
    Ok(())
}
