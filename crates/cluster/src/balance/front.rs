//! What a balancer is told by its configuration file.

use std::fmt::Write as _;
use std::time::Duration;

use super::{SOCKET, Server};
use crate::spec::{Balance, Mode, Ready, Service};

/// A service behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The service's name.
    pub service: String,
    /// The ports that the balancer takes connections at, which are those of the servers.
    pub ports: Vec<u16>,
    /// What it balances.
    pub mode: Mode,
    /// How it looks whether a server is well.
    pub check: Check,
    /// A connection on which nothing comes for so long is closed.
    pub timeout: Duration,
}

/// How a balancer looks whether a server is well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// By a connection, at this port or at that of the requests.
    Tcp(Option<u16>),
    /// By a request for a path at a port, answered with a status of 2xx or 3xx.
    Http(u16, String),
}

/// A new server is looked at so often, and is well after one good answer.
const INTERVAL_MS: u32 = 250;
/// It is not well after so many bad ones.
const FALL: u32 = 2;
/// A server that has taken the connection answers within so long. Where nothing is said, HAProxy
/// takes the interval, so servers with much to do would be taken for dead, all at once.
const CHECK_MS: u32 = 5000;
/// Bytes of the ring that keeps the times of the last requests: some 4,000 of them.
const RING: u32 = 128 << 10;

/// Before the times of a request.
pub(super) const MARK: &str = "t";

impl Front {
    /// The front of a service; `None` if it has no balancer.
    pub fn of(service: &Service) -> Option<Self> {
        let balance: &Balance = service.balance.as_ref()?;
        let check = match &service.ready {
            Ready::Http { port, path } => Check::Http(*port, path.clone()),
            Ready::Tcp(port) => Check::Tcp(Some(*port)),
            Ready::Started | Ready::Command(_) => Check::Tcp(None),
        };
        let ports = service.ports().unwrap_or_default();
        Some(Self {
            service: service.name.clone(),
            ports,
            mode: balance.mode,
            check,
            timeout: balance.timeout,
        })
    }

    /// The name of the part of HAProxy that has a port.
    pub fn proxy(&self, port: u16) -> String {
        format!("{}-{port}", self.service)
    }

    /// The options of a server, in the file and at the admin socket.
    pub fn options(&self) -> String {
        let port = match self.check {
            Check::Tcp(None) => String::new(),
            Check::Tcp(Some(port)) | Check::Http(port, _) => format!(" port {port}"),
        };
        format!("check inter {INTERVAL_MS}ms fall {FALL} rise 1{port}")
    }

    /// The configuration file.
    pub fn text(&self, servers: &[Server]) -> String {
        let (mode, format) = match self.mode {
            // The request's number, and milliseconds in the queue, for the connection, for the
            // answer, and in all.
            Mode::Http => ("http", format!("{MARK} %rt %Tw %Tc %Tr %Ta")),
            Mode::Tcp => ("tcp", format!("{MARK} %rt %Tw %Tc 0 0")),
        };
        let http_only = match self.mode {
            Mode::Http => "    option forwardfor\n    timeout http-keep-alive 10s\n",
            Mode::Tcp => "",
        };
        let timeout = self.timeout.as_millis();
        let mut text = format!(
            "# Written by Coracle for service {service}; it is written anew at each change.\n\
             global\n    \
             stats socket {SOCKET} mode 600 level admin\n    \
             log ring@requests format raw local0\n    \
             no strict-limits\n    \
             maxconn 10000\n\
             ring requests\n    \
             format raw\n    \
             maxlen 64\n    \
             size {RING}\n\
             defaults\n    \
             mode {mode}\n    \
             log global\n    \
             log-format \"{format}\"\n    \
             timeout connect 2s\n    \
             timeout check {CHECK_MS}ms\n    \
             timeout client {timeout}ms\n    \
             timeout server {timeout}ms\n    \
             timeout tunnel 1h\n    \
             timeout queue 10s\n    \
             retries 3\n    \
             option redispatch 1\n    \
             option dontlognull\n\
             {http_only}",
            service = self.service,
        );
        for port in &self.ports {
            let _ = write!(
                text,
                "listen {}\n    bind :{port}\n    balance leastconn\n",
                self.proxy(*port)
            );
            if let Check::Http(_, path) = &self.check {
                let (path, name) = (quoted(path), &self.service);
                let _ = write!(
                    text,
                    "    option httpchk\n    \
                     http-check send meth GET uri {path} ver HTTP/1.0 hdr Host {name}\n"
                );
            }
            for server in servers {
                let _ = writeln!(
                    text,
                    "    server {} {}:{port} {}",
                    server.name,
                    server.address,
                    self.options()
                );
            }
        }
        text
    }
}

/// A word of HAProxy's configuration, between strong quotes (Configuration Manual 2.6, section
/// 2.2).
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
