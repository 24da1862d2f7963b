// Generated from the crate fastar-api by `cargo xtask types`. Do not edit.

export type ErrorCode = "not_found" | "bad_request" | "busy" | "no_model" | "context_full" | "storage" | "unsupported" | "internal";

export type ApiError = { 
/**
 * What a program can act on.
 */
code: ErrorCode, 
/**
 * One sentence: what happened, and where.
 */
message: string, 
/**
 * What the person can do, if there is something.
 */
hint: string | null, 
/**
 * Technical text for a report; never shown first.
 */
details: string | null, };

export type Face = "desktop" | "web";

export type AppInfo = { 
/**
 * The app's version, for example `0.1.0`.
 */
version: string, 
/**
 * Which face is asking.
 */
face: Face, 
/**
 * Where chats are kept.
 */
data_folder: string, 
/**
 * Set when something was repaired or set aside at start; shown once.
 */
notice: string | null, };

export type ModelInfo = { 
/**
 * Name for people: the file name without its ending, or `Demo model`.
 */
name: string, 
/**
 * The small model that ships inside the app.
 */
is_demo: boolean, 
/**
 * File of the model; none for the embedded demo.
 */
path: string | null, 
/**
 * Size of the container in bytes.
 */
file_bytes: number, 
/**
 * Parameters in all.
 */
parameters: number, 
/**
 * Transformer layers.
 */
layers: number, 
/**
 * Routed experts in each layer.
 */
experts: number, 
/**
 * Positions one conversation may have.
 */
context_size: number, 
/**
 * Threads the engine computes on.
 */
threads: number, 
/**
 * What the file cannot do and what to do about it, a sentence; none when it can do everything.
 */
limit: string | null, };

export type ModelState = { "state": "loading", 
/**
 * Name for people.
 */
name: string, } | { "state": "ready", 
/**
 * The model.
 */
model: ModelInfo, } | { "state": "failed", 
/**
 * Name for people.
 */
name: string, 
/**
 * Why.
 */
error: ApiError, 
/**
 * The model that writes answers meanwhile: the one before, or the demo. None when there is none.
 */
in_use?: ModelInfo, };

export type Role = "user" | "assistant";

export type MessageStatus = "writing" | "done" | "stopped" | "interrupted" | "failed";

export type Finish = "end" | "length" | "stopped";

export type AnswerStats = { 
/**
 * Tokens of the whole prompt, earlier turns included.
 */
prompt_tokens: number, 
/**
 * How many of those were still in the session and not computed again.
 */
reused_tokens: number, 
/**
 * Tokens the model wrote.
 */
answer_tokens: number, 
/**
 * From the request (after any queue) to the first token of the answer.
 */
first_token_ms: number, 
/**
 * Reading the prompt.
 */
prefill_ms: number, 
/**
 * Writing the answer.
 */
decode_ms: number, 
/**
 * Decode speed; none when fewer than two tokens were written.
 */
tokens_per_second: number | null, 
/**
 * Positions used after this answer.
 */
context_used: number, 
/**
 * Positions there are.
 */
context_size: number, 
/**
 * Why it ended.
 */
finish: Finish, };

export type Message = { 
/**
 * Id, unique in the app.
 */
id: string, 
/**
 * The chat it belongs to.
 */
chat_id: string, 
/**
 * Who wrote it.
 */
role: Role, 
/**
 * Its text; Markdown for the assistant, plain for the user.
 */
text: string, 
/**
 * Its life.
 */
status: MessageStatus, 
/**
 * When its row was written.
 */
created_at: number, 
/**
 * Model that wrote it (assistant only).
 */
model: string | null, 
/**
 * What it cost (assistant only, once finished or stopped).
 */
stats: AnswerStats | null, 
/**
 * Why it failed.
 */
error: ApiError | null, };

export type ChatSummary = { 
/**
 * Id, unique in the app.
 */
id: string, 
/**
 * Title: set by the person, or the beginning of the first message.
 */
title: string, 
/**
 * When it began.
 */
created_at: number, 
/**
 * When it last changed; the list is sorted by it, newest first.
 */
updated_at: number, };

export type Chat = { 
/**
 * Title and times.
 */
summary: ChatSummary, 
/**
 * Messages, oldest first.
 */
messages: Array<Message>, };

export type GenerationEvent = { "type": "started", 
/**
 * The chat, created by this message if it was the first.
 */
chat: ChatSummary, 
/**
 * The message that was sent; none for a regenerated answer or a late listener.
 */
user: Message | null, 
/**
 * The answer's row.
 */
answer: Message, } | { "type": "queued", 
/**
 * How many.
 */
ahead: number, } | { "type": "prefill", 
/**
 * Tokens read.
 */
done: number, 
/**
 * Tokens to read.
 */
total: number, } | { "type": "text", 
/**
 * Whole characters only.
 */
text: string, } | { "type": "finished", 
/**
 * The chat, with its new time.
 */
chat: ChatSummary, 
/**
 * The answer.
 */
answer: Message, };
