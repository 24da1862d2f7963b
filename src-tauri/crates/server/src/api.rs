//! The commands of the contract over HTTP: `POST /api/<command>` with a JSON object of the arguments.
//!
//! An answer is 200 with JSON, or an error status with an [`ApiError`]. Commands that write an answer reply with
//! `text/event-stream`: one `data:` line of JSON per event, and a comment at once and every ten seconds.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fastar_api::{ApiError, DownloadRequest, Draft, ErrorCode, ExportFormat, NewMessage, Thinking};
use fastar_app::{App, Listener, MAX_IMPORT_BYTES, MAX_MESSAGE_BYTES, guard, unsupported};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Largest request body in bytes: room for the longest edit of an answer, or for the longest draft with the longest edit of a message, every
/// character as `\u0001`.
const MAX_BODY: usize = 6 * 2 * MAX_MESSAGE_BYTES + 1_000_000;
/// So much of what is too long is read before it is refused.
const MOST_DROPPED: usize = 256_000_000;
/// A request must arrive whole in this time.
const BODY_WITHIN: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Names of all commands, as on every other face.
pub const COMMANDS: &[&str] = &[
    "app_info",
    "page_shown",
    "model_state",
    "model_memory",
    "model_choose",
    "model_use_demo",
    "model_library",
    "model_folder_choose",
    "model_folder_move",
    "model_use",
    "model_show",
    "model_delete",
    "model_verify",
    "model_repair",
    "download_start",
    "download_resume",
    "job_list",
    "job_pause",
    "job_resume",
    "job_cancel",
    "job_dismiss",
    "chat_list",
    "chat_open",
    "chat_rename",
    "chat_delete",
    "chat_restore",
    "chat_pin",
    "chat_move",
    "chat_system_set",
    "chat_search",
    "chat_export",
    "chat_import",
    "preset_list",
    "preset_save",
    "preset_delete",
    "draft_new",
    "draft_save",
    "attachment_pick",
    "notify",
    "message_count",
    "message_send",
    "message_edit",
    "message_regenerate",
    "answer_continue",
    "answer_edit",
    "version_show",
    "generation_attach",
    "generation_stop",
    "link_open",
    "setting_list",
    "setting_set",
    "setting_reset",
    "cache_plan",
    "model_reload",
    "server_state",
    "server_key",
    "server_key_new",
    "monitor",
    "trace_start",
    "trace_stop",
    "hardware",
    "machine_plan",
    "machine_measure",
    "log_read",
    "diagnostics",
];

enum Reply {
    Value(Value),
    Stream(Box<Listener>),
}

#[derive(Deserialize)]
struct NoArguments {}
#[derive(Deserialize)]
struct Measure {
    again: bool,
}
#[derive(Deserialize)]
struct Id {
    id: String,
}
#[derive(Deserialize)]
struct Rename {
    id: String,
    title: String,
}
#[derive(Deserialize)]
struct Pin {
    id: String,
    pinned: bool,
}
#[derive(Deserialize)]
struct Move {
    id: String,
    folder: Option<String>,
}
#[derive(Deserialize)]
struct System {
    id: String,
    text: String,
}
#[derive(Deserialize)]
struct Query {
    query: String,
}
#[derive(Deserialize)]
struct Export {
    id: Option<String>,
    format: ExportFormat,
}
#[derive(Deserialize)]
struct Text {
    text: String,
}
#[derive(Deserialize)]
struct SavePreset {
    id: Option<String>,
    name: String,
    text: String,
}
#[derive(Deserialize)]
struct SaveDraft {
    chat_id: Option<String>,
    draft: Draft,
}
#[derive(Deserialize)]
struct Send {
    chat_id: Option<String>,
    message: NewMessage,
}
#[derive(Deserialize)]
struct Edit {
    message_id: String,
    message: NewMessage,
}
#[derive(Deserialize)]
struct Regenerate {
    answer_id: String,
    thinking: Thinking,
}
#[derive(Deserialize)]
struct EditAnswer {
    answer_id: String,
    text: String,
}
#[derive(Deserialize)]
struct MessageId {
    message_id: String,
}
#[derive(Deserialize)]
struct AnswerId {
    answer_id: String,
}
#[derive(Deserialize)]
struct File {
    file: String,
}
#[derive(Deserialize)]
struct Start {
    request: DownloadRequest,
}
#[derive(Deserialize)]
struct Key {
    key: String,
}
#[derive(Deserialize)]
struct Change {
    key: String,
    value: Value,
}
#[derive(Deserialize)]
struct CacheSize {
    cache_bytes: Option<u64>,
}
#[derive(Deserialize)]
struct After {
    after: u64,
}
#[derive(Deserialize)]
struct Reload {
    stop: bool,
}
#[derive(Deserialize)]
struct CancelJob {
    id: String,
    keep: bool,
}
#[derive(Deserialize)]
struct Link {
    url: String,
}

