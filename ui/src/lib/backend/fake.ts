/**
 * A scripted app for development and for states that are hard to reach with a real one: `?fake=SCENARIO`. It keeps its
 * own chats and writes prepared answers; production bundles do not contain it.
 */
import type {
  AnswerStats,
  ApiError,
  Chat,
  ChatSummary,
  GenerationEvent,
  Message,
  ModelInfo,
  ModelState,
} from '../api/types';
import { type Backend, BackendError, type OnEvent, Unreachable } from './backend';
import { fakeLibrary, libraries } from './fake-library';
import { fakeSettings, settingsScenarios } from './fake-settings';
import { fakeMonitor, monitorScenarios } from './fake-monitor';
import { answers, demo, flash, hostile, scenarios, type Scenario } from './fake-scenarios';

/** Lets a held answer go on. */
const GO_ON = 'fake-go-on';
/** The app answers from now on, or does not: `detail`. */
const CONNECTED = 'fake-connected';

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function refuse(code: ApiError['code'], message: string, hint: string | null = null): BackendError {
  return new BackendError({ code, message, hint, details: null });
}

/** Notes every question in `asked` of the window, so that a test can see how often the page asks. */
function noted<T extends object>(methods: T, before: () => void): T {
  const asked = ((window as unknown as { asked?: string[] }).asked ??= []);
  const all = methods as Record<string, (...args: unknown[]) => Promise<unknown>>;
  for (const [name, method] of Object.entries(all)) {
    all[name] = async (...args) => {
      asked.push(name);
      before();
      return method(...args);
    };
  }
  return methods;
}

