/**
 * The state of the window: which model, which chats, which conversation is open, what is being written. Every change
 * comes from the app's own answers; the interface only asks.
 */
import { SvelteMap } from 'svelte/reactivity';
import type {
  ApiError,
  AppInfo,
  Attachment,
  Chat,
  ChatSummary,
  Draft,
  ExportFormat,
  Found,
  GenerationEvent,
  Message,
  ModelInfo,
  ModelState,
  NewMessage,
  Thinking,
  TokenCount,
} from '../api/types';
import { type Backend, BackendError, Unreachable } from '../backend';
import { kept, MAX_MESSAGE_BYTES, MOST_FILES, readTexts } from '../backend/files';
import type { Match } from '../chat/find';
import { strings } from '../strings';
import { spoken } from '../markdown/spoken';
import { apply, type Conversation, isProvisional, provisional, writing } from './answer';
import { failure, refusal } from './failure';
import { Help } from './help.svelte';
import { Machine } from './machine.svelte';
import { ofAnswer, tell } from './notices';
import { Models } from './models.svelte';
import { Monitor } from './monitor.svelte';
import { LocalServer } from './server.svelte';
import { Settings } from './settings.svelte';

const MODEL_POLL_MS = 400;
/** How often a page looks whether its server still runs the same model; a desktop window is the app itself. */
const WATCH_MS = 5000;
const UNDO_MS = 10_000;
/** The two events of a window that comes to the front are not further apart. */
const TWICE_MS = 100;
/** After the last key, what was typed is kept by the app, and its tokens are counted. */
const DRAFT_MS = 700;
/** A draft that could not be kept is tried again after this, typed on or not. */
const AGAIN_MS = 10_000;

/** A message that is being edited, and what it has become so far. */
export interface Editing {
  id: string;
  text: string;
}

class Open implements Conversation {
  summary = $state<ChatSummary | null>(null);
  messages = $state<Conversation['messages']>([]);
  progress = $state<Conversation['progress']>(null);
  pace = $state<number | null>(null);
  /** What the person is writing in this chat. */
  draft = $state('');
  /** What waits to be sent or is being typed has changed since the app was last given it. Only then is it given: a draft that was never
   *  read, or that another window has written, is not replaced by nothing. */
  dirty = false;
  draftTimer: ReturnType<typeof setTimeout> | undefined;
  /** Why what stands here is not kept by the app at the moment. */
  unkept = $state<ApiError | null>(null);
  /** Files that go with it. */
  attachments = $state<Attachment[]>([]);
  /** Tokens of each file that was counted, by the app's `fileKey`. */
  fileTokens = new SvelteMap<string, number>();
  /** Sent while an answer was being written: they go one after the other when it is done. */
  queued = $state<NewMessage[]>([]);
  /** Instructions before the conversation. */
  system = $state('');
  /** What the next message would take of the context. */
  count = $state<TokenCount | null>(null);
  editing = $state<Editing | null>(null);
  loading = $state(false);
  /** Why the last message was not taken, or the chat not opened. */
  error = $state<ApiError | null>(null);
  /** Counts the answers begun, so that a late event of an earlier listener is told apart. */
  listener = 0;
  /** Counts what was shown, so that a chat that was read before that is told apart. */
  shown = 0;
  /** An answer stands behind a message that is not here: the chat is read when it has ended. */
  partial = false;
  /** Stop was pressed before the answer had an id. */
  stopWanted = false;
}

export interface Toast {
  chat: ChatSummary;
  /** When the deleted chat was the open one: what stands in its place, and the words that were in there. */
  instead: { open: Open; draft: string } | null;
}

