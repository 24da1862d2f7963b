/// The list of what the pages are built of, in the bundle itself: the Rust programs that embed them compare it with the sources
/// (src-tauri/xtask/src/built.rs, which says how a line is made).
import { readdirSync, readFileSync, statSync } from 'node:fs';
import type { Plugin } from 'vite';

const root = new URL('./', import.meta.url);
const sources = [
  '../icons/icon.svg',
  'index.html',
  'package-lock.json',
  'package.json',
  'src',
  'svelte.config.js',
  'tsconfig.json',
  'vite.config.ts',
];

function files(path: string): string[] {
  if (!statSync(new URL(path, root)).isDirectory()) return path.endsWith('.test.ts') ? [] : [path];
  return readdirSync(new URL(path, root)).flatMap((name) => files(`${path}/${name}`));
}

function line(path: string): string {
  const bytes = readFileSync(new URL(path, root));
  let hash = 0x811c9dc5;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return `${hash.toString(16).padStart(8, '0')} ${bytes.length} ${path}\n`;
}

/** Emits the list. */
export function listOfSources(): Plugin {
  return {
    name: 'fastar-sources',
    generateBundle() {
      const lines = sources.flatMap(files).map(line);
      this.emitFile({ type: 'asset', fileName: '.sources', source: lines.join('') });
    },
  };
}
