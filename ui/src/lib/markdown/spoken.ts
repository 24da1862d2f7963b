/** What a screen reader is told of an answer: its words without marks, cut at a length one can listen to. */
import { parse } from './parse';
import type { Block, Inline } from './tree';

const MAX_LENGTH = 600;

export function spoken(text: string): string {
  const words = parse(text.slice(0, MAX_LENGTH * 2))
    .blocks.map(ofBlock)
    .filter((part) => part !== '')
    .join('\n');
  return words.length > MAX_LENGTH ? `${words.slice(0, MAX_LENGTH)}…` : words;
}

function ofBlock(block: Block): string {
  switch (block.type) {
    case 'paragraph':
    case 'heading':
      return ofInlines(block.children);
    case 'code':
    case 'plain':
    case 'math':
      return block.text;
    case 'quote':
      return block.children.map(ofBlock).join('\n');
    case 'list':
      return block.items.map((item) => item.children.map(ofBlock).join('\n')).join('\n');
    case 'table':
      return [block.head, ...block.rows].map((row) => row.map(ofInlines).join(', ')).join('\n');
    case 'rule':
      return '';
  }
}

/** The words of a run of text. */
export function ofInlines(nodes: Inline[]): string {
  return nodes
    .map((node) => {
      if (node.type === 'break') return ' ';
      return 'children' in node ? ofInlines(node.children) : node.text;
    })
    .join('');
}