export class App {
  info = $state<AppInfo | null>(null);
  startError = $state<ApiError | null>(null);
  notices = $state<string[]>([]);
  model = $state<ModelState | null>(null);
  modelError = $state<ApiError | null>(null);
  /** The person has put the note about a failed load away. */
  failureSeen = $state(false);
  connected = $state(true);
  chats = $state<ChatSummary[]>([]);
  chatsKnown = $state(false);
  listError = $state<ApiError | null>(null);
  open = $state<Open>(new Open());
  toast = $state<Toast | null>(null);
  /** Moves with the clock so that "today" does not stay yesterday's. */
  now = $state(Date.now());
  /** What a screen reader is told, politely and not per token. */
  announcement = $state('');
  link = $state<{ href: string; bidi: boolean } | null>(null);
  modelPanel = $state(false);
  /** The chat whose row is asked to show its title field; the row takes the wish away. */
  renaming = $state<string | null>(null);
  /** Grows when the composer should have the focus although the same chat stays open. */
  composerWanted = $state(0);
  /** Grows when the end of the conversation should be in view. */
  endWanted = $state(0);
  /** How the next message is to be thought about. */
  thinking = $state<Thinking>('off');
  /** How it is where the person says nothing. */
  private thinkingByDefault: Thinking = 'off';
  /** The bar that finds words in the open chat. */
  finding = $state(false);
  /** Grows when that bar should have the focus. */
  findWanted = $state(0);
  /** The place it is at. */
  found = $state.raw<Match | null>(null);
  /** Grows when the field that searches all chats should have the focus. */
  searchWanted = $state(0);
  /** A message that should come into view; the list of messages takes the wish away. */
  messageWanted = $state<string | null>(null);
  /** The chat that is to be moved to a folder. */
  moving = $state<ChatSummary | null>(null);
  /** What came of an export or import, as a sentence. */
  done = $state<string | null>(null);
  /** The dialog with the instructions of the open chat. */
  instructions = $state(false);

  /** Chats whose answers are being written stay in memory while another one is looked at, drafts too. */
  private kept = new Map<string, Open>();
  /** Chats other than the open one with an answer under way. */
  busy = $state<Record<string, true>>({});
  private polling = false;
  private refreshing: Promise<void> | null = null;
  private undoTimer: ReturnType<typeof setTimeout> | undefined;
  private countTimer: ReturnType<typeof setTimeout> | undefined;

  readonly models: Models;
  readonly settings: Settings;
  readonly monitor: Monitor;
  readonly help: Help;
  readonly machine: Machine;
  readonly server: LocalServer;

  constructor(readonly backend: Backend) {
    this.models = new Models(backend, async () => {
      this.failureSeen = false;
      await this.readModel();
    });
    this.monitor = new Monitor(backend);
    this.help = new Help(backend);
    this.machine = new Machine(backend);
    this.server = new LocalServer(backend);
    this.settings = new Settings(
      backend,
      async () => {
        this.failureSeen = false;
        await this.readModel();
      },
      (settings) => this.thinkAs(settings.of('thinking')?.value),
    );
    backend.onConnection((connected) => {
      this.connected = connected;
      if (connected) void this.refresh();
    });
  }

  /** Another default counts at once; the same one again changes nothing of what was chosen for the next message. */
  private thinkAs(value: unknown): void {
    if ((value !== 'off' && value !== 'on' && value !== 'max') || value === this.thinkingByDefault) return;
    this.thinkingByDefault = value;
    this.thinking = value;
  }

  /** The model that writes answers now; after a failed load that is the one before, or the demo. */
  get modelInUse(): ModelInfo | null {
    if (this.model?.state === 'ready') return this.model.model;
    if (this.model?.state === 'failed') return this.model.in_use ?? null;
    return null;
  }

  /** What the model is called in the window; none before anything is known. */
  get modelName(): string | null {
    if (this.model === null) return null;
    if (this.model.state === 'loading') return strings.status.loading(this.model.name);
    const inUse = this.modelInUse;
    if (inUse === null) return strings.status.failed;
    return inUse.is_demo ? strings.model.demo : inUse.name;
  }

  /** The built-in model was never taught to think before it answers: it is not asked to, whatever is chosen. */
  get canThink(): boolean {
    return this.modelInUse?.is_demo !== true;
  }

  /** How the next answer is thought about. */
  private get thinkingNow(): Thinking {
    return this.canThink ? this.thinking : 'off';
  }

  /** True while the open chat's answer is on its way. */
  get answering(): boolean {
    return this.open.progress !== null;
  }

  async start(): Promise<void> {
    this.showAddress();
    await this.readStart();
    setInterval(() => {
      if (this.connected && this.info?.face === 'web' && document.visibilityState === 'visible')
        void this.readModel();
    }, WATCH_MS);
  }

  async readStart(): Promise<void> {
    this.startError = null;
    try {
      this.info = await this.backend.appInfo();
      this.notices = this.info.notices;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.startError = failure(error);
    }
    await Promise.all([
      this.readModel(),
      this.readChats(),
      this.models.readJobs(),
      this.readNewDraft(),
      this.settings.list ? undefined : this.settings.read(),
    ]);
  }

