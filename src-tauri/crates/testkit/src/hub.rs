//! HUB: a server that speaks Hugging Face's protocol on this computer, with switches for everything that goes wrong on the way, and a log.
//!
//! ```text
//! PREFIX/api/models/REPO/revision/REV   {"sha": COMMIT}
//! PREFIX/api/models/REPO/tree/COMMIT    [{"type": "file", "path", "size", "oid" or "lfs": {"oid", "size"}}]
//! PREFIX/REPO/resolve/COMMIT/PATH       the data, or a redirect with X-Linked-Size, X-Linked-ETag and X-Repo-Commit
//! (second port)/cdn/PATH?signature=N    the data, while the signature is valid
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tokio_stream::StreamExt;

/// The commit that every revision of [`HubServer`] means.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const CHUNK: usize = 64 << 10;

/// One thing that goes wrong with an answer that would carry data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The body ends after this many bytes; `clean` ends it as if it were whole, else the connection breaks.
    Cut {
        /// Bytes.
        after: u64,
        /// Whether the end looks like one.
        clean: bool,
    },
    /// After this many bytes nothing more comes, and the connection stays open.
    Stall {
        /// Bytes.
        after: u64,
    },
    /// The first byte of the answer, headers included, waits.
    Delay(Duration),
    /// 200 with everything.
    IgnoreRange,
    /// 206 with `Content-Range` of another part.
    WrongRange,
    /// 416.
    NoSuchRange,
    /// Any status, with `Retry-After`.
    Status(u16, Option<String>),
    /// 200 with a web page of 4 KB.
    WebPage,
    /// A chunked body.
    NoLength,
    /// The first byte is another one.
    WrongByte,
}

/// Where `resolve` leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// It is the data.
    Direct,
    /// A redirect without a host to the same server; the answer itself says nothing about the file.
    Relative,
    /// A signed address on a second port, good for this many requests.
    Signed {
        /// How many it is good for.
        requests: u32,
    },
    /// A redirect to itself.
    Circle,
    /// A redirect to this address.
    To(String),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// Path and query.
    pub target: String,
    /// `Host`.
    pub host: String,
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// What was answered; 0 until it is.
    pub status: u16,
    /// Bytes of data handed to the connection.
    pub sent: u64,
}

struct Served {
    path: String,
    contents: Bytes,
    lfs: bool,
    etag: String,
}

struct Rule {
    path: String,
    fault: Fault,
    /// Answers it still applies to.
    left: u32,
}

struct Inner {
    repo: String,
    prefix: String,
    addresses: [SocketAddr; 2],
    files: Mutex<Vec<Served>>,
    rules: Mutex<Vec<Rule>>,
    storage: Mutex<Storage>,
    listing: Mutex<Option<serde_json::Value>>,
    signatures: Mutex<Vec<u32>>,
    log: Mutex<Vec<Seen>>,
    /// Bytes a second of each connection.
    rate: Mutex<Option<u64>>,
    /// Bytes of data in all, after which every connection waits.
    allowance: Mutex<Option<u64>>,
}

/// The running server; stops when dropped.
pub struct HubServer {
    inner: Arc<Inner>,
    runtime: Option<tokio::runtime::Runtime>,
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(contents: &[u8]) -> String {
    hex(&Sha256::digest(contents))
}

/// The name that git gives the contents.
fn git_oid(contents: &[u8]) -> String {
    let header = format!("blob {}\0", contents.len());
    hex(&Sha1::new_with_prefix(header)
        .chain_update(contents)
        .finalize())
}

impl HubServer {
    /// Serves one repository below `prefix` (`""` or `"/mirror"`). Files whose name ends with `.safetensors` have a sha256, as with LFS; all others have
    /// git's oid.
    pub fn start(repo: &str, prefix: &str, files: &[(&str, Vec<u8>)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listeners = [(); 2].map(|()| {
            runtime
                .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
                .unwrap()
        });
        let inner = Arc::new(Inner {
            repo: repo.to_owned(),
            prefix: prefix.to_owned(),
            addresses: [
                listeners[0].local_addr().unwrap(),
                listeners[1].local_addr().unwrap(),
            ],
            files: Mutex::default(),
            rules: Mutex::default(),
            storage: Mutex::new(Storage::Direct),
            listing: Mutex::default(),
            signatures: Mutex::default(),
            log: Mutex::default(),
            rate: Mutex::default(),
            allowance: Mutex::default(),
        });
        for listener in listeners {
            let app = Router::new().fallback(answer).with_state(inner.clone());
            runtime.spawn(async move { axum::serve(listener, app).await });
        }
        let server = Self {
            inner,
            runtime: Some(runtime),
        };
        for (path, contents) in files {
            server.put(path, contents.clone());
        }
        server
    }

    /// For `HF_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}{}", self.inner.addresses[0], self.inner.prefix)
    }

