//! The local server of the window: what it is doing, and its key. What it should be is among the settings.

use fastar_api::{ApiError, ServerState};
use fastar_app::guard;
use fastar_server::Host;
use tauri::State;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn server_state(host: State<'_, Host>) -> Result<ServerState> {
    guard(|| host.state())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn server_key(host: State<'_, Host>) -> Result<String> {
    guard(|| host.key())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn server_key_new(host: State<'_, Host>) -> Result<ServerState> {
    guard(|| host.new_key())
}
