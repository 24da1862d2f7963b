// Generated from the crate fastar-api by `cargo xtask types`. Do not edit.

export type ErrorCode = "not_found" | "bad_request" | "busy" | "no_model" | "context_full" | "storage" | "no_space" | "damaged" | "spoilt" | "no_access" | "hub" | "unsupported" | "internal";

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
 * What was repaired, set aside or interrupted before this start, a sentence or two each; shown once.
 */
notices: Array<string>, };

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

export type PagingStep = { 
/**
 * Its tokens.
 */
tokens: number, 
/**
 * See [`Paging`].
 */
hits: number, 
/**
 * See [`Paging`].
 */
misses: number, 
/**
 * See [`Paging`].
 */
late: number, 
/**
 * See [`Paging`].
 */
waited_ms: number, 
/**
 * See [`Paging`].
 */
demand_bytes: number, };

export type PagingLayer = { 
/**
 * See [`Paging`].
 */
hits: number, 
/**
 * See [`Paging`].
 */
misses: number, 
/**
 * See [`Paging`].
 */
late: number, 
/**
 * See [`Paging`].
 */
waited_ms: number, };

export type Paging = { 
/**
 * Slots that hold an expert.
 */
filled: number, 
/**
 * Bytes of one expert.
 */
expert_bytes: number, 
/**
 * Tokens computed.
 */
tokens: number, 
/**
 * Experts that were in memory when a layer asked for them.
 */
hits: number, 
/**
 * Experts that were read because a layer asked for them.
 */
misses: number, 
/**
 * Experts that were just being read ahead when a layer asked for them.
 */
late: number, 
/**
 * Time in which the computation waited for experts.
 */
waited_ms: number, 
/**
 * Bytes read on demand.
 */
demand_bytes: number, 
/**
 * Bytes read ahead.
 */
ahead_bytes: number, 
/**
 * Bytes read to fill the cache after the start.
 */
warm_bytes: number, 
/**
 * Experts read ahead that were used then.
 */
useful: number, 
/**
 * Experts read ahead that left again unused.
 */
wasted: number, 
/**
 * The latest step: one token of an answer, or one piece of a prompt.
 */
last: PagingStep, 
/**
 * Each layer.
 */
layers: Array<PagingLayer>, };

export type ModelMemory = { 
/**
 * Bytes of the weights that are always in memory.
 */
dense_bytes: number, 
/**
 * Bytes that experts may take.
 */
cache_bytes: number, 
/**
 * Experts that fit.
 */
slots: number, 
/**
 * Experts there are.
 */
experts: number, 
/**
 * Why the cache is not what was asked for, a sentence.
 */
note: string | null, 
/**
 * What was read so far; none for the embedded demo, which is in memory as a whole.
 */
paging: Paging | null, };

export type Role = "user" | "assistant";

export type MessageStatus = "writing" | "done" | "stopped" | "interrupted" | "failed";

export type Finish = "end" | "length" | "stopped";

export type Thinking = "off" | "on" | "max";

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
 * Tokens the model wrote, thinking included.
 */
answer_tokens: number, 
/**
 * Those of them that were thinking.
 */
reasoning_tokens: number, 
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
 * Of reading the prompt, the time in which nothing could be done but wait for the disk; none when all of the model is in memory.
 */
prefill_waited_ms: number | null, 
/**
 * The same of writing the answer.
 */
decode_waited_ms: number | null, 
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

export type Attachment = { 
/**
 * File name, without its folders.
 */
name: string, 
/**
 * All of its text.
 */
text: string, };

export type Edit = { 
/**
 * The message as it was sent or answered.
 */
message_id: string, 
/**
 * Its new text so far.
 */
text: string, };

export type Draft = { 
/**
 * What stands in the field for the next message.
 */
text: string, 
/**
 * Files that are to go with it.
 */
attachments: Array<Attachment>, 
/**
 * A message that is open to be changed.
 */
edit: Edit | null, };

