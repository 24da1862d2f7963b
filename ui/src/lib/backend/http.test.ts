import { describe, expect, it } from 'vitest';
import type { GenerationEvent, Message, NewMessage } from '../api/types';
import { BackendError, Unreachable } from './backend';
import { http } from './http';

const chat = { id: 'c', title: 'Hello!', created_at: 1, updated_at: 2, pinned: false, folder: null };
const hello: NewMessage = { text: 'Hello!', attachments: [], thinking: 'off', system: '' };
const answer = (text: string, status: Message['status'] = 'writing'): Message => ({
  id: 'a',
  chat_id: 'c',
  role: 'assistant',
  text,
  status,
  created_at: 1,
  model: 'Demo model',
  stats: null,
  error: null,
  reasoning: null,
  reasoning_ms: null,
  thinking: 'off',
  attachments: [],
  edited: false,
  versions: [],
});
const started = (text: string): GenerationEvent => ({
  type: 'started',
  chat,
  user: null,
  after: null,
  answer: answer(text),
});
const finished: GenerationEvent = { type: 'finished', chat, answer: answer('Hi there!', 'done') };

type Reply = () => Response | Promise<Response>;

function stream(...events: GenerationEvent[]): Reply {
  return () =>
    new Response(events.map((event) => `data: ${JSON.stringify(event)}\n\n:\n\n`).join(''), {
      headers: { 'content-type': 'text/event-stream' },
    });
}

function setUp(replies: Record<string, Reply[]>, key: string | null = null) {
  const sent: RequestInit[] = [];
  const asked: [string, unknown][] = [];
  const waits: number[] = [];
  const opened: string[] = [];
  const backend = http({
    key: () => key,
    fetch: async (input, init) => {
      sent.push(init ?? {});
      const name = String(input).replace('/api/', '');
      asked.push([name, JSON.parse(String(init?.body))]);
      const reply = replies[name]?.shift();
      if (!reply) throw new TypeError('connection refused');
      return reply();
    },
    sleep: (ms) => {
      waits.push(ms);
      return new Promise((resolve) => setTimeout(resolve));
    },
    openWindow: (url) => void opened.push(url),
    saveFile: () => {},
    pickFiles: async () => [],
    stallMs: 60_000,
  });
  const connection: boolean[] = [];
  backend.onConnection((connected) => connection.push(connected));
  return { backend, asked, sent, waits, opened, connection };
}

const json = (value: unknown, status = 200): Reply => {
  return () => new Response(JSON.stringify(value), { status });
};

/** Resolves when the answer's end was heard. */
async function listen(
  request: (onEvent: (event: GenerationEvent) => void) => Promise<void>,
): Promise<GenerationEvent[]> {
  const heard: GenerationEvent[] = [];
  await new Promise<void>((resolve, reject) => {
    request((event) => {
      heard.push(event);
      if (event.type === 'finished') resolve();
    }).catch(reject);
  });
  return heard;
}

