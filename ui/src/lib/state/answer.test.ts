import { describe, expect, it } from 'vitest';
import type { GenerationEvent, Message, NewMessage } from '../api/types';
import { apply, type Conversation, provisional, writing } from './answer';

const chat = { id: 'c', title: 'Hello!', created_at: 1, updated_at: 2, pinned: false, folder: null };
const hello: NewMessage = { text: 'Hello!', attachments: [], thinking: 'off', system: '' };
const message = (
  id: string,
  role: Message['role'],
  text: string,
  status: Message['status'] = 'done',
): Message => ({
  id,
  chat_id: 'c',
  role,
  text,
  status,
  created_at: 1,
  model: null,
  stats: null,
  error: null,
  reasoning: null,
  reasoning_ms: null,
  thinking: 'off',
  attachments: [],
  edited: false,
  versions: [],
});
const started = (user: Message | null, answer: Message, after: string | null = null): GenerationEvent => ({
  type: 'started',
  chat,
  user,
  answer,
  after,
});
const texts = (conversation: Conversation) => conversation.messages.map((m) => `${m.role}: ${m.text}`);

describe('an answer arriving', () => {
  it('replaces what was shown before the app confirmed it, and grows', () => {
    const conversation: Conversation = {
      summary: null,
      messages: [provisional(hello, 0)],
      progress: { phase: 'waiting' },
      pace: null,
    };
    apply(conversation, started(message('u', 'user', 'Hello!'), message('a', 'assistant', '', 'writing')));
    expect(texts(conversation)).toEqual(['user: Hello!', 'assistant: ']);
    expect(conversation.summary).toEqual(chat);
    apply(conversation, { type: 'queued', ahead: 1 });
    expect(conversation.progress).toEqual({ phase: 'queued', ahead: 1 });
    apply(conversation, { type: 'prefill', done: 5, total: 10, seconds_left: 3 });
    expect(conversation.progress).toEqual({ phase: 'prefill', done: 5, total: 10, secondsLeft: 3 });
    apply(conversation, { type: 'text', text: 'Hi ' });
    apply(conversation, { type: 'text', text: 'there!' });
    expect(writing(conversation)?.text).toBe('Hi there!');
    expect(conversation.progress).toEqual({ phase: 'writing' });
    apply(conversation, { type: 'pace', tokens_per_second: 4.5 });
    expect(conversation.pace).toBe(4.5);
    apply(conversation, { type: 'finished', chat, answer: message('a', 'assistant', 'Hi there!') });
    expect(texts(conversation)).toEqual(['user: Hello!', 'assistant: Hi there!']);
    expect(conversation.progress).toBeNull();
    expect(conversation.pace).toBeNull();
    expect(writing(conversation)).toBeUndefined();
  });

  it('does not double the text when a stream is taken up again', () => {
    const conversation: Conversation = { summary: chat, messages: [], progress: null, pace: null };
    apply(conversation, started(message('u', 'user', 'Q'), message('a', 'assistant', '', 'writing')));
    apply(conversation, { type: 'text', text: 'One ' });
    apply(conversation, started(null, message('a', 'assistant', 'One two ', 'writing'), 'u'));
    apply(conversation, { type: 'text', text: 'three' });
    expect(texts(conversation)).toEqual(['user: Q', 'assistant: One two three']);
  });

  it('puts a regenerated answer in the place of the old one', () => {
    const conversation: Conversation = {
      summary: chat,
      messages: [
        message('u1', 'user', 'A'),
        message('a1', 'assistant', 'x'),
        message('u2', 'user', 'B'),
        message('a2', 'assistant', 'old'),
      ],
      progress: null,
      pace: null,
    };
    apply(conversation, started(null, message('a3', 'assistant', '', 'writing'), 'u2'));
    apply(conversation, { type: 'text', text: 'new' });
    expect(texts(conversation)).toEqual(['user: A', 'assistant: x', 'user: B', 'assistant: new']);
  });

  it('takes what followed an edited question out of sight, and nothing more', () => {
    const conversation: Conversation = {
      summary: chat,
      messages: [
        message('u1', 'user', 'A'),
        message('a1', 'assistant', 'x'),
        message('u2', 'user', 'B'),
        message('a2', 'assistant', 'y'),
      ],
      progress: null,
      pace: null,
    };
    apply(conversation, started(message('u3', 'user', 'C'), message('a3', 'assistant', '', 'writing'), 'a1'));
    expect(texts(conversation)).toEqual(['user: A', 'assistant: x', 'user: C', 'assistant: ']);
    // The first message has nothing before it.
    apply(conversation, started(message('u4', 'user', 'D'), message('a4', 'assistant', '', 'writing')));
    expect(texts(conversation)).toEqual(['user: D', 'assistant: ']);
  });

  it('keeps thoughts apart from the answer', () => {
    const conversation: Conversation = { summary: chat, messages: [], progress: null, pace: null };
    apply(conversation, started(message('u', 'user', 'Q'), message('a', 'assistant', '', 'writing')));
    apply(conversation, { type: 'reasoning', text: 'Hm. ' });
    apply(conversation, { type: 'reasoning', text: 'So.' });
    expect(conversation.progress).toEqual({ phase: 'thinking' });
    apply(conversation, { type: 'text', text: 'Yes.' });
    expect(writing(conversation)).toMatchObject({ reasoning: 'Hm. So.', text: 'Yes.' });
    expect(conversation.progress).toEqual({ phase: 'writing' });
  });
});