/// Runs one command.
pub(crate) async fn command(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body,
) -> Response {
    if !COMMANDS.contains(&name.as_str()) {
        return unknown().await;
    }
    let most = match name.as_str() {
        // As JSON in JSON, quotes and line breaks take two bytes.
        "chat_import" => 2 * MAX_IMPORT_BYTES,
        _ => MAX_BODY,
    };
    let body = match whole(body, most, BODY_WITHIN).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    // Commands wait for the disk; they must not hold up other requests.
    let ran = tokio::task::spawn_blocking(move || guard(|| run(&app, &name, &body))).await;
    match ran {
        Ok(Ok(Reply::Value(value))) => Json(value).into_response(),
        Ok(Ok(Reply::Stream(listener))) => stream(*listener),
        Ok(Err(error)) => (status(error.code), Json(error)).into_response(),
        // Only when the runtime is ending.
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "FaStar is ending.").into_response(),
    }
}

/// The whole body, or a refusal when it is too long or takes too long.
async fn whole(body: Body, most: usize, within: Duration) -> Result<Vec<u8>, Response> {
    match tokio::time::timeout(within, read(body, most)).await {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("The request could not be read whole, or has more than {most} bytes, which is the limit."),
        )
        .into_response()),
        Err(_) => Err(refusal(
            StatusCode::REQUEST_TIMEOUT,
            &format!("The request did not arrive whole within {} seconds.", within.as_secs()),
        )
        .into_response()),
    }
}

/// At most `most` bytes. The rest of a longer body is read and dropped, within reason: a browser that is still sending when the connection closes
/// takes the server for gone and never sees the refusal.
async fn read(body: Body, most: usize) -> Option<Vec<u8>> {
    let mut stream = body.into_data_stream();
    let mut whole = Vec::new();
    let mut bytes = 0_usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.ok()?;
        bytes = bytes.saturating_add(chunk.len());
        if bytes <= most {
            whole.extend_from_slice(&chunk);
        } else if bytes <= most.saturating_add(MOST_DROPPED) {
            whole = Vec::new();
        } else {
            return None;
        }
    }
    (bytes <= most).then_some(whole)
}

/// The reply to a path below `/api` that is no command, or to a method other than POST.
pub(crate) async fn unknown() -> Response {
    (StatusCode::NOT_FOUND, Json(no_such_command())).into_response()
}

fn no_such_command() -> ApiError {
    ApiError {
        code: ErrorCode::NotFound,
        message: "There is no such command.".into(),
        hint: Some("Commands are sent with POST to /api/<command>.".into()),
        details: None,
    }
}

