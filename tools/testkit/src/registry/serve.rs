//! Builds answers, valid or faulty.

use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{Asked, Auth, Fault, REFRESH_TOKEN, State, lock};

/// An answer before faults.
#[derive(Clone, Debug, Default)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// Serves one connection until either side closes it.
pub(super) fn connection(state: &State, address: SocketAddr, stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(asked)) = Asked::read(&mut reader) {
        lock(&state.log).push(asked.clone());
        let fault = next_fault(state, &asked);
        let answer = match &fault {
            Some(Fault::Status(code, headers, body)) => {
                Answer { status: *code, headers: headers.clone(), body: body.clone().into_bytes() }
            }
            Some(Fault::Redirect(to)) => Answer::new(307, "").with("Location", to),
            _ => answer(state, address, &asked, fault.as_ref()),
        };
        if write(stream, &asked, answer, fault.as_ref()).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn next_fault(state: &State, asked: &Asked) -> Option<Fault> {
    let mut faults = lock(&state.faults);
    let at = faults.iter().position(|planned| asked.path.contains(&planned.part))?;
    let fault = faults[at].fault.clone();
    faults[at].times -= 1;
    if faults[at].times == 0 {
        faults.remove(at);
    }
    Some(fault)
}

fn answer(state: &State, address: SocketAddr, asked: &Asked, fault: Option<&Fault>) -> Answer {
    let path = asked.path.split('?').next().unwrap_or_default();
    if path == "/token" {
        return token(state, asked);
    }
    if !allowed(state, asked) {
        return refuse(state, address, path);
    }
    let content = lock(&state.content);
    if let Some(page) = content.pages.get(&asked.path) {
        let answer =
            Answer { status: 200, headers: page.headers.clone(), body: page.body.clone().into() };
        return answer.with("Content-Type", "application/json");
    }
    if path == "/v2/" {
        return Answer::new(200, "{}").with("Docker-Distribution-Api-Version", "registry/2.0");
    }
    if let Some((repository, name)) = split(path, "/manifests/") {
        return match content.manifests.get(&format!("{repository}/{name}")) {
            None => error(404, "MANIFEST_UNKNOWN", "manifest unknown"),
            Some(document) => {
                let digest = match fault {
                    Some(Fault::WrongDigestHeader) => format!("sha256:{}", "0".repeat(64)),
                    _ => document.digest.clone(),
                };
                let kind = match fault {
                    Some(Fault::ContentType(kind)) => kind.clone(),
                    _ => document.media_type.clone(),
                };
                Answer::new(200, document.bytes.clone())
                    .with("Content-Type", kind)
                    .with("Docker-Content-Digest", digest)
            }
        };
    }
    if let Some((_, digest)) = split(path, "/blobs/") {
        return match content.blobs.get(digest) {
            None => error(404, "BLOB_UNKNOWN", "blob unknown to registry"),
            Some(bytes) => ranged(asked, bytes, fault),
        };
    }
    error(404, "NOT_FOUND", "page not found")
}

fn split<'a>(path: &'a str, middle: &str) -> Option<(&'a str, &'a str)> {
    path.strip_prefix("/v2/")?.split_once(middle)
}

fn error(status: u16, code: &str, message: &str) -> Answer {
    let body = serde_json::json!({ "errors": [{ "code": code, "message": message }] });
    Answer::new(status, body.to_string()).with("Content-Type", "application/json")
}

