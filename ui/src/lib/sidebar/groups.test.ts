import { describe, expect, it } from 'vitest';
import { folderNames, groups } from './groups';

const now = new Date(2026, 10, 30, 12).getTime();
const chat = (id: string, pinned = false, folder: string | null = null) => ({
  id,
  title: id,
  created_at: now,
  updated_at: now,
  pinned,
  folder,
});

describe('the list of chats', () => {
  it('has pinned chats first, then folders by name, then days; a pinned chat stands there once', () => {
    const chats = [chat('a'), chat('b', true, 'Work'), chat('c', false, 'Work'), chat('d', false, 'Home')];
    expect(groups(chats, now).map((group) => [group.label, group.chats.map((c) => c.id)])).toEqual([
      ['Pinned', ['b']],
      ['Home', ['d']],
      ['Work', ['c']],
      ['Today', ['a']],
    ]);
    expect(folderNames(chats)).toEqual(['Home', 'Work']);
    // A folder of pinned chats alone is no empty line, but can still be chosen.
    expect(groups([chat('b', true, 'Work')], now)).toHaveLength(1);
    expect(folderNames([chat('b', true, 'Work')])).toEqual(['Work']);
  });
});
