import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Chat, ChatSummary, Draft, GenerationEvent, Message, NewMessage } from '../api/types';
import { type Backend, BackendError, type OnEvent } from '../backend';
import { App } from './app.svelte';

const summary = (id: string): ChatSummary => ({
  id,
  title: id,
  created_at: 0,
  updated_at: 0,
  pinned: false,
  folder: null,
});

const message = (id: string, role: Message['role'], change: Partial<Message> = {}): Message => ({
  id,
  chat_id: '',
  role,
  text: id,
  status: 'done',
  created_at: 0,
  model: null,
  stats: null,
  error: null,
  reasoning: null,
  reasoning_ms: null,
  thinking: 'off',
  attachments: [],
  edited: false,
  versions: [],
  ...change,
});

const draft = (text: string): Draft => ({ text, attachments: [], edit: null });

/** An app with chats `a` and `b`, the drafts it keeps, and what is sent to it; each answer says what the test lets it say. */
class Fake {
  drafts = new Map<string | null, Draft>();
  saved: [string | null, string][] = [];
  messages = new Map<string, Message[]>([
    ['a', [message('a-question', 'user'), message('a-answer', 'assistant')]],
    ['b', [message('b-question', 'user'), message('b-answer', 'assistant')]],
  ]);
  sent: { chatId: string | null; message: NewMessage; tell: OnEvent }[] = [];
  refuses: BackendError | null = null;
  /** Why no draft is kept. */
  keepsNone: BackendError | null = null;
  /** Set to hold the answers to `chatOpen`. */
  holdOpen: Promise<void> | null = null;

  readonly app = new App({
    onConnection: () => {},
    appInfo: async () => ({ version: '1', face: 'desktop', data_folder: '', notice: null }),
    modelState: async () => ({ state: 'failed', name: '', error: null, in_use: null }),
    jobList: async () => [],
    settingList: async () => [],
    chatList: async () => [...this.messages.keys()].map(summary),
    chatDelete: async (id: string) => void this.messages.delete(id),
    chatOpen: async (id: string): Promise<Chat> => {
      const chat = {
        summary: summary(id),
        messages: [...(this.messages.get(id) ?? [])],
        system: '',
        draft: this.drafts.get(id) ?? draft(''),
      };
      if (this.holdOpen) await this.holdOpen;
      return chat;
    },
    draftNew: async () => this.drafts.get(null) ?? draft(''),
    draftSave: async (id: string | null, saved: Draft) => {
      this.saved.push([id, saved.text]);
      if (this.keepsNone) throw this.keepsNone;
      this.drafts.set(id, saved);
    },
    versionShow: async (id: string): Promise<Chat> => {
      const chat = id.split('-')[0]!;
      const [, ...rest] = this.messages.get(chat) ?? [];
      const messages = [message(id, 'user'), ...rest];
      return { summary: summary(chat), messages, system: '', draft: draft('') };
    },
    modelLibrary: async () => ({ folder: '', free_bytes: null, files: [], catalogue: [] }),
    messageCount: async () => ({ message: 1, prompt: 1, context_size: 10 }),
    messageSend: async (chatId: string | null, sent: NewMessage, tell: OnEvent) => {
      if (this.refuses) throw this.refuses;
      this.sent.push({ chatId, message: sent, tell });
    },
    messageEdit: async () => {
      throw this.refuses;
    },
  } as unknown as Backend);

  /** Begins or ends the answer to what was sent as number `n`, in chat `id`. */
  tell(n: number, id: string, type: 'started' | 'finished', after: string | null = null): void {
    const { message: sent, tell } = this.sent[n]!;
    const of = (role: Message['role'], change: Partial<Message>) =>
      message(`${id}-${role}-${n}`, role, { chat_id: id, ...change });
    const chat = summary(id);
    const event: GenerationEvent =
      type === 'started'
        ? {
            type,
            chat,
            after,
            user: of('user', { text: sent.text }),
            answer: of('assistant', { text: '', status: 'writing' }),
          }
        : { type, chat, answer: of('assistant', { text: 'done' }) };
    tell(event);
  }

  type(text: string): void {
    this.app.open.draft = text;
    this.app.draftChanged();
  }
}

const idle = () => vi.advanceTimersByTimeAsync(10);