fn run(app: &App, name: &str, body: &[u8]) -> Result<Reply, ApiError> {
    match name {
        "app_info" => no_arguments(body).and_then(|()| value(app.app_info())),
        "page_shown" => {
            no_arguments(body)?;
            app.page_shown();
            value(())
        }
        "model_state" => no_arguments(body).and_then(|()| value(app.model_state())),
        "model_memory" => no_arguments(body).and_then(|()| value(app.model_memory())),
        "server_state" | "server_key" | "server_key_new" => Err(unsupported(
            "The local server is set up in the window of FaStar.",
        )),
        "model_choose" => Err(unsupported(
            "A model file cannot be chosen in the browser. Start `fastar serve --model FILE`, or use the desktop app.",
        )),
        "model_use_demo" => no_arguments(body).and_then(|()| value(app.model_use_demo()?)),
        "model_library" => no_arguments(body).and_then(|()| value(app.model_library()?)),
        "model_folder_choose" => Err(unsupported(
            "The folder for models cannot be chosen in the browser. Set FASTAR_MODELS_DIR before you start `fastar serve`, or use the desktop app.",
        )),
        "model_folder_move" => Err(unsupported(
            "Models cannot be moved in the browser. Use the desktop app.",
        )),
        "model_use" => arguments(body).and_then(|File { file }| value(app.model_use(&file)?)),
        "model_show" => Err(unsupported(
            "The browser cannot show a file in the file manager. The folder with the models is named on the models screen.",
        )),
        "model_delete" => arguments(body).and_then(|File { file }| value(app.model_delete(&file)?)),
        "model_verify" => arguments(body).and_then(|File { file }| value(app.model_verify(&file)?)),
        "model_repair" => arguments(body).and_then(|File { file }| value(app.model_repair(&file)?)),
        "download_start" => {
            arguments(body).and_then(|Start { request }| value(app.download_start(&request)?))
        }
        "download_resume" => {
            arguments(body).and_then(|File { file }| value(app.download_resume(&file)?))
        }
        "job_list" => no_arguments(body).and_then(|()| value(app.job_list())),
        "job_pause" => arguments(body).and_then(|Id { id }| value(app.job_pause(&id)?)),
        "job_resume" => arguments(body).and_then(|Id { id }| value(app.job_resume(&id)?)),
        "job_cancel" => {
            arguments(body).and_then(|CancelJob { id, keep }| value(app.job_cancel(&id, keep)?))
        }
        "job_dismiss" => arguments(body).and_then(|Id { id }| value(app.job_dismiss(&id)?)),
        "chat_list" => no_arguments(body).and_then(|()| value(app.chat_list()?)),
        "chat_open" => arguments(body).and_then(|Id { id }| value(app.chat_open(&id)?)),
        "chat_rename" => {
            arguments(body).and_then(|Rename { id, title }| value(app.chat_rename(&id, &title)?))
        }
        "chat_delete" => arguments(body).and_then(|Id { id }| value(app.chat_delete(&id)?)),
        "chat_restore" => arguments(body).and_then(|Id { id }| value(app.chat_restore(&id)?)),
        "chat_pin" => {
            arguments(body).and_then(|Pin { id, pinned }| value(app.chat_pin(&id, pinned)?))
        }
        "chat_move" => arguments(body)
            .and_then(|Move { id, folder }| value(app.chat_move(&id, folder.as_deref())?)),
        "chat_system_set" => {
            arguments(body).and_then(|System { id, text }| value(app.chat_system_set(&id, &text)?))
        }
        "chat_search" => {
            arguments(body).and_then(|Query { query }| value(app.chat_search(&query)?))
        }
        "chat_export" => arguments(body)
            .and_then(|Export { id, format }| value(app.chat_export(id.as_deref(), format)?)),
        "chat_import" => arguments(body).and_then(|Text { text }| value(app.chat_import(&text)?)),
        "preset_list" => no_arguments(body).and_then(|()| value(app.preset_list()?)),
        "preset_save" => arguments(body).and_then(|SavePreset { id, name, text }| {
            value(app.preset_save(id.as_deref(), &name, &text)?)
        }),
        "preset_delete" => arguments(body).and_then(|Id { id }| value(app.preset_delete(&id)?)),
        "draft_new" => no_arguments(body).and_then(|()| value(app.draft_new()?)),
        "draft_save" => arguments(body).and_then(|SaveDraft { chat_id, draft }| {
            value(app.draft_save(chat_id.as_deref(), &draft)?)
        }),
        "notify" => Err(unsupported("A browser has notifications of its own.")),
        "attachment_pick" => Err(unsupported("The browser picks files itself.")),
        "message_count" => arguments(body).and_then(|Send { chat_id, message }| {
            value(app.message_count(chat_id.as_deref(), message)?)
        }),
        "message_send" => arguments(body).and_then(|Send { chat_id, message }| {
            app.message_send(chat_id.as_deref(), message).map(stream_of)
        }),
        "message_edit" => arguments(body).and_then(
            |Edit {
                 message_id,
                 message,
             }| { app.message_edit(&message_id, message).map(stream_of) },
        ),
        "message_regenerate" => arguments(body).and_then(
            |Regenerate {
                 answer_id,
                 thinking,
             }| { app.message_regenerate(&answer_id, thinking).map(stream_of) },
        ),
        "answer_continue" => arguments(body)
            .and_then(|AnswerId { answer_id }| app.answer_continue(&answer_id).map(stream_of)),
        "answer_edit" => arguments(body)
            .and_then(|EditAnswer { answer_id, text }| value(app.answer_edit(&answer_id, &text)?)),
        "version_show" => arguments(body)
            .and_then(|MessageId { message_id }| value(app.version_show(&message_id)?)),
        "generation_attach" => arguments(body)
            .and_then(|AnswerId { answer_id }| app.generation_attach(&answer_id).map(stream_of)),
        "generation_stop" => arguments(body)
            .and_then(|AnswerId { answer_id }| value(app.generation_stop(&answer_id)?)),
        "link_open" => arguments(body).and_then(|Link { url }| {
            app.link_open(&url)?;
            Err(unsupported("The browser opens links itself."))
        }),
        "setting_list" => no_arguments(body).and_then(|()| value(app.setting_list())),
        "setting_set" => arguments(body)
            .and_then(|Change { key, value: wanted }| value(app.setting_set(&key, &wanted)?)),
        "setting_reset" => arguments(body).and_then(|Key { key }| value(app.setting_reset(&key)?)),
        "cache_plan" => {
            arguments(body).and_then(|CacheSize { cache_bytes }| value(app.cache_plan(cache_bytes)))
        }
        "model_reload" => {
            arguments(body).and_then(|Reload { stop }| value(app.model_reload(stop)?))
        }
        "monitor" => no_arguments(body).and_then(|()| value(app.monitor())),
        "trace_start" => no_arguments(body).and_then(|()| value(app.trace_start()?)),
        "trace_stop" => no_arguments(body).and_then(|()| value(app.trace_stop()?)),
        "hardware" => no_arguments(body).and_then(|()| value(app.hardware())),
        "machine_plan" => no_arguments(body).and_then(|()| value(app.machine_plan())),
        "machine_measure" => {
            arguments(body).and_then(|Measure { again }| value(app.machine_measure(again)))
        }
        "log_read" => arguments(body).and_then(|After { after }| value(app.log_read(after))),
        "diagnostics" => no_arguments(body).and_then(|()| value(app.diagnostics())),
        _ => Err(no_such_command()),
    }
}

