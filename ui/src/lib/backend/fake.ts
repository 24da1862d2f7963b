/**
 * A scripted app for development and for states that are hard to reach with a real one: `?fake=SCENARIO`. It keeps its
 * own chats and writes prepared answers; production bundles do not contain it.
 */
import type {
  AnswerStats,
  ApiError,
  GenerationEvent,
  Message,
  ModelInfo,
  ModelState,
  NewMessage,
  Thinking,
} from '../api/types';
import { type Backend, BackendError, type OnEvent, Unreachable } from './backend';
import { FakeChats, report } from './fake-chats';
import { fakeLibrary, libraries } from './fake-library';
import { fakeSettings, settingsScenarios } from './fake-settings';
import { fakeHelp } from './fake-help';
import { fakeMonitor, monitorScenarios } from './fake-monitor';
import { answers, demo, flash, hostile, maths, scenarios, type Scenario, thoughts } from './fake-scenarios';

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
  let { refusesDraft } = scenario;
  window.addEventListener(GO_ON, () => {
    holds.shift();
    refusesDraft = undefined;
  });
  const stops = new Set<string>();
  let ids = 0;
  const id = () => `fake-${(ids += 1)}`;
  let model: ModelState = scenario.model ?? { state: 'ready', model: scenario.flash ? flash : demo };

  const chats = new FakeChats(id, scenario.chats?.(id) ?? []);
  chats.presets = scenario.presets ?? [];

  const inUse = (): ModelInfo | null =>
    model.state === 'ready' ? model.model : model.state === 'failed' ? (model.in_use ?? null) : null;
  const copy = <T>(value: T): T => structuredClone(value);

  function row(chatId: string, role: Message['role'], message: NewMessage): Message {
    return {
      id: id(),
      chat_id: chatId,
      role,
      text: role === 'user' ? message.text : '',
      status: role === 'user' ? 'done' : 'writing',
      created_at: Date.now(),
      model: role === 'user' ? null : (inUse()?.name ?? null),
      stats: null,
      error: null,
      reasoning: null,
      reasoning_ms: null,
      thinking: message.thinking,
      attachments: role === 'user' ? message.attachments : [],
      edited: false,
      versions: [],
    };
  }

  const asking = (text: string, thinking: Thinking): NewMessage => ({
    text,
    thinking,
    attachments: [],
    system: '',
  });

  type Tree = ReturnType<FakeChats['tree']>;

  /** Writes `answer`, which is in the tree, behind `after` (or behind `user`). */
  async function write(
    tree: Tree,
    user: Message | null,
    answer: Message,
    after: string | null,
    question: string,
    onEvent: OnEvent,
  ): Promise<void> {
    const tell = (event: GenerationEvent) => onEvent(copy(event));
    tell({ type: 'started', chat: tree.summary, user, answer, after });

    const end = (status: Message['status'], error: ApiError | null, stats: AnswerStats | null) => {
      Object.assign(answer, { status, error, stats });
      tell({ type: 'finished', chat: tree.summary, answer });
    };
    const stopped = () => stops.has(answer.id);

    void (async () => {
      if (scenario.queued) {
        tell({ type: 'queued', ahead: scenario.queued });
        while (scenario.holds && !stopped()) await sleep(20);
      }
      if (scenario.prefill) {
        const { done, total } = scenario.prefill;
        tell({ type: 'prefill', done, total, seconds_left: scenario.prefill.left ?? null });
        while (scenario.holds && !stopped()) await sleep(20);
      }
      while (model.state === 'loading' && !stopped()) await sleep(20);
      if (answer.thinking !== 'off' && answer.text === '') {
        for (const piece of thoughts.match(/[\s\S]{1,24}/gu) ?? []) {
          while ((answer.reasoning?.length ?? 0) >= (scenario.thinksUntil ?? Infinity) && !stopped())
            await sleep(20);
          if (stopped()) break;
          answer.reasoning = (answer.reasoning ?? '') + piece;
          tell({ type: 'reasoning', text: piece });
          await sleep(4);
        }
        answer.reasoning_ms = 12_400;
      }
      if (scenario.failsInAnswer?.code === 'context_full') return end('failed', scenario.failsInAnswer, null);
      const text =
        name === 'hostile' ? hostile : name === 'maths' ? maths : (answers[question] ?? answers['']!);
      // A piece every few milliseconds, as of a very fast model; each paragraph is different.
      for (let token = 0; token < (scenario.tokens ?? 0) && !stopped(); token += 16) {
        const piece = ` word${token} of a long, long answer that goes on and on for ever.${token % 512 === 496 ? '\n\n' : ''}`;
        answer.text += piece;
        tell({ type: 'text', text: piece });
        await sleep(4);
      }
      if (scenario.tokens !== undefined) return end(stopped() ? 'stopped' : 'done', null, null);
      // Like the app: some words every few dozen milliseconds.
      for (const piece of text.slice(answer.text.length).match(/[\s\S]{1,14}/gu) ?? []) {
        while (answer.text.length >= (holds[0] ?? Infinity) && !stopped()) await sleep(20);
        if (stopped()) break;
        answer.text += piece;
        tell({ type: 'text', text: piece });
        if (answer.text.length === piece.length) tell({ type: 'pace', tokens_per_second: 4.5 });
        await sleep(8);
      }
      if (scenario.failsInAnswer) return end('failed', scenario.failsInAnswer, null);
      const tokens = Math.max(1, Math.round(answer.text.length / 3.6));
      end(stopped() ? 'stopped' : 'done', null, {
        prompt_tokens: 24,
        reused_tokens: 0,
        answer_tokens: tokens,
        reasoning_tokens: answer.reasoning === null ? 0 : 41,
        prefill_waited_ms: null,
        decode_waited_ms: null,
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
    if (scenario.noAccess)
      throw refuse(
        'no_access',
        'This page does not have the key of this FaStar.',
        'Open the address that fastar serve printed.',
      );
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
    ...noted(fakeHelp(name), online),
    ...noted(fakeMonitor(monitorScenarios[name] ?? {}, inUse), online),
    async pageShown() {},
    async appInfo() {
      online();
      return {
        version: '0.1.0',
        face: scenario.face ?? 'desktop',
        data_folder: '/home/you/.local/share/fastar',
        notices: scenario.notices ?? [],
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
      return copy(chats.list());
    },
    async chatOpen(chatId) {
      online();
      return copy(chats.open(chatId));
    },
    async chatRename(chatId, title) {
      chats.tree(chatId).summary.title = title;
    },
    async chatDelete(chatId) {
      chats.delete(chatId);
    },
    async chatRestore(chatId) {
      chats.restore(chatId);
    },
    async chatPin(chatId, pinned) {
      chats.tree(chatId).summary.pinned = pinned;
    },
    async chatMove(chatId, folder) {
      chats.tree(chatId).summary.folder = folder;
    },
    async chatSystemSet(chatId, text) {
      chats.tree(chatId).system = text;
    },
    async chatSearch(query) {
      online();
      return copy(chats.search(query));
    },
    async chatExport(chatId, format) {
      const title = chatId === null ? 'FaStar chats' : chats.tree(chatId).summary.title;
      return `/home/you/Documents/${title}.${format === 'json' ? 'json' : 'md'}`;
    },
    async chatImport() {
      if (scenario.refusesImport) throw new BackendError(scenario.refusesImport);
      for (const chat of scenarios.weeks?.chats?.(id).slice(0, 2) ?? []) chats.add(chat);
      return 2;
    },
    async presetList() {
      return copy(chats.presets);
    },
    async presetSave(presetId, title, text) {
      const saved = { id: presetId ?? id(), name: title, text };
      chats.presets = [...chats.presets.filter((other) => other.id !== presetId), saved];
      return copy(saved);
    },
    async presetDelete(presetId) {
      chats.presets = chats.presets.filter((other) => other.id !== presetId);
    },
    async draftNew() {
      online();
      return copy(chats.newDraft);
    },
    async draftSave(chatId, draft) {
      if (refusesDraft) throw new BackendError(refusesDraft);
      if (chatId === null) chats.newDraft = copy(draft);
      else chats.tree(chatId).draft = copy(draft);
    },
    async attachmentPick() {
      if (scenario.refusesFile) throw new BackendError(scenario.refusesFile);
      return [copy(report)];
    },
    async messageCount(chatId, message) {
      online();
      const characters =
        message.text.length + message.attachments.reduce((sum, file) => sum + file.text.length, 0);
      const before = chatId === null ? 3 : (scenario.contextUsed ?? 443);
      const own = Math.ceil(characters / 4);
      return { message: own, prompt: before + own, context_size: inUse()?.context_size ?? 4096 };
    },
    async messageSend(chatId, message, onEvent) {
      online();
      if (scenario.refuses) throw new BackendError(scenario.refuses);
      const tree = chats.begin(chatId, message);
      const after = tree.shown.at(-1) ?? null;
      const user = chats.append(tree, row(tree.summary.id, 'user', message));
      const answer = chats.append(tree, row(tree.summary.id, 'assistant', message));
      await write(tree, user, answer, after, message.text, onEvent);
    },
    async messageEdit(messageId, message, onEvent) {
      online();
      if (scenario.refuses) throw new BackendError(scenario.refuses);
      const { tree, after } = chats.replace(messageId);
      const user = chats.append(tree, row(tree.summary.id, 'user', message));
      const answer = chats.append(tree, row(tree.summary.id, 'assistant', message));
      await write(tree, user, answer, after, message.text, onEvent);
    },
    async messageRegenerate(answerId, thinking, onEvent) {
      online();
      const { tree, after } = chats.replace(answerId);
      const question = after === null ? '' : chats.lastOf(after).message.text;
      const answer = chats.append(tree, row(tree.summary.id, 'assistant', asking('', thinking)));
      await write(tree, null, answer, after, question, onEvent);
    },
    async answerContinue(answerId, onEvent) {
      online();
      const { tree, message, after } = chats.lastOf(answerId);
      const question = after === null ? '' : chats.lastOf(after).message.text;
      Object.assign(message, { status: 'writing', error: null });
      stops.delete(answerId);
      await write(tree, null, message, after, question, onEvent);
    },
    async answerEdit(answerId, text) {
      if (scenario.refuses) throw new BackendError(scenario.refuses);
      const { tree, old } = chats.replace(answerId);
      const edited: Message = { ...old, id: id(), text, status: 'done', stats: null, edited: true };
      chats.append(tree, edited);
      return copy(chats.open(tree.summary.id));
    },
    async versionShow(messageId) {
      return copy(chats.show(messageId));
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
