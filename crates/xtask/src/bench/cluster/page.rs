//! The first page of a file with six services, whose image is in the store: a database, an
//! administrator's page that asks it, and four tools. All are Debian's packages, in one image.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::trees;

use super::{alone, fact};
use crate::bench::places::as_measured;
use crate::bench::{Bench, Line, median};
use crate::shell::{Outcome, read};

const IMAGE: &str = "localhost/bench/six:1";
/// Networks, and their words in the file.
const NETWORKS: [(&str, &str); 2] =
    [("as the host allows", ""), ("`names`", "network = \"names\"")];
/// Seconds until the page.
const AIM: f64 = 3.0;
/// It has failed after so long.
const LIMIT: Duration = Duration::from_mins(2);
/// A server answers within so long.
const SOON: Duration = Duration::from_secs(5);
const FILE: &str = r#"
name = "six"
image = "IMAGE"
NETWORK

[service.db]
user = "postgres"
command = """
echo 'host all all 0.0.0.0/0 trust' > /tmp/hba
cd /var/lib/postgresql/15
exec /usr/lib/postgresql/15/bin/postgres -D main -c config_file=/etc/postgresql/15/main/postgresql.conf -c hba_file=/tmp/hba -c 'listen_addresses=*' -c unix_socket_directories=/tmp -c ssl=off"""
ready = { tcp = 5432 }

[service.admin]
after = ["db"]
publish = ["127.0.0.1:PORT:8080"]
ready = { tcp = 8080 }
command = ["python3", "-c", '''
import http.server, subprocess
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ask = ["psql", "-h", "db", "-U", "postgres", "-Atc", "select version()"]
        answer = subprocess.run(ask, capture_output=True)
        self.send_response(500 if answer.returncode else 200)
        self.end_headers()
        self.wfile.write(answer.stdout)
http.server.HTTPServer(("", 8080), Page).serve_forever()
''']

[service.cache]
after = ["db"]
command = ["redis-server", "--protected-mode", "no", "--save", ""]
ready = { tcp = 6379 }

[service.files]
after = ["db"]
command = ["python3", "-m", "http.server", "-d", "/usr/share/doc", "8000"]
ready = { tcp = 8000 }

[service.web]
after = ["db"]
command = ["nginx", "-g", "daemon off;"]
ready = { tcp = 80 }

[service.meter]
after = ["db"]
command = ["iperf3", "-s"]
ready = { tcp = 5201 }
"#;

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let tree = match trees::servers() {
        Ok(tree) => tree,
        Err(reason) => {
            println!("SKIP bench cluster page: {reason}");
            return Ok(Vec::new());
        }
    };
    import(bench, &tree.display().to_string())?;
    let mut lines = Vec::new();
    for (network, words) in NETWORKS {
        lines.extend(pages(bench, network, words)?);
    }
    Ok(lines)
}

fn pages(bench: &Bench, network: &str, words: &str) -> Outcome<Vec<Line>> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|one| one.local_addr());
    let port = port.map_err(|error| error.to_string())?.port();
    let text = FILE.replace("IMAGE", IMAGE).replace("NETWORK", words);
    let text = text.replace("PORT", &port.to_string());
    let file = bench.scratch.path().join("six.toml");
    fs::write(&file, text).map_err(|error| error.to_string())?;
    let file = file.display().to_string();
    let (mut first, mut pages, mut all) = (f64::NAN, Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        let (page, ready) = once(bench, &file, port)?;
        if round == 0 {
            first = page;
        } else {
            pages.push(page);
            all.push(ready);
        }
    }
    let page = median(pages);
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    let what = format!("first page of six services from a stored image, {network}");
    Ok(vec![
        alone(&what, seconds(page), page, AIM, "s"),
        fact("until all six are ready", seconds(median(all))),
        fact("the first page of the first start, which prepares the image", seconds(first)),
    ])
}

fn import(bench: &Bench, tar: &str) -> Outcome {
    let mut words = as_measured(bench);
    words.extend([bench.coracle.display().to_string(), "import".to_owned(), "-q".to_owned()]);
    words.extend(["-".to_owned(), IMAGE.to_owned()]);
    let input = fs::File::open(tar).map_err(|error| format!("{tar}: {error}"))?;
    let done = Command::new(&words[0]).args(&words[1..]).stdin(input).output();
    let done = done.map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("import: {}", String::from_utf8_lossy(&done.stderr)))
}

/// Seconds until the page, and until all is ready.
fn once(bench: &Bench, file: &str, port: u16) -> Outcome<(f64, f64)> {
    let mut words = as_measured(bench);
    words.extend(
        [&bench.coracle.display().to_string(), "cluster", "up", "-d", "-f", file]
            .map(str::to_owned),
    );
    let began = Instant::now();
    let (page, up) = std::thread::scope(|scope| {
        let up = scope.spawn(|| {
            let done = read(Command::new(&words[0]).args(&words[1..]));
            done.map(|_| began.elapsed().as_secs_f64())
        });
        let mut page = None;
        while page.is_none() && began.elapsed() < LIMIT {
            if up.is_finished() && began.elapsed() > LIMIT / 4 {
                break;
            }
            page = get(port).then(|| began.elapsed().as_secs_f64());
            std::thread::sleep(Duration::from_millis(5));
        }
        (page, up.join())
    });
    let up = up.map_err(|_| "a thread has ended".to_owned())?;
    bench.coracle(&["cluster", "down", "six"])?;
    Ok((page.ok_or_else(|| format!("no page came: {up:?}"))?, up?))
}

/// Whether the page comes, with the database's answer in it.
fn get(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.contains(" 200 ") && text.contains("PostgreSQL"))
}
