/** Every word a person reads, in the language of the window: `strings.part.name`, read where it is drawn. */
import { en, type Strings } from './en';
import { language } from './language.svelte';
import { zh } from './zh';

const catalogues = { en, zh };

export const strings: Strings = Object.defineProperties(
  {},
  Object.fromEntries(
    Object.keys(en).map((part) => [
      part,
      { enumerable: true, get: () => catalogues[language()][part as keyof Strings] },
    ]),
  ),
) as Strings;

/** What a table of the catalogue has for a key that the app names. */
export function named<Value>(table: Record<string, Value>, key: string): Value | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

/** Sentences one behind the other; those that are not there are left out. A full-width mark brings its own space. */
export function together(...sentences: (string | null)[]): string {
  return sentences
    .filter((sentence) => sentence)
    .join(' ')
    .replaceAll(/([。！？…]) /g, '$1');
}
