/**
 * The language of the window. What is read from here while something is drawn is drawn anew when it changes. The words are in the
 * catalogues beside this; numbers and dates of each language come from the platform (`Intl`).
 */

/** As the page's `lang` and `Intl` name them. */
const tags = { en: 'en-US', zh: 'zh-Hans' } as const;
export type Language = keyof typeof tags;

/** The first of the person's languages that there is a catalogue for; English where there is none. */
export function preferred(languages: readonly string[]): Language {
  for (const tag of languages) {
    const [language] = tag.toLowerCase().split('-');
    if (language === 'zh' || language === 'en') return language;
  }
  return 'en';
}

let wish = $state<Language | null>(null);
let system = $state<Language>(preferred(navigator.languages));
addEventListener('languagechange', () => {
  system = preferred(navigator.languages);
  mark();
});

export const language = (): Language => wish ?? system;

/** What `Intl` calls the language. */
export const locale = (): string => tags[language()];

/** Sets the language from the value of the setting; anything that is no language is the system's. */
export function setLanguage(value: unknown): void {
  wish = value === 'en' || value === 'zh' ? value : null;
  mark();
}

/** The page says its language, for screen readers, fonts and the breaking of lines. */
export function mark(): void {
  document.documentElement.lang = tags[language()];
}