    /// Host and port of the second server.
    pub fn storage_host(&self) -> String {
        self.inner.addresses[1].to_string()
    }

    /// Adds a file, or changes its contents and its ETag.
    pub fn put(&self, path: &str, contents: Vec<u8>) {
        let mut files = locked(&self.inner.files);
        files.retain(|file| file.path != path);
        let etag = format!("\"{}\"", digest(&contents));
        files.push(Served {
            path: path.to_owned(),
            contents: contents.into(),
            lfs: path.ends_with(".safetensors"),
            etag,
        });
    }

    /// Changes what is sent and keeps what is promised: a damaged copy.
    pub fn damage(&self, path: &str, contents: Vec<u8>) {
        locked(&self.inner.files)
            .iter_mut()
            .filter(|file| file.path == path)
            .for_each(|file| file.contents = contents.clone().into());
    }

    /// The ETag of a file, as it stands in the header.
    pub fn set_etag(&self, path: &str, etag: &str) {
        locked(&self.inner.files)
            .iter_mut()
            .filter(|file| file.path == path)
            .for_each(|file| etag.clone_into(&mut file.etag));
    }

    /// The next `times` data answers for `path` (`"*"` is any) have this fault. Rules apply in the order they were given.
    pub fn fault(&self, path: &str, fault: Fault, times: u32) {
        locked(&self.inner.rules).push(Rule {
            path: path.to_owned(),
            fault,
            left: times,
        });
    }

    /// From now on everything is sound.
    pub fn heal(&self) {
        locked(&self.inner.rules).clear();
    }

    /// Where `resolve` leads from now on.
    pub fn store(&self, storage: Storage) {
        *locked(&self.inner.storage) = storage;
    }

    /// Answers the listing with this instead.
    pub fn list(&self, listing: serde_json::Value) {
        *locked(&self.inner.listing) = Some(listing);
    }

    /// Bytes a second of each connection.
    pub fn set_rate(&self, rate: Option<u64>) {
        *locked(&self.inner.rate) = rate;
    }

