/**
 * Markdown text to the tree of `tree.ts`. The parser is micromark through mdast; this file is the sieve behind it:
 * known nodes are copied, raw HTML becomes text, images become links, everything else loses its markup and keeps its
 * words. Bounded in depth and length, so that no text can exhaust the stack or freeze the window.
 */
import type { AlignType, Definition, Nodes, PhrasingContent, Root, RootContent } from 'mdast';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmFromMarkdown } from 'mdast-util-gfm';
import { mathFromMarkdown } from 'mdast-util-math';
import { gfm } from 'micromark-extension-gfm';
import { math } from 'micromark-extension-math';
import { strings } from '../strings';
import { safeAddress } from './address';
import { markFormulas, unmarked } from './dollars';
import { segments, whole } from './segments';
import type { Block, Inline, ListItem } from './tree';

/** Beyond this many characters the rest of an answer is plain text. */
export const MAX_LENGTH = 400_000;
/** Quotes and lists inside one another; deeper ones are shown as plain text. */
export const MAX_DEPTH = 24;
/** Containers opened on one line: past this nobody writes them on purpose. */
const MAX_RUN = 60;
/** Brackets, stars and the like in one paragraph: past this they only cost time (a parser's quadratic time). */
const MAX_OPENERS = 1000;
/** Formulas in one piece of a text; more are shown as they are written. Each costs about a millisecond. */
export const MAX_FORMULAS = 500;

const extensions = [gfm({ singleTilde: false }), math()];
const mdastExtensions = [gfmFromMarkdown(), mathFromMarkdown()];

export interface Part {
  blocks: Block[];
  /** Where in the text each block's first line begins. */
  starts: number[];
}

/** Parses a text piece by piece, so that a caller can let the window breathe in between. */
export function* parts(text: string): Generator<Part> {
  const limit = text.length > MAX_LENGTH ? whole(text, MAX_LENGTH) : text.length;
  for (const segment of segments(text.slice(0, limit))) {
    if (segment.type === 'code') {
      yield {
        blocks: [{ type: 'code', language: segment.language, text: segment.text }],
        starts: [segment.start],
      };
    } else {
      const { blocks, starts } = parsePiece(segment.text);
      yield { blocks, starts: starts.map((start) => start + segment.start) };
    }
  }
  if (limit < text.length) {
    yield { blocks: [{ type: 'plain', text: text.slice(limit), note: 'too_long' }], starts: [limit] };
  }
}

export function parse(text: string): Part {
  const all: Part = { blocks: [], starts: [] };
  for (const part of parts(text)) {
    all.blocks.push(...part.blocks);
    all.starts.push(...part.starts);
  }
  return all;
}

function parsePiece(text: string): Part {
  if (tooTangled(text)) return { blocks: [{ type: 'plain', text }], starts: [0] };
  let root: Root;
  try {
    root = fromMarkdown(markFormulas(text), { extensions, mdastExtensions });
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

/**
 * Runs that cost a Markdown parser quadratic time or a deep tree: dozens of quote or list marks at a line's start,
 * or hundreds of brackets and emphasis marks in one paragraph without anything in between.
 */
function tooTangled(text: string): boolean {
  let containers = 0;
  let atStart = true;
  let openers = 0;
  let fenced = /^(```|~~~)/.test(text);
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 10) {
      containers = 0;
      atStart = true;
      const next = text.charCodeAt(i + 1);
      if (next === 10) openers = 0;
      else if ((next === 96 || next === 126) && /^(```|~~~)/.test(text.slice(i + 1, i + 4))) fenced = !fenced;
      continue;
    }
    // Code is full of them, and costs nothing.
    if (fenced) continue;
    // [ ] * _ ~ < $ : what opens or closes an inline construct and may have no partner.
    if (c === 91 || c === 93 || c === 42 || c === 95 || c === 126 || c === 60 || c === 36) openers += 1;
    if (openers > MAX_OPENERS) return true;
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
  private formulas = 0;

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
        return { type: 'code', language: node.lang ?? '', text: unmarked(node.value) };
      case 'math':
        return this.mayDraw()
          ? { type: 'math', text: node.value }
          : { type: 'plain', text: this.sourceOf(node) };
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

  private mayDraw(): boolean {
    this.formulas += 1;
    return this.formulas <= MAX_FORMULAS;
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
        return [{ type: 'text', text: unmarked(node.value) }];
      case 'inlineCode':
        return [{ type: 'code', text: unmarked(node.value) }];
      case 'inlineMath':
        if (!this.mayDraw()) return [{ type: 'text', text: this.sourceOf(node) }];
        return [{ type: 'math', text: node.value, display: this.isDisplay(node) }];
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
    const href = safeAddress(unmarked(url));
    if (href !== null) return [{ type: 'link', href, children: withoutLinks(children) }];
    // Not opened from here; the words stay, and the address can be read.
    const words = children.length > 0 ? children : [];
    return url === '' ? words : [...words, { type: 'text', text: ` (${unmarked(url)})` }];
  }

  /** An image is never loaded: that alone would tell its host who reads what. */
  private image(url: string, alt: string): Inline[] {
    return this.link(url, [
      { type: 'text', text: `${strings.link.image}${alt ? `: ${unmarked(alt)}` : ''}` },
    ]);
  }

  /** `\\[` and `$$` stand for a line of its own, `\\(` and `$` for a place in one. */
  private isDisplay(node: Nodes): boolean {
    const opening = this.source.slice(node.position?.start.offset ?? 0).slice(0, 2);
    return opening === '\\[' || opening === '$$';
  }

  private plain(node: Nodes): Block {
    return { type: 'plain', text: 'value' in node ? unmarked(node.value) : this.sourceOf(node) };
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
