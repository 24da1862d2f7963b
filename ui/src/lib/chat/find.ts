/** Finding words in the open chat: in every message as it is written, folded thoughts and texts out of sight included. */
import type { Message } from '../api/types';

export interface Match {
  message: string;
  in: 'text' | 'reasoning';
  /** Which one it is within that text, from 0. */
  nth: number;
}

/** As many as anyone steps through. */
export const MOST = 2000;

/** All places, in the order of the conversation. Upper and lower case count as the same. */
export function find(messages: readonly Message[], query: string): Match[] {
  const wanted = query.toLowerCase();
  const found: Match[] = [];
  if (wanted.trim() === '') return found;
  for (const message of messages) {
    // Thoughts stand above the answer.
    for (const part of ['reasoning', 'text'] as const) {
      const text = (message[part] ?? '').toLowerCase();
      let nth = 0;
      for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
        found.push({ message: message.id, in: part, nth: nth++ });
        if (found.length >= MOST) return found;
      }
    }
  }
  return found;
}

/** Where the words stand on the page, within an element. A match may go over the borders of bold or linked words. */
export function ranges(element: Element, query: string): Range[] {
  const wanted = query.toLowerCase();
  const found: Range[] = [];
  if (wanted.trim() === '') return found;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const nodes: { node: Text; start: number }[] = [];
  let all = '';
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    nodes.push({ node: node as Text, start: all.length });
    all += node.textContent ?? '';
  }
  // A character whose small form is longer would shift everything after it: then exact spelling has to do.
  const lower = all.toLowerCase();
  const text = lower.length === all.length ? lower : all;
  const place = (at: number) => {
    let low = 0;
    let high = nodes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((nodes[middle]?.start ?? 0) <= at) low = middle;
      else high = middle - 1;
    }
    return nodes[low];
  };
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    const from = place(at);
    const to = place(at + wanted.length - 1);
    if (!from || !to) break;
    const range = document.createRange();
    range.setStart(from.node, at - from.start);
    range.setEnd(to.node, at + wanted.length - to.start);
    found.push(range);
    if (found.length >= MOST) break;
  }
  return found;
}
