import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { byDay } from '../days';
import { bytes, count, duration, parameters, remaining, speed } from '../format';
import { strings, together } from '.';
import { en } from './en';
import { preferred, setLanguage } from './language.svelte';
import { zh } from './zh';
import { sentences, told, values } from './zh-told';

afterEach(() => setLanguage('system'));

type Leaf = [path: string, value: unknown];

/** Everything in a catalogue that is no table. */
function leaves(value: unknown, path = ''): Leaf[] {
  if (typeof value !== 'object' || value === null) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, path === '' ? key : `${path}.${key}`));
}

/** Names that are the same in both languages, and what is typed or pressed. */
const NAMES =
  /FaStar|Markdown|JSON|Top-p|Top-k|Min-p|English|Hugging Face|HF_ENDPOINT|FASTAR_\w+|fastar \w+( --model model\.fst)?|UTF-8|AVX2|AVX-512|NPU|Flash|token|Ctrl|Shift|Enter|Esc|Del\b|F2|GB|MB|\.txt/g;
/** Whole sentences that are meant to be English: they are sent to a model that knows nothing else. */
const ENGLISH = /^welcome\.suggestions\./;

/** Calls of the phrases that take more than numbers and names. */
const job = (state: string) => ({ title: 'TITLE', kind: 'download', state });
const setting = (scope: string, more: object = {}) => ({ scope, given: null, pending: false, ...more });
const special: Record<string, unknown[][]> = {
  'units.and': [[3, (n: number) => `${n}`]],
  'thoughts.done': [[null], [1200]],
  'timing.prompt': [
    [5, 5],
    [5, 9],
  ],
  'attach.size': [
    [5, null],
    [5, 7],
  ],
  'models.incomplete': [
    ['A', null],
    ['A', 'B'],
  ],
  'models.have': [
    ['running', null],
    ['queued', null],
    ['paused', null],
    ['failed', null],
    [null, { condition: { condition: 'incomplete' } }],
    [null, { condition: { condition: 'unusable' } }],
    [null, { condition: { condition: 'whole' } }],
  ],
  'models.phase': [
    'resolving',
    'downloading',
    'stalled',
    'converting',
    'verifying',
    'copying',
    'stopping',
    'retrying',
  ].map((phase) => [{ phase, seconds: 12, reason: '' }]),
  'models.chip': ['queued', 'running', 'paused', 'failed', 'done', 'cancelled'].map((s) => [job(s), 40]),
  'models.announce': ['queued', 'running', 'paused', 'failed', 'done', 'cancelled'].map((s) => [
    job(s),
    true,
  ]),
  'settings.scope': [
    [setting('live', { given: 8 })],
    [setting('live', { pending: true })],
    ...['live', 'next_message', 'reload_model', 'restart_app'].map((scope) => [setting(scope)]),
  ],
  'settings.help': Object.keys(en.settings.names).map((key) => [key, 'told']),
  'settings.told': [['The setting `threads` must be a whole number from 1 to 512.', 'NAME']],
  'settings.cache.value': [['5 GB']],
  'settings.waiting': [[['NAME']], [['NAME', 'OTHER']]],
  'help.computer.threadsWhy': [[{ quota: 2, threads: 2, cores: 8 }], [{ quota: null, threads: 8, cores: 8 }]],
  told: [['This model is no longer there.']],
};

type Phrase = (...given: unknown[]) => string;
/** What stands in the places of a phrase. */
const PLACES = [2, 31, 456, 7890, 65];

/** Every text of a catalogue, phrases with something in their places. */
function texts(catalogue: typeof en): [path: string, text: string][] {
  return leaves(catalogue).flatMap(([path, value]): [string, string][] => {
    if (typeof value !== 'function') return [[path, String(value)]];
    const phrase = value as Phrase;
    return (special[path] ?? [PLACES]).map((given) => [path, phrase(...given)]);
  });
}