describe('what is being written', () => {
  beforeEach(() => {
    vi.useFakeTimers();
    location.hash = '';
  });
  afterEach(() => vi.useRealTimers());

  it('is told while it cannot be kept, and kept as soon as that is possible', async () => {
    const fake = new Fake();
    await fake.app.start();
    await fake.app.openChat('a');
    const message = 'The disk is full.';
    fake.keepsNone = new BackendError({ code: 'no_space', message, hint: null, details: null });
    fake.type('half');
    await vi.advanceTimersByTimeAsync(1000);
    expect(fake.app.open.unkept?.message).toBe(message);
    // Nothing is lost by it, and nobody has to type for it to be tried again.
    fake.keepsNone = null;
    await vi.advanceTimersByTimeAsync(11_000);
    expect(fake.saved).toEqual([
      ['a', 'half'],
      ['a', 'half'],
    ]);
    expect([fake.app.open.unkept, fake.app.open.draft]).toEqual([null, 'half']);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(fake.saved).toHaveLength(2);
  });

  it('is not told of where nothing stands, nor in a chat that is gone', async () => {
    const fake = new Fake();
    await fake.app.start();
    await fake.app.openChat('a');
    const refusal = { message: 'x', hint: null, details: null };
    fake.keepsNone = new BackendError({ code: 'not_found', ...refusal });
    fake.type('half');
    await vi.advanceTimersByTimeAsync(60_000);
    expect([fake.app.open.unkept, fake.saved.length]).toEqual([null, 1]);
    fake.keepsNone = new BackendError({ code: 'no_space', ...refusal });
    fake.type('');
    await vi.advanceTimersByTimeAsync(1000);
    expect(fake.app.open.unkept).toBe(null);
  });

  it('for a new chat is there after the page was opened at another chat', async () => {
    const fake = new Fake();
    fake.drafts.set(null, draft('x'));
    location.hash = '#a';
    await fake.app.start();
    await idle();
    expect(fake.app.open.summary?.id).toBe('a');
    fake.app.newChat();
    await idle();
    expect(fake.app.open.draft).toBe('x');
    await fake.app.openChat('b');
    fake.app.newChat();
    expect(fake.app.open.draft).toBe('x');
    expect(fake.saved).toEqual([]);
  });

  it('is not replaced by nothing when a chat is left before it was read, or could not be', async () => {
    const fake = new Fake();
    fake.drafts.set('a', draft('half a thought'));
    let answer = () => {};
    fake.holdOpen = new Promise((resolve) => (answer = resolve));
    void fake.app.openChat('a');
    const b = fake.app.openChat('b');
    answer();
    await b;
    fake.holdOpen = Promise.reject(
      new BackendError({ code: 'storage', message: 'No.', hint: null, details: null }),
    );
    await fake.app.openChat('a');
    expect(fake.app.open.error?.message).toBe('No.');
    fake.holdOpen = null;
    await fake.app.openChat('b');
    await vi.advanceTimersByTimeAsync(5000);
    expect(fake.saved).toEqual([]);
    await fake.app.openChat('a');
    expect(fake.app.open.draft).toBe('half a thought');
  });

  it('is not replaced by a window that shows the same chat and wrote nothing', async () => {
    const fake = new Fake();
    await fake.app.openChat('a');
    fake.drafts.set('a', draft('of the other window'));
    await fake.app.openChat('b');
    expect(fake.saved).toEqual([]);
    await fake.app.openChat('a');
    expect(fake.app.open.draft).toBe('of the other window');
  });

  it('is given to the app when one pauses or leaves, and its end as well', async () => {
    const fake = new Fake();
    await fake.app.openChat('a');
    fake.type('a thought');
    await vi.advanceTimersByTimeAsync(5000);
    fake.type('a longer thought');
    await fake.app.openChat('b');
    fake.type('something');
    fake.type('');
    await vi.advanceTimersByTimeAsync(5000);
    expect(fake.saved).toEqual([
      ['a', 'a thought'],
      ['a', 'a longer thought'],
      ['b', ''],
    ]);
  });

  it('stays when it was typed before the chat was there and sent', async () => {
    const fake = new Fake();
    fake.drafts.set('a', draft('of before'));
    let answer = () => {};
    fake.holdOpen = new Promise((resolve) => (answer = resolve));
    const opened = fake.app.openChat('a');
    fake.app.send('quick');
    answer();
    await opened;
    await vi.advanceTimersByTimeAsync(5000);
    expect(fake.app.open.draft).toBe('of before');
    expect(fake.drafts.get('a')?.text).toBe('of before');
  });

  it('for a new chat is not lost when a message of another chat is taken', async () => {
    const fake = new Fake();
    await fake.app.openChat('a');
    fake.app.send('one');
    fake.tell(0, 'a', 'started', 'a-answer');
    fake.app.send('two');
    fake.app.newChat();
    fake.type('for a new chat');
    fake.app.open.attachments.push({ name: 'notes.txt', text: 'x' });
    await fake.app.openChat('b');
    fake.tell(0, 'a', 'finished');
    await idle();
    fake.tell(1, 'a', 'started', 'a-assistant-0');
    fake.tell(1, 'a', 'finished');
    fake.app.newChat();
    expect(fake.app.open.draft).toBe('for a new chat');
    expect(fake.app.open.attachments).toHaveLength(1);
  });

  it('in a chat that begins to exist while another is looked at goes with it', async () => {
    const fake = new Fake();
    fake.app.send('first words');
    fake.type('and more');
    await fake.app.openChat('b');
    fake.tell(0, 'c', 'started');
    fake.app.newChat();
    expect(fake.app.open.draft).toBe('');
    await fake.app.openChat('c');
    expect(fake.app.open.draft).toBe('and more');
  });

  it('has its files and the open edit after a reload, and neither once they are sent', async () => {
    const fake = new Fake();
    await fake.app.openChat('a');
    fake.app.attachText('a book');
    fake.app.setEditing({ id: 'a-question', text: 'asked again' });
    await vi.advanceTimersByTimeAsync(5000);
    const again = new Fake();
    again.drafts = fake.drafts;
    await again.app.openChat('a');
    const { open } = again.app;
    expect(open.attachments.map((file) => file.text)).toEqual(['a book']);
    expect(open.editing).toEqual({ id: 'a-question', text: 'asked again' });
    again.app.setEditing(null);
    again.app.send();
    again.tell(0, 'a', 'started', 'a-answer');
    await vi.advanceTimersByTimeAsync(5000);
    expect(again.drafts.get('a')).toEqual(draft(''));
  });

  it('keeps its text where its files are more than a message may have', async () => {
    const fake = new Fake();
    fake.app.open.attachments.push(
      { name: 'too large', text: 'x'.repeat(2_000_000) },
      { name: 'two\nlines', text: 'x' },
      { name: 'fits', text: 'x' },
    );
    fake.type('words');
    await vi.advanceTimersByTimeAsync(5000);
    expect(fake.drafts.get(null)).toEqual({
      ...draft('words'),
      attachments: [{ name: 'fits', text: 'x' }],
    });
  });

  it('has its files still when an answer ends while another chat is looked at', async () => {
    const fake = new Fake();
    await fake.app.openChat('a');
    fake.app.send('one');
    fake.tell(0, 'a', 'started', 'a-answer');
    fake.app.attachText('a book');
    await fake.app.openChat('b');
    fake.tell(0, 'a', 'finished');
    await fake.app.openChat('a');
    expect(fake.app.open.attachments.map((file) => file.text)).toEqual(['a book']);
  });
});

