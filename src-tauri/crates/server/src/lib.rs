//! FaStar in a browser: the embedded web interface and the app's commands over HTTP, on this computer only.
//!
//! The port is bound before anything slow happens, so that a taken port is known at once: [`bind`], then open the app, then
//! [`Bound::serve`]. Not here: any command's work ([`fastar_app`]), and OpenAI's API.

mod api;
mod gate;
mod host;
mod ui;

use std::future::Future;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::routing::{any, get, post};
use axum::{Router, middleware};
use fastar_app::App;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use api::COMMANDS;
pub use host::Host;

/// After the end was asked for, clients get so long to take the last events.
const PATIENCE: Duration = Duration::from_secs(3);

/// Errors of the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program listens there, or FaStar itself. Whoever it is could say that it is FaStar, so nobody is sent there.
    #[error(
        "Port {port} is in use. If FaStar runs there already, use the whole address that it printed when it started; if not, choose another port with --port, or --port 0 for any free one."
    )]
    PortTaken {
        /// The port that was asked for.
        port: u16,
    },
    /// The system does not give this port to this user.
    #[error("Port {port} needs special rights. Choose one above 1023 with --port.")]
    PortForbidden {
        /// The port that was asked for.
        port: u16,
    },
    /// Anything else.
    #[error("The server could not run on port {port}: {source}.")]
    Network {
        /// The port that was asked for.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
}

/// A port that is ours and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Takes a port on 127.0.0.1; 0 takes a free one.
pub async fn bind(port: u16) -> Result<Bound, Error> {
    let error = |source: std::io::Error| match source.kind() {
        ErrorKind::AddrInUse => Error::PortTaken { port },
        ErrorKind::PermissionDenied => Error::PortForbidden { port },
        _ => Error::Network { port, source },
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    Ok(Bound { listener, address })
}

impl Bound {
    /// A port that is taken already; its listener does not block.
    fn from_std(listener: std::net::TcpListener) -> Result<Self, Error> {
        let error = |source| Error::Network { port: 0, source };
        let listener = TcpListener::from_std(listener).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `until` completes; commands need `key`, when there is one, as `Authorization: Bearer KEY`. Then answers being written are stopped and saved, their listeners hear of it,
    /// and connections are closed.
    pub async fn serve(
        self,
        app: App,
        key: Option<String>,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let gate = gate::Gate::new(self.address.port(), key);
        let ending = app.clone();
        let until = async move {
            until.await;
            if tokio::task::spawn_blocking(move || ending.shut_down())
                .await
                .is_err()
            {
                tracing::warn!("saving at the end failed");
            }
        };
        self.answer(app, gate, until).await
    }

    /// Answers requests until `until` completes, which ends the server and not the app.
    async fn answer(
        self,
        app: App,
        gate: gate::Gate,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let port = self.address.port();
        let router = Router::new()
            .route("/health", get(|| async { "ok\n" }))
            .route("/api/{*command}", post(api::command).fallback(api::unknown))
            .route("/api", any(api::unknown))
            .route("/api/", any(api::unknown))
            .fallback_service(get(ui::file))
            .layer(middleware::from_fn_with_state(gate, gate::check))
            .with_state(app)
            .into_make_service_with_connect_info::<gate::Here>();
        let (ended, after_end) = oneshot::channel();
        let serving = axum::serve(self.listener, router).with_graceful_shutdown(async move {
            until.await;
            // The receiver is gone only if serving has ended already.
            let _ = ended.send(());
        });
        tokio::select! {
            served = serving.into_future() => served.map_err(|source| Error::Network { port, source }),
            // A client that reads nothing must not keep the process alive.
            () = async {
                match after_end.await {
                    Ok(()) => tokio::time::sleep(PATIENCE).await,
                    Err(_) => std::future::pending().await,
                }
            } => Ok(()),
        }
    }
}
