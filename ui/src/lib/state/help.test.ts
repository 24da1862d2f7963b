import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Backend } from '../backend';
import { Help } from './help.svelte';
import { Monitor } from './monitor.svelte';

/** Questions that wait until the test answers them. */
function held<T>(answer: () => T) {
  const waiting: (() => void)[] = [];
  const ask = vi.fn(() => new Promise<T>((resolve) => waiting.push(() => resolve(answer()))));
  return { ask, answerAll: () => waiting.splice(0).forEach((go) => go()) };
}

describe('a panel that is left and entered again while a question is under way', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('asks for the log once at a time and shows every line once', async () => {
    let lines = 1;
    const log = held(() => ({
      next: lines,
      lines: Array.from({ length: lines }, (_, number) => ({ number, text: '', level: 'info', at: 0 })),
      file: '',
    }));
    const help = new Help({ logRead: log.ask } as unknown as Backend);
    help.open = 'log';
    help.follow(true);
    help.follow(false);
    help.follow(true);
    lines = 2;
    log.answerAll();
    await vi.advanceTimersByTimeAsync(0);
    expect(help.lines.map((line) => line.number)).toEqual([0, 1]);
    const asked = log.ask.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(log.ask.mock.calls.length).toBe(asked + 1);
  });

  it('watches with one loop', async () => {
    const snapshot = held(() => ({ load: 1, activity: null }));
    const monitor = new Monitor({
      monitor: snapshot.ask,
      modelMemory: async () => null,
    } as unknown as Backend);
    monitor.open = true;
    monitor.watch(true);
    monitor.watch(false);
    monitor.watch(true);
    snapshot.answerAll();
    await vi.advanceTimersByTimeAsync(0);
    const asked = snapshot.ask.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(snapshot.ask.mock.calls.length).toBe(asked + 1);
  });
});
