/**
 * The tree an answer is shown from. It holds only what the components know how to draw; there is no node for HTML, so
 * there is nothing a model could write that becomes markup.
 */

export type Inline =
  | { type: 'text'; text: string }
  | { type: 'code'; text: string }
  | { type: 'break' }
  /** A formula as it is written. */
  | { type: 'math'; text: string; display: boolean }
  | { type: 'strong' | 'emphasis' | 'delete'; children: Inline[] }
  /** `href` has passed `safeAddress`. */
  | { type: 'link'; href: string; children: Inline[] };

export interface ListItem {
  checked: boolean | null;
  children: Block[];
}

export type Block =
  | { type: 'paragraph'; children: Inline[] }
  | { type: 'heading'; level: 1 | 2 | 3 | 4 | 5 | 6; children: Inline[] }
  | { type: 'code'; language: string; text: string }
  | { type: 'quote'; children: Block[] }
  | { type: 'list'; ordered: boolean; start: number; tight: boolean; items: ListItem[] }
  | { type: 'table'; align: ('left' | 'right' | 'center' | null)[]; head: Inline[][]; rows: Inline[][][] }
  | { type: 'rule' }
  | { type: 'math'; text: string }
  /** Text shown as it is, line breaks kept: raw HTML, and what is too deep or too long to be parsed. */
  | { type: 'plain'; text: string; note?: 'too_long' };