export type NewMessage = { 
/**
 * Its text. May be empty where there are attachments.
 */
text: string, 
/**
 * Files that belong to it.
 */
attachments: Array<Attachment>, 
/**
 * Whether the model thinks before it answers this.
 */
thinking: Thinking, 
/**
 * Instructions for the whole conversation, where this message begins one; ignored in a chat that exists.
 */
system: string, };

export type Preset = { 
/**
 * Id, unique in the app.
 */
id: string, 
/**
 * Name for people.
 */
name: string, 
/**
 * The instructions.
 */
text: string, };

export type TokenCount = { 
/**
 * Tokens of the text and the attachments by themselves.
 */
message: number, 
/**
 * Tokens of the whole prompt, with the conversation before.
 */
prompt: number, 
/**
 * Positions there are.
 */
context_size: number, };

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
error: ApiError | null, 
/**
 * What the model thought before it answered.
 */
reasoning: string | null, 
/**
 * How long it thought.
 */
reasoning_ms: number | null, 
/**
 * How it was asked to think (assistant only).
 */
thinking: Thinking, 
/**
 * Files that belong to it (user only).
 */
attachments: Array<Attachment>, 
/**
 * The person has changed what the model wrote.
 */
edited: boolean, 
/**
 * Ids of all versions of it in the order they were made, this one among them; empty when there is only one.
 */
versions: Array<string>, };

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
updated_at: number, 
/**
 * Stays at the top of the list.
 */
pinned: boolean, 
/**
 * Name of the folder it is in.
 */
folder: string | null, };

export type Chat = { 
/**
 * Title and times.
 */
summary: ChatSummary, 
/**
 * Messages of the versions that are shown, oldest first.
 */
messages: Array<Message>, 
/**
 * Instructions that stand before the conversation; empty when there are none.
 */
system: string, 
/**
 * What the person has begun to write.
 */
draft: Draft, };

export type Found = { 
/**
 * The chat.
 */
chat: ChatSummary, 
/**
 * The message; none when the title was found.
 */
message_id: string | null, 
/**
 * Who wrote it.
 */
role: Role | null, 
/**
 * The words before the match.
 */
before: string, 
/**
 * The match as it is written there.
 */
matched: string, 
/**
 * The words after it.
 */
after: string, };

export type ExportFormat = "markdown" | "json";

export type Exported = { 
/**
 * A file name that fits the chat.
 */
file_name: string, 
/**
 * The whole file.
 */
text: string, };

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
answer: Message, 
/**
 * Id of the message that these rows stand behind; what else stood there is no longer shown. None at the beginning of a chat.
 */
after: string | null, } | { "type": "queued", 
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
total: number, 
/**
 * Seconds to the end at the speed of the last pieces; none before that is known.
 */
seconds_left: number | null, } | { "type": "reasoning", 
/**
 * Whole characters only.
 */
text: string, } | { "type": "text", 
/**
 * Whole characters only.
 */
text: string, } | { "type": "pace", 
/**
 * Tokens a second of the last few.
 */
tokens_per_second: number, } | { "type": "finished", 
/**
 * The chat, with its new time.
 */
chat: ChatSummary, 
/**
 * The answer.
 */
answer: Message, };

export type Condition = { "condition": "whole" } | { "condition": "incomplete", 
/**
 * Bytes there are.
 */
done_bytes: number, 
/**
 * Bytes there will be; none when what is left does not say.
 */
total_bytes: number | null, 
/**
 * Whether it can be gone on with.
 */
resumable: boolean, } | { "condition": "unusable", 
/**
 * Why, and what to do.
 */
error: ApiError, };

export type ModelFile = { 
/**
 * File name in the model folder; names it in every request.
 */
file: string, 
/**
 * Name for people.
 */
name: string, 
/**
 * Bytes on the disk, temporary files included: what deleting it frees.
 */
disk_bytes: number, 
/**
 * Of a model that is a link: the size of the file it leads to, which deleting does not free.
 */
linked_bytes: number | null, 
/**
 * And where that is.
 */
linked_to: string | null, 
/**
 * Whether it can be used.
 */
condition: Condition, 
/**
 * It is the model in use, or the remembered one.
 */
in_use: boolean, 
/**
 * Repository and revision it was made from, where the file says so.
 */
source: string | null, };

