import { describe, expect, it } from 'vitest';
import type { ModelMemory, Monitor, Paging } from '../api/types';
import { between } from './monitor.svelte';

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
