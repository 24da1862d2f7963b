import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ModelMemory, Monitor, Paging } from '../api/types';
import type { Backend } from '../backend';
import { between, KEPT, Monitor as Watching } from './monitor.svelte';

const snapshot = (change: Partial<Monitor> = {}): Monitor => ({
  at_ms: 1000,
  load: 1,
  activity: { prompt_tokens: 10, answer_tokens: 5, layers_ms: [1, 2] },
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
        activity: { prompt_tokens: 10, answer_tokens: 13, layers_ms: [3, 6] },
        process: { ...snapshot().process, cpu_ms: 4100, read_bytes: 5000, resident_bytes: 9 },
      }),
      memory: memory(106, 11, 1),
    };
    expect(between(before, now)).toEqual({
      answerRate: 4,
      promptRate: 0,
      hitRate: 6 / 8,
      readRate: 2000,
      cpu: 0.5,
      resident: 9,
    });
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
  const backend = {
    monitor: async () => {
      asked += 1;
      return snapshot({ at_ms: at });
    },
    modelMemory: async () => memory(0, 0, 0),
  } as unknown as Backend;

  beforeEach(() => {
    vi.useFakeTimers();
    at = 1000;
    asked = 0;
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
    expect(monitor.points.every((point) => point.answerRate !== null)).toBe(true);
    await pass(20);
    expect(asked).toBe(looks);
    monitor.watch(true);
    await pass(2);
    // Nobody knows what was in those twenty seconds.
    const unknown = monitor.points.filter((point) => point.answerRate === null);
    expect(Math.abs(unknown.length - 20)).toBeLessThanOrEqual(1);
    expect(monitor.points.slice(0, seen).every((point) => point.answerRate !== null)).toBe(true);
    expect(monitor.points.at(-1)?.answerRate).not.toBeNull();
    await pass(2 * KEPT);
    expect(monitor.points).toHaveLength(KEPT);
    monitor.watch(false);
  });
});
