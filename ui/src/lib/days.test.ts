import { describe, expect, it } from 'vitest';
import { byDay } from './days';

const at = (year: number, month: number, day: number, hour = 12) =>
  new Date(year, month - 1, day, hour).getTime();
const chat = (title: string, updated_at: number) => ({
  id: title,
  title,
  created_at: updated_at,
  updated_at,
  pinned: false,
  folder: null,
});

describe('the list of chats by days', () => {
  const now = at(2026, 11, 30, 0);

  it('puts each chat under the day it last changed, newest first', () => {
    const days = byDay(
      [
        chat('last month', at(2026, 10, 31)),
        chat('older', at(2026, 10, 20)),
        chat('just now', now),
        chat('yesterday evening', at(2026, 11, 29, 23)),
        chat('week', at(2026, 11, 23)),
        chat('eight days', at(2026, 11, 22)),
        chat('last year', at(2025, 11, 30)),
      ],
      now,
    );
    expect(days.map((day) => [day.label, day.chats.map((c) => c.title)])).toEqual([
      ['Today', ['just now']],
      ['Yesterday', ['yesterday evening']],
      ['Previous 7 days', ['week']],
      ['Previous 30 days', ['eight days', 'last month']],
      ['October 2026', ['older']],
      ['November 2025', ['last year']],
    ]);
  });

  it('keeps a chat in sight whose time lies ahead of the clock', () => {
    expect(byDay([chat('future', at(2027, 1, 1))], now)[0]?.label).toBe('Today');
  });

  it('counts calendar days across a change of the clock', () => {
    // In most of Europe the day of 25 October 2026 has 25 hours.
    expect(byDay([chat('a', at(2026, 10, 25, 1))], at(2026, 10, 26, 0))[0]?.label).toBe('Yesterday');
  });
});