  /** What was begun for a chat that does not exist yet, unless something else stands there. */
  private async readNewDraft(): Promise<void> {
    const open = this.open;
    const bare = () => open.summary === null && open.progress === null && untouched(open) && !open.dirty;
    if (!bare()) return;
    const draft = await this.backend.draftNew().catch(() => null);
    if (!draft || !bare()) return;
    takeDraft(open, draft);
    const instead = this.toast?.instead;
    if (instead?.open === open) instead.draft = draft.text;
  }

  /** Reads again what another window or a restart may have changed. A window that comes to the front says so twice. */
  refresh(): Promise<void> {
    if (this.refreshing && Date.now() - this.now < TWICE_MS) return this.refreshing;
    const reading = this.readAnew().finally(() => {
      if (this.refreshing === reading) this.refreshing = null;
    });
    this.refreshing = reading;
    return reading;
  }

  private async readAnew(): Promise<void> {
    this.now = Date.now();
    if (!this.info) return this.readStart();
    await Promise.all([this.readModel(), this.readChats(), this.reopen(), this.models.refresh()]);
  }

  async readChats(): Promise<void> {
    try {
      this.chats = await this.backend.chatList();
      this.chatsKnown = true;
      this.listError = null;
      this.now = Date.now();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.listError = failure(error);
    }
  }

  async readModel(): Promise<void> {
    const before = this.modelName;
    try {
      this.model = await this.backend.modelState();
    } catch {
      // Not reachable, or a fault that the next reading may not have; what is shown stays.
    }
    if (this.model?.state === 'loading') this.pollModel();
    if (this.model?.state !== 'failed') this.failureSeen = false;
    // Which of the files is in use.
    if (this.modelName !== before && this.models.library) await this.models.readLibrary();
  }

  private pollModel(): void {
    if (this.polling) return;
    this.polling = true;
    setTimeout(() => {
      this.polling = false;
      void this.readModel();
    }, MODEL_POLL_MS);
  }

  async chooseModel(): Promise<void> {
    await this.changeModel(() => this.backend.modelChoose());
  }

  async useDemo(): Promise<void> {
    await this.changeModel(() => this.backend.modelUseDemo());
  }

  private async changeModel(change: () => Promise<void>): Promise<void> {
    this.modelError = null;
    this.failureSeen = false;
    const asked = change();
    // The dialog and the loading take their time; the state is read meanwhile.
    this.pollModel();
    try {
      await asked;
    } catch (error) {
      this.modelError = failure(error);
    }
    await this.readModel();
  }

  // Chats ------------------------------------------------------------------------------------------------------------

  /** Resolves when what was begun for the new chat has been read. */
  newChat(address = true): Promise<void> {
    if (this.open.summary === null) {
      this.open.error = null;
      this.composerWanted += 1;
      return Promise.resolve();
    }
    this.leave();
    const read = this.begin();
    this.open.error = null;
    if (address) this.writeAddress(null);
    return read;
  }

  /** Shows the chat that does not exist yet, with what was begun for it. */
  private begin(): Promise<void> {
    this.backend.attend?.(null);
    this.open = this.kept.get('') ?? new Open();
    this.kept.delete('');
    return this.readNewDraft();
  }

  /** A new chat where the context had no room for an answer: the question goes along when it was not answered at all. */
  async newChatAfter(answer: Message): Promise<void> {
    const messages = this.open.messages;
    const question = messages[messages.findIndex((message) => message.id === answer.id) - 1];
    const read = this.newChat();
    const open = this.open;
    await read;
    if (question?.role === 'user' && answer.text === '') this.giveBack(open, $state.snapshot(question));
    this.composerWanted += 1;
  }

  async openChat(id: string, address = true): Promise<void> {
    if (this.open.summary?.id === id) return;
    this.leave();
    this.backend.attend?.(id);
    if (address) this.writeAddress(id);
    const kept = this.kept.get(id);
    if (kept) {
      this.kept.delete(id);
      this.open = kept;
      if (kept.progress !== null) {
        delete this.busy[id];
        return;
      }
    } else {
      const open = new Open();
      open.summary = this.chats.find((chat) => chat.id === id) ?? {
        id,
        title: '',
        created_at: 0,
        updated_at: 0,
        pinned: false,
        folder: null,
      };
      open.loading = true;
      this.open = open;
    }
    await this.load(this.open, id);
  }