describe('a chat that is deleted while its answer is being written', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  for (const where of ['open', 'in the background', 'in another window'] as const) {
    it(`does not come back (${where})`, async () => {
      const fake = new Fake();
      await fake.app.readChats();
      await fake.app.openChat('a');
      fake.app.send('one');
      fake.tell(0, 'a', 'started', 'a-answer');
      fake.app.send('two');
      if (where !== 'open') await fake.app.openChat('b');
      if (where === 'in another window') {
        fake.messages.delete('a');
        await fake.app.readChats();
      } else {
        await fake.app.delete('a');
      }
      fake.tell(0, 'a', 'finished');
      await idle();
      expect(fake.app.chats.map((chat) => chat.id)).toEqual(['b']);
      // What waited there is not sent into a chat that the person has deleted.
      if (where !== 'in another window') expect(fake.sent).toHaveLength(1);
    });
  }
});

describe('what is shown of a chat', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  const shown = (fake: Fake) => fake.app.open.messages.map((one) => one.id);
  const rowsOf = (id: string, n: number) => [
    message(`${id}-user-${n}`, 'user'),
    message(`${id}-assistant-${n}`, 'assistant'),
  ];

  it('is whole when one sent before it was there, and when another window wrote on', async () => {
    const fake = new Fake();
    let answer = () => {};
    fake.holdOpen = new Promise((resolve) => (answer = resolve));
    const opened = fake.app.openChat('a');
    fake.app.send('quick');
    fake.app.send('and the next');
    answer();
    await opened;
    fake.holdOpen = null;
    fake.tell(0, 'a', 'started', 'a-answer');
    fake.messages.get('a')!.push(...rowsOf('a', 0));
    expect(shown(fake)).toEqual(['a-user-0', 'a-assistant-0']);
    fake.tell(0, 'a', 'finished');
    await idle();
    // The one that waited is sent after that, behind all of it.
    expect(fake.sent.map((sent) => sent.message.text)).toEqual(['quick', 'and the next']);
    fake.tell(1, 'a', 'started', 'a-assistant-0');
    expect(shown(fake)).toEqual([
      'a-question',
      'a-answer',
      'a-user-0',
      'a-assistant-0',
      'a-user-1',
      'a-assistant-1',
    ]);
    fake.messages.get('a')!.push(...rowsOf('a', 1), ...rowsOf('elsewhere', 1));
    fake.tell(1, 'a', 'finished');
    await idle();
    fake.app.send('after the other window');
    fake.tell(2, 'a', 'started', 'elsewhere-assistant-1');
    fake.messages.get('a')!.push(...rowsOf('a', 2));
    fake.tell(2, 'a', 'finished');
    await idle();
    expect(shown(fake)).toEqual(fake.messages.get('a')!.map((one) => one.id));
  });

  it('is that chat and no other, however late an answer comes', async () => {
    const fake = new Fake();
    let answer = () => {};
    const late = () => new Promise<void>((resolve) => (answer = resolve));
    fake.holdOpen = late();
    const found = { chat: summary('a'), message_id: 'old', role: null, before: '', matched: '', after: '' };
    const at = fake.app.openAt(found);
    const answerA = answer;
    fake.holdOpen = null;
    await fake.app.openChat('b');
    fake.type('for b');
    answerA();
    await at;
    await vi.advanceTimersByTimeAsync(5000);
    expect(fake.app.open.summary?.id).toBe('b');
    expect(shown(fake)).toEqual(['b-question', 'b-answer']);
    expect(fake.saved).toEqual([['b', 'for b']]);
    expect(fake.app.messageWanted).toBeNull();
  });

  it('is read once when the window comes to the front, and what did not change stays as it is', async () => {
    const fake = new Fake();
    await fake.app.start();
    await fake.app.openChat('a');
    const opened = vi.spyOn(fake.app.backend, 'chatOpen');
    const before = [...fake.app.open.messages];
    fake.messages.set('a', [
      message('a-question', 'user'),
      message('a-answer', 'assistant', { text: 'another version' }),
    ]);
    await Promise.all([fake.app.refresh(), fake.app.refresh()]);
    expect(opened).toHaveBeenCalledOnce();
    expect(fake.app.open.messages[0]).toBe(before[0]);
    expect(fake.app.open.messages[1]).not.toBe(before[1]);
    expect(fake.app.open.messages[1]!.text).toBe('another version');
    await fake.app.refresh();
    expect(opened).toHaveBeenCalledTimes(2);
  });

  it('is the version that was chosen, though the chat was being read when it was', async () => {
    const fake = new Fake();
    await fake.app.start();
    await fake.app.openChat('a');
    let answer = () => {};
    fake.holdOpen = new Promise((resolve) => (answer = resolve));
    const read = fake.app.refresh();
    await idle();
    await fake.app.showVersion('a-other');
    expect(shown(fake)).toEqual(['a-other', 'a-answer']);
    answer();
    await read;
    expect(shown(fake)).toEqual(['a-other', 'a-answer']);
  });
});

