/**
 * What the interface asks of the app, whoever answers: the desktop shell, `fastar serve`, or a scripted fake.
 * Everything else in the interface is written against this file and knows nothing of IPC or HTTP.
 */
import type {
  ApiError,
  AppInfo,
  Attachment,
  CachePlan,
  Chat,
  ChatSummary,
  Draft,
  DownloadRequest,
  ExportFormat,
  Found,
  GenerationEvent,
  Hardware,
  Job,
  Library,
  LogPage,
  MachinePlan,
  ModelMemory,
  ModelState,
  Monitor,
  NewMessage,
  Preset,
  ServerState,
  Setting,
  Thinking,
  TokenCount,
  TraceFile,
} from '../api/types';

export type OnEvent = (event: GenerationEvent) => void;

export interface Backend {
  appInfo(): Promise<AppInfo>;
  /** The page has been drawn: the shell need not wait for it any more. */
  pageShown(): Promise<void>;
  modelState(): Promise<ModelState>;
  /** What of the model is in memory now, and what was read so far; null while none is ready. */
  modelMemory(): Promise<ModelMemory | null>;
  /** Lets the person pick a model file; what came of it is then read from `modelState`. */
  modelChoose(): Promise<void>;
  modelUseDemo(): Promise<void>;
  /** Models on the disk and in the catalogue. A model on the disk is named by its file name, never by a path. */
  modelLibrary(): Promise<Library>;
  /** Lets the person pick the folder for models. */
  modelFolderChoose(): Promise<void>;
  /** The same, and the models that are there move along. */
  modelFolderMove(): Promise<void>;
  modelUse(file: string): Promise<void>;
  /** Shows the file in the system's file manager. */
  modelShow(file: string): Promise<void>;
  /** How many bytes are free again. */
  modelDelete(file: string): Promise<number>;
  modelVerify(file: string): Promise<void>;
  modelRepair(file: string): Promise<void>;
  downloadStart(request: DownloadRequest): Promise<void>;
  /** Goes on with a download that has left something on the disk. */
  downloadResume(file: string): Promise<void>;
  jobList(): Promise<Job[]>;
  jobPause(id: string): Promise<void>;
  jobResume(id: string): Promise<void>;
  /** Gives a job up; what it has done stays on the disk, or is deleted. */
  jobCancel(id: string, keep: boolean): Promise<void>;
  /** Takes a job that is at rest out of the list. */
  jobDismiss(id: string): Promise<void>;
  chatList(): Promise<ChatSummary[]>;
  chatOpen(id: string): Promise<Chat>;
  chatRename(id: string, title: string): Promise<void>;
  chatDelete(id: string): Promise<void>;
  chatRestore(id: string): Promise<void>;
  chatPin(id: string, pinned: boolean): Promise<void>;
  /** Into a folder, or out of all. */
  chatMove(id: string, folder: string | null): Promise<void>;
  /** Instructions before the conversation; they count from the next answer on. */
  chatSystemSet(id: string, text: string): Promise<void>;
  chatSearch(query: string): Promise<Found[]>;
  /** One chat or (null) all of them into a file that the person names; its path or name, null when the person changed their mind. */
  chatExport(id: string | null, format: ExportFormat): Promise<string | null>;
  /** Chats out of a file that the person picks; how many, null when the person changed their mind. */
  chatImport(): Promise<number | null>;
  presetList(): Promise<Preset[]>;
  /** Without an id, a new one. */
  presetSave(id: string | null, name: string, text: string): Promise<Preset>;
  presetDelete(id: string): Promise<void>;
  /** What was begun for a chat that does not exist yet; that of the others comes with the chat. */
  draftNew(): Promise<Draft>;
  draftSave(chatId: string | null, draft: Draft): Promise<void>;
  /** Text files that the person picks. */
  attachmentPick(): Promise<Attachment[]>;
  messageCount(chatId: string | null, message: NewMessage): Promise<TokenCount>;
  /** Resolves once the answer is accepted; what happens to it then comes through `onEvent`. */
  messageSend(chatId: string | null, message: NewMessage, onEvent: OnEvent): Promise<void>;
  /** A new version of the person's message, and its answer. */
  messageEdit(messageId: string, message: NewMessage, onEvent: OnEvent): Promise<void>;
  messageRegenerate(answerId: string, thinking: Thinking, onEvent: OnEvent): Promise<void>;
  /** Goes on with an answer that was cut off. */
  answerContinue(answerId: string, onEvent: OnEvent): Promise<void>;
  /** A new version of an answer, as the person wants it. */
  answerEdit(answerId: string, text: string): Promise<Chat>;
  /** Shows another version of a message, with what stood behind it. */
  versionShow(messageId: string): Promise<Chat>;
  /** Listens to an answer that is already being written. */
  generationAttach(answerId: string, onEvent: OnEvent): Promise<void>;
  generationStop(answerId: string): Promise<void>;
  settingList(): Promise<Setting[]>;
  /** Sets one setting; one may change another, so all of them come back. */
  settingSet(key: string, value: Setting['value']): Promise<Setting[]>;
  settingReset(key: string): Promise<Setting[]>;
  /** What a cache for experts of this size would be, or the largest that fits; null where there is nothing to plan. */
  cachePlan(cacheBytes: number | null): Promise<CachePlan | null>;
  /** Loads the model in use again; an answer being written is stopped for that, or in the way. */
  modelReload(stop: boolean): Promise<void>;
  /** The local server of the window; only a window has one. */
  serverState(): Promise<ServerState>;
  /** Its whole key. */
  serverKey(): Promise<string>;
  /** Another key; the old one is refused from now on. */
  serverKeyNew(): Promise<ServerState>;
  /** What the app is doing at this moment. */
  monitor(): Promise<Monitor>;
  /** Begins to record which experts tokens take. */
  traceStart(): Promise<TraceFile>;
  /** Ends the recording; null when there was none. */
  traceStop(): Promise<TraceFile | null>;
  /** The computer, as far as the app may use it. */
  hardware(): Promise<Hardware>;
  /** What the computer would do with the recommended model. */
  machinePlan(): Promise<MachinePlan>;
  /** The same, after memory and disk were measured for a moment; once they were, only when asked to do it again. */
  machineMeasure(again: boolean): Promise<MachinePlan>;
  /** Lines of the log after this number. */
  logRead(after: number): Promise<LogPage>;
  /** A text for a report about a problem. */
  diagnostics(): Promise<string>;
  /** Opens an address outside the app, after the person has agreed to it. */
  linkOpen(url: string): Promise<void>;
  /** Shows a notification of the system, if the person wants them and does not look at the window. */
  notify?(title: string, text: string): Promise<void>;
  /** The chat that is looked at: its answer is to be heard as it is written, those of others may come in pieces, and their ends a little late. */
  attend?(chatId: string | null): void;
  /** Calls back when the app stops answering and when it answers again. A desktop window never hears it. */
  onConnection(listener: (connected: boolean) => void): void;
}

