/**
 * The browser's way to `fastar serve`. A stream that drops is taken up again where it was: the answer is written by
 * the app and does not depend on anyone listening, so attaching anew gives the text so far and then what follows.
 */
import type {
  AppInfo,
  CachePlan,
  Chat,
  ChatSummary,
  Draft,
  Exported,
  Found,
  GenerationEvent,
  Hardware,
  Job,
  Library,
  LogPage,
  MachinePlan,
  Message,
  ModelMemory,
  ModelState,
  Monitor,
  Preset,
  ServerState,
  Setting,
  TokenCount,
  TraceFile,
} from '../api/types';
import { strings } from '../strings';
import { type Backend, BackendError, type OnEvent, toBackendError, Unreachable } from './backend';
import { keyOfPage } from './key';
import { checkSize, MAX_IMPORT_BYTES, pickFiles, readTexts, saveFile } from './files';
import { EventStreamParser } from './sse';

export interface HttpOptions {
  fetch: typeof fetch;
  /** The key of the server; null when it was started without one, or this page has none. */
  key: () => string | null;
  /** Waits; a parameter so that tests need no clock. */
  sleep: (ms: number) => Promise<void>;
  openWindow: (url: string) => void;
  /** Gives a file to the person. */
  saveFile: (file: Exported) => void;
  /** Files that the person picks; none when they changed their mind. */
  pickFiles: (accept: string, several: boolean) => Promise<File[]>;
  /** Without a byte for this long (heartbeats count) a stream is taken for dropped. */
  stallMs: number;
}

const FIRST_RETRY_MS = 400;
const LAST_RETRY_MS = 5000;
/** So often the server is asked for an answer that is not looked at. */
const ASIDE_MS = 1500;

/** Who follows an answer. */
interface Follower {
  /** Known with the first event. */
  chatId: string | null;
  /** Ends the stream that is open. */
  stream: AbortController | null;
  /** Ends the wait for the next question. */
  wake: () => void;
}