fn ranged(asked: &Asked, bytes: &[u8], fault: Option<&Fault>) -> Answer {
    let range = asked.header("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-'));
    let begin = range.and_then(|n| n.parse::<usize>().ok());
    match (begin, fault) {
        (None, _) | (_, Some(Fault::NoRange)) => Answer::new(200, bytes),
        (Some(begin), _) if begin >= bytes.len() => Answer::new(416, ""),
        (Some(begin), fault) => {
            let begin = match fault {
                Some(Fault::RangeFrom(other)) => usize::try_from(*other).unwrap_or(0),
                _ => begin,
            };
            let last = bytes.len() - 1;
            Answer::new(206, &bytes[begin..])
                .with("Content-Range", format!("bytes {begin}-{last}/{}", bytes.len()))
        }
    }
}

fn allowed(state: &State, asked: &Asked) -> bool {
    let sent = asked.header("authorization");
    match &state.auth {
        Auth::Open => true,
        Auth::Basic(user, password) => sent == Some(&basic(user, password)),
        Auth::Anonymous | Auth::Bearer(..) => {
            sent == Some(&format!("Bearer {}", current_token(state)))
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

fn current_token(state: &State) -> String {
    format!("token-{}", state.tokens.load(Ordering::Relaxed))
}

fn refuse(state: &State, address: SocketAddr, path: &str) -> Answer {
    let answer = error(401, "UNAUTHORIZED", "authentication required");
    if matches!(state.auth, Auth::Basic(..)) {
        return answer.with("WWW-Authenticate", r#"Basic realm="tests""#);
    }
    let realm = lock(&state.realm).clone().unwrap_or_else(|| format!("http://{address}/token"));
    let repository = ["/manifests/", "/blobs/", "/tags/"]
        .iter()
        .find_map(|middle| split(path, middle))
        .map(|(repository, _)| format!(r#",scope="repository:{repository}:pull""#));
    let scope = repository.unwrap_or_default();
    let value = format!(r#"Bearer realm="{realm}",service="tests"{scope}"#);
    answer.with("WWW-Authenticate", value)
}

fn token(state: &State, asked: &Asked) -> Answer {
    let known = match &state.auth {
        Auth::Bearer(user, password) => {
            asked.header("authorization") == Some(&basic(user, password))
                || asked.field("refresh_token") == Some(REFRESH_TOKEN)
        }
        _ => true,
    };
    if !known {
        return Answer::new(401, r#"{"details":"incorrect username or password"}"#);
    }
    let seconds = state.token_seconds.load(Ordering::Relaxed);
    let mut body = serde_json::json!({ "token": current_token(state), "expires_in": seconds });
    if asked.field("offline_token") == Some("true") {
        body["refresh_token"] = REFRESH_TOKEN.into();
    }
    Answer::new(200, body.to_string()).with("Content-Type", "application/json")
}

fn write(
    mut stream: &TcpStream,
    asked: &Asked,
    answer: Answer,
    fault: Option<&Fault>,
) -> io::Result<()> {
    let closed = || io::Error::other("closed on purpose");
    match fault {
        Some(Fault::HangUp) => return Err(closed()),
        Some(Fault::Silence(time)) => {
            std::thread::sleep(*time);
            return Err(closed());
        }
        _ => {}
    }
    let Answer { status, mut headers, mut body } = answer;
    match fault {
        Some(Fault::Encoded(name) | Fault::SaidEncoded(name)) => {
            headers.push(("Content-Encoding".to_owned(), (*name).to_owned()));
            if matches!(fault, Some(Fault::Encoded(_))) {
                body = crate::image::compress(&body, crate::image::Pack::Gzip);
            }
        }
        Some(Fault::Corrupt) => {
            if let Some(byte) = body.last_mut() {
                *byte ^= 1;
            }
        }
        Some(Fault::Longer(more)) => body.resize(body.len() + more, b' '),
        Some(Fault::Shorter(less)) => body.truncate(body.len().saturating_sub(*less)),
        _ => {}
    }
    let chunked = matches!(fault, Some(Fault::Chunked));
    let mut head = format!("HTTP/1.1 {status} X\r\n");
    for (name, value) in &headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if chunked {
        head += "Transfer-Encoding: chunked\r\n\r\n";
    } else {
        let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    }
    stream.write_all(head.as_bytes())?;
    if asked.method == "HEAD" {
        return Ok(());
    }
    match fault {
        Some(Fault::Cut(after)) => {
            stream.write_all(&body[..body.len().min(*after)])?;
            Err(closed())
        }
        Some(Fault::Slow(piece, pause)) => body.chunks((*piece).max(1)).try_for_each(|part| {
            std::thread::sleep(*pause);
            stream.write_all(part)
        }),
        _ if chunked => {
            for part in body.chunks(1000) {
                stream.write_all(format!("{:x}\r\n", part.len()).as_bytes())?;
                stream.write_all(part)?;
                stream.write_all(b"\r\n")?;
            }
            stream.write_all(b"0\r\n\r\n")
        }
        _ => stream.write_all(&body),
    }
}