/** The app refused or failed; `api` says what happened and what can be done. */
export class BackendError extends Error {
  readonly api: ApiError;

  constructor(api: ApiError) {
    super(api.message);
    this.name = 'BackendError';
    this.api = api;
  }
}

/** The app could not be reached at all. */
export class Unreachable extends Error {
  constructor() {
    super('unreachable');
    this.name = 'Unreachable';
  }
}

const CODES: ReadonlySet<string> = new Set<ApiError['code']>([
  'not_found',
  'bad_request',
  'busy',
  'no_model',
  'context_full',
  'storage',
  'no_space',
  'damaged',
  'spoilt',
  'no_access',
  'hub',
  'unsupported',
  'internal',
]);

function isApiError(value: unknown): value is ApiError {
  if (typeof value !== 'object' || value === null) return false;
  const error = value as Partial<ApiError>;
  return typeof error.message === 'string' && typeof error.code === 'string' && CODES.has(error.code);
}

/** Anything thrown or received in place of an answer, as one kind of error. */
export function toBackendError(value: unknown, fallback: string): BackendError {
  if (value instanceof BackendError) return value;
  if (isApiError(value)) {
    return new BackendError({
      code: value.code,
      message: value.message,
      hint: value.hint ?? null,
      details: value.details ?? null,
    });
  }
  const details = value instanceof Error ? value.message : typeof value === 'string' ? value : null;
  return new BackendError({ code: 'internal', message: fallback, hint: null, details });
}
