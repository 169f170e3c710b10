//! A cluster file with six services, as a research group has them: a database, an administrator's
//! page that asks it, and four tools. All are Debian's packages, in the image of
//! [`crate::trees::servers`].

/// What the file mounts: paths beside it, and their text.
pub const FILES: [(&str, &str); 2] =
    [("settings/hba", "host all all 0.0.0.0/0 trust\n"), ("pages/a", "first\n")];

/// Ports of 127.0.0.1 that the file publishes.
pub struct Ports {
    /// The administrator's page.
    pub admin: u16,
    /// The files.
    pub files: u16,
    /// The web server.
    pub web: u16,
}

/// The file. `network` is a line of it, or nothing.
#[must_use]
pub fn file(image: &str, network: &str, ports: &Ports) -> String {
    let words = [("IMAGE", image.to_owned()), ("NETWORK", network.to_owned())];
    let ports = [("ADMIN", ports.admin), ("FILES", ports.files), ("WEB", ports.web)];
    let ports = ports.map(|(name, port)| (name, port.to_string()));
    let all = words.into_iter().chain(ports);
    all.fold(TEXT.to_owned(), |text, (name, value)| text.replace(name, &value))
}

const TEXT: &str = r#"name = "gateway"
image = "IMAGE"
NETWORK

[service.db]
user = "postgres"
volume = ["./settings:/settings:ro"]
command = """
cd /var/lib/postgresql/15
exec /usr/lib/postgresql/15/bin/postgres -D main -c config_file=/etc/postgresql/15/main/postgresql.conf -c hba_file=/settings/hba -c 'listen_addresses=*' -c unix_socket_directories=/tmp -c ssl=off"""
ready = { tcp = 5432 }

[service.admin]
after = ["db"]
publish = ["127.0.0.1:ADMIN:8080"]
ready = { tcp = 8080 }
command = ["python3", "-c", '''
import http.server, subprocess
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self):
        ask = ["psql", "-h", "db", "-U", "postgres", "-Atc", "select version()"]
        answer = subprocess.run(ask, capture_output=True)
        text = answer.stdout + answer.stderr
        self.send_response(500 if answer.returncode else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("", 8080), Page).serve_forever()
''']

[service.cache]
after = ["db"]
command = ["redis-server", "--protected-mode", "no", "--save", ""]
ready = { tcp = 6379 }

[service.files]
after = ["db"]
volume = ["./pages:/pages:ro"]
publish = ["127.0.0.1:FILES:8000"]
command = ["python3", "-m", "http.server", "-d", "/pages", "8000"]
ready = { tcp = 8000 }

[service.web]
after = ["db"]
publish = ["127.0.0.1:WEB:80"]
command = ["nginx", "-g", "daemon off;"]
ready = { tcp = 80 }

[service.meter]
after = ["db"]
command = ["iperf3", "-s"]
ready = { tcp = 5201 }
"#;
