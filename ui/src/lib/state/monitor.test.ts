import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ModelMemory, Monitor, Paging } from '../api/types';
import type { Backend } from '../backend';
import { between, KEPT, Monitor as Watching } from './monitor.svelte';

const snapshot = (change: Partial<Monitor> = {}): Monitor => ({
  at_ms: 1000,
  load: 1,
  activity: { prompt_tokens: 10, answer_tokens: 5, prompt_ms: 2, answer_ms: 3, layers_ms: [1, 2] },
  experts: [],
  process: {
    resident_bytes: 7,
    available_bytes: 1,
    cpu_ms: 100,
    processors: 4,
    read_bytes: 1000,
  },
  recording: null,
  ...change,
});
const memory = (hits: number, misses: number, late: number): ModelMemory => ({
  dense_bytes: 0,
  cache_bytes: 0,
  slots: 0,
  experts: 0,
  note: null,
  paging: { hits, misses, late } as Paging,
});

describe('what is drawn', () => {
  it('is what happened between two looks, for each second', () => {
    const before = { snapshot: snapshot(), memory: memory(100, 10, 0) };
    const now = {
      snapshot: snapshot({
        at_ms: 3000,
        // Computed for half of the two seconds, idle for the other.
        activity: {
          ...{ prompt_tokens: 10, answer_tokens: 13, prompt_ms: 2, answer_ms: 1003 },
          layers_ms: [401, 402],
        },
        process: { ...snapshot().process, cpu_ms: 4100, read_bytes: 5000, resident_bytes: 9 },
      }),
      memory: memory(106, 11, 1),
    };
    expect(between(before, now)).toEqual({
      answerRate: 8,
      promptRate: null,
      hitRate: 6 / 8,
      readRate: 2000,
      cpu: 0.5,
      resident: 9,
    });
  });

  it('has no speed while nothing is computed, and each its own where a prompt was read as well', () => {
    const rates = ([prompt, promptMs]: [number, number], [answer, answerMs]: [number, number]) => {
      const activity = {
        prompt_tokens: 10 + prompt,
        answer_tokens: 5 + answer,
        prompt_ms: 2 + promptMs,
        answer_ms: 3 + answerMs,
        layers_ms: [1, 2 + promptMs + answerMs],
      };
      const now = { snapshot: snapshot({ at_ms: 2000, activity }), memory: null };
      const { answerRate, promptRate } = between({ snapshot: snapshot(), memory: null }, now);
      return [answerRate, promptRate];
    };
    expect(rates([0, 0], [0, 0])).toEqual([null, null]);
    expect(rates([0, 0], [60, 40])).toEqual([1500, null]);
    expect(rates([300, 600], [1, 100])).toEqual([10, 500]);
  });

  it('is nothing where nothing is known: another model, no time, no experts, a system that does not say', () => {
    const look = (change: Partial<Monitor>) => ({ snapshot: snapshot(change), memory: memory(1, 1, 1) });
    const first = look({});
    const other = between(first, look({ at_ms: 2000, load: 2 }));
    expect([other.answerRate, other.hitRate, other.readRate]).toEqual([null, null, 0]);
    expect(between(first, look({ at_ms: 1000 })).cpu).toBeNull();
    expect(between(first, look({ at_ms: 2000 })).hitRate).toBeNull();
    const silent = { ...snapshot().process, cpu_ms: null, read_bytes: null };
    const point = between(first, look({ at_ms: 2000, process: silent }));
    expect([point.cpu, point.readRate]).toEqual([null, null]);
  });
});

describe('what is kept', () => {
  let at = 0;
  let asked = 0;
  let activity = snapshot().activity;
  const backend = {
    monitor: async () => {
      asked += 1;
      return snapshot({ at_ms: at, activity });
    },
    modelMemory: async () => memory(0, 0, 0),
  } as unknown as Backend;

  beforeEach(() => {
    vi.useFakeTimers();
    at = 1000;
    asked = 0;
    activity = snapshot().activity;
  });
  afterEach(() => vi.useRealTimers());

  /** So many seconds pass. */
  async function pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      at += 1000;
      await vi.advanceTimersByTimeAsync(1000);
    }
  }

  it('is there when the screen is opened: answers are followed, and what nobody saw is a gap', async () => {
    const monitor = new Watching(backend);
    await pass(5);
    expect(asked).toBe(0);
    monitor.follow(true);
    await pass(10);
    monitor.follow(false);
    await vi.advanceTimersByTimeAsync(0);
    const [seen, looks] = [monitor.points.length, asked];
    expect(seen).toBeGreaterThanOrEqual(9);
    expect(monitor.points.every((point) => point.cpu !== null)).toBe(true);
    await pass(20);
    expect(asked).toBe(looks);
    monitor.watch(true);
    await pass(2);
    // Nobody knows what was in those twenty seconds.
    const unknown = monitor.points.filter((point) => point.cpu === null);
    expect(Math.abs(unknown.length - 20)).toBeLessThanOrEqual(1);
    expect(monitor.points.slice(0, seen).every((point) => point.cpu !== null)).toBe(true);
    expect(monitor.points.at(-1)?.cpu).not.toBeNull();
    await pass(2 * KEPT);
    expect(monitor.points).toHaveLength(KEPT);
    monitor.watch(false);
  });

  it('has one speed for a token that takes several looks, and a gap while nothing is computed', async () => {
    const monitor = new Watching(backend);
    // The time of a token counts when it is done, that of its layers as they are.
    let open = 0;
    const compute = async (tokens: number, ms: number) => {
      const before = activity!;
      const [first = 0, second = 0] = before.layers_ms;
      open += ms;
      activity = {
        ...before,
        answer_tokens: before.answer_tokens + tokens,
        answer_ms: before.answer_ms + (tokens > 0 ? open : 0),
        layers_ms: [first + ms / 2, second + ms / 2],
      };
      if (tokens > 0) open = 0;
      await pass(1);
    };
    monitor.watch(true);
    await compute(0, 0);
    await compute(2, 500);
    const rates = () => monitor.points.map((point) => point.answerRate);
    expect(rates().at(-1)).toBe(4);
    await compute(0, 1000);
    // Not done yet: as fast as before, for all that is known.
    expect(rates().slice(-2)).toEqual([4, 4]);
    await compute(1, 1000);
    expect(rates().slice(-3)).toEqual([4, 0.5, 0.5]);
    await compute(0, 0);
    await compute(4, 250);
    expect(rates().slice(-5)).toEqual([4, 0.5, 0.5, null, 16]);
    monitor.watch(false);
  });
});