export type CatalogueEntry = { 
/**
 * Names it in a request.
 */
id: string, 
/**
 * Name for people.
 */
name: string, 
/**
 * What it is, in one or two sentences.
 */
about: string, 
/**
 * Repository on the hub.
 */
repository: string, 
/**
 * File name it gets in the model folder.
 */
file: string, 
/**
 * Bytes to fetch, drafter included.
 */
download_bytes: number, 
/**
 * Bytes on the disk once it is there.
 */
disk_bytes: number, 
/**
 * Most bytes on the disk while it is being made.
 */
peak_bytes: number, 
/**
 * Of these, what the drafter (for speculative decoding) takes; none when it cannot be left out.
 */
drafter_bytes: number | null, 
/**
 * The sizes are estimates: the hub was not seen.
 */
approximate: boolean, };

export type Library = { 
/**
 * The folder with the model files.
 */
folder: string, 
/**
 * Space left there; none when the system does not say.
 */
free_bytes: number | null, 
/**
 * What is in the folder, by name.
 */
files: Array<ModelFile>, 
/**
 * What can be fetched, the recommended one first.
 */
catalogue: Array<CatalogueEntry>, };

export type DownloadRequest = { 
/**
 * The entry of the catalogue.
 */
entry: string, 
/**
 * With its drafter, where it has one.
 */
drafter: boolean, };

export type JobKind = "download" | "verify" | "repair" | "move";

export type JobState = "queued" | "running" | "paused" | "failed" | "done" | "cancelled";

export type JobPhase = { "phase": "resolving" } | { "phase": "downloading" } | { "phase": "stalled", 
/**
 * For how long.
 */
seconds: number, } | { "phase": "retrying", 
/**
 * How long the wait is.
 */
seconds: number, 
/**
 * Why, as one sentence.
 */
reason: string, } | { "phase": "converting" } | { "phase": "verifying" } | { "phase": "copying" } | { "phase": "stopping" };

export type Job = { 
/**
 * Id, unique in the app.
 */
id: string, 
/**
 * What it does.
 */
kind: JobKind, 
/**
 * Name of the model, for people.
 */
title: string, 
/**
 * File name of the model in the model folder.
 */
file: string, 
/**
 * Where the job is in its life.
 */
state: JobState, 
/**
 * What it does at this moment; none unless running.
 */
phase: JobPhase | null, 
/**
 * Bytes that are done and safe on the disk.
 */
done_bytes: number, 
/**
 * Bytes there are to do; none before that is known.
 */
total_bytes: number | null, 
/**
 * Bytes a second, over the last seconds; none when nothing moves.
 */
bytes_per_second: number | null, 
/**
 * Seconds to the end at that speed.
 */
seconds_left: number | null, 
/**
 * Why it failed.
 */
error: ApiError | null, 
/**
 * What came of it, as one sentence, where there is more to say than that it is done.
 */
outcome: string | null, 
/**
 * When the person asked for it.
 */
created_at: number, };

export type SettingScope = "live" | "next_message" | "reload_model" | "restart_app";

export type SettingSection = "appearance" | "answers" | "performance" | "models" | "server" | "logs";

export type SettingKind = { "kind": "address" } | { "kind": "path" } | { "kind": "secret" } | { "kind": "whole", 
/**
 * The least.
 */
min: number, 
/**
 * The most.
 */
max: number, } | { "kind": "decimal", 
/**
 * The least.
 */
min: number, 
/**
 * The most.
 */
max: number, } | { "kind": "switch" } | { "kind": "choice", 
/**
 * The words.
 */
options: Array<string>, };