  private async load(open: Open, id: string): Promise<void> {
    const first = open.loading;
    const { listener, shown } = open;
    try {
      const chat = await this.backend.chatOpen(id);
      // Before the chat was there nothing of the draft was seen, so nothing in it was given up.
      const takes = untouched(open) && (first || (open.progress === null && !open.dirty));
      if (takes) takeDraft(open, chat.draft);
      // Something was sent meanwhile, and the draft put away with it.
      if (first && open.listener > 0 && !untouched(open)) this.draftChanged(open);
      // An answer was begun or another version shown meanwhile: this is how it was before.
      if (open.listener !== listener || open.shown !== shown) return;
      this.show(open, chat);
      const { edit } = chat.draft;
      if (first && takes && edit && chat.messages.some((message) => message.id === edit.message_id))
        open.editing ??= { id: edit.message_id, text: edit.text };
      open.error = null;
      const answer = writing(open);
      if (answer) this.attach(open, answer.id);
    } catch (error) {
      if (error instanceof Unreachable) return;
      open.error = failure(error);
      if (isGone(error)) await this.readChats();
    } finally {
      open.loading = false;
    }
  }

  private show(open: Open, chat: Chat): void {
    open.summary = chat.summary;
    // Rows that are as they were stay the same objects: nothing of them is drawn anew.
    const before = new Map(open.messages.map((message) => [message.id, message]));
    open.messages = chat.messages.map((message) => {
      const known = before.get(message.id);
      return known && JSON.stringify(known) === JSON.stringify(message) ? known : message;
    });
    open.system = chat.system;
    open.shown += 1;
    open.partial = false;
    this.endEditing(open);
  }

  /** Reads the open chat anew, unless an answer keeps it current anyway. */
  private async reopen(): Promise<void> {
    const open = this.open;
    if (open.summary && open.progress === null) await this.load(open, open.summary.id);
  }

  /** Puts the open conversation aside: what is being written goes on, what was typed is kept. */
  private leave(): void {
    const open = this.open;
    const id = open.summary?.id ?? '';
    if (open.progress !== null && id !== '') this.busy[id] = true;
    if (open.progress !== null || unsent(open)) this.kept.set(id, open);
    void this.saveDraft(open);
  }

  /** Asks for the title field of the open chat. False when there is no row to show it. */
  askRename(): boolean {
    const id = this.open.summary?.id;
    if (id === undefined || !this.chats.some((chat) => chat.id === id)) return false;
    this.renaming = id;
    return true;
  }

  async rename(id: string, title: string): Promise<void> {
    const wanted = title.replace(/\s+/g, ' ').trim();
    const chat = this.chats.find((other) => other.id === id);
    if (wanted === '' || !chat || wanted === chat.title) return;
    const before = chat.title;
    this.retitle(id, wanted);
    try {
      await this.backend.chatRename(id, wanted);
      await this.readChats();
    } catch (error) {
      this.retitle(id, before);
      this.listError = failure(error);
    }
  }

  private retitle(id: string, title: string): void {
    const chat = this.chats.find((other) => other.id === id);
    if (chat) chat.title = title;
    if (this.open.summary?.id === id) this.open.summary.title = title;
  }

  async pin(id: string, pinned: boolean): Promise<void> {
    await this.organise(() => this.backend.chatPin(id, pinned));
  }

  async move(id: string, folder: string | null): Promise<void> {
    await this.organise(() => this.backend.chatMove(id, folder));
  }

  private async organise(change: () => Promise<void>): Promise<void> {
    try {
      await change();
      await this.readChats();
    } catch (error) {
      this.listError = failure(error);
    }
  }

  async exportChat(id: string | null, format: ExportFormat): Promise<void> {
    this.done = null;
    try {
      const path = await this.backend.chatExport(id, format);
      if (path !== null) this.done = strings.files.exported(path);
    } catch (error) {
      this.listError = failure(error);
    }
  }

  async importChats(): Promise<void> {
    this.done = null;
    this.listError = null;
    try {
      const added = await this.backend.chatImport();
      if (added === null) return;
      await this.readChats();
      this.done = strings.files.imported(added);
    } catch (error) {
      this.listError = failure(error);
    }
  }

