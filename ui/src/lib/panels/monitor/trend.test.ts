import { describe, expect, it } from 'vitest';
import { roundTop, trend } from './trend';

describe('the line of a number', () => {
  it('ends at the right edge, with nothing at the bottom and the most at the top', () => {
    const drawn = trend([0, 5, 10, 20], { width: 10, height: 100, top: 20 });
    expect(drawn.line).toBe('M6 100L7 75L8 50L9 0');
    expect(drawn.ground).toBe('M6 100L6 100L7 75L8 50L9 0L9 100Z');
  });

  it('is broken where nothing is known, and a value alone is a dot', () => {
    const drawn = trend([4, null, 1, 3, null], { width: 5, height: 4, top: 4 });
    expect(drawn.line).toBe('M0 0h0M2 3L3 1');
    expect(drawn.ground).toBe('M0 4L0 0L0 4ZM2 4L2 3L3 1L3 4Z');
    expect(trend([null, null], { width: 5, height: 4, top: 4 })).toEqual({ line: '', ground: '' });
    expect(trend([], { width: 5, height: 4, top: 4 })).toEqual({ line: '', ground: '' });
  });

  it('has a scale of round numbers that holds every value', () => {
    const cases: [(number | null)[], number][] = [
      [[], 1],
      [[0, null], 1],
      [[3.2], 5],
      [[0.047, 0.02], 0.05],
      [[2, null, 1], 2],
      [[2.01], 5],
      [[51], 100],
      [[2_100_000_000], 5_000_000_000],
      [[0.1 + 0.2], 0.5],
    ];
    for (const [values, top] of cases) expect(roundTop(values), String(values)).toBeCloseTo(top, 12);
  });
});
