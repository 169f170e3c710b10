//! HTTP/1.1 over `ureq`: the only file that uses its `unversioned` interfaces, which do not follow
//! semantic versions (the version is pinned exactly).
//!
//! `ureq` provides framing, pooling, proxies (CONNECT, SOCKS) and timeouts. This crate provides the
//! resolver, the TLS step (a configuration per host, errors with the exact cause) and all policy:
//! this module follows no redirects, treats no status as an error and repeats nothing.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use ureq::http;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver as UreqResolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    SocksConnector, TcpConnector, Transport, TransportAdapter,
};
use ureq::{Agent, Timeout};

use crate::host_state::Hosts;
use crate::proxy::{self, Proxies};
use crate::resolver::Resolver;
use crate::tls::{self, Tls};
use crate::url::Url;
use crate::{Error, Secret, Settings, Timeouts};

const IDLE_CONNECTIONS: usize = 16;
const BUFFER: usize = 128 << 10;

/// A request's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    /// With a body of type `application/x-www-form-urlencoded`.
    Post,
}

/// An HTTP request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Value of the `Authorization` header.
    pub(crate) authorization: Option<Secret>,
    /// The form of a POST.
    pub(crate) form: Option<Secret>,
}

impl Request {
    pub(crate) fn get(url: Url) -> Self {
        Request { method: Method::Get, url, headers: Vec::new(), authorization: None, form: None }
    }
}

/// An HTTP response with any status.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: http::HeaderMap,
    pub(crate) body: Box<dyn Read + Send>,
    /// The URL that answered.
    pub(crate) url: Url,
}

impl Response {
    /// The first value of a header; `None` if it is not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All values of a header.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect()
    }
}

/// Sends requests.
pub(crate) struct Http {
    resolver: Arc<Resolver>,
    tls: Arc<Tls>,
    hosts: Arc<Hosts>,
    proxies: Proxies,
    user_agent: String,
    timeouts: Timeouts,
    /// One agent per proxy, because a pool must not mix them.
    agents: Mutex<HashMap<Option<String>, Agent>>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("user_agent", &self.user_agent).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(settings: &Settings, hosts: Arc<Hosts>) -> Result<Self, Error> {
        Ok(Http {
            resolver: Arc::new(Resolver::new(settings.resolver.clone())),
            tls: Arc::new(Tls::new(settings)),
            hosts,
            proxies: Proxies::new(&settings.proxy)?,
            user_agent: settings.user_agent.clone(),
            timeouts: settings.timeouts.clone(),
            agents: Mutex::new(HashMap::new()),
        })
    }

    /// Sends one request once and returns as soon as the response's header is there.
    pub(crate) fn send(&self, request: &Request) -> Result<Response, Error> {
        let proxy = self.proxies.choose(&request.url);
        let explain = |error| explain(error, &request.url, proxy, &self.timeouts);
        let agent = self.agent(proxy).map_err(explain)?;
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Head => http::Method::HEAD,
            Method::Post => http::Method::POST,
        };
        let mut builder = http::Request::builder()
            .method(method)
            .uri(request.url.full())
            .header("Accept-Encoding", "identity");
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(authorization) = &request.authorization {
            let mut value = http::HeaderValue::from_str(authorization.expose())
                .map_err(|e| explain(ureq::Error::Http(e.into())))?;
            value.set_sensitive(true);
            builder = builder.header("Authorization", value);
        }
        tracing::debug!(method = ?request.method, url = %request.url, "request");
        let answer = match &request.form {
            Some(form) => builder
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(form.expose().as_bytes().to_vec())
                .map_err(ureq::Error::Http)
                .and_then(|request| agent.run(request)),
            None => builder.body(()).map_err(ureq::Error::Http).and_then(|r| agent.run(r)),
        };
        let (parts, body) = answer.map_err(explain)?.into_parts();
        tracing::debug!(url = %request.url, status = parts.status.as_u16(), "answer");
        Ok(Response {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: Box::new(body.into_with_config().limit(u64::MAX).reader()),
            url: request.url.clone(),
        })
    }

    fn agent(&self, proxy: Option<&Secret>) -> Result<Agent, ureq::Error> {
        let key = proxy.map(|proxy| proxy.expose().to_owned());
        let mut agents = self.agents.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(agent) = agents.get(&key) {
            return Ok(agent.clone());
        }
        let agent = self.new_agent(key.as_deref())?;
        agents.insert(key, agent.clone());
        Ok(agent)
    }

    fn new_agent(&self, proxy: Option<&str>) -> Result<Agent, ureq::Error> {
        let proxy = proxy.map(ureq::Proxy::new).transpose()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .user_agent(self.user_agent.as_str())
            .input_buffer_size(BUFFER)
            .max_idle_connections(IDLE_CONNECTIONS * 2)
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .timeout_resolve(Some(self.timeouts.resolve))
            .timeout_connect(Some(self.timeouts.connect))
            .timeout_recv_response(Some(self.timeouts.response))
            .timeout_per_read(Some(self.timeouts.idle))
            .build();
        let tls = TlsConnector { tls: self.tls.clone(), hosts: self.hosts.clone() };
        let connector =
            ().chain(SocksConnector::default())
                .chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(tls);
        Ok(Agent::with_parts(config, connector, Names { resolver: self.resolver.clone() }))
    }
}

