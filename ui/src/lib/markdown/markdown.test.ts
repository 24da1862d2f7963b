// Hostile and ordinary answers through the real parser and the real components.
import { cleanup, fireEvent, render } from '@testing-library/svelte';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { hostile } from '../backend/fake-scenarios';
import { destination, hasDirectionMarks, safeAddress } from './address';
import { GrowingMarkdown } from './growing';
import { highlight, languageName } from './highlight';
import MarkdownInTest from './MarkdownInTest.svelte';
import { MAX_LENGTH, parse, parts } from './parse';
import { MAX_SEGMENT } from './segments';
import { ofInlines, spoken } from './spoken';
import type { Block } from './tree';

beforeAll(() => {
  // The desktop shell freezes it before any script of ours runs.
  Object.freeze(Object.prototype);
});
afterEach(() => cleanup());

function draw(text: string) {
  const asked: [string, boolean][] = [];
  const { container } = render(MarkdownInTest, {
    text,
    openLink: (href: string, bidi: boolean) => asked.push([href, bidi]),
  });
  return { container, asked };
}

const ALLOWED = new Set(
  'div p h3 h4 h5 h6 strong em del code br a bdi ul ol li input blockquote hr table thead tbody tr th td figure figcaption pre span button svg path'.split(
    ' ',
  ),
);
const ATTRIBUTES = new Set(
  'class dir href rel draggable role tabindex aria-label aria-hidden type title start scope checked disabled width height viewBox fill stroke stroke-width stroke-linecap stroke-linejoin d data-icon'.split(
    ' ',
  ),
);

/** Nothing but known elements and attributes, and no address that was not allowed. */
function expectHarmless(container: HTMLElement) {
  for (const element of container.querySelectorAll('*')) {
    expect(ALLOWED, element.outerHTML.slice(0, 200)).toContain(element.localName);
    for (const attribute of element.getAttributeNames()) expect(ATTRIBUTES).toContain(attribute);
    const href = element.getAttribute('href');
    if (href !== null) expect(href).toMatch(/^(https?:\/\/|mailto:)/);
  }
}

describe('addresses a model may offer', () => {
  it.each([
    ['https://example.org/a?b=c#d', 'https://example.org/a?b=c#d'],
    ['HTTP://EXAMPLE.org', 'http://example.org/'],
    ['mailto:someone@example.org', 'mailto:someone@example.org'],
    ['https://münchen.example/', 'https://xn--mnchen-3ya.example/'],
  ])('%s is opened as %s', (raw, href) => expect(safeAddress(raw)).toBe(href));

  it.each([
    'javascript:alert(1)',
    'JaVaScRiPt:alert(1)',
    'java\tscript:alert(1)',
    'java\nscript:alert(1)',
    ' javascript:alert(1)',
    '\u0001javascript:alert(1)',
    'data:text/html,<script>alert(1)</script>',
    'vbscript:x',
    'file:///etc/passwd',
    'smb://host/share',
    'ms-msdt:/id PCWDiagnostic',
    'tauri://localhost/',
    'ipc://localhost/chat_list',
    'blob:https://example.org/1',
    'view-source:https://example.org',
    '/api/chat_list',
    '//example.org/x',
    'example.org',
    '#fragment',
    '',
    'mailto:x@example.org?attach=/home/me/.ssh/id_rsa',
    'mailto:x@example.org?subject=a&ATTACHMENT=b',
    'mailto:x@example.org?subject=a&%61ttach=b',
    'mailto:?to=x@example.org',
    'mailto:x@example.org?bcc=spy@example.org',
    'https://user:secret@example.org/',
    'https://user@example.org/',
    'https://',
    'https://example.org/\u202egpj.exe',
    `https://example.org/${'a'.repeat(2000)}`,
  ])('%j is not', (raw) => expect(safeAddress(raw)).toBeNull());

  it.each([
    ['mailto:a%2Bb@example.org?subject=x', 'a+b@example.org'],
    ['mailto:me@example.org%E2%80%AEgro.live@', 'me@example.org%E2%80%AEgro.live@'],
    ['mailto:a%E2%80%8B@example.org', 'a%E2%80%8B@example.org'],
    ['mailto:a%0Ab@example.org', 'a%0Ab@example.org'],
    ['mailto:a%20b@example.org', 'a%20b@example.org'],
    ['mailto:%ff@example.org', '%ff@example.org'],
    ['mailto:%E4%BF%AE@example.org', '修@example.org'],
    ['https://example.org:81/x', 'example.org:81'],
  ])('%s leads to %s', (href, where) => expect(destination(href).where).toBe(where));
});

