import { describe, expect, it } from 'vitest';
import type { Message } from '../api/types';
import { find, MOST, ranges } from './find';

const message = (id: string, text: string, reasoning: string | null = null) =>
  ({ id, text, reasoning }) as Message;

describe('finding in a chat', () => {
  it('finds every place in order, thoughts before the answer they belong to', () => {
    const chat = [message('a', 'Fox and fox'), message('b', 'No.', 'A FOX?'), message('c', '量子，量子')];
    expect(find(chat, 'fox')).toEqual([
      { message: 'a', in: 'text', nth: 0 },
      { message: 'a', in: 'text', nth: 1 },
      { message: 'b', in: 'reasoning', nth: 0 },
    ]);
    expect(find(chat, '量子')).toHaveLength(2);
    expect(find(chat, '  ')).toEqual([]);
    expect(find(chat, '.*')).toEqual([]);
    expect(find([message('a', 'aaaa')], 'aa')).toHaveLength(2);
    expect(find([message('a', 'x'.repeat(10_000))], 'x')).toHaveLength(MOST);
  });

  it('marks words that go over the borders of elements', () => {
    const element = document.createElement('p');
    for (const [name, text] of [
      ['span', 'The quick b'],
      ['strong', 'row'],
      ['span', 'n FOX; brown'],
    ] as const) {
      const child = document.createElement(name);
      child.textContent = text;
      element.append(child);
    }
    expect(ranges(element, 'brown').map((range) => range.toString())).toEqual(['brown', 'brown']);
    expect(ranges(element, 'brown fox')[0]?.toString()).toBe('brown FOX');
    expect(ranges(element, 'wolf')).toEqual([]);
  });
});
