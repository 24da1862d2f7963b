/**
 * Markdown text to the tree of `tree.ts`. The parser is micromark through mdast; this file is the sieve behind it:
 * known nodes are copied, raw HTML becomes text, images become links, everything else loses its markup and keeps its
 * words. Bounded in depth and length, so that no text can exhaust the stack or freeze the window.
 */
import type { AlignType, Definition, Nodes, PhrasingContent, Root, RootContent } from 'mdast';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmFromMarkdown } from 'mdast-util-gfm';
import { gfm } from 'micromark-extension-gfm';
import { strings } from '../strings';
import { safeAddress } from './address';
import type { Block, Inline, ListItem } from './tree';

/** Beyond this many characters the rest of an answer is plain text. */
export const MAX_LENGTH = 200_000;
/** Quotes and lists inside one another; deeper ones are shown as plain text. */
export const MAX_DEPTH = 24;
/** A table has at most this many rows and columns as a table; the rest is dropped into a note-like plain block. */
const MAX_CELLS = 20_000;
/** Containers opened on one line, or brackets and stars in one run: past this nobody writes them on purpose. */
const MAX_RUN = 60;

const extensions = [gfm({ singleTilde: false })];
const mdastExtensions = [gfmFromMarkdown()];

export interface Parsed {
  blocks: Block[];
  /** Where in the text each block's first line begins. */
  starts: number[];
}

export function parse(text: string): Parsed {
  if (text.length > MAX_LENGTH) {
    const cut = cutAt(text);
    const head = parse(text.slice(0, cut));
    return {
      blocks: [...head.blocks, { type: 'plain', text: text.slice(cut), note: 'too_long' }],
      starts: [...head.starts, cut],
    };
  }
  if (tooTangled(text)) return { blocks: [{ type: 'plain', text }], starts: [0] };
  let root: Root;
  try {
    root = fromMarkdown(text, { extensions, mdastExtensions });
  } catch {
    return { blocks: [{ type: 'plain', text }], starts: [0] };
  }
  const sieve = new Sieve(text, definitionsOf(root));
  const blocks: Block[] = [];
  const starts: number[] = [];
  for (const node of root.children) {
    const block = sieve.block(node, 0);
    if (!block) continue;
    blocks.push(block);
    const offset = node.position?.start.offset ?? 0;
    starts.push(text.lastIndexOf('\n', offset - 1) + 1);
  }
  return { blocks, starts };
}

/** The last line break before the limit, or the limit itself (never inside a surrogate pair). */
function cutAt(text: string): number {
  const line = text.lastIndexOf('\n', MAX_LENGTH);
  if (line > MAX_LENGTH / 2) return line + 1;
  const code = text.charCodeAt(MAX_LENGTH - 1);
  return code >= 0xd800 && code < 0xdc00 ? MAX_LENGTH - 1 : MAX_LENGTH;
}

/**
 * Runs that cost a Markdown parser quadratic time or a deep tree: dozens of quote or list marks at a line's start,
 * or hundreds of brackets and emphasis marks in one paragraph without anything in between.
 */
function tooTangled(text: string): boolean {
  let containers = 0;
  let atStart = true;
  let openers = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 10) {
      containers = 0;
      atStart = true;
      if (text.charCodeAt(i + 1) === 10) openers = 0;
      continue;
    }
    // [ ! * _ ~ < : what opens an inline construct and may never be closed.
    if (c === 91 || c === 42 || c === 95 || c === 126 || c === 60) openers += 1;
    if (openers > 20_000) return true;
    if (!atStart || c === 32 || c === 9) continue;
    if (c === 62 || c === 45 || c === 43 || c === 42) {
      containers += 1;
      // A rule of dashes or stars is no nesting.
      if (containers > MAX_RUN && !isRule(text, i)) return true;
    } else if (c >= 48 && c <= 57) {
      const next = text.charCodeAt(i + 1);
      if (next === 46 || next === 41) {
        containers += 1;
        i += 1;
        if (containers > MAX_RUN) return true;
      } else atStart = false;
    } else atStart = false;
  }
  return false;
}

function isRule(text: string, at: number): boolean {
  const start = text.lastIndexOf('\n', at) + 1;
  const end = text.indexOf('\n', at);
  const line = text.slice(start, end < 0 ? undefined : end);
  return line.length < 2000 && /^[ \t]*(?:-[ \t]*)+$|^[ \t]*(?:\*[ \t]*)+$|^[ \t]*[-*+]{2,}/.test(line);
}