describe('a message that is too long', () => {
  it('is neither counted nor sent, stays where it is, and says why', async () => {
    vi.useFakeTimers();
    const fake = new Fake();
    const count = vi.spyOn(fake.app.backend, 'messageCount');
    await fake.app.openChat('a');
    for (let n = 0; n < 3; n++) fake.app.attachText('ü'.repeat(400_000));
    fake.type('and this');
    await vi.advanceTimersByTimeAsync(5000);
    expect(count).not.toHaveBeenCalled();
    fake.app.send();
    expect(fake.sent).toEqual([]);
    expect(fake.app.open.error?.message).toContain('2,400,008 bytes');
    expect(fake.app.open.draft).toBe('and this');
    expect(fake.app.open.attachments).toHaveLength(3);
    fake.app.detach(2);
    await vi.advanceTimersByTimeAsync(5000);
    // The message, and each of its files.
    expect(count).toHaveBeenCalledTimes(3);
    fake.app.send();
    expect(fake.sent).toHaveLength(1);

    for (let n = 0; n < 21; n++) fake.app.attachText('x');
    fake.tell(0, 'a', 'started', 'a-answer');
    fake.tell(0, 'a', 'finished');
    fake.app.send();
    expect(fake.app.open.error?.message).toContain('21 files');
    expect(fake.sent).toHaveLength(1);
    vi.useRealTimers();
  });
});