describe('the browser’s way to the server', () => {
  it('sends arguments as JSON by the names of the contract', async () => {
    const { backend, asked } = setUp({ chat_rename: [json(chat)], chat_list: [json([chat])] });
    await backend.chatRename('c', 'New');
    expect(await backend.chatList()).toEqual([chat]);
    expect(asked).toEqual([
      ['chat_rename', { id: 'c', title: 'New' }],
      ['chat_list', {}],
    ]);
  });

  it('hands on a refusal as the app worded it', async () => {
    const error = { code: 'busy', message: 'One at a time.', hint: 'Wait.', details: null };
    const { backend } = setUp({ message_send: [json(error, 409)] });
    const refused = await backend.messageSend('c', hello, () => {}).catch((e: unknown) => e);
    expect(refused).toBeInstanceOf(BackendError);
    expect((refused as BackendError).api).toEqual(error);
  });

  it('turns an answer that is not ours into an error that keeps what it said', async () => {
    const { backend } = setUp({ chat_list: [() => new Response('<h1>Bad gateway</h1>', { status: 502 })] });
    const refused = (await backend.chatList().catch((e: unknown) => e)) as BackendError;
    expect(refused.api.code).toBe('internal');
    expect(refused.api.details).toBe('HTTP 502');
  });

  it('hears an answer from its start to its end', async () => {
    const { backend, asked } = setUp({
      message_send: [stream(started(''), { type: 'text', text: 'Hi there!' }, finished)],
    });
    const heard = await listen((onEvent) => backend.messageSend(null, hello, onEvent));
    expect(heard.map((event) => event.type)).toEqual(['started', 'text', 'finished']);
    expect(asked).toEqual([['message_send', { chat_id: null, message: hello }]]);
  });

  it('takes a dropped stream up again where it was', async () => {
    const { backend, asked } = setUp({
      message_send: [stream(started(''), { type: 'text', text: 'Hi' })],
      generation_attach: [stream(started('Hi th')), stream(started('Hi there'), finished)],
    });
    const heard = await listen((onEvent) => backend.messageSend('c', hello, onEvent));
    expect(heard.filter((event) => event.type === 'started').map((event) => event.answer.text)).toEqual([
      '',
      'Hi th',
      'Hi there',
    ]);
    expect(asked.slice(1)).toEqual([
      ['generation_attach', { answer_id: 'a' }],
      ['generation_attach', { answer_id: 'a' }],
    ]);
  });

  it('says so while the server is away, keeps trying with growing waits, and goes on', async () => {
    const refuse: Reply = () => {
      throw new TypeError('connection refused');
    };
    const { backend, waits, connection } = setUp({
      message_send: [stream(started('Hi'))],
      generation_attach: [refuse, refuse, refuse, stream(started('Hi there'), finished)],
      app_info: Array.from({ length: 50 }, () => refuse),
    });
    await listen((onEvent) => backend.messageSend('c', hello, onEvent));
    expect(connection[0]).toBe(false);
    expect(connection.at(-1)).toBe(true);
    expect(Math.max(...waits)).toBeGreaterThan(Math.min(...waits));
    expect(Math.max(...waits)).toBeLessThanOrEqual(5000);
  });

  it('reads how the answer ended when it is no longer being written', async () => {
    const gone = { code: 'not_found', message: 'Not being written.', hint: null, details: null };
    const { backend } = setUp({
      message_send: [stream(started('Hi'))],
      generation_attach: [json(gone, 404)],
      chat_open: [json({ summary: chat, messages: [answer('Hi th', 'interrupted')] })],
    });
    const heard = await listen((onEvent) => backend.messageSend('c', hello, onEvent));
    expect(heard.at(-1)).toEqual({ type: 'finished', chat, answer: answer('Hi th', 'interrupted') });
  });

  it('reports a server that cannot be reached at all', async () => {
    const { backend, connection } = setUp({ app_info: [json({})] });
    await expect(backend.chatList()).rejects.toBeInstanceOf(Unreachable);
    await Promise.resolve();
    expect(connection[0]).toBe(false);
  });

  it('opens links in a window of their own and asks the server nothing', async () => {
    const { backend, asked, opened } = setUp({});
    await backend.linkOpen('https://example.org/');
    expect(opened).toEqual(['https://example.org/']);
    expect(asked).toEqual([]);
  });

  it('gives the key with every question, streams too, and none where there is none', async () => {
    for (const key of [null, 'k']) {
      const { backend, sent } = setUp(
        {
          chat_list: [json([])],
          message_send: [stream(started(''))],
          generation_attach: [stream(started('Hi'), finished)],
        },
        key,
      );
      await backend.chatList();
      await listen((onEvent) => backend.messageSend(null, hello, onEvent));
      const headers = sent.map((init) => new Headers(init.headers).get('authorization'));
      const expected = key === null ? null : 'Bearer k';
      expect(headers).toEqual([expected, expected, expected]);
    }
  });

  it('takes a refused key for a refusal, and not for a server that is away', async () => {
    const refusal = { code: 'no_access', message: 'No key.', hint: 'Open the address.', details: null };
    const { backend, connection } = setUp({ app_info: [json(refusal, 401)] });
    await expect(backend.appInfo()).rejects.toMatchObject({ api: refusal });
    expect(connection).toEqual([]);
  });
});

/** A server that writes answers for ever, until the test ends them; and how many of its streams are open. */
class Slow {
  open = 0;
  most = 0;
  sent = 0;
  private ended = new Set<string>();
  private texts = new Map<string, string>();
  private streams = new Map<string, Set<(event: GenerationEvent) => void>>();
  readonly backend = http({
    key: () => null,
    sleep: () => new Promise((resolve) => setTimeout(resolve, 5)),
    openWindow: () => {},
    saveFile: () => {},
    pickFiles: async () => [],
    stallMs: 60_000,
    fetch: async (input, init) => {
      const args = JSON.parse(String(init?.body)) as { answer_id?: string };
      if (String(input) === '/api/chat_list') return new Response('[]');
      const id = args.answer_id ?? `answer-${(this.sent += 1)}`;
      return this.stream(id, init?.signal ?? undefined);
    },
  });

