/** Code to coloured spans, by class names only: a list of pieces, never a string of HTML. */
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import type { RootContent } from 'hast';
import { createLowlight } from 'lowlight';

export interface Piece {
  text: string;
  /** One of the classes of `code.css`, or none. */
  class: string | undefined;
}

const lowlight = createLowlight({
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  markdown,
  python,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
});

/** Longer code stays plain: colouring it would be felt. */
const MAX_LENGTH = 30_000;

const LANGUAGE = /^[\w+#.-]{1,24}$/;

/** The language as named by the model, if it is one name and nothing else. */
export function languageName(info: string): string {
  const name = info.trim().split(/[\s,{]/, 1)[0] ?? '';
  return LANGUAGE.test(name) ? name : '';
}

export function highlight(code: string, language: string): Piece[] {
  const name = language.toLowerCase();
  if (name === '' || code.length > MAX_LENGTH || !lowlight.registered(name)) {
    return [{ text: code, class: undefined }];
  }
  const pieces: Piece[] = [];
  flatten(lowlight.highlight(name, code).children, undefined, pieces);
  return pieces;
}

function flatten(nodes: RootContent[], inherited: string | undefined, into: Piece[]): void {
  for (const node of nodes) {
    if (node.type === 'text') into.push({ text: node.value, class: inherited });
    else if (node.type === 'element') {
      const names = node.properties.className;
      const first = Array.isArray(names) ? names[0] : undefined;
      flatten(node.children as RootContent[], typeof first === 'string' ? first : inherited, into);
    }
  }
}