  /** Opens a chat at a message, of whatever version it is. */
  async openAt(found: Found): Promise<void> {
    await this.openChat(found.chat.id);
    // The person may have gone on to another chat meanwhile.
    if (found.message_id === null || this.open.summary?.id !== found.chat.id) return;
    if (!this.open.messages.some((message) => message.id === found.message_id))
      await this.showVersion(found.message_id);
    if (this.open.summary?.id === found.chat.id) this.messageWanted = found.message_id;
  }

  async delete(id: string): Promise<void> {
    const chat = this.chats.find((other) => other.id === id);
    if (!chat) return;
    try {
      await this.backend.chatDelete(id);
    } catch (error) {
      if (!isGone(error)) {
        this.listError = failure(error);
        return;
      }
    }
    this.chats = this.chats.filter((other) => other.id !== id);
    // What is still told of its answer brings nothing back.
    const gone = this.open.summary?.id === id ? this.open : this.kept.get(id);
    if (gone) gone.listener += 1;
    this.kept.delete(id);
    delete this.busy[id];
    let instead: Toast['instead'] = null;
    if (this.open.summary?.id === id) {
      void this.begin();
      this.writeAddress(null);
      instead = { open: this.open, draft: this.open.draft };
    }
    this.showToast({ chat, instead });
  }

  async undoDelete(): Promise<void> {
    const toast = this.toast;
    if (!toast) return;
    this.dismissToast();
    try {
      await this.backend.chatRestore(toast.chat.id);
      await this.readChats();
      // Who has begun something else meanwhile stays with it.
      const { instead } = toast;
      const idle = this.open.summary === null && this.open.progress === null && !this.open.messages.length;
      if (instead && idle && this.open === instead.open && this.open.draft === instead.draft)
        await this.openChat(toast.chat.id);
    } catch (error) {
      this.listError = failure(error);
    }
  }

  private showToast(toast: Toast): void {
    this.toast = toast;
    this.resumeToast();
  }

  /** While the person is at the toast it stays. */
  holdToast(): void {
    clearTimeout(this.undoTimer);
  }

  resumeToast(): void {
    clearTimeout(this.undoTimer);
    this.undoTimer = setTimeout(() => (this.toast = null), UNDO_MS);
  }

  dismissToast(): void {
    clearTimeout(this.undoTimer);
    this.toast = null;
  }

  // Answers ----------------------------------------------------------------------------------------------------------

  /** What stands in the composer, as a message. */
  private written(open: Open, text = open.draft): NewMessage {
    return {
      text: text.trim(),
      attachments: $state.snapshot(open.attachments),
      thinking: this.thinkingNow,
      system: open.summary === null ? open.system : '',
    };
  }

  /** Sends the draft of the open chat. While a model is loading the app keeps the message and answers after. */
  send(text?: string): void {
    const open = this.open;
    const message = this.written(open, text);
    if ((message.text === '' && message.attachments.length === 0) || !this.connected) return;
    const size = bytesOf(message);
    if (size > MAX_MESSAGE_BYTES) {
      open.error = refusal(strings.attach.messageTooLong(size, MAX_MESSAGE_BYTES));
      return;
    }
    if (message.attachments.length > MOST_FILES) {
      open.error = refusal(strings.attach.tooMany(message.attachments.length, MOST_FILES));
      return;
    }
    open.error = null;
    open.draft = '';
    open.attachments = [];
    open.count = null;
    open.dirty = true;
    if (open.progress !== null) {
      open.queued.push(message);
      this.draftChanged();
    } else {
      this.dispatch(open, message);
    }
  }

  private dispatch(open: Open, message: NewMessage): void {
    open.messages.push(provisional(message, Date.now()));
    if (this.open === open) this.endWanted += 1;
    const id = open.summary?.id ?? null;
    void this.listen(open, (onEvent) => this.backend.messageSend(id, message, onEvent)).then((taken) => {
      if (taken) {
        if (id === null)
          this.backend.draftSave(null, { text: '', attachments: [], edit: null }).catch(() => {});
        open.dirty = true;
        void this.saveDraft(open);
        return;
      }
      open.messages = open.messages.filter((other) => !isProvisional(other));
      this.giveBack(open, message);
    });
  }