export function http(options: HttpOptions): Backend {
  const listeners: ((connected: boolean) => void)[] = [];
  let connected = true;

  function setConnected(now: boolean): void {
    if (connected === now) return;
    connected = now;
    for (const listener of listeners) listener(now);
    if (!now) void probe();
  }

  /** Asks until the server is back. */
  async function probe(): Promise<void> {
    let wait = FIRST_RETRY_MS;
    while (!connected) {
      await options.sleep(wait);
      wait = Math.min(wait * 1.6, LAST_RETRY_MS);
      await post('app_info', {}).then(
        () => {},
        () => {},
      );
    }
  }

  async function post(name: string, args: unknown, signal?: AbortSignal): Promise<Response> {
    const key = options.key();
    let response: Response;
    try {
      response = await options.fetch(`/api/${name}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        },
        body: JSON.stringify(args),
        cache: 'no-store',
        ...(signal ? { signal } : {}),
      });
    } catch {
      // What the page itself no longer wants says nothing of the server.
      if (!signal?.aborted) setConnected(false);
      throw new Unreachable();
    }
    setConnected(true);
    if (response.ok) return response;
    const text = await response.text().catch(() => '');
    let body: unknown = `HTTP ${response.status}`;
    try {
      body = JSON.parse(text);
    } catch {
      // Not from our own server; the status says what there is to say.
    }
    throw toBackendError(body, strings.errors.unexpected);
  }

  async function call<T>(name: string, args: Record<string, unknown> = {}): Promise<T> {
    const response = await post(name, args);
    try {
      const text = await response.text();
      return (text === '' ? null : JSON.parse(text)) as T;
    } catch (error) {
      if (error instanceof SyntaxError) throw toBackendError(error, strings.errors.unexpected);
      setConnected(false);
      throw new Unreachable();
    }
  }

  /** Hands on the events of one stream. Ends normally or by a drop; both look alike, only `finished` counts. */
  async function drain(response: Response, abort: AbortController, onEvent: OnEvent): Promise<void> {
    const reader = response.body?.getReader();
    if (!reader) return;
    const parser = new EventStreamParser();
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      for (;;) {
        timer = setTimeout(() => abort.abort(), options.stallMs);
        const { done, value } = await reader.read();
        clearTimeout(timer);
        if (done) return;
        for (const payload of parser.push(value)) onEvent(JSON.parse(payload) as GenerationEvent);
      }
    } catch {
      // Dropped; the caller attaches again.
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Those who follow an answer, in the order they began. A browser opens six connections to one address, for all of its tabs: only one answer
   * has a stream that stays, that of the chat that is looked at, or the latest. For the others the server is asked now and then.
   */
  const followers = new Set<Follower>();
  let attended: string | null = null;

  const inFront = (): Follower | undefined => {
    const all = [...followers];
    return all.find((follower) => follower.chatId !== null && follower.chatId === attended) ?? all.at(-1);
  };

  function settle(): void {
    const front = inFront();
    for (const follower of followers) {
      if (follower === front) follower.wake();
      else if (follower.chatId !== null) follower.stream?.abort();
    }
  }

  /** Follows an answer to its end, over as many streams as it takes. */
  async function follow(name: string, args: unknown, onEvent: OnEvent): Promise<void> {
    const abort = new AbortController();
    const first = await post(name, args, abort.signal);
    const me: Follower = { chatId: null, stream: abort, wake: () => {} };
    followers.add(me);
    let answer: Message | null = null;
    let finished = false;
    const hear: OnEvent = (event) => {
      if (event.type === 'started') answer = event.answer;
      if (event.type === 'finished') finished = true;
      onEvent(event);
      if (event.type === 'started') {
        me.chatId = event.chat.id;
        // One that has ended says so at once.
        if (event.answer.status === 'writing') settle();
      }
    };

    const carryOn = async (): Promise<void> => {
      await drain(first, abort, hear);
      let wait = FIRST_RETRY_MS;
      while (!finished && answer !== null) {
        const { id, chat_id } = answer as Message;
        me.stream = null;
        const woken = new Promise<void>((resolve) => (me.wake = resolve));
        const waiting = me !== inFront();
        await (waiting ? Promise.race([options.sleep(ASIDE_MS), woken]) : options.sleep(wait));
        if (!waiting) wait = Math.min(wait * 1.6, LAST_RETRY_MS);
        try {
          const again = new AbortController();
          // Known before there is an answer: the person may go to another chat meanwhile.
          me.stream = again;
          const response = await post('generation_attach', { answer_id: id }, again.signal);
          await drain(response, again, hear);
        } catch (error) {
          if (error instanceof Unreachable) continue;
          // No longer being written: the row says how it ended.
          const end = await rowOf(chat_id, id).catch(() => null);
          if (end === 'gone') return;
          if (end !== null) hear(end);
        }
      }
      // The server took the message and went away before it said so: whoever listens reads the chats anew.
      if (!finished && answer === null) setConnected(false);
    };
    void carryOn().finally(() => {
      followers.delete(me);
      settle();
    });
  }

  async function rowOf(chatId: string, answerId: string): Promise<GenerationEvent | 'gone' | null> {
    let chat: Chat;
    try {
      chat = await call<Chat>('chat_open', { id: chatId });
    } catch (error) {
      if (error instanceof BackendError && error.api.code === 'not_found') return 'gone';
      throw error;
    }
    const answer = chat.messages.find((message) => message.id === answerId);
    if (!answer) return 'gone';
    return answer.status === 'writing' ? null : { type: 'finished', chat: chat.summary, answer };
  }

  return {
    appInfo: () => call<AppInfo>('app_info'),
    pageShown: async () => void (await call('page_shown')),
    modelState: () => call<ModelState>('model_state'),
    modelMemory: () => call<ModelMemory | null>('model_memory'),
    modelChoose: async () => void (await call('model_choose')),
    modelUseDemo: async () => void (await call('model_use_demo')),
    modelLibrary: () => call<Library>('model_library'),
    modelFolderChoose: async () => void (await call('model_folder_choose')),
    modelFolderMove: async () => void (await call('model_folder_move')),
    modelUse: async (file) => void (await call('model_use', { file })),
    modelShow: async (file) => void (await call('model_show', { file })),
    modelDelete: (file) => call<number>('model_delete', { file }),
    modelVerify: async (file) => void (await call('model_verify', { file })),
    modelRepair: async (file) => void (await call('model_repair', { file })),
    downloadStart: async (request) => void (await call('download_start', { request })),
    downloadResume: async (file) => void (await call('download_resume', { file })),
    jobList: () => call<Job[]>('job_list'),
    jobPause: async (id) => void (await call('job_pause', { id })),
    jobResume: async (id) => void (await call('job_resume', { id })),
    jobCancel: async (id, keep) => void (await call('job_cancel', { id, keep })),
    jobDismiss: async (id) => void (await call('job_dismiss', { id })),
    chatList: () => call<ChatSummary[]>('chat_list'),
    chatOpen: (id) => call<Chat>('chat_open', { id }),
    chatRename: async (id, title) => void (await call('chat_rename', { id, title })),
    chatDelete: async (id) => void (await call('chat_delete', { id })),
    chatRestore: async (id) => void (await call('chat_restore', { id })),
    chatPin: async (id, pinned) => void (await call('chat_pin', { id, pinned })),
    chatMove: async (id, folder) => void (await call('chat_move', { id, folder })),
    chatSystemSet: async (id, text) => void (await call('chat_system_set', { id, text })),
    chatSearch: (query) => call<Found[]>('chat_search', { query }),
    chatExport: async (id, format) => {
      const exported = await call<Exported>('chat_export', { id, format });
      options.saveFile(exported);
      return exported.file_name;
    },
    chatImport: async () => {
      const [file] = await options.pickFiles('.json', false);
      if (!file) return null;
      checkSize(file, MAX_IMPORT_BYTES);
      return call<number>('chat_import', { text: await file.text() });
    },
    presetList: () => call<Preset[]>('preset_list'),
    presetSave: (id, name, text) => call<Preset>('preset_save', { id, name, text }),
    presetDelete: async (id) => void (await call('preset_delete', { id })),
    draftNew: () => call<Draft>('draft_new'),
    draftSave: async (chat_id, draft) => void (await call('draft_save', { chat_id, draft })),
    attachmentPick: async () => readTexts(await options.pickFiles('', true)),
    messageCount: (chat_id, message) => call<TokenCount>('message_count', { chat_id, message }),
    messageSend: (chat_id, message, onEvent) => follow('message_send', { chat_id, message }, onEvent),
    messageEdit: (message_id, message, onEvent) => follow('message_edit', { message_id, message }, onEvent),
    messageRegenerate: (answer_id, thinking, onEvent) =>
      follow('message_regenerate', { answer_id, thinking }, onEvent),
    answerContinue: (answer_id, onEvent) => follow('answer_continue', { answer_id }, onEvent),
    answerEdit: (answer_id, text) => call<Chat>('answer_edit', { answer_id, text }),
    versionShow: (message_id) => call<Chat>('version_show', { message_id }),
    generationAttach: (answer_id, onEvent) => follow('generation_attach', { answer_id }, onEvent),
    generationStop: async (answer_id) => void (await call('generation_stop', { answer_id })),
    settingList: () => call<Setting[]>('setting_list'),
    settingSet: (key, value) => call<Setting[]>('setting_set', { key, value }),
    settingReset: (key) => call<Setting[]>('setting_reset', { key }),
    cachePlan: (cache_bytes) => call<CachePlan | null>('cache_plan', { cache_bytes }),
    modelReload: async (stop) => void (await call('model_reload', { stop })),
    serverState: () => call<ServerState>('server_state'),
    serverKey: () => call<string>('server_key'),
    serverKeyNew: () => call<ServerState>('server_key_new'),
    monitor: () => call<Monitor>('monitor'),
    traceStart: () => call<TraceFile>('trace_start'),
    traceStop: () => call<TraceFile | null>('trace_stop'),
    hardware: () => call<Hardware>('hardware'),
    machinePlan: () => call<MachinePlan>('machine_plan'),
    machineMeasure: (again) => call<MachinePlan>('machine_measure', { again }),
    logRead: (after) => call<LogPage>('log_read', { after }),
    diagnostics: () => call<string>('diagnostics'),
    linkOpen: async (url) => options.openWindow(url),
    attend: (chatId) => {
      attended = chatId;
      settle();
    },
    onConnection: (listener) => void listeners.push(listener),
  };
}

/** The real one, of this page. */
export function browserHttp(): Backend {
  return http({
    fetch: (input, init) => fetch(input, init),
    key: keyOfPage(),
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    openWindow: (url) => void window.open(url, '_blank', 'noopener,noreferrer'),
    saveFile,
    pickFiles,
    stallMs: 30_000,
  });
}