export type Setting = { 
/**
 * Names it in a request, in the file, and in errors.
 */
key: string, 
/**
 * Where it is shown.
 */
section: SettingSection, 
/**
 * When a change counts.
 */
scope: SettingScope, 
/**
 * What it does, in one or two sentences.
 */
help: string, 
/**
 * What counts while nothing is chosen; none where the app finds the best by itself.
 */
default: boolean | number | string | null, 
/**
 * What is chosen, or the default.
 */
value: boolean | number | string | null, 
/**
 * Something is chosen.
 */
is_set: boolean, 
/**
 * What the model in use really works with, where that is known.
 */
in_use: boolean | number | string | null, 
/**
 * The choice waits for its scope: the model in use was loaded with another one.
 */
pending: boolean, 
/**
 * What was given when FaStar was started: it comes before the choice until FaStar is closed. None where nothing was.
 */
given: boolean | number | string | null, 
/**
 * Why what is in the file does not count, or not as it was meant, a sentence.
 */
problem: string | null, } & ({ "kind": "address" } | { "kind": "path" } | { "kind": "secret" } | { "kind": "whole", 
/**
 * The least.
 */
min: number, 
/**
 * The most.
 */
max: number, } | { "kind": "decimal", 
/**
 * The least.
 */
min: number, 
/**
 * The most.
 */
max: number, } | { "kind": "switch" } | { "kind": "choice", 
/**
 * The words.
 */
options: Array<string>, });

export type CachePlan = { 
/**
 * Bytes it would take.
 */
cache_bytes: number, 
/**
 * Experts that would fit.
 */
slots: number, 
/**
 * Experts there are.
 */
experts: number, 
/**
 * Bytes of the weights that are in memory in any case.
 */
dense_bytes: number, 
/**
 * Why it is not what was asked for, a sentence.
 */
note: string | null, 
/**
 * The smallest cache that works, in bytes.
 */
fewest_bytes: number, 
/**
 * The largest one that fits now.
 */
most_bytes: number, 
/**
 * One for every expert.
 */
all_bytes: number, 
/**
 * About how many tokens a second answers would get; none before enough was measured.
 */
tokens_per_second: number | null, 
/**
 * About what share of the experts asked for would be in memory, from 0 to 1.
 */
hit_rate: number | null, };

export type ServerState = { 
/**
 * Where programs of this computer reach it; none while it does not run.
 */
address: string | null, 
/**
 * Where other computers of the network reach it; none where they may not, and where there is no network.
 */
network: string | null, 
/**
 * Why it does not run although it should.
 */
problem: ApiError | null, 
/**
 * The first digits of the key. The whole is asked for when it is copied.
 */
key_begins: string, };

export type Activity = { 
/**
 * Tokens computed in chunks: of prompts.
 */
prompt_tokens: number, 
/**
 * Tokens computed one by one: those of answers, and the last of each prompt.
 */
answer_tokens: number, 
/**
 * Time for those of prompts, waiting for experts included.
 */
prompt_ms: number, 
/**
 * The same for those of answers.
 */
answer_ms: number, 
/**
 * Time in each layer, waiting for experts included.
 */
layers_ms: Array<number>, };

export type Process = { 
/**
 * Memory it has in use.
 */
resident_bytes: number | null, 
/**
 * Memory it may still take.
 */
available_bytes: number | null, 
/**
 * Processor time it has used, of all threads together.
 */
cpu_ms: number | null, 
/**
 * Processors it may use.
 */
processors: number, 
/**
 * Bytes it has read from disks.
 */
read_bytes: number | null, };

export type TraceFile = { 
/**
 * Where it is.
 */
path: string, 
/**
 * Its bytes so far.
 */
bytes: number, 
/**
 * False when the disk refused some of it: it ends before that.
 */
whole: boolean, };