/// Connects `ureq` to this crate's resolver.
#[derive(Debug)]
struct Names {
    resolver: Arc<Resolver>,
}

impl UreqResolver for Names {
    fn resolve(
        &self,
        uri: &http::Uri,
        _: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or_else(|| ureq::Error::BadUri("no host".to_owned()))?;
        let port = uri.port_u16().unwrap_or_else(|| default_port(uri.scheme_str()));
        let timeout =
            if timeout.after.is_not_happening() { Duration::from_mins(1) } else { *timeout.after };
        let found = self
            .resolver
            .resolve(host, timeout)
            .map_err(|reason| wrap(Error::Resolve { host: host.to_owned(), reason }))?;
        let mut addresses = self.empty();
        for address in found {
            addresses.push(std::net::SocketAddr::new(address, port));
        }
        Ok(addresses)
    }
}

/// Wraps connections to `https` in TLS.
#[derive(Debug)]
struct TlsConnector {
    tls: Arc<Tls>,
    hosts: Arc<Hosts>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = details.uri.port_u16().unwrap_or(443);
        let shown = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
        let check = !self.hosts.is_insecure(&shown);
        let config = self.tls.config(host, port, check).map_err(wrap)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ureq::Error::BadUri(format!("{host} is not a host name")))?;
        let mut connection = ClientConnection::new(config, name).map_err(ureq::Error::Rustls)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection
            .complete_io(&mut socket)
            .map_err(|error| handshake_error(error, &connection, &shown))?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = StreamOwned { conn: connection, sock: socket };
        Ok(Some(Either::B(TlsTransport { buffers, stream })))
    }
}

/// The cause of a failed handshake: in the error, unless the peer just closes the connection.
fn handshake_error(error: io::Error, connection: &ClientConnection, host: &str) -> ureq::Error {
    if let Some(reason) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        return wrap(tls::explain(reason, host));
    }
    let hung_up = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    );
    if hung_up && connection.is_handshaking() {
        return wrap(Error::Tls {
            host: host.to_owned(),
            reason: "it closed the connection during the handshake".to_owned(),
            untrusted: false,
        });
    }
    ureq::Error::from(error)
}

struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

fn default_port(scheme: Option<&str>) -> u16 {
    match scheme {
        Some("https") => 443,
        Some("http") | None => 80,
        Some(_) => 1080,
    }
}

fn wrap(error: Error) -> ureq::Error {
    ureq::Error::Other(Box::new(error))
}

/// Converts `ureq`'s error to this crate's.
fn explain(error: ureq::Error, url: &Url, proxy: Option<&Secret>, timeouts: &Timeouts) -> Error {
    let host = url.authority();
    let through_proxy = |reason: String| {
        let proxy = proxy.map(proxy::shown).unwrap_or_default();
        Error::Proxy { proxy, reason }
    };
    match error {
        ureq::Error::Other(other) => match other.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::Broken { host, reason: other.to_string() },
        },
        ureq::Error::Io(error) => explain_io(error, host, proxy.map(proxy::shown)),
        ureq::Error::Rustls(error) => tls::explain(&error, &host),
        ureq::Error::Timeout(which) => Error::Timeout { host, step: step(which, timeouts) },
        ureq::Error::HostNotFound => {
            Error::Resolve { host: url.host.clone(), reason: "it has no address".to_owned() }
        }
        ureq::Error::ConnectProxyFailed(reason) => through_proxy(reason),
        ureq::Error::InvalidProxyUrl => through_proxy("its URL is not valid".to_owned()),
        other => Error::Broken { host, reason: other.to_string() },
    }
}

/// Converts an I/O error of a request or of a body.
pub(crate) fn explain_io(error: io::Error, host: String, proxy: Option<String>) -> Error {
    use io::ErrorKind as Kind;
    if let Some(inner) = error.get_ref() {
        if let Some(reason) = inner.downcast_ref::<rustls::Error>() {
            return tls::explain(reason, &host);
        }
        if inner.is::<ureq::Error>() {
            return Error::Broken { host, reason: inner.to_string() };
        }
    }
    match (error.kind(), proxy) {
        (Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe, _) => {
            Error::Broken { host, reason: "it closed the connection".to_owned() }
        }
        (_, Some(proxy)) => Error::Proxy { proxy, reason: error.to_string() },
        (Kind::TimedOut | Kind::WouldBlock, None) => {
            Error::Timeout { host, step: "connecting".to_owned() }
        }
        _ => Error::Connect { host, source: error },
    }
}

fn step(which: Timeout, timeouts: &Timeouts) -> String {
    let (what, after) = match which {
        Timeout::Resolve => ("finding its address", timeouts.resolve),
        Timeout::Connect => ("connecting", timeouts.connect),
        Timeout::RecvResponse => ("its answer", timeouts.response),
        _ => ("the next bytes", timeouts.idle),
    };
    format!("{what}, {} s", after.as_secs())
}