  /** Puts a message that was not sent back into the composer, before what stands there. */
  private giveBack(open: Open, message: Pick<NewMessage, 'text' | 'attachments'>): void {
    open.draft = open.draft === '' ? message.text : `${message.text}\n\n${open.draft}`;
    open.attachments = [...message.attachments, ...open.attachments];
    this.draftChanged(open);
  }

  /** Takes a waiting message back into the composer. */
  unqueue(at: number): void {
    const [message] = this.open.queued.splice(at, 1);
    if (message) this.giveBack(this.open, $state.snapshot(message));
    this.composerWanted += 1;
  }

  dropQueued(at: number): void {
    this.open.queued.splice(at, 1);
    this.draftChanged();
    this.composerWanted += 1;
  }

  /** Sends the first of the waiting messages. */
  sendQueued(open: Open = this.open): void {
    if (open.progress !== null || !this.connected) return;
    const message = open.queued.shift();
    if (message) this.dispatch(open, $state.snapshot(message));
  }

  regenerate(answerId: string): void {
    this.rewrite((onEvent) => this.backend.messageRegenerate(answerId, this.thinkingNow, onEvent));
  }

  continueAnswer(answerId: string): void {
    this.rewrite((onEvent) => this.backend.answerContinue(answerId, onEvent));
  }

  /** A new version of a message of the person, and its answer. */
  edit(message: Message, text: string): void {
    const changed: NewMessage = {
      text: text.trim(),
      attachments: $state.snapshot(message.attachments),
      thinking: this.thinkingNow,
      system: '',
    };
    if (changed.text === '' && changed.attachments.length === 0) return;
    this.rewrite((onEvent) => this.backend.messageEdit(message.id, changed, onEvent));
  }

  private rewrite(request: (onEvent: (event: GenerationEvent) => void) => Promise<void>): void {
    const open = this.open;
    if (open.progress !== null || !this.connected) return;
    open.error = null;
    void this.listen(open, request).then((taken) => {
      if (taken && this.open === open) this.endWanted += 1;
    });
  }

  /** A new version of an answer, as the person wants it. */
  async editAnswer(answerId: string, text: string): Promise<void> {
    if (text.trim() === '') return;
    await this.rearrange(() => this.backend.answerEdit(answerId, text));
  }

  async showVersion(messageId: string): Promise<void> {
    await this.rearrange(() => this.backend.versionShow(messageId));
  }

