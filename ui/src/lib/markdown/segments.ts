/**
 * Cuts a long answer into pieces that are parsed one by one: no single piece can keep the window from answering, and
 * what a Markdown parser does in quadratic time stays small. An answer of ordinary length is one piece, parsed exactly.
 */

/** Longest piece of Markdown that is parsed at once, in characters. */
export const MAX_SEGMENT = 16_000;
/** A fenced code block from this length on needs no parser. */
const LONG_FENCE = 2000;

export type Segment =
  | { type: 'markdown'; start: number; text: string }
  | { type: 'code'; start: number; language: string; text: string };

interface Fence {
  mark: string;
  language: string;
  /** Where its first line of code begins. */
  code: number;
}

const OPENING = /^(`{3,}|~{3,})[ \t]*([^\n]*)/;

/** A fence at the very beginning of `text`; one that is indented may belong to a list and is left to the parser. */
function fenceAt(text: string, at: number, end: number): Fence | null {
  const first = text[at];
  if (first !== '`' && first !== '~') return null;
  const match = OPENING.exec(text.slice(at, Math.min(end, at + 300)));
  if (!match?.[1] || (first === '`' && match[2]?.includes('`'))) return null;
  return { mark: match[1], language: match[2]?.trim().split(/\s/, 1)[0] ?? '', code: end + 1 };
}

function closes(fence: Fence, line: string): boolean {
  if (line.length > 300) return false;
  const marks = line.replace(/^ {0,3}/, '').trimEnd();
  return marks.length >= fence.mark.length && marks === fence.mark[0]?.repeat(marks.length);
}

function codeOf(text: string, fence: Fence, end: number): string {
  return text.slice(fence.code, Math.max(fence.code, end - 1));
}

/** The code of a long fence that is still open at the end of `text`, when `text` begins with it. */
export function openFence(text: string): { language: string; text: string } | null {
  if (text.length < LONG_FENCE) return null;
  const end = text.indexOf('\n');
  const fence = end < 0 ? null : fenceAt(text, 0, end);
  if (!fence) return null;
  for (let at = fence.code; at < text.length;) {
    const next = text.indexOf('\n', at);
    if (closes(fence, text.slice(at, next < 0 ? undefined : next))) return null;
    if (next < 0) break;
    at = next + 1;
  }
  return { language: fence.language, text: text.slice(fence.code).replace(/\n$/, '') };
}

export function segments(text: string): Segment[] {
  if (text.length <= MAX_SEGMENT) return [{ type: 'markdown', start: 0, text }];
  const found: Segment[] = [];
  /** Where the piece that is being gathered begins. */
  let start = 0;
  const cut = (end: number) => {
    if (end > start) found.push({ type: 'markdown', start, text: text.slice(start, end) });
    start = end;
  };

  let fence: Fence | null = null;
  let fenceStart = 0;
  let afterBlank = false;
  for (let at = 0; at < text.length;) {
    const newline = text.indexOf('\n', at);
    const end = newline < 0 ? text.length : newline;
    const next = Math.min(end + 1, text.length);
    if (fence) {
      const closing = closes(fence, text.slice(at, end));
      if (closing || next === text.length) {
        if (next - fenceStart >= LONG_FENCE) {
          cut(fenceStart);
          const until = closing ? at : text.length + (text.endsWith('\n') ? 0 : 1);
          found.push({ type: 'code', start, language: fence.language, text: codeOf(text, fence, until) });
          start = next;
        }
        fence = null;
      }
    } else {
      // A blank line with unindented text after it ends whatever came before, or a list goes on as another one.
      const indented = text[at] === ' ' || text[at] === '\t';
      if (afterBlank && !indented && at - start >= MAX_SEGMENT / 2) cut(at);
      fence = fenceAt(text, at, end);
      fenceStart = at;
      if (!fence) {
        if (next - start > MAX_SEGMENT) cut(at);
        while (next - start > MAX_SEGMENT) cut(whole(text, start + MAX_SEGMENT));
      }
      afterBlank = text.slice(at, Math.min(end, at + 20)).trim() === '' && end - at < 20;
    }
    at = newline < 0 ? text.length : next;
  }
  cut(text.length);
  return found;
}

/** `at`, or one before it where it would part a surrogate pair. */
export function whole(text: string, at: number): number {
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code < 0xdc00 ? at - 1 : at;
}
