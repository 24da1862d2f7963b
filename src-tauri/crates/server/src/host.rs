//! The server of the window: the same as [`crate::Bound::serve`], beside an app that goes on when it ends, as the settings say at every moment.
//!
//! It always asks for the key. A change of a setting closes it and opens it anew; answers that are being written are the app's and go on. What
//! keeps it from running is told where its state is asked for, and tried again then.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use fastar_api::{ApiError, ErrorCode, Face, ServerState};
use fastar_app::{App, ServerWish};
use tokio::sync::oneshot;

use crate::Bound;
use crate::gate::Gate;

/// Digits of the key that are shown.
const SHOWN: usize = 4;

/// The local server of a window. Clones are one and the same; it ends with the last of them.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    app: App,
    running: Mutex<Option<Running>>,
}

/// A server that answers.
struct Running {
    wish: ServerWish,
    key: String,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Closes its port and all connections.
    fn end(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::warn!("the local server ended with a mistake of its own");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let running = self
            .running
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.take() {
            running.end();
        }
    }
}

impl Host {
    /// Runs the server whenever the settings of `app` say so, from now on.
    pub fn start(app: &App) -> Self {
        let inner = Arc::new(Inner {
            app: app.clone(),
            running: Mutex::default(),
        });
        let weak: Weak<Inner> = Arc::downgrade(&inner);
        app.when_server_changes(Box::new(move || {
            if let Some(inner) = weak.upgrade() {
                inner.apply_or_log();
            }
        }));
        inner.apply_or_log();
        Self(inner)
    }

    /// What it is doing. One that should run and does not is tried again.
    ///
    /// # Errors
    /// When there is no key and none can be made.
    pub fn state(&self) -> Result<ServerState, ApiError> {
        let problem = self.0.apply().err();
        let key = self.0.app.server_key()?;
        let running = self
            .0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let lan = running.as_ref().filter(|running| running.wish.lan);
        let at = |ip: IpAddr, port| format!("http://{}", SocketAddr::new(ip, port));
        Ok(ServerState {
            address: running
                .as_ref()
                .map(|running| at(Ipv4Addr::LOCALHOST.into(), running.wish.port)),
            network: lan.and_then(|running| Some(at(in_network()?, running.wish.port))),
            problem,
            key_begins: key.chars().take(SHOWN).collect(),
        })
    }

    /// The whole key.
    ///
    /// # Errors
    /// When there is none and none can be made.
    pub fn key(&self) -> Result<String, ApiError> {
        self.0.app.server_key()
    }

    /// Another key; programs with the old one are refused from now on.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn new_key(&self) -> Result<ServerState, ApiError> {
        self.0.app.server_key_new()?;
        self.state()
    }

    /// Ends the server, as the window does when it closes.
    pub fn stop(&self) {
        let running = self
            .0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(running) = running {
            running.end();
        }
    }
}

impl Inner {
    fn apply_or_log(&self) {
        if let Err(error) = self.apply() {
            tracing::warn!(%error, "the local server does not run");
        }
    }

    /// Makes the server what the settings say.
    fn apply(&self) -> Result<(), ApiError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let wish = self.app.server_wish();
        if !wish.on {
            if let Some(running) = running.take() {
                running.end();
                tracing::info!("the local server has ended");
            }
            return Ok(());
        }
        let key = self.app.server_key()?;
        let is_right = |running: &Running| {
            running.wish == wish && running.key == key && !running.thread.is_finished()
        };
        if running.as_ref().is_some_and(is_right) {
            return Ok(());
        }
        // Its port may be the one that is wanted.
        if let Some(before) = running.take() {
            before.end();
        }
        *running = Some(open(&self.app, wish, key)?);
        Ok(())
    }
}

/// Takes the port and answers on a thread of its own.
fn open(app: &App, wish: ServerWish, key: String) -> Result<Running, ApiError> {
    let ip = match wish.lan {
        true => Ipv4Addr::UNSPECIFIED,
        false => Ipv4Addr::LOCALHOST,
    };
    let port = wish.port;
    let refused = |error: std::io::Error| refused(port, &error);
    let listener = TcpListener::bind((ip, port)).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("fastar-server")
        .enable_all()
        .build()
        .map_err(refused)?;
    let (stop, stopped) = oneshot::channel();
    let app = app.seen_by(Face::Web);
    let gate = Gate::open_to(port, key.clone(), wish.origins.clone(), wish.lan);
    let thread = std::thread::Builder::new()
        .name("fastar-server".into())
        .spawn(move || {
            runtime.block_on(async {
                let served = async {
                    let bound = Bound::from_std(listener)?;
                    bound.answer(app, gate, std::future::pending()).await
                };
                tokio::select! {
                    // Whoever closes it waits for that; connections end with the threads.
                    _ = stopped => {}
                    ended = served => {
                        if let Err(error) = ended {
                            tracing::warn!(%error, "the local server has ended");
                        }
                    }
                }
            });
            runtime.shutdown_background();
        })
        .map_err(refused)?;
    tracing::info!(port, lan = wish.lan, "the local server runs");
    Ok(Running {
        wish,
        key,
        stop,
        thread,
    })
}

fn refused(port: u16, error: &std::io::Error) -> ApiError {
    let (code, message, hint) = match error.kind() {
        std::io::ErrorKind::AddrInUse => (
            ErrorCode::Busy,
            format!("Port {port} is in use by another program."),
            "Choose another port, or end that program: it is tried again by itself.",
        ),
        _ => (
            ErrorCode::Internal,
            format!("The local server could not run on port {port}: {error}."),
            "Choose another port, or turn it off and on again.",
        ),
    };
    ApiError {
        code,
        message,
        hint: Some(hint.to_owned()),
        details: None,
    }
}

/// The number that this computer has in its network. Nothing is sent: the system only says which way it would go.
fn in_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address that is for examples only.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