  private async rearrange(change: () => Promise<Chat>): Promise<void> {
    const open = this.open;
    open.error = null;
    try {
      const chat = await change();
      if (open.progress === null) this.show(open, chat);
      open.count = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) open.error = failure(error);
    }
  }

  // Drafts, files, instructions --------------------------------------------------------------------------------------

  /** What stands in the composer has changed: it is kept and counted when the person pauses. */
  draftChanged(open: Open = this.open): void {
    this.editingChanged(open);
    open.count = null;
    if (open !== this.open) return;
    clearTimeout(this.countTimer);
    if (open.draft.trim() === '' && open.attachments.length === 0) return;
    this.countTimer = setTimeout(() => void this.count(open), DRAFT_MS);
  }

  private async saveDraft(open: Open): Promise<void> {
    clearTimeout(open.draftTimer);
    if (!open.dirty) return;
    open.dirty = false;
    const all = [
      ...$state.snapshot(open.queued),
      { text: open.draft, attachments: $state.snapshot(open.attachments) },
    ];
    const text = all
      .map((message) => message.text)
      .filter((text) => text !== '')
      .join('\n\n');
    const attachments = kept(
      text,
      all.flatMap((message) => message.attachments),
    );
    const edit = open.editing && { message_id: open.editing.id, text: open.editing.text };
    const empty = text === '' && attachments.length === 0 && edit === null;
    try {
      await this.backend.draftSave(open.summary?.id ?? null, { text, attachments, edit });
      open.unkept = null;
    } catch (error) {
      const why = failure(error);
      // Of a chat or a message that is gone nothing is to be kept.
      if (why.code === 'not_found') return;
      // It still stands in the window. That the app cannot be reached is told elsewhere.
      open.unkept = empty || error instanceof Unreachable ? null : why;
      // What was typed meanwhile has its own time.
      if (open.dirty) return;
      open.dirty = true;
      open.draftTimer = setTimeout(() => void this.saveDraft(open), AGAIN_MS);
    }
  }

  private async count(open: Open): Promise<void> {
    const message = this.written(open);
    // It can neither be sent nor counted.
    if (bytesOf(message) > MAX_MESSAGE_BYTES) return;
    const count = await this.backend.messageCount(open.summary?.id ?? null, message).catch(() => null);
    if (open.draft.trim() === message.text) open.count = count;
    for (const file of message.attachments) {
      const key = this.fileKey(file);
      if (open.fileTokens.has(key)) continue;
      const alone = { ...message, text: '', attachments: [file] };
      const counted = await this.backend.messageCount(null, alone).catch(() => null);
      if (!counted) return;
      open.fileTokens.set(key, counted.message);
    }
  }

  /** What a file of the open draft takes of the context; null before it is counted. */
  tokensOf(file: Attachment): number | null {
    return this.open.fileTokens.get(this.fileKey(file)) ?? null;
  }

  /** Models count differently; two files of a name may differ in their text, and two of a text in their name. */
  private fileKey(file: Attachment): string {
    return [this.modelInUse?.name, file.name, file.text].join('\0');
  }

  /** Opens a message to be changed, or (null) closes the field without. */
  setEditing(editing: Editing | null): void {
    this.open.editing = editing;
    this.editingChanged();
  }

  /** The app has taken the new version, or the message is otherwise out of sight. Until then what was typed stays. */
  private endEditing(open: Open): void {
    const id = open.editing?.id;
    if (id === undefined || open.messages.some((message) => message.id === id)) return;
    open.editing = null;
    this.editingChanged(open);
  }

  /** What stands in the field of a message that is being changed is kept like what stands in the composer. */
  editingChanged(open: Open = this.open): void {
    open.dirty = true;
    clearTimeout(open.draftTimer);
    open.draftTimer = setTimeout(() => void this.saveDraft(open), DRAFT_MS);
  }

  async attachFiles(): Promise<void> {
    await this.take(() => this.backend.attachmentPick());
  }

  /** Attaches what was dropped on the window; `folders` are those of its names that are none of files. */
  async attachDropped(files: File[], folders: string[]): Promise<void> {
    const model = files.find(({ name }) => name.endsWith('.fst'))?.name;
    if (folders[0] !== undefined) {
      this.open.error = refusal(strings.attach.dropFolder(folders[0], MOST_FILES));
    } else if (model !== undefined) {
      this.open.error = refusal(strings.attach.dropModel(model));
    } else {
      await this.take(() => readTexts(files));
    }
  }

  private async take(read: () => Promise<Attachment[]>): Promise<void> {
    const open = this.open;
    open.error = null;
    try {
      open.attachments.push(...(await read()));
      this.draftChanged(open);
    } catch (error) {
      if (!(error instanceof Unreachable)) open.error = failure(error);
    }
    this.composerWanted += 1;
  }

  /** A text too long for the field goes along as a file. */
  attachText(text: string): void {
    const taken = this.open.attachments.map((file) => file.name);
    let n = 1;
    while (taken.includes(strings.attach.pasted(n))) n += 1;
    this.open.attachments.push({ name: strings.attach.pasted(n), text });
    this.draftChanged();
  }

  detach(at: number): void {
    this.open.attachments.splice(at, 1);
    this.draftChanged();
    this.composerWanted += 1;
  }

  /** Sets the instructions of the open chat. False when the app did not take them. */
  async setSystem(text: string): Promise<boolean> {
    const open = this.open;
    const id = open.summary?.id;
    try {
      if (id !== undefined) await this.backend.chatSystemSet(id, text);
      open.system = text;
      return true;
    } catch (error) {
      open.error = failure(error);
      return false;
    }
  }

  private attach(open: Open, answerId: string): void {
    void this.listen(open, (onEvent) => this.backend.generationAttach(answerId, onEvent), false).then(
      (taken) => {
        // It ended between the two questions: the row has it.
        const id = open.summary?.id;
        if (!taken && id) void this.load(open, id);
      },
    );
  }

  /** Follows one answer. Resolves to whether the app took the request. */
  private async listen(
    open: Open,
    request: (onEvent: (event: GenerationEvent) => void) => Promise<void>,
    announce = true,
  ): Promise<boolean> {
    const turn = ++open.listener;
    open.progress = { phase: 'waiting' };
    open.stopWanted = false;
    try {
      await request((event) => {
        if (open.listener === turn) this.hear(open, event, announce);
      });
      return true;
    } catch (error) {
      if (open.listener !== turn) return false;
      open.progress = null;
      if (error instanceof Unreachable) return false;
      if (announce) {
        open.error = failure(error);
        // Another window writes here: show it.
        if (error instanceof BackendError && error.api.code === 'busy') void this.reopen();
        if (error instanceof BackendError && error.api.code === 'no_model') void this.readModel();
        if (isGone(error)) void this.readChats();
      }
      return false;
    }
  }

  private hear(open: Open, event: GenerationEvent, announce: boolean): void {
    const draft = open.summary === null;
    if (event.type === 'started' && event.after !== null)
      open.partial ||= !open.messages.some((message) => message.id === event.after);
    apply(open, event);
    if (event.type === 'started') {
      this.endEditing(open);
      this.updateSummary(event.chat, true);
      if (draft && this.open === open) {
        this.backend.attend?.(event.chat.id);
        this.writeAddress(event.chat.id, true);
      }
      if (this.open !== open) {
        // Only the chat that has just begun to exist moves; what is being typed for the next new one stays.
        if (this.kept.get('') === open) this.kept.delete('');
        this.kept.set(event.chat.id, open);
        this.busy[event.chat.id] = true;
      }
      if (announce && this.open === open) this.announcement = strings.message.announceStart;
      if (open.stopWanted) this.stop(open);
    } else if (event.type === 'finished') {
      this.updateSummary(event.chat);
      delete this.busy[event.chat.id];
      tell(this.backend, ofAnswer(event.chat, event.answer));
      if (this.open !== open && !unsent(open)) this.kept.delete(event.chat.id);
      if (this.open === open) this.announcement = strings.message.announceEnd(spoken(event.answer.text));
      // After a stop or a failure the person decides.
      const goOn = () => {
        if (event.answer.status === 'done') this.sendQueued(open);
      };
      if (open.partial) void this.load(open, event.chat.id).then(goOn);
      else goOn();
    }
  }

  /** Only a chat with a new answer may be new; one that ended may have been deleted meanwhile, in whatever window. */
  private updateSummary(summary: ChatSummary, mayBeNew = false): void {
    const at = this.chats.findIndex((chat) => chat.id === summary.id);
    if (at >= 0) this.chats[at] = summary;
    else if (mayBeNew) this.chats.unshift(summary);
    this.now = Date.now();
  }

  /** Asks the app to stop; the answer is over when the app says so. */
  stop(open: Open = this.open): void {
    const answer = writing(open);
    if (!answer) {
      open.stopWanted = open.progress !== null;
      return;
    }
    open.stopWanted = false;
    this.backend.generationStop(answer.id).catch((error: unknown) => {
      if (!(error instanceof Unreachable) && !isGone(error)) open.error = failure(error);
    });
  }

  // Links and addresses ----------------------------------------------------------------------------------------------

  async openLink(href: string): Promise<void> {
    try {
      await this.backend.linkOpen(href);
    } catch (error) {
      this.open.error = failure(error);
    }
  }

  /** The open chat is in the page's address, so that a reload comes back to it. */
  private writeAddress(id: string | null, replace = false): void {
    const address = `${location.pathname}${location.search}${id === null ? '' : `#${encodeURIComponent(id)}`}`;
    if (replace) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
  }

  showAddress(): void {
    let id = '';
    try {
      id = decodeURIComponent(location.hash.slice(1));
    } catch {
      // Not one of ours.
    }
    if (id !== '') void this.openChat(id, false);
    else if (this.open.summary !== null) void this.newChat(false);
  }
}

function isGone(error: unknown): boolean {
  return error instanceof BackendError && error.api.code === 'not_found';
}

/** Nothing that is to be sent stands here. */
function untouched(open: Open): boolean {
  return open.draft === '' && open.attachments.length === 0 && open.queued.length === 0;
}

function takeDraft(open: Open, draft: Draft): void {
  open.draft = draft.text;
  open.attachments = draft.attachments;
}

/** Bytes of a message with its files. */
function bytesOf(message: NewMessage): number {
  return new Blob([message.text, ...message.attachments.map((file) => file.text)]).size;
}

/** Whether something stands in a chat that only this window has. */
function unsent(open: Open): boolean {
  return open.draft !== '' || open.attachments.length > 0 || open.queued.length > 0 || open.editing !== null;
}
