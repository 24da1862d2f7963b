/** What the demo model answers at temperature 0, from the reference implementation. */
import { readFileSync } from 'node:fs';

interface Expected {
  prompt: string;
  text: string;
}

const all = JSON.parse(
  readFileSync(new URL('../../src-tauri/crates/app/demo/expected.json', import.meta.url), 'utf8'),
) as Expected[];

export function expected(prompt: string): string {
  const found = all.find((entry) => entry.prompt === prompt);
  if (!found) throw new Error(`no expected answer to ${prompt}`);
  return found.text;
}