export type Monitor = { 
/**
 * When it was taken: milliseconds of a clock that never jumps.
 */
at_ms: number, 
/**
 * Differs for every load of a model; none while there is no model.
 */
load: number | null, 
/**
 * What the model computed so far; none while there is no model.
 */
activity: Activity | null, 
/**
 * Every expert, one text for each layer and one character for each expert: `.` on the disk, `0` to `7` in memory (7 used most of late), `x` taken by
 * the layer that is computed. Empty where all of the model is in memory anyway.
 */
experts: Array<string>, 
/**
 * What this process takes of the computer.
 */
process: Process, 
/**
 * The recording under way, if there is one.
 */
recording: TraceFile | null, };

export type Instructions = "baseline" | "avx2" | "avx512";

export type Disk = { 
/**
 * The folder.
 */
folder: string, 
/**
 * Space left there.
 */
free_bytes: number | null, };

export type Hardware = { 
/**
 * Operating system, its version, and the processor's kind.
 */
system: string, 
/**
 * Name of the processor.
 */
processor: string, 
/**
 * The instructions that are computed with.
 */
instructions: Instructions, 
/**
 * Processors this process may run on.
 */
processors: number, 
/**
 * Cores among them; two processors of one core share its arithmetic.
 */
cores: number, 
/**
 * How many processors' time this process is granted, where that is limited.
 */
quota: number | null, 
/**
 * Threads that are used when nothing else is chosen.
 */
threads: number, 
/**
 * Memory of the computer.
 */
memory_bytes: number | null, 
/**
 * Memory that this process may still take.
 */
available_bytes: number | null, 
/**
 * Where chats and settings are.
 */
data: Disk, 
/**
 * Where models are.
 */
models: Disk, 
/**
 * A neural processor was found. It is not used yet.
 */
npu: boolean, };

export type SpeedEstimate = { 
/**
 * Tokens a second where nothing is read ahead, ...
 */
least: number, 
/**
 * ... and where reading and computing always go on at once.
 */
most: number, 
/**
 * Bytes a second that all threads together read from memory, measured.
 */
memory_rate: number, 
/**
 * Bytes a second that were read from the disk for models, measured.
 */
disk_rate: number, 
/**
 * About what share of the experts asked for would be in memory, from 0 to 1.
 */
hit_rate: number, };

export type MachinePlan = { 
/**
 * When memory and disk were measured, in milliseconds since 1970; none where they were not.
 */
measured_at: number | null, 
/**
 * The entry of the catalogue.
 */
entry: string, 
/**
 * Its name, for people.
 */
name: string, 
/**
 * The computer.
 */
hardware: Hardware, 
/**
 * Bytes to fetch, without the drafter.
 */
download_bytes: number, 
/**
 * Most bytes on the disk while it is fetched and made.
 */
peak_bytes: number, 
/**
 * Whether the disk for models has room for that; none where the system does not say.
 */
fits_disk: boolean | null, 
/**
 * Bytes of memory for weights that every token reads.
 */
dense_bytes: number, 
/**
 * Bytes of memory for experts.
 */
cache_bytes: number, 
/**
 * Experts that fit into them.
 */
slots: number, 
/**
 * Experts there are.
 */
experts: number, 
/**
 * Whether the memory is enough to load it at all; none where the system does not say.
 */
fits_memory: boolean | null, 
/**
 * What a person should know of the memory, a sentence.
 */
memory_note: string | null, 
/**
 * How fast answers would be written; none before memory and disk were measured.
 */
speed: SpeedEstimate | null, 
/**
 * Why they could not be measured, a sentence.
 */
not_measured: string | null, };

export type LogLevel = "error" | "warn" | "info" | "debug";

export type LogLine = { 
/**
 * Grows by one with every line.
 */
number: number, 
/**
 * When.
 */
at: number, 
/**
 * How grave.
 */
level: LogLevel, 
/**
 * Which part of the app.
 */
target: string, 
/**
 * What.
 */
text: string, };

export type LogPage = { 
/**
 * The oldest first.
 */
lines: Array<LogLine>, 
/**
 * The number of the newest line; what comes after it is asked for with it.
 */
next: number, 
/**
 * The file that holds them all.
 */
file: string, 
/**
 * False when that file cannot be written.
 */
written: boolean, };