describe('a hostile answer', () => {
  it('becomes text, known elements and allowed addresses only', () => {
    const { container } = draw(hostile);
    expectHarmless(container);
    expect(container.textContent).toContain('<script>');
    expect(container.querySelector('img')).toBeNull();
  });

  it.each([
    '<script>alert(1)</script>',
    '<SCRIPT SRC=//evil.example/x.js></SCRIPT>',
    '<svg/onload=alert(1)>',
    '<svg><script>alert(1)</script></svg>',
    '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>',
    '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    '<a href="javascript:alert(1)">x</a>',
    '<base href="https://evil.example/">',
    '<meta http-equiv="refresh" content="0;url=https://evil.example">',
    '<style>*{background:url(https://evil.example)}</style>',
    '<form action="https://evil.example"><button>x</button></form>',
    '<div style="position:fixed;inset:0">x</div>',
    '<!-- comment --><![CDATA[x]]><?php x ?>',
    'text <b onclick="x">bold</b> text',
    '`<b>` ``<i>``',
  ])('shows %s as it was written', (text) => {
    const { container } = draw(text);
    expectHarmless(container);
    const shown = text.replace(/`/g, '');
    expect(container.textContent?.replace(/\s+/g, ' ').trim()).toBe(shown.replace(/\s+/g, ' ').trim());
  });

  it.each([
    '[x](javascript:alert(1))',
    '[x](java&#115;cript:alert(1))',
    '[x](&#x6A;avascript&colon;alert(1))',
    '[x](<javascript:alert(1)>)',
    '[x](data:text/html;base64,PHNjcmlwdD4=)',
    '[x](file:///etc/passwd)',
    '[x](smb://host/share)',
    '[x](ms-msdt:/id)',
    '[x](/api/chat_list)',
    '[x][ref]\n\n[ref]: javascript:alert(1)',
    '<javascript:alert(1)>',
    '![x](javascript:alert(1))',
    '[x](https://user:secret@example.org)',
  ])('offers no link for %s', (text) => {
    const { container } = draw(text);
    expectHarmless(container);
    expect(container.querySelector('a')).toBeNull();
  });

  it('never loads an image, it offers its address', () => {
    const { container } = draw('![a cat](https://tracker.example/pixel.png "t")');
    expect(container.querySelector('img')).toBeNull();
    expect(container.querySelector('a')?.getAttribute('href')).toBe('https://tracker.example/pixel.png');
    expect(container.textContent).toContain('Image: a cat');
  });

  it('asks before a link is opened, with the address it really has', async () => {
    const { container, asked } = draw('[https://good.example](https://evil.example/login)');
    const link = container.querySelector('a');
    if (!link) throw new Error('no link');
    const untouched = await fireEvent.click(link);
    expect(untouched).toBe(false);
    expect(asked).toEqual([['https://evil.example/login', false]]);
    expect(link.getAttribute('rel')).toBe('noopener noreferrer');
    expect(container.querySelectorAll('a a')).toHaveLength(0);
  });

  it('warns of characters that turn the direction of code or of a link', async () => {
    const trojan = draw('```c\nif (admin) { /* \u202e } \u2066 */\n```');
    expect(trojan.container.querySelector('[role=note]')?.textContent).toContain('invisible characters');
    const plain = draw('```c\nif (admin) {}\n```');
    expect(plain.container.querySelector('[role=note]')).toBeNull();
    const link = draw('[\u202egnp.exe](https://example.org/)');
    await fireEvent.click(link.container.querySelector('a')!);
    expect(link.asked).toEqual([['https://example.org/', true]]);
    expect(hasDirectionMarks('\u200e')).toBe(true);
    expect(hasDirectionMarks('שלום 修复')).toBe(false);
  });

  it('copies code as it is, nothing stripped and nothing added', () => {
    const text = 'a\t\u202eb  \n\nc';
    expect(parse('```\n' + text + '\n```').blocks).toEqual([{ type: 'code', language: '', text }]);
  });

  const nested = [
    ['quotes', '> '.repeat(100) + 'x'],
    ['ten thousand quotes', '>'.repeat(10_000) + 'x'],
    ['lists', Array.from({ length: 200 }, (_, i) => '  '.repeat(i) + '- x').join('\n')],
    ['one-line lists', '- '.repeat(5000) + 'x'],
    ['brackets', '['.repeat(50_000) + ']'.repeat(50_000)],
    ['closing brackets', ']('.repeat(50_000)],
    ['images', '!['.repeat(20_000)],
    ['stars', '*a '.repeat(30_000)],
    ['emphasis in emphasis', '*a _b '.repeat(200) + 'x' + '_ *'.repeat(200)],
    ['links in brackets', '[a]('.repeat(10_000)],
    ['tags', '<a '.repeat(50_000)],
    ['backticks', Array.from({ length: 600 }, (_, i) => '`'.repeat(i + 1)).join(' ')],
    ['entities', '&'.repeat(100_000)],
    ['definitions', Array.from({ length: 5000 }, (_, i) => `[a${i}]: https://example.org/${i}`).join('\n')],
  ] as const;
  it.each(nested)('survives %s without end', (_, text) => {
    const { blocks } = parse(text);
    expect(depthOf(blocks)).toBeLessThan(64);
    const { container } = draw(text.slice(0, 4000));
    expectHarmless(container);
  });

  it('survives a huge table and a huge answer, and loses no word', () => {
    const table = '|a|b|c|\n|-|-|-|\n' + '|1|2|3|\n'.repeat(4000);
    expect(wordsOf(parse(table).blocks).replace(/[^123]/g, '')).toBe('123'.repeat(4000));
    const long = 'word '.repeat(MAX_LENGTH / 4);
    const blocks = parse(long).blocks;
    expect(blocks.at(-1)).toMatchObject({ type: 'plain', note: 'too_long' });
    expect(wordsOf(blocks).replace(/\s/g, '')).toBe(long.replace(/\s/g, ''));
  });
});

function depthOf(blocks: Block[]): number {
  let deepest = 0;
  const stack: [unknown, number][] = blocks.map((block) => [block, 1]);
  for (let top = stack.pop(); top; top = stack.pop()) {
    const [node, depth] = top;
    deepest = Math.max(deepest, depth);
    const { children, items } = node as { children?: unknown[]; items?: { children: unknown[] }[] };
    for (const child of children ?? items?.flatMap((item) => item.children) ?? [])
      stack.push([child, depth + 1]);
  }
  return deepest;
}

function wordsOf(blocks: Block[]): string {
  return blocks
    .map((block) => {
      if (block.type === 'paragraph') return ofInlines(block.children);
      if (block.type === 'plain' || block.type === 'code') return block.text;
      if (block.type === 'table') return block.rows.flat().map(ofInlines).join('');
      throw new Error(`unexpected ${block.type}`);
    })
    .join('\n');
}

describe('an ordinary answer', () => {
  it('has headings below those of the page, lists, tables, tasks and code', () => {
    const { container } = draw(
      '# One\n\n## Two\n\n1. a\n2. b\n\n- [x] done\n- [ ] open\n\n|l|r|\n|:-|-:|\n|1|2|\n\n~~old~~ **new** `code`\n\n---\n\n```rust\nlet x = 1;\n```',
    );
    expectHarmless(container);
    expect([...container.querySelectorAll('h3,h4')].map((h) => h.textContent?.trim())).toEqual([
      'One',
      'Two',
    ]);
    expect(container.querySelectorAll('ol > li')).toHaveLength(2);
    expect([...container.querySelectorAll('input')].map((box) => box.checked)).toEqual([true, false]);
    expect(container.querySelector('td.right')?.textContent).toBe('2');
    expect(container.querySelector('del')?.textContent).toBe('old');
    expect(container.querySelector('pre .hljs-keyword')?.textContent).toBe('let');
    expect(container.querySelector('pre')?.textContent).toBe('let x = 1;');
  });

  it('keeps the price tags and tildes people write', () => {
    expect(draw('costs ~5 or ~6 and 2 * 3 * 4').container.textContent).toContain('~5 or ~6 and 2 * 3 * 4');
  });

  it('takes one word as the name of a language and nothing else', () => {
    expect(languageName('rust')).toBe('rust');
    expect(languageName('c++ {.numbers}')).toBe('c++');
    expect(languageName('js"onload=x')).toBe('');
    expect(languageName('x'.repeat(40))).toBe('');
    expect(highlight('a < b', 'nosuch')).toEqual([{ text: 'a < b', class: undefined }]);
  });

  it('colours code without changing a character', () => {
    const code = 'fn main() { println!("<b>{}</b>", 1 & 2); } // ü';
    expect(
      highlight(code, 'rust')
        .map((piece) => piece.text)
        .join(''),
    ).toBe(code);
  });

  it('is spoken without its marks', () => {
    expect(spoken('# Title\n\n**Bold** [link](https://example.org)\n\n- a\n- b')).toBe(
      'Title\nBold link\na\nb',
    );
    expect(spoken('word '.repeat(1000)).length).toBeLessThan(700);
  });
});

describe('a long answer', () => {
  const line = 'Some **words** and `code`.';

  it('is parsed in pieces that are the blocks of the whole', () => {
    const text = Array.from({ length: 1500 }, (_, i) => `${line} ${i}`).join('\n\n');
    expect([...parts(text)].length).toBeGreaterThan(2);
    expect(parse(text).blocks).toEqual(
      Array.from({ length: 1500 }, (_, i) => parse(`${line} ${i}`).blocks[0]),
    );
  });

  it('keeps a long block of code whole, closed or not, with all that looks like Markdown in it', () => {
    const code = Array.from({ length: 3000 }, (_, i) => `# ${i}\n\n  ~~~\n\`\`\` not the end`).join('\n');
    expect(code.length).toBeGreaterThan(MAX_SEGMENT);
    const block = { type: 'code', language: 'md', text: code };
    const before = parse(line).blocks;
    expect(parse(`${line}\n\`\`\`md\n${code}\n\`\`\`\n${line}`).blocks).toEqual([
      ...before,
      block,
      ...before,
    ]);
    expect(parse(`${line}\n\`\`\`md\n${code}`).blocks).toEqual([...before, block]);
    expect(parse(`${line}\n\`\`\`md\n${code}\n`).blocks).toEqual([...before, block]);
    const growing = new GrowingMarkdown();
    expect(growing.update(`\`\`\`md\n${code}`)).toEqual([block]);
    expect(growing.update(`\`\`\`md\n${code}\n\`\`\``)).toEqual([block]);
  });

  it('is never cut inside a character', () => {
    const text = '🙂'.repeat(MAX_SEGMENT);
    expect(wordsOf(parse(text).blocks).replace(/\n/g, '')).toBe(text);
    for (const block of parse(text).blocks) {
      expect(JSON.stringify(block)).not.toMatch(/\\ud[89ab]/i);
    }
  });

  it('waits as plain text when it is out of sight, and is parsed in a pause', async () => {
    const { container } = render(MarkdownInTest, { text: '**bold**', openLink: () => {}, urgent: false });
    expect(container.querySelector('strong')).toBeNull();
    expect(container.textContent).toContain('**bold**');
    await vi.waitFor(() => expect(container.querySelector('strong')?.textContent).toBe('bold'));
  });
});

describe('an answer that grows', () => {
  const whole = parse(hostile).blocks;

  it('ends as the same blocks as when parsed whole, wherever it was cut', () => {
    for (const size of [11, 17, 100]) {
      const growing = new GrowingMarkdown();
      let blocks: Block[] = [];
      for (let end = size; ; end += size) {
        blocks = growing.update(hostile.slice(0, end));
        if (end >= hostile.length) break;
      }
      expect(blocks).toEqual(whole);
    }
  });

  it('keeps a list in one piece and its numbers', () => {
    const text = '1. a\n\n   more of a\n\n2. b\n\n   ```js\n   x\n   ```\n\n3. c\n\nend\n\nlast';
    const growing = new GrowingMarkdown();
    let blocks: Block[] = [];
    for (let end = 1; end <= text.length; end++) blocks = growing.update(text.slice(0, end));
    expect(blocks).toEqual(parse(text).blocks);
  });

  it('begins anew when the text is another one', () => {
    const growing = new GrowingMarkdown();
    growing.update('a\n\nb\n\nc\n\nd');
    expect(growing.update('x')).toEqual(parse('x').blocks);
  });

  it('parses only the open end again', () => {
    const growing = new GrowingMarkdown();
    const first = growing.update('one\n\ntwo\n\nthree\n\nfour');
    const second = growing.update('one\n\ntwo\n\nthree\n\nfour and more');
    expect(second[0]).toBe(first[0]);
    expect(second[1]).toBe(first[1]);
  });
});