describe('the catalogues', () => {
  it('have the same texts, and each is one', () => {
    expect(leaves(zh).map(([path]) => path)).toEqual(leaves(en).map(([path]) => path));
    for (const [path, text] of [...texts(en), ...texts(zh)]) {
      expect(text, path).toBeTypeOf('string');
      expect(text.trim(), path).not.toBe('');
      expect(text, path).not.toMatch(/undefined|NaN|\[object/);
    }
  });

  it('say everything they are given, in both languages', () => {
    const chinese = new Map(leaves(zh));
    for (const [path, value] of leaves(en)) {
      if (typeof value !== 'function' || path in special) continue;
      for (const phrase of [value as Phrase, chinese.get(path) as Phrase])
        // One that is another makes another text.
        for (let place = 0; place < value.length; place += 1) {
          const other = PLACES.map((n, i) => (i === place ? n + 123_456 : n));
          expect(phrase(...other), `${path}, place ${place}`).not.toBe(phrase(...PLACES));
        }
    }
  });

  it('have no English in Chinese but names, and no half-width marks between Chinese words', () => {
    for (const [path, text] of texts(zh)) {
      if (ENGLISH.test(path)) continue;
      const bare = text.replaceAll(/TITLE|NAME|OTHER/g, '').replaceAll(NAMES, '');
      expect(bare, `${path}: ${text}`).not.toMatch(/[A-Za-z]{3,}/);
      expect(text, path).not.toMatch(/[\u4e00-\u9fff][,;:!?.]|[\u4e00-\u9fff] ?\(|[,;:!?][\u4e00-\u9fff]/);
      // 2840亿参数: the number ends with a word of its own.
      if (path !== 'model.summary')
        expect(text, path).not.toMatch(/[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9%][\u4e00-\u9fff]/);
    }
    for (const [english, chinese] of [...Object.entries(sentences), ...Object.entries(values)]) {
      const bare = chinese.replaceAll(/\{\w+\}|`[^`]*`|https?:\/\//g, '').replaceAll(NAMES, '');
      if (!/^(true|false)/.test(english)) expect(bare, chinese).not.toMatch(/[A-Za-z]{3,}/);
      const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();
      expect(places(chinese), english).toEqual(places(english));
    }
  });
});

/** The program's own sources, with texts that are written over several lines put together. */
function sources(): string {
  const crates = join(import.meta.dirname, '../../../../src-tauri/crates');
  const files = readdirSync(crates, { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => /^(app|hub|fst|engine|server)\/src\/.*\.rs$/.test(file))
    .map((file) => readFileSync(join(crates, file), 'utf8').replaceAll(/\\\n\s*/g, ''))
    .join('\n');
}

describe('what the app sends', () => {
  it('is known by words that the app still has', () => {
    const program = sources();
    for (const key of [...Object.keys(sentences), ...Object.keys(values)])
      for (const part of key.split(/\{\w+\}/).filter((part) => /\w{2,}/.test(part)))
        expect(program.includes(part.trim()), `${part} (of: ${key})`).toBe(true);
  });

  it('is said in Chinese whatever ended unexpectedly', () => {
    const said = [...sources().matchAll(/"(FaStar ended unexpectedly while [^"]+)"/g)].map(
      (match) => match[1],
    );
    const shapes = new Set(said.map((sentence) => sentence?.replaceAll(/\{\w+\}/g, '{}')));
    // Those of the tests have names in the places.
    const known = Object.keys(sentences).map((key) => key.replaceAll(/\{\w+\}/g, '{}'));
    const templates = [...shapes].filter((shape) => shape?.includes('{}') || known.includes(shape ?? ''));
    expect(templates.length).toBe(8);
    for (const template of templates) expect(known).toContain(template);
  });

  it('has a name for each setting of the registry', () => {
    const registry = readFileSync(
      join(import.meta.dirname, '../../../../src-tauri/crates/app/src/settings/registry.rs'),
      'utf8',
    );
    const keys = [...registry.matchAll(/^ {4}key: "(\w+)",$/gm)].map((match) => match[1]);
    expect(keys.length).toBeGreaterThan(20);
    expect(Object.keys(en.settings.names).sort()).toEqual(keys.sort());
  });

  it('is said in Chinese with its names, and as it came where it is not known', () => {
    expect(told('model-7.fst is in use.')).toBe('model-7.fst 正在使用中。');
    expect(told('The folder /a, where the download of b is, is not there.')).toBe(
      'b 的下载所在的文件夹 /a 不存在。',
    );
    // The more exact of two that fit.
    expect(told('The disk is full: /a could not be written.')).toBe('磁盘已满：无法写入 /a。');
    expect(told('Something new happened.')).toBe('Something new happened.');
    expect(zh.settings.told('The setting `threads` must be a whole number from 1 to 512.', '线程数')).toBe(
      '“线程数”必须是 1 到 512 之间的整数。',
    );
  });
});

describe('the language of the window', () => {
  it('is the first that a person has and there is a catalogue for', () => {
    expect(preferred(['zh-CN', 'en'])).toBe('zh');
    expect(preferred(['zh'])).toBe('zh');
    expect(preferred(['de-DE', 'en-GB', 'zh'])).toBe('en');
    expect(preferred(['fr'])).toBe('en');
    expect(preferred([])).toBe('en');
  });

  it('changes every text, number and date at once', () => {
    const chat = (updated_at: number) => [
      { id: 'a', title: 'a', created_at: 0, updated_at, pinned: false, folder: null },
    ];
    const now = new Date(2026, 10, 30, 12).getTime();
    const month = new Date(2026, 8, 2).getTime();
    const shown = () => [
      strings.sidebar.newChat,
      count(1_048_576),
      speed(4.5),
      duration(125_000),
      duration(1200),
      bytes(11_400_000),
      parameters(10_400_000),
      parameters(284_000_000_000),
      remaining(3 * 86_400 + 7300),
      byDay(chat(month), now)[0]?.label,
      document.documentElement.lang,
    ];
    setLanguage('zh');
    expect(shown()).toEqual([
      '新对话',
      '1,048,576',
      '4.50',
      '2 分 5 秒',
      '1.2 秒',
      '11.4 MB',
      '1040万',
      '2840亿',
      '3 天 2 小时',
      '2026年9月',
      'zh-Hans',
    ]);
    setLanguage('en');
    expect(shown()).toEqual([
      'New chat',
      '1,048,576',
      '4.50',
      '2 min 5 s',
      '1.2 s',
      '11.4 MB',
      '10.4 million',
      '284 billion',
      '3 days 2 h',
      'September 2026',
      'en-US',
    ]);
    setLanguage('klingon');
    expect(strings.sidebar.newChat).toBe('New chat');
  });

  it('puts sentences together with a space, but for the one that a full-width mark has in it', () => {
    expect(together('One.', null, '', 'Two.')).toBe('One. Two.');
    expect(together('一。', '二。', 'Three.')).toBe('一。二。Three.');
    expect(together('One.', '二。')).toBe('One. 二。');
  });

  it('counts one and several as the language does', () => {
    expect([en.files.imported(1), en.files.imported(1000)]).toEqual([
      '1 chat was imported.',
      '1,000 chats were imported.',
    ]);
    expect(zh.files.imported(1)).toBe('已导入 1 个对话。');
    expect([en.units.days(1), en.units.days(2)]).toEqual(['1 day', '2 days']);
  });
});