    /// Once so many bytes of data have been sent in all, every connection waits until more are allowed; none for no end.
    pub fn allow(&self, bytes: Option<u64>) {
        *locked(&self.inner.allowance) = bytes;
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Seen> {
        locked(&self.inner.log).clone()
    }

    /// Those for data.
    pub fn data_requests(&self) -> Vec<Seen> {
        self.requests()
            .into_iter()
            .filter(|seen| !seen.target.contains("/api/"))
            .collect()
    }

    /// Bytes of data handed to connections so far.
    pub fn sent(&self) -> u64 {
        self.inner.sent()
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Inner {
    fn sent(&self) -> u64 {
        locked(&self.log).iter().map(|seen| seen.sent).sum()
    }

    fn must_wait(&self) -> bool {
        let allowance = *locked(&self.allowance);
        allowance.is_some_and(|bytes| self.sent() >= bytes)
    }
}

async fn answer(State(hub): State<Arc<Inner>>, request: Request) -> Response {
    let (request, _) = request.into_parts();
    let text = |name| {
        request
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let target = request
        .uri
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let seen = Seen {
        at: Instant::now(),
        target: target.clone(),
        host: text(header::HOST).unwrap_or_default(),
        range: text(header::RANGE),
        if_range: text(header::IF_RANGE),
        authorization: text(header::AUTHORIZATION),
        status: 0,
        sent: 0,
    };
    let id = {
        let mut log = locked(&hub.log);
        log.push(seen.clone());
        log.len() - 1
    };
    let response = respond(&hub, id, &seen, &request.uri).await;
    locked(&hub.log)[id].status = response.status().as_u16();
    response
}

fn plain(status: u16, text: &str) -> Response {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "text/plain")
        .body(Body::from(text.to_owned()))
        .unwrap()
}

fn json(value: &serde_json::Value) -> Response {
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

async fn respond(hub: &Arc<Inner>, id: usize, seen: &Seen, uri: &axum::http::Uri) -> Response {
    let Some(path) = uri.path().strip_prefix(&hub.prefix) else {
        return plain(404, "outside the prefix");
    };
    let path = url::form_urlencoded::parse(format!("p={}", path.replace('+', "%2B")).as_bytes())
        .next()
        .unwrap()
        .1
        .into_owned();
    if let Some(rest) = path.strip_prefix(&format!("/api/models/{}/", hub.repo)) {
        // A fault of the listing is one of the path "api".
        match take(hub, "api") {
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Status(status, wait)) => return refuse(status, wait),
            Some(Fault::WebPage) => return page(),
            _ => {}
        }
        if rest.starts_with("revision/") {
            return json(&serde_json::json!({ "id": hub.repo, "sha": COMMIT }));
        }
        if rest.starts_with(&format!("tree/{COMMIT}")) {
            return json(&listing(hub));
        }
    }
    let resolve = format!("/{}/resolve/{COMMIT}/", hub.repo);
    if let Some(file) = path.strip_prefix(&resolve) {
        let storage = locked(&hub.storage).clone();
        let encoded = uri
            .path()
            .strip_prefix(&format!("{}{resolve}", hub.prefix))
            .unwrap_or(file);
        let location = match storage {
            Storage::Direct => return data(hub, id, seen, file, true).await,
            Storage::Relative => {
                return redirect(&format!("{}/x/{encoded}", hub.prefix), HeaderMap::new());
            }
            Storage::Circle => uri.to_string(),
            Storage::To(address) => address,
            Storage::Signed { requests } => {
                let mut signatures = locked(&hub.signatures);
                signatures.push(requests);
                format!(
                    "http://{}{}/cdn/{encoded}?signature={}",
                    hub.addresses[1],
                    hub.prefix,
                    signatures.len() - 1
                )
            }
        };
        let mut headers = HeaderMap::new();
        if let Some(served) = locked(&hub.files).iter().find(|served| served.path == file) {
            headers.insert("x-linked-size", served.contents.len().into());
            headers.insert("x-linked-etag", served.etag.parse().unwrap());
        }
        headers.insert("x-repo-commit", COMMIT.parse().unwrap());
        return redirect(&location, headers);
    }
    if let Some(file) = path.strip_prefix("/x/") {
        return data(hub, id, seen, file, true).await;
    }
    if let Some(file) = path.strip_prefix("/cdn/") {
        let number = uri
            .query()
            .and_then(|query| query.strip_prefix("signature=")?.parse::<usize>().ok());
        {
            let mut signatures = locked(&hub.signatures);
            match number.and_then(|number| signatures.get_mut(number)) {
                Some(left) if *left > 0 => *left -= 1,
                _ => return plain(403, "<Error><Code>AccessDenied</Code></Error>"),
            }
        }
        return data(hub, id, seen, file, false).await;
    }
    plain(404, "not found")
}

fn listing(hub: &Inner) -> serde_json::Value {
    if let Some(listing) = locked(&hub.listing).clone() {
        return listing;
    }
    let files = locked(&hub.files);
    let entry = |file: &Served| {
        let mut entry =
            serde_json::json!({ "type": "file", "path": file.path, "size": file.contents.len() });
        if file.lfs {
            entry["lfs"] =
                serde_json::json!({ "oid": digest(&file.contents), "size": file.contents.len() });
        } else {
            entry["oid"] = git_oid(&file.contents).into();
        }
        entry
    };
    files.iter().map(entry).collect()
}

fn redirect(location: &str, headers: HeaderMap) -> Response {
    let mut response = Response::builder()
        .status(302)
        .header(header::LOCATION, location)
        .body(Body::empty())
        .unwrap();
    response.headers_mut().extend(headers);
    response
}

fn refuse(status: u16, wait: Option<String>) -> Response {
    let mut response = plain(status, "refused");
    if let Some(wait) = wait {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, wait.parse().unwrap());
    }
    response
}

fn page() -> Response {
    let text = format!(
        "<!DOCTYPE html><html><body>{}</body></html>",
        "Log in. ".repeat(512)
    );
    Response::builder()
        .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
        .body(Body::from(text))
        .unwrap()
}

/// The fault of this answer, used up by one.
fn take(hub: &Inner, path: &str) -> Option<Fault> {
    let mut rules = locked(&hub.rules);
    let rule = rules
        .iter_mut()
        .find(|rule| rule.left > 0 && (rule.path == path || rule.path == "*" && path != "api"))?;
    rule.left -= 1;
    Some(rule.fault.clone())
}

async fn data(hub: &Arc<Inner>, id: usize, seen: &Seen, path: &str, named: bool) -> Response {
    let found = locked(&hub.files)
        .iter()
        .find(|file| file.path == path)
        .map(|file| (file.contents.clone(), file.etag.clone()));
    let Some((contents, etag)) = found else {
        return plain(404, "no such file");
    };
    let fault = take(hub, path);
    let total = contents.len() as u64;
    match &fault {
        Some(Fault::Delay(delay)) => tokio::time::sleep(*delay).await,
        Some(Fault::Status(status, wait)) => return refuse(*status, wait.clone()),
        Some(Fault::WebPage) => return page(),
        Some(Fault::NoSuchRange) => return no_range(total),
        _ => {}
    }
    let fits = seen.if_range.as_ref().is_none_or(|known| *known == etag);
    let asked = seen
        .range
        .as_deref()
        .filter(|_| fits && fault != Some(Fault::IgnoreRange));
    let range = asked.and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((
            from.parse::<u64>().ok()?,
            to.parse::<u64>().map_or(total, |to| (to + 1).min(total)),
        ))
    });
    let (from, to) = range.unwrap_or((0, total));
    if range.is_some() && from >= to {
        return no_range(total);
    }
    let mut response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::ACCEPT_RANGES, "bytes");
    if named {
        response = response.header(header::ETAG, etag);
    }
    if range.is_some() {
        let shift = u64::from(fault == Some(Fault::WrongRange));
        response = response.status(StatusCode::PARTIAL_CONTENT).header(
            header::CONTENT_RANGE,
            format!("bytes {}-{}/{total}", from + shift, to - 1 + shift),
        );
    }
    let whole = !matches!(
        fault,
        Some(Fault::NoLength | Fault::Cut { clean: true, .. })
    );
    if whole {
        response = response.header(header::CONTENT_LENGTH, to - from);
    }
    let mut part = contents.slice(from as usize..to as usize);
    if fault == Some(Fault::WrongByte) && !part.is_empty() {
        let mut wrong = part.to_vec();
        wrong[0] ^= 1;
        part = wrong.into();
    }
    response.body(body(hub.clone(), id, part, fault)).unwrap()
}

