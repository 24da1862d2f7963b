/**
 * Which dollar signs and brackets are formulas. Models write `$x$`, `$$x$$`, `\(x\)` and `\[x\]`; people write prices. What comes out has
 * the length of what went in, so that places in the text stay where they are: brackets become dollars of the same width, and a dollar
 * that is money becomes a character that no text has, until the text is shown.
 */

/** Stands for a dollar sign that begins no formula: a code point that is no character. */
const MONEY = '\uFDD0';

export function markFormulas(text: string): string {
  if (!/[$\\]/.test(text) || text.includes(MONEY)) return text;
  let out = '';
  let at = 0;
  const sign = /[`\\$]/g;
  /** Signs that close nothing any more: looked for once. */
  const over = new Set<string>();
  const formulaEnd = (from: number, close: string): number => {
    if (over.has(close)) return -1;
    const end = text.indexOf(close, from);
    if (end < 0) over.add(close);
    // In the same paragraph: a blank line ends everything.
    return end <= from || /\n[ \t]*\n/.test(text.slice(from, end)) ? -1 : end;
  };
  while (at < text.length) {
    const c = text[at];
    if (c === '`') {
      const [end, code] = codeSpan(text, at);
      out += code ? text.slice(at, end).replaceAll('$', MONEY) : text.slice(at, end);
      at = end;
    } else if (c === '\\') {
      const opens = text[at + 1];
      const close = opens === '(' ? '\\)' : opens === '[' ? '\\]' : null;
      const end = close === null ? -1 : formulaEnd(at + 2, close);
      if (end >= 0) {
        out += `$$${text.slice(at + 2, end)}$$`;
        at = end + 2;
      } else {
        out += text.slice(at, at + 2);
        at += 2;
      }
    } else if (c === '$' && text[at + 1] === '$') {
      const end = formulaEnd(at + 2, '$$');
      out += end >= 0 ? text.slice(at, end + 2) : MONEY + MONEY;
      at = end >= 0 ? end + 2 : at + 2;
    } else if (c === '$') {
      const end = singleEnd(text, at);
      out += end >= 0 ? text.slice(at, end + 1) : MONEY;
      at = end >= 0 ? end + 1 : at + 1;
    } else {
      sign.lastIndex = at;
      const end = sign.exec(text)?.index ?? text.length;
      out += text.slice(at, end);
      at = end;
    }
  }
  return out;
}

export function unmarked(text: string): string {
  return text.includes(MONEY) ? text.replaceAll(MONEY, '$') : text;
}

/** The rule of pandoc: no space inside of either sign, and no digit behind the second one. */
function singleEnd(text: string, at: number): number {
  if (/\s/.test(text[at + 1] ?? ' ')) return -1;
  for (let end = at + 1; end < text.length && end - at < 1000; end++) {
    const c = text[end];
    if (c === '\\') end += 1;
    else if (c === '\n' && /^[ \t]*\n/.test(text.slice(end + 1, end + 80))) return -1;
    else if (c === '`') return -1;
    else if (c === '$') {
      if (end === at + 1) return -1;
      return /\s/.test(text[end - 1] ?? '') || /\d/.test(text[end + 1] ?? '') ? -1 : end;
    }
  }
  return -1;
}

/** The end of the run of backticks at `at`, or of the code that it opens. */
function codeSpan(text: string, at: number): [end: number, code: boolean] {
  let length = 1;
  while (text[at + length] === '`') length += 1;
  const run = '`'.repeat(length);
  for (let end = text.indexOf(run, at + length); end >= 0; end = text.indexOf(run, end + 1)) {
    const exact = text[end - 1] !== '`' && text[end + length] !== '`';
    if (exact) return [end + length, true];
  }
  return [at + length, false];
}
