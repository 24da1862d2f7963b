import { describe, expect, it } from 'vitest';
import { HEADING, inView, ROW } from './inview';

const open = (rows: number, kept: number | null = null) => ({ rows, folded: false, kept });
const span = (from: number, end: number) => Array.from({ length: end - from }, (_, i) => from + i);

describe('the rows that are made', () => {
  it('are those seen and as much again on both sides', () => {
    // Ten rows high, and 100 rows down: from row 90 to row 120.
    const top = HEADING + 100 * ROW;
    expect(inView([open(1000)], top, 10 * ROW)).toEqual([span(90, 120)]);
    expect(inView([open(1000)], 0, 10 * ROW)[0]).toEqual(span(0, 19));
    expect(inView([open(1000)], HEADING + 995 * ROW, 10 * ROW)).toEqual([span(985, 1000)]);
    expect(inView([open(3)], 0, 10 * ROW)).toEqual([[0, 1, 2]]);
    expect(inView([], 0, 10)).toEqual([]);
  });

  it('are counted over headings, and a folded group takes the place of its heading alone', () => {
    const top = 2 * HEADING + 50 * ROW;
    const folded = { rows: 500, folded: true, kept: 7 };
    // The rows of the second group begin where the view does. Five rows further up a heading of 1.09 rows is in between: from row 46.09;
    // ten rows further down four rows and a heading: to row 4.91.
    expect(inView([open(50), open(4), open(100)], top, 5 * ROW)).toEqual([
      span(46, 50),
      span(0, 4),
      span(0, 5),
    ]);
    expect(inView([folded, open(10)], HEADING, 2 * ROW)).toEqual([[], [0, 1, 2]]);
  });

  it('are with the one that has the focus, wherever it is, and once', () => {
    const top = HEADING + 100 * ROW;
    expect(inView([open(1000, 3)], top, 10 * ROW)[0]).toEqual([3, ...span(90, 120)]);
    expect(inView([open(1000, 999)], top, 10 * ROW)[0]).toEqual([...span(90, 120), 999]);
    expect(inView([open(1000, 100)], top, 10 * ROW)[0]).toEqual(span(90, 120));
    expect(inView([open(5, 4), open(1000)], top, 10 * ROW)[0]).toEqual([4]);
  });
});