fn no_range(total: u64) -> Response {
    Response::builder()
        .status(416)
        .header(header::CONTENT_RANGE, format!("bytes */{total}"))
        .body(Body::empty())
        .unwrap()
}

fn body(hub: Arc<Inner>, id: usize, contents: Bytes, fault: Option<Fault>) -> Body {
    let end = match fault {
        Some(Fault::Cut { after, .. } | Fault::Stall { after }) => {
            contents.len().min(usize::try_from(after).unwrap())
        }
        _ => contents.len(),
    };
    let breaks = matches!(fault, Some(Fault::Cut { clean: false, .. })) && end < contents.len();
    let stalls = matches!(fault, Some(Fault::Stall { .. }));
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let mut at = 0;
        while at < end {
            let to = end.min(at + CHUNK);
            while hub.must_wait() && !sender.is_closed() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if sender.send(Ok(contents.slice(at..to))).await.is_err() {
                return;
            }
            locked(&hub.log)[id].sent += (to - at) as u64;
            let rate = *locked(&hub.rate);
            if let Some(rate) = rate {
                tokio::time::sleep(Duration::from_secs_f64((to - at) as f64 / rate as f64)).await;
            }
            at = to;
        }
        if stalls {
            sender.closed().await;
        } else if breaks {
            // The client must have what was sent before the connection breaks.
            let _ = sender.send(Ok(Bytes::new())).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = sender.send(Err(std::io::Error::other("cut"))).await;
        }
    });
    Body::from_stream(
        tokio_stream::wrappers::ReceiverStream::new(receiver)
            .filter(|piece| piece.as_ref().map_or(true, |piece| !piece.is_empty())),
    )
}
