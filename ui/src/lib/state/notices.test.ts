import { describe, expect, it } from 'vitest';
import type { AnswerStats, ChatSummary, Job, Message } from '../api/types';
import type { Backend } from '../backend';
import { ofAnswer, ofJob, tell } from './notices';

const chat = { title: 'Tides' } as ChatSummary;
const answer = (status: Message['status'], prefill_ms = 0, decode_ms = 0) =>
  ({ status, stats: { prefill_ms, decode_ms } as AnswerStats }) as Message;
const job = (state: Job['state']) => ({ kind: 'download', title: 'A model', state }) as Job;

describe('what the system is asked to tell', () => {
  it('is an answer that took long, reading and writing, and one that failed', () => {
    expect(ofAnswer(chat, answer('done', 15_000, 5000))).toEqual({
      title: 'The answer is there after 20.0 s',
      text: 'Tides',
    });
    expect(ofAnswer(chat, answer('done', 15_000, 4999))).toBeNull();
    expect(ofAnswer(chat, answer('failed'))?.title).toBe('An answer could not be finished');
    expect(ofAnswer(chat, { ...answer('done'), stats: null })).toBeNull();
  });

  it('is nothing that the person has ended', () => {
    expect(ofAnswer(chat, answer('stopped', 60_000))).toBeNull();
    for (const state of ['queued', 'running', 'paused', 'cancelled'] as const) {
      expect(ofJob(job(state))).toBeNull();
    }
  });

  it('is the end of a download', () => {
    expect(ofJob(job('done'))).toEqual({ title: 'A model', text: 'The download of A model is finished.' });
    expect(ofJob(job('failed'))?.text).toBe('The download of A model has stopped.');
  });

  it('is lost without a trace where it cannot be told', async () => {
    const told: string[] = [];
    const notice = { title: 'a', text: 'b' };
    const backend = (notify?: Backend['notify']) => ({ ...(notify && { notify }) }) as Backend;
    tell(
      backend(async (...words) => void told.push(...words)),
      notice,
    );
    tell(
      backend(async () => Promise.reject(new Error('no bus'))),
      notice,
    );
    tell(backend(), notice);
    tell(
      backend(async () => void told.push('never')),
      null,
    );
    await Promise.resolve();
    expect(told).toEqual(['a', 'b']);
  });
});
