import { describe, expect, it } from 'vitest';
import type { GenerationEvent, Message } from '../api/types';
import { apply, type Conversation, provisional, writing } from './answer';

const chat = { id: 'c', title: 'Hello!', created_at: 1, updated_at: 2 };
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
});
const started = (user: Message | null, answer: Message): GenerationEvent => ({
  type: 'started',
  chat,
  user,
  answer,
});
const texts = (conversation: Conversation) => conversation.messages.map((m) => `${m.role}: ${m.text}`);

describe('an answer arriving', () => {
  it('replaces what was shown before the app confirmed it, and grows', () => {
    const conversation: Conversation = {
      summary: null,
      messages: [provisional('Hello!', 0)],
      progress: { phase: 'waiting' },
    };
    apply(conversation, started(message('u', 'user', 'Hello!'), message('a', 'assistant', '', 'writing')));
    expect(texts(conversation)).toEqual(['user: Hello!', 'assistant: ']);
    expect(conversation.summary).toEqual(chat);
    apply(conversation, { type: 'queued', ahead: 1 });
    expect(conversation.progress).toEqual({ phase: 'queued', ahead: 1 });
    apply(conversation, { type: 'prefill', done: 5, total: 10 });
    expect(conversation.progress).toEqual({ phase: 'prefill', done: 5, total: 10 });
    apply(conversation, { type: 'text', text: 'Hi ' });
    apply(conversation, { type: 'text', text: 'there!' });
    expect(writing(conversation)?.text).toBe('Hi there!');
    expect(conversation.progress).toEqual({ phase: 'writing' });
    apply(conversation, { type: 'finished', chat, answer: message('a', 'assistant', 'Hi there!') });
    expect(texts(conversation)).toEqual(['user: Hello!', 'assistant: Hi there!']);
    expect(conversation.progress).toBeNull();
    expect(writing(conversation)).toBeUndefined();
  });

  it('does not double the text when a stream is taken up again', () => {
    const conversation: Conversation = { summary: chat, messages: [], progress: null };
    apply(conversation, started(message('u', 'user', 'Q'), message('a', 'assistant', '', 'writing')));
    apply(conversation, { type: 'text', text: 'One ' });
    apply(conversation, started(null, message('a', 'assistant', 'One two ', 'writing')));
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
    };
    apply(conversation, started(null, message('a3', 'assistant', '', 'writing')));
    apply(conversation, { type: 'text', text: 'new' });
    expect(texts(conversation)).toEqual(['user: A', 'assistant: x', 'user: B', 'assistant: new']);
  });
});
