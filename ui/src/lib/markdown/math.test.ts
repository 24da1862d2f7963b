import { describe, expect, it } from 'vitest';
import { markFormulas, unmarked } from './dollars';
import { formula, MAX_FORMULA, type MathNode } from './math';
import { parse } from './parse';
import type { Block, Inline } from './tree';

const inlines = (text: string): Inline[] =>
  parse(text).blocks.flatMap((block: Block) => ('children' in block ? (block.children as Inline[]) : []));
const formulas = (text: string) =>
  parse(text).blocks.flatMap((block: Block) =>
    block.type === 'math'
      ? [`block ${block.text}`]
      : 'children' in block
        ? (block.children as Inline[]).flatMap((node) =>
            node.type === 'math' ? [`${node.display ? 'display' : 'inline'} ${node.text}`] : [],
          )
        : [],
  );

describe('which dollars and brackets are formulas', () => {
  it.each([
    ['$x$', ['inline x']],
    ['a $x^2$ b \\(y\\) c', ['inline x^2', 'inline y']],
    ['$$x$$', ['display x']],
    ['\\[x + 1\\]', ['display x + 1']],
    ['$$\nx\n$$', ['block x']],
    ['\\[\nx\n\\]', ['block x']],
    ['It costs $5, not $10.', []],
    ['**$5** and **$10**', []],
    ['from $5 to $x$', ['inline x']],
    ['`$x$` and ``a ` $y$``', []],
    ['a $ b $ c', []],
    ['\\$x\\$', []],
    ['$x\n\ny$', []],
    ['$$x', []],
    ['\\(x', []],
    ['an array\\[0\\] in text', ['display 0']],
  ])('%j', (text, wanted) => {
    expect(formulas(text)).toEqual(wanted);
  });

  it('keeps the length of the text and gives money back', () => {
    const text = 'Pay **$5** or $10 for `$x$`, [$3](https://example.org/$4).\n\n    $7\n\n\\(a\\) \\[b\\]';
    expect(markFormulas(text)).toHaveLength(text.length);
    const words = (nodes: Inline[]): string =>
      nodes
        .map((node) => ('children' in node ? words(node.children) : 'text' in node ? node.text : ''))
        .join('');
    expect(words(inlines(text))).toBe('Pay $5 or $10 for $x$, $3.a b');
    expect(parse(text).blocks[1]).toEqual({ type: 'code', language: '', text: '$7' });
    expect(inlines(text).find((node) => node.type === 'link')).toMatchObject({
      href: 'https://example.org/$4',
    });
    expect(unmarked(markFormulas('$5 $'))).toBe('$5 $');
  });

  it('is done with long texts of signs in no time to speak of', () => {
    for (const text of ['$'.repeat(20_000), '\\('.repeat(10_000), '$a '.repeat(7000), '`$'.repeat(8000)])
      expect(markFormulas(text)).toHaveLength(text.length);
  });
});

describe('formulas as MathML', () => {
  const tags = (node: MathNode): string[] =>
    typeof node === 'string' ? [] : [node.tag, ...node.children.flatMap(tags)];
  const text = (node: MathNode): string =>
    typeof node === 'string' ? node : node.children.map(text).join('');

  it('has the structure that MathML gives a fraction with a root', () => {
    const tree = formula('x = \\frac{-b \\pm \\sqrt{b^2-4ac}}{2a}', true);
    expect(tree).toMatchObject({ tag: 'math', attributes: { display: 'block' } });
    const all = tags(tree!);
    for (const tag of ['mfrac', 'msqrt', 'msup'])
      expect(all.filter((other) => other === tag)).toHaveLength(1);
    expect(text(tree!).replace(/\s/g, '')).toBe('x=−b±b2−4ac2a');
    expect(all).not.toContain('annotation');
  });

  it.each([
    '\\frac{1}{',
    '\\unknown{x}',
    '\\def\\a{\\a\\a}\\a',
    'x'.repeat(MAX_FORMULA + 1),
    '{'.repeat(2000),
    '\\frac'.repeat(500),
  ])('shows what cannot be read as it is: %j', (source) => {
    expect(formula(source, false)).toBeNull();
  });

  it.each([
    '\\href{javascript:alert(1)}{x}',
    '\\url{https://example.org}',
    '\\includegraphics{https://tracker.example/x.png}',
    '\\htmlStyle{position:fixed}{x}',
    '\\htmlClass{owned}{x}',
    '\\htmlId{app}{x}',
    '\\htmlData{x=y}{x}',
    '\\text{<script>alert(1)</script>}',
    '\\color{url(javascript:1)}x',
    '\\rule{900em}{900em}',
  ])('draws nothing but formulas: %j', (source) => {
    const tree = formula(source, true);
    const look = (node: MathNode): void => {
      if (typeof node === 'string') return;
      expect(node.tag).not.toMatch(/^(script|a|img|style|mglyph|annotation.*)$/);
      for (const [name, value] of Object.entries(node.attributes)) {
        expect(name).not.toMatch(/^(on|href|src|style|class|id|data)/);
        expect(value).not.toMatch(/javascript|url\(|900em/);
      }
      node.children.forEach(look);
    };
    if (tree !== null) look(tree);
  });
});
