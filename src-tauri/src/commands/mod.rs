//! The commands of the contract as the window calls them. Every body is one line: what a command does is in [`fastar_app`].
//!
//! They run on the async runtime's threads and not on the window's, because they may wait for the disk.

pub(crate) mod chat;
pub(crate) mod jobs;
pub(crate) mod models;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod system;

use fastar_api::GenerationEvent;
use fastar_app::Listener;
use tauri::ipc::Channel;

/// Sends the events of an answer to the page, until the last one or until the page is gone.
fn forward(mut listener: Listener, page: Channel<GenerationEvent>) {
    tauri::async_runtime::spawn(async move {
        while let Some(event) = listener.next().await {
            if let Err(error) = page.send(event) {
                tracing::debug!(%error, "the page no longer listens");
                return;
            }
        }
    });
}