function definitionsOf(root: Root): Map<string, Definition> {
  const found = new Map<string, Definition>();
  for (const node of root.children) {
    if (node.type === 'definition' && !found.has(node.identifier)) found.set(node.identifier, node);
  }
  return found;
}

class Sieve {
  private cells = 0;

  constructor(
    private readonly source: string,
    private readonly definitions: Map<string, Definition>,
  ) {}

  block(node: RootContent, depth: number): Block | null {
    if (depth > MAX_DEPTH) return this.plain(node);
    switch (node.type) {
      case 'paragraph':
        return { type: 'paragraph', children: this.inlines(node.children, depth) };
      case 'heading':
        return { type: 'heading', level: node.depth, children: this.inlines(node.children, depth) };
      case 'code':
        return { type: 'code', language: node.lang ?? '', text: node.value };
      case 'blockquote':
        return { type: 'quote', children: this.blocks(node.children, depth + 1) };
      case 'list':
        return {
          type: 'list',
          ordered: node.ordered ?? false,
          start: node.start ?? 1,
          tight: !node.children.some((item) => item.spread === true) && node.spread !== true,
          items: node.children.map((item): ListItem => ({
            checked: item.checked ?? null,
            children: this.blocks(item.children, depth + 1),
          })),
        };
      case 'table': {
        this.cells += node.children.reduce((sum, row) => sum + row.children.length, 0);
        if (this.cells > MAX_CELLS) return this.plain(node);
        const rows = node.children.map((row) =>
          row.children.map((cell) => this.inlines(cell.children, depth)),
        );
        const align = (node.align ?? []).map((a: AlignType) => a ?? null);
        return { type: 'table', align, head: rows[0] ?? [], rows: rows.slice(1) };
      }
      case 'thematicBreak':
        return { type: 'rule' };
      case 'definition':
        return null;
      default:
        return this.plain(node);
    }
  }

  private blocks(nodes: RootContent[], depth: number): Block[] {
    return nodes.map((node) => this.block(node, depth)).filter((block) => block !== null);
  }

  private inlines(nodes: PhrasingContent[], depth: number): Inline[] {
    return nodes.flatMap((node) => this.inline(node, depth));
  }

  private inline(node: PhrasingContent, depth: number): Inline[] {
    if (depth > MAX_DEPTH) return [{ type: 'text', text: this.sourceOf(node) }];
    switch (node.type) {
      case 'text':
      case 'html':
        return [{ type: 'text', text: node.value }];
      case 'inlineCode':
        return [{ type: 'code', text: node.value }];
      case 'break':
        return [{ type: 'break' }];
      case 'strong':
      case 'emphasis':
      case 'delete':
        return [{ type: node.type, children: this.inlines(node.children, depth + 1) }];
      case 'link':
        return this.link(node.url, this.inlines(node.children, depth + 1));
      case 'image':
        return this.image(node.url, node.alt ?? '');
      case 'linkReference': {
        const target = this.definitions.get(node.identifier);
        const children = this.inlines(node.children, depth + 1);
        return target ? this.link(target.url, children) : children;
      }
      case 'imageReference': {
        const target = this.definitions.get(node.identifier);
        return this.image(target?.url ?? '', node.alt ?? '');
      }
      default:
        return [{ type: 'text', text: this.sourceOf(node) }];
    }
  }

  private link(url: string, children: Inline[]): Inline[] {
    const href = safeAddress(url);
    if (href !== null) return [{ type: 'link', href, children: withoutLinks(children) }];
    // Not opened from here; the words stay, and the address can be read.
    const words = children.length > 0 ? children : [];
    return url === '' ? words : [...words, { type: 'text', text: ` (${url})` }];
  }

  /** An image is never loaded: that alone would tell its host who reads what. */
  private image(url: string, alt: string): Inline[] {
    return this.link(url, [{ type: 'text', text: `${strings.link.image}${alt ? `: ${alt}` : ''}` }]);
  }

  private plain(node: Nodes): Block {
    return { type: 'plain', text: 'value' in node ? node.value : this.sourceOf(node) };
  }

  private sourceOf(node: Nodes): string {
    return this.source.slice(node.position?.start.offset ?? 0, node.position?.end.offset ?? 0);
  }
}

/** A link inside a link (GFM finds addresses in link texts) is its words. */
function withoutLinks(children: Inline[]): Inline[] {
  return children.flatMap((child): Inline[] => {
    if (child.type === 'link') return child.children;
    if ('children' in child) return [{ ...child, children: withoutLinks(child.children) }];
    return [child];
  });
}