fn arguments<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError {
        code: ErrorCode::BadRequest,
        message: format!("The arguments are not as expected: {error}."),
        hint: None,
        details: None,
    })
}

fn no_arguments(body: &[u8]) -> Result<(), ApiError> {
    arguments::<NoArguments>(body).map(|NoArguments {}| ())
}

fn value(value: impl Serialize) -> Result<Reply, ApiError> {
    serde_json::to_value(value)
        .map(Reply::Value)
        .map_err(|error| ApiError {
            code: ErrorCode::Internal,
            message: "FaStar could not write its reply.".into(),
            hint: None,
            details: Some(error.to_string()),
        })
}

fn stream_of(listener: Listener) -> Reply {
    Reply::Stream(Box::new(listener))
}

/// Events until the last one or until the client has gone; the answer is written to its end in any case.
fn stream(mut listener: Listener) -> Response {
    // One event waits at most: a client that does not read gets the rest in one larger piece later.
    let (sender, receiver) = mpsc::channel::<Result<Event, Infallible>>(1);
    tokio::spawn(async move {
        if sender
            .send(Ok(Event::default().comment("fastar")))
            .await
            .is_err()
        {
            return;
        }
        loop {
            let event = tokio::select! {
                () = sender.closed() => return,
                event = listener.next() => event,
            };
            let Some(event) = event else { return };
            let Ok(data) = serde_json::to_string(&event) else {
                return;
            };
            if sender.send(Ok(Event::default().data(data))).await.is_err() {
                return;
            }
        }
    });
    Sse::new(ReceiverStream::new(receiver))
        .keep_alive(KeepAlive::new().interval(HEARTBEAT).text("fastar"))
        .into_response()
}

/// An error that the transport found.
pub(crate) fn refusal(status: StatusCode, message: &str) -> impl IntoResponse + use<> {
    let error = ApiError {
        code: ErrorCode::BadRequest,
        message: message.to_owned(),
        hint: None,
        details: None,
    };
    (status, Json(error))
}

fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::BadRequest | ErrorCode::ContextFull => StatusCode::BAD_REQUEST,
        ErrorCode::Busy => StatusCode::CONFLICT,
        ErrorCode::NoModel => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Storage | ErrorCode::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::Damaged | ErrorCode::Spoilt => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::NoAccess => StatusCode::FORBIDDEN,
        ErrorCode::Hub => StatusCode::BAD_GATEWAY,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_body_that_never_ends_is_refused_in_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let endless = Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, Infallible>>());
        let refused = runtime.block_on(whole(endless, MAX_BODY, Duration::from_millis(10)));
        assert_eq!(refused.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
        let read = runtime.block_on(whole(Body::from("all of it"), MAX_BODY, BODY_WITHIN));
        assert_eq!(read.unwrap(), b"all of it");
    }
}