/** An answer stays at each of `holds` (characters, rising) until the page gets the event `fake-go-on`. */
export function fake(name: string, holds: number[] = []): Backend {
  const scenario: Scenario = scenarios[name] ?? {};
  window.addEventListener(GO_ON, () => holds.shift());
  const chats = new Map<string, Chat>();
  const deleted = new Map<string, Chat>();
  const stops = new Set<string>();
  let ids = 0;
  const id = () => `fake-${(ids += 1)}`;
  let model: ModelState = scenario.model ?? { state: 'ready', model: scenario.flash ? flash : demo };

  for (const chat of scenario.chats?.(id) ?? []) chats.set(chat.summary.id, chat);

  const find = (chatId: string): Chat => {
    const chat = chats.get(chatId);
    if (!chat) throw refuse('not_found', 'This chat is no longer there.');
    return chat;
  };
  const inUse = (): ModelInfo | null =>
    model.state === 'ready' ? model.model : model.state === 'failed' ? (model.in_use ?? null) : null;
  const copy = <T>(value: T): T => structuredClone(value);

  function row(chatId: string, role: Message['role'], text: string): Message {
    return {
      id: id(),
      chat_id: chatId,
      role,
      text,
      status: role === 'user' ? 'done' : 'writing',
      created_at: Date.now(),
      model: role === 'user' ? null : (inUse()?.name ?? null),
      stats: null,
      error: null,
    };
  }

  async function write(chat: Chat, user: Message | null, question: string, onEvent: OnEvent): Promise<void> {
    const answer = row(chat.summary.id, 'assistant', '');
    chat.messages.push(answer);
    chat.summary.updated_at = Date.now();
    const tell = (event: GenerationEvent) => onEvent(copy(event));
    tell({ type: 'started', chat: chat.summary, user, answer });

    const end = (status: Message['status'], error: ApiError | null, stats: AnswerStats | null) => {
      Object.assign(answer, { status, error, stats });
      tell({ type: 'finished', chat: chat.summary, answer });
    };
    const stopped = () => stops.has(answer.id);

    void (async () => {
      if (scenario.queued) {
        tell({ type: 'queued', ahead: scenario.queued });
        while (scenario.holds && !stopped()) await sleep(20);
      }
      if (scenario.prefill) {
        const { done, total } = scenario.prefill;
        tell({ type: 'prefill', done, total });
        while (scenario.holds && !stopped()) await sleep(20);
      }
      while (model.state === 'loading' && !stopped()) await sleep(20);
      const text = name === 'hostile' ? hostile : (answers[question] ?? answers['']!);
      // Like the app: some words every few dozen milliseconds.
      for (const piece of text.match(/[\s\S]{1,14}/gu) ?? []) {
        while (answer.text.length >= (holds[0] ?? Infinity) && !stopped()) await sleep(20);
        if (stopped()) break;
        answer.text += piece;
        tell({ type: 'text', text: piece });
        await sleep(8);
      }
      if (scenario.failsInAnswer) return end('failed', scenario.failsInAnswer, null);
      const tokens = Math.max(1, Math.round(answer.text.length / 3.6));
      end(stopped() ? 'stopped' : 'done', null, {
        prompt_tokens: 24,
        reused_tokens: 0,
        answer_tokens: tokens,
        first_token_ms: 38,
        prefill_ms: 31,
        decode_ms: tokens * 6.2,
        tokens_per_second: tokens > 1 ? 161.3 : null,
        context_used: Math.min(24 + tokens, inUse()?.context_size ?? 4096),
        context_size: inUse()?.context_size ?? 4096,
        finish: stopped() ? 'stopped' : 'end',
      });
    })();
  }

  let connected = !scenario.offline;
  const online = () => {
    if (!connected) throw new Unreachable();
  };

  return {
    ...noted(
      fakeLibrary(libraries[name] ?? {}, () => inUse()?.path?.split('/').at(-1) ?? null),
      online,
    ),
    ...noted(
      fakeSettings(settingsScenarios[name] ?? {}, { get: () => model, set: (state) => (model = state) }),
      online,
    ),
    ...noted(fakeMonitor(monitorScenarios[name] ?? {}, inUse), online),
    async appInfo() {
      online();
      return {
        version: '0.1.0',
        face: scenario.face ?? 'desktop',
        data_folder: '/home/you/.local/share/fastar',
        notice: scenario.notice ?? null,
      };
    },
    async modelState() {
      online();
      return copy(model);
    },
    async modelChoose() {
      model = { state: 'ready', model: flash };
    },
    async modelUseDemo() {
      model = { state: 'ready', model: demo };
    },
    async modelUse(file) {
      model = {
        state: 'ready',
        model: { ...flash, name: file.replace(/\.fst$/, ''), path: `/home/you/FaStar models/${file}` },
      };
    },
    async chatList() {
      online();
      return [...chats.values()].map((chat) => copy(chat.summary));
    },
    async chatOpen(chatId) {
      online();
      return copy(find(chatId));
    },
    async chatRename(chatId, title) {
      find(chatId).summary.title = title;
    },
    async chatDelete(chatId) {
      deleted.set(chatId, find(chatId));
      chats.delete(chatId);
    },
    async chatRestore(chatId) {
      const chat = deleted.get(chatId);
      if (!chat) throw refuse('not_found', 'This chat is no longer there.');
      chats.set(chatId, chat);
    },
    async messageSend(chatId, text, onEvent) {
      online();
      if (scenario.refuses) throw new BackendError(scenario.refuses);
      let chat: Chat;
      if (chatId === null) {
        const now = Date.now();
        const summary: ChatSummary = { id: id(), title: text.slice(0, 60), created_at: now, updated_at: now };
        chat = { summary, messages: [] };
        chats.set(summary.id, chat);
      } else chat = find(chatId);
      const user = row(chat.summary.id, 'user', text);
      chat.messages.push(user);
      await write(chat, user, text, onEvent);
    },
    async messageRegenerate(chatId, onEvent) {
      online();
      const chat = find(chatId);
      while (chat.messages.at(-1)?.role === 'assistant') chat.messages.pop();
      await write(chat, null, chat.messages.at(-1)?.text ?? '', onEvent);
    },
    async generationAttach() {
      throw refuse('not_found', 'This answer is not being written.');
    },
    async generationStop(answerId) {
      stops.add(answerId);
    },
    async linkOpen(url) {
      (window as unknown as { opened?: string[] }).opened ??= [];
      (window as unknown as { opened: string[] }).opened.push(url);
    },
    onConnection(listener) {
      if (!connected) setTimeout(() => listener(false));
      window.addEventListener(CONNECTED, (event) => {
        connected = (event as CustomEvent<boolean>).detail;
        listener(connected);
      });
    },
  };
}