  private event(type: 'started' | 'finished', id: string): GenerationEvent {
    const of = { ...chat, id: id.replace('answer', 'chat') };
    const status = this.ended.has(id) ? 'done' : 'writing';
    const row = { ...answer(this.texts.get(id) ?? '', status), id, chat_id: of.id };
    return type === 'started'
      ? { type, chat: of, user: null, after: null, answer: row }
      : { type, chat: of, answer: row };
  }

  private stream(id: string, signal: AbortSignal | undefined): Response {
    const all = this.streams.get(id) ?? new Set();
    this.streams.set(id, all);
    let closed = false;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.open += 1;
        this.most = Math.max(this.most, this.open);
        const end = () => {
          if (closed) return;
          closed = true;
          this.open -= 1;
          all.delete(tell);
        };
        const tell = (event: GenerationEvent) => {
          controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`));
          if (event.type !== 'finished') return;
          end();
          controller.close();
        };
        signal?.addEventListener('abort', () => {
          if (closed) return;
          end();
          controller.error(new DOMException('aborted', 'AbortError'));
        });
        all.add(tell);
        tell(this.event('started', id));
        if (this.ended.has(id)) tell(this.event('finished', id));
      },
    });
    return new Response(body);
  }

  write(id: string, text: string): void {
    this.texts.set(id, (this.texts.get(id) ?? '') + text);
    for (const tell of [...(this.streams.get(id) ?? [])]) tell({ type: 'text', text });
  }

  end(id: string): void {
    this.ended.add(id);
    for (const tell of [...(this.streams.get(id) ?? [])]) tell(this.event('finished', id));
  }
}

describe('many answers at once', () => {
  it('leave the browser connections for everything else, and all of them are heard to their ends', async () => {
    const server = new Slow();
    const { backend } = server;
    const heard = new Map<string, string>();
    const done: string[] = [];
    backend.attend?.('chat-1');
    for (let n = 1; n <= 9; n++)
      await backend.messageSend(null, hello, (event) => {
        if (event.type === 'started') heard.set(`answer-${n}`, event.answer.text);
        if (event.type === 'text') heard.set(`answer-${n}`, (heard.get(`answer-${n}`) ?? '') + event.text);
        if (event.type === 'finished') done.push(event.answer.id);
      });
    // One that stays, and one that is being asked for.
    await expect.poll(() => server.open).toBeLessThanOrEqual(2);
    expect(await backend.chatList()).toEqual([]);
    // The one that is looked at is heard word by word, ...
    server.write('answer-1', 'one ');
    await expect.poll(() => heard.get('answer-1')).toBe('one ');
    server.write('answer-1', 'two');
    await expect.poll(() => heard.get('answer-1')).toBe('one two');
    // ... the others too, a little later, and another one when it is looked at.
    server.write('answer-4', 'four');
    await expect.poll(() => heard.get('answer-4')).toBe('four');
    backend.attend?.('chat-4');
    server.write('answer-4', ' more');
    await expect.poll(() => heard.get('answer-4')).toBe('four more');
    for (let n = 9; n >= 1; n--) server.end(`answer-${n}`);
    await expect.poll(() => done.length).toBe(9);
    expect(new Set(done).size).toBe(9);
    await expect.poll(() => server.open).toBe(0);
  });

  it('are not asked for any more when another chat is looked at meanwhile', async () => {
    const asked: AbortSignal[] = [];
    const connection: boolean[] = [];
    let sent = 0;
    const backend = http({
      key: () => null,
      sleep: () => new Promise((resolve) => setTimeout(resolve, 5)),
      openWindow: () => {},
      saveFile: () => {},
      pickFiles: async () => [],
      stallMs: 60_000,
      fetch: (input, init) => {
        if (String(input) === '/api/generation_attach') {
          const signal = init?.signal as AbortSignal;
          asked.push(signal);
          // Never answered.
          return new Promise((_, reject) => {
            signal.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
          });
        }
        const id = `answer-${(sent += 1)}`;
        const of = { ...chat, id: `chat-${sent}` };
        const row = { ...answer('', 'writing'), id, chat_id: of.id };
        const started = { type: 'started', chat: of, user: null, after: null, answer: row };
        // Dropped at once.
        return Promise.resolve(new Response(`data: ${JSON.stringify(started)}\n\n`));
      },
    });
    backend.onConnection?.((connected) => connection.push(connected));
    backend.attend?.('chat-1');
    await backend.messageSend(null, hello, () => {});
    await expect.poll(() => asked.length).toBe(1);
    await backend.messageSend(null, hello, () => {});
    backend.attend?.('chat-2');
    await expect.poll(() => asked[0]?.aborted).toBe(true);
    expect(connection).not.toContain(false);
  });
});
