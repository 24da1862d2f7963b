/** How the events of an answer change a conversation. Plain functions over plain data; no clock, no back end. */
import type { ChatSummary, GenerationEvent, Message, NewMessage } from '../api/types';

/** What the app is doing for the answer that is being written. */
export type Progress =
  | { phase: 'waiting' }
  | { phase: 'queued'; ahead: number }
  | { phase: 'prefill'; done: number; total: number; secondsLeft: number | null }
  | { phase: 'thinking' }
  | { phase: 'writing' };

export interface Conversation {
  /** None while it is a draft that the app does not know yet. */
  summary: ChatSummary | null;
  messages: Message[];
  /** None when nothing is being written. */
  progress: Progress | null;
  /** Tokens a second at which it is being written, as soon as that is known. */
  pace: number | null;
}

/** The last answer that has ended. Of an earlier one nothing may be shown in its place: it is not what the next message follows. */
export function lastAnswer(messages: readonly Message[]): Message | null {
  return messages.findLast((message) => message.role === 'assistant' && message.status !== 'writing') ?? null;
}

export function apply(conversation: Conversation, event: GenerationEvent): void {
  switch (event.type) {
    case 'started': {
      conversation.summary = event.chat;
      // What was shown while the app had not confirmed it yet.
      conversation.messages = conversation.messages.filter((message) => !isProvisional(message));
      const at = conversation.messages.findIndex((message) => message.id === event.after);
      // What stood behind that is another version now, or the same rows again.
      if (event.after === null || at >= 0) conversation.messages = conversation.messages.slice(0, at + 1);
      if (event.user) put(conversation.messages, event.user);
      putAnswer(conversation.messages, event.answer);
      conversation.progress = { phase: event.answer.text === '' ? 'waiting' : 'writing' };
      conversation.pace = null;
      break;
    }
    case 'queued':
      conversation.progress = { phase: 'queued', ahead: event.ahead };
      break;
    case 'prefill':
      conversation.progress = {
        phase: 'prefill',
        done: event.done,
        total: event.total,
        secondsLeft: event.seconds_left,
      };
      break;
    case 'reasoning': {
      const answer = writing(conversation);
      if (answer) answer.reasoning = (answer.reasoning ?? '') + event.text;
      if (conversation.progress?.phase !== 'thinking') conversation.progress = { phase: 'thinking' };
      break;
    }
    case 'text': {
      const answer = writing(conversation);
      if (answer) answer.text += event.text;
      if (conversation.progress?.phase !== 'writing') conversation.progress = { phase: 'writing' };
      break;
    }
    case 'pace':
      conversation.pace = event.tokens_per_second;
      break;
    case 'finished':
      conversation.summary = event.chat;
      putAnswer(conversation.messages, event.answer);
      conversation.progress = null;
      conversation.pace = null;
      break;
  }
}

/** The answer that is being written, if there is one. */
export function writing(conversation: Conversation): Message | undefined {
  const last = conversation.messages.at(-1);
  return last?.role === 'assistant' && last.status === 'writing' ? last : undefined;
}

/** Shown at once when the person sends; replaced by the row when the app confirms it. */
export function provisional(message: NewMessage, now: number): Message {
  return {
    id: PROVISIONAL,
    chat_id: '',
    role: 'user',
    text: message.text,
    status: 'done',
    created_at: now,
    model: null,
    stats: null,
    error: null,
    reasoning: null,
    reasoning_ms: null,
    thinking: message.thinking,
    attachments: message.attachments,
    edited: false,
    versions: [],
  };
}

const PROVISIONAL = 'provisional';

export function isProvisional(message: Message): boolean {
  return message.id === PROVISIONAL;
}

function put(messages: Message[], message: Message): void {
  const at = messages.findIndex((other) => other.id === message.id);
  if (at >= 0) messages[at] = message;
  else messages.push(message);
}

/** An answer takes the place of what stood after the last question: a regenerated one has a row of its own. */
function putAnswer(messages: Message[], answer: Message): void {
  const known = messages.findIndex((other) => other.id === answer.id);
  if (known >= 0) {
    messages[known] = answer;
    return;
  }
  while (messages.at(-1)?.role === 'assistant') messages.pop();
  messages.push(answer);
}
