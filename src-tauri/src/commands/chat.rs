//! Chats, messages, and answers that are being written.

use fastar_api::{
    ApiError, Attachment, Chat, ChatSummary, Draft, ExportFormat, Found, GenerationEvent,
    NewMessage, Preset, Thinking, TokenCount,
};
use fastar_app::{App, guard};
use tauri::ipc::Channel;
use tauri::{State, WebviewWindow};

use super::forward;
use crate::dialogs;

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
pub(crate) fn chat_pin(app: State<'_, App>, id: String, pinned: bool) -> Result<ChatSummary> {
    guard(|| app.chat_pin(&id, pinned))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_move(
    app: State<'_, App>,
    id: String,
    folder: Option<String>,
) -> Result<ChatSummary> {
    guard(|| app.chat_move(&id, folder.as_deref()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_system_set(app: State<'_, App>, id: String, text: String) -> Result<()> {
    guard(|| app.chat_system_set(&id, &text))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn chat_search(app: State<'_, App>, query: String) -> Result<Vec<Found>> {
    guard(|| app.chat_search(&query))
}

/// The person says where the file goes; returns its path, or none when the dialog was closed.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn chat_export(
    app: State<'_, App>,
    window: WebviewWindow,
    id: Option<String>,
    format: ExportFormat,
) -> Result<Option<String>> {
    let exported = guard(|| app.chat_export(id.as_deref(), format))?;
    let picked = dialogs::save_as(&window, &exported.file_name).await;
    guard(|| {
        picked.map_or(Ok(None), |path| {
            app.write_exported(&path, &exported)
                .map(|()| Some(path.display().to_string()))
        })
    })
}

/// How many chats were added; none when the dialog was closed.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn chat_import(app: State<'_, App>, window: WebviewWindow) -> Result<Option<u32>> {
    let picked = dialogs::pick_chats(&window).await;
    guard(|| picked.map_or(Ok(None), |path| app.chat_import_file(&path).map(Some)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn preset_list(app: State<'_, App>) -> Result<Vec<Preset>> {
    guard(|| app.preset_list())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn preset_save(
    app: State<'_, App>,
    id: Option<String>,
    name: String,
    text: String,
) -> Result<Preset> {
    guard(|| app.preset_save(id.as_deref(), &name, &text))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn preset_delete(app: State<'_, App>, id: String) -> Result<()> {
    guard(|| app.preset_delete(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn draft_new(app: State<'_, App>) -> Result<Draft> {
    guard(|| app.draft_new())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn draft_save(app: State<'_, App>, chat_id: Option<String>, draft: Draft) -> Result<()> {
    guard(|| app.draft_save(chat_id.as_deref(), &draft))
}

/// Files come from a dialog of ours; the page gets their names and texts and never a path.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn attachment_pick(
    app: State<'_, App>,
    window: WebviewWindow,
) -> Result<Vec<Attachment>> {
    let picked = dialogs::pick_texts(&window).await;
    guard(|| app.attachments_read(&picked))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_count(
    app: State<'_, App>,
    chat_id: Option<String>,
    message: NewMessage,
) -> Result<TokenCount> {
    guard(|| app.message_count(chat_id.as_deref(), message))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_send(
    app: State<'_, App>,
    chat_id: Option<String>,
    message: NewMessage,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.message_send(chat_id.as_deref(), message)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_edit(
    app: State<'_, App>,
    message_id: String,
    message: NewMessage,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.message_edit(&message_id, message)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn message_regenerate(
    app: State<'_, App>,
    answer_id: String,
    thinking: Thinking,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.message_regenerate(&answer_id, thinking)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn answer_continue(
    app: State<'_, App>,
    answer_id: String,
    on_event: Channel<GenerationEvent>,
) -> Result<()> {
    guard(|| {
        app.answer_continue(&answer_id)
            .map(|answer| forward(answer, on_event))
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn answer_edit(app: State<'_, App>, answer_id: String, text: String) -> Result<Chat> {
    guard(|| app.answer_edit(&answer_id, &text))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn version_show(app: State<'_, App>, message_id: String) -> Result<Chat> {
    guard(|| app.version_show(&message_id))
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
