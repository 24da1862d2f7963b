//! Chats, messages, and answers that are being written.

use fastar_api::{ApiError, Chat, ChatSummary, GenerationEvent};
use fastar_app::{App, guard};
use tauri::State;
use tauri::ipc::Channel;

use super::forward;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_list(app: State<'_, App>) -> Result<Vec<ChatSummary>> {
    guard(|| app.chat_list())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_open(app: State<'_, App>, id: String) -> Result<Chat> {
    guard(|| app.chat_open(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_rename(app: State<'_, App>, id: String, title: String) -> Result<ChatSummary> {
    guard(|| app.chat_rename(&id, &title))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_delete(app: State<'_, App>, id: String) -> Result<()> {
    guard(|| app.chat_delete(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_restore(app: State<'_, App>, id: String) -> Result<ChatSummary> {
    guard(|| app.chat_restore(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_send(
    app: State<'_, App>,
    chat_id: Option<String>,
    text: String,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.message_send(chat_id.as_deref(), &text)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_regenerate(
    app: State<'_, App>,
    chat_id: String,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.message_regenerate(&chat_id)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn generation_attach(
    app: State<'_, App>,
    answer_id: String,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.generation_attach(&answer_id)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn generation_stop(app: State<'_, App>, answer_id: String) -> Result<()> {
    guard(|| app.generation_stop(&answer_id))
}
