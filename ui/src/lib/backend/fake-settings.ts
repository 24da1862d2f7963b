/** The scripted app's settings: as many of the real ones as every kind of field needs, with the rules that the screen shows. */
import type { ApiError, CachePlan, ModelState, ServerState, Setting } from '../api/types';
import { type Backend, BackendError } from './backend';

export interface SettingsScenario {
  /** Values that are chosen already. */
  chosen?: Record<string, Setting['value']>;
  /** What counts for this run whatever is chosen. */
  given?: Record<string, number | string>;
  /** What is wrong in the file. */
  problems?: Record<string, string>;
  /** The list cannot be read. */
  unreadable?: ApiError;
  /** Nothing was measured yet. */
  unmeasured?: boolean;
  /** The computer is in no network. */
  noNetwork?: boolean;
  /** An answer is being written whenever a reload is asked for. */
  busy?: boolean;
}

type Kind =
  | { kind: 'address' | 'path' | 'secret' | 'switch' }
  | { kind: 'whole' | 'decimal'; min: number; max: number }
  | { kind: 'choice'; options: string[] };
type Row = [
  key: string,
  section: Setting['section'],
  kind: Kind,
  scope: Setting['scope'],
  byDefault: Setting['value'],
  help: string,
];

const whole = (min: number, max: number): Kind => ({ kind: 'whole', min, max });
const decimal = (min: number, max: number): Kind => ({ kind: 'decimal', min, max });
const SAFE = Number.MAX_SAFE_INTEGER;

const rows: Row[] = [
  [
    'theme',
    'appearance',
    { kind: 'choice', options: ['system', 'light', 'dark'] },
    'live',
    'system',
    'Light, dark, or as the system is.',
  ],
  [
    'language',
    'appearance',
    { kind: 'choice', options: ['system', 'en', 'zh'] },
    'live',
    'system',
    'Language of the window. Automatic is that of the system.',
  ],
  ['text_size', 'appearance', whole(80, 200), 'live', 100, 'Size of everything in the window, in percent.'],
  [
    'notifications',
    'appearance',
    { kind: 'switch' },
    'live',
    true,
    'While you look at something else, the system tells you when a download has ended or a long answer is ready.',
  ],
  [
    'thinking',
    'answers',
    { kind: 'choice', options: ['off', 'on', 'max'] },
    'live',
    'off',
    'Whether the model thinks before it answers, where a message does not say otherwise.',
  ],
  [
    'temperature',
    'answers',
    decimal(0, 10),
    'next_message',
    0.6,
    'How daring the choice of words is. 0 always takes the likeliest; above 1 it becomes wild.',
  ],
  [
    'top_p',
    'answers',
    decimal(0.001, 1),
    'next_message',
    0.95,
    'Only the likeliest words that together have this probability are considered. 1 considers all.',
  ],
  [
    'top_k',
    'answers',
    whole(0, 1_000_000),
    'next_message',
    0,
    'Only so many of the likeliest words are considered. 0 considers all.',
  ],
  [
    'max_tokens',
    'answers',
    whole(1, 1 << 20),
    'next_message',
    null,
    'Longest answer, in tokens. Empty: until the model ends it, or the context is full.',
  ],
  [
    'seed',
    'answers',
    whole(0, SAFE),
    'next_message',
    null,
    'The same seed gives the same answer to the same conversation. Empty: another one each time.',
  ],
  [
    'expert_cache_bytes',
    'performance',
    whole(0, 2 ** 50),
    'reload_model',
    null,
    'Memory that keeps the model’s experts at hand. More of it means fewer waits for the disk. Empty: all that this computer has free, less a reserve.',
  ],
  [
    'threads',
    'performance',
    whole(1, 512),
    'reload_model',
    null,
    'Processors that compute at the same time. Empty: one for each core, which is fastest.',
  ],
  [
    'context_tokens',
    'performance',
    whole(256, 1 << 20),
    'reload_model',
    null,
    'Longest conversation, in tokens. Empty: what the model was made for; a larger number is cut to that.',
  ],
  [
    'read_ahead',
    'performance',
    { kind: 'switch' },
    'reload_model',
    true,
    'Read experts that will probably be needed while the disk has nothing else to do.',
  ],
  [
    'exact_arithmetic',
    'performance',
    { kind: 'switch' },
    'reload_model',
    false,
    'Never round to eight bits where that is faster. Slower; for comparing.',
  ],
  [
    'keep_awake',
    'performance',
    { kind: 'switch' },
    'live',
    true,
    'The computer does not go to sleep by itself while an answer, a download or a check is under way. Closing the lid still puts it to sleep.',
  ],
  [
    'server',
    'server',
    { kind: 'switch' },
    'live',
    false,
    'A browser and other programs of this computer can use FaStar while its window is open. Whoever has the key can read and delete your chats.',
  ],
  [
    'server_port',
    'server',
    whole(1024, 65535),
    'live',
    8642,
    'Where it listens. No other program can use the same port meanwhile.',
  ],
  [
    'server_lan',
    'server',
    { kind: 'switch' },
    'live',
    false,
    'Other computers of this network reach it too, with the key. Nothing is encrypted on the way: turn this on only in a network that you trust.',
  ],
  [
    'server_origins',
    'server',
    { kind: 'address' },
    'live',
    null,
    'Web pages that may use it from a browser, with the key: their exact addresses, with spaces between them. Empty: none but its own.',
  ],
  [
    'model',
    'models',
    { kind: 'path' },
    'live',
    null,
    'The model file in use. Without one, the built-in demo answers.',
  ],
  [
    'models_folder',
    'models',
    { kind: 'path' },
    'live',
    null,
    'Where models are kept and downloaded to. Models in another folder stay there.',
  ],
  [
    'download_bytes_per_second',
    'models',
    whole(0, SAFE),
    'live',
    null,
    'Most that a download takes of the line. Empty: as fast as it goes. Also counts for a download that is running.',
  ],
  [
    'download_endpoint',
    'models',
    { kind: 'address' },
    'live',
    null,
    'A mirror that models come from. Empty: Hugging Face, or what HF_ENDPOINT names. Nothing is asked of any other place once a mirror is set. A stored token is forgotten when this changes.',
  ],
  ['download_proxy', 'models', { kind: 'address' }, 'live', null, 'Empty: what the system says.'],
  [
    'download_token',
    'models',
    { kind: 'secret' },
    'live',
    null,
    'Only needed for repositories that ask for one. It is sent to the mirror, or to Hugging Face where there is none, and nowhere else.',
  ],
  [
    'download_resume_at_start',
    'models',
    { kind: 'switch' },
    'restart_app',
    false,
    'Unfinished downloads go on by themselves when FaStar starts.',
  ],
  [
    'log_level',
    'logs',
    { kind: 'choice', options: ['error', 'warn', 'info', 'debug'] },
    'live',
    'info',
    'What is written down: errors alone, warnings too, what happens as well, or every detail. Never a message or an answer.',
  ],
];

const MODEL: Record<string, Setting['value']> = { threads: 16, context_tokens: 1_048_576 };
const EXPERT = 13_369_344;
const EXPERTS = 43 * 256;
const FITS = 3600 * EXPERT;

const refuse = (message: string) =>
  new BackendError({ code: 'bad_request', message, hint: null, details: null });

type Methods = Pick<
  Backend,
  | 'settingList'
  | 'settingSet'
  | 'settingReset'
  | 'cachePlan'
  | 'modelReload'
  | 'serverState'
  | 'serverKey'
  | 'serverKeyNew'
>;

/** `model` is where the model is; a reload sets it. */
export function fakeSettings(
  scenario: SettingsScenario,
  model: { get: () => ModelState; set: (state: ModelState) => void },
): Methods {
  const chosen = new Map(Object.entries(scenario.chosen ?? {}));
  let loadedWith = new Map(chosen);
  const paged = () => {
    const state = model.get();
    return state.state === 'ready' && !state.model.is_demo;
  };
  const plan = (wish: number | null): CachePlan => {
    const asked = Math.floor((wish ?? Infinity) / EXPERT);
    const fits = FITS / EXPERT;
    const slots = Math.max(6, Math.min(asked, fits));
    const note =
      asked < 6
        ? 'An expert cache of this size is too small to compute a single token; it was raised to 80.2 MB, which holds 6 experts.'
        : wish !== null && asked > fits
          ? 'An expert cache of this size does not fit into the 58.1 GB of memory that are available; it was reduced to 48.1 GB.'
          : null;
    // Any curve that rises will do here; the real one is the engine's.
    const hits = Math.min(1, 0.36 + 0.64 * Math.sqrt(slots / EXPERTS));
    return {
      cache_bytes: slots * EXPERT,
      slots,
      experts: EXPERTS,
      dense_bytes: 7_610_000_000,
      note,
      fewest_bytes: 6 * EXPERT,
      most_bytes: FITS,
      all_bytes: EXPERTS * EXPERT,
      tokens_per_second: scenario.unmeasured ? null : 1 / (0.14 + 258 * (1 - hits) * 0.0024),
      hit_rate: scenario.unmeasured ? null : hits,
    };
  };
  const list = (): Setting[] =>
    rows.map(([key, section, kind, scope, byDefault, help]) => {
      const value = chosen.get(key) ?? byDefault;
      const cache = key === 'expert_cache_bytes';
      const used = cache ? plan((loadedWith.get(key) as number | undefined) ?? null).cache_bytes : null;
      return {
        key,
        section,
        scope,
        help,
        default: byDefault,
        value: kind.kind === 'secret' ? chosen.has(key) : value,
        is_set: chosen.has(key),
        in_use: cache
          ? paged()
            ? used
            : null
          : ((scope === 'reload_model'
              ? (loadedWith.get(key) ?? MODEL[key] ?? byDefault)
              : null) as Setting['value']),
        pending: scope === 'reload_model' && chosen.get(key) !== loadedWith.get(key),
        given: scenario.given?.[key] ?? null,
        problem: chosen.has(key) ? null : (scenario.problems?.[key] ?? null),
        ...kind,
      } as Setting;
    });

  let key = '7c1e'.padEnd(64, '0');
  const serverState = (): ServerState => {
    const port = Number(chosen.get('server_port') ?? 8642);
    const on = chosen.get('server') === true;
    // 8080 is always taken here.
    const taken = port === 8080;
    const runs = on && !taken;
    return {
      address: runs ? `http://127.0.0.1:${port}` : null,
      network:
        runs && chosen.get('server_lan') === true && !scenario.noNetwork
          ? `http://192.168.1.23:${port}`
          : null,
      problem:
        on && taken
          ? {
              code: 'busy',
              message: `Port ${port} is in use by another program.`,
              hint: 'Choose another port, or end that program: it is tried again by itself.',
              details: null,
            }
          : null,
      key_begins: key.slice(0, 4),
    };
  };

  return {
    async serverState() {
      return serverState();
    },
    async serverKey() {
      return key;
    },
    async serverKeyNew() {
      key = '91f0'.padEnd(64, '1');
      return serverState();
    },
    async settingList() {
      if (scenario.unreadable) throw new BackendError(scenario.unreadable);
      return list();
    },
    async settingSet(key, value) {
      const row = rows.find(([name]) => name === key);
      if (!row) throw refuse(`There is no setting \`${key}\`.`);
      const [, , kind, , byDefault] = row;
      const say = (what: string) => refuse(`The setting \`${key}\` ${what}.`);
      if (kind.kind === 'whole' && (!Number.isInteger(value) || !inside(value, kind)))
        throw say(`must be a whole number from ${kind.min} to ${kind.max}`);
      if (kind.kind === 'decimal' && !inside(value, kind))
        throw say(`must be a number from ${kind.min} to ${kind.max}`);
      if (kind.kind === 'address' && value !== '' && !/^https?:\/\//.test(String(value)))
        throw say('cannot be used: it does not begin with https:// or http://');
      if (kind.kind === 'secret' && /\s/.test(String(value)))
        throw refuse('The access token contains characters that no token has. Copy it again.');
      if (value === '' || value === null || value === byDefault) chosen.delete(key);
      else chosen.set(key, value);
      if (key === 'download_endpoint') chosen.delete('download_token');
      return list();
    },
    async settingReset(key) {
      chosen.delete(key);
      if (key === 'download_endpoint') chosen.delete('download_token');
      return list();
    },
    async cachePlan(cacheBytes) {
      return paged() ? plan(cacheBytes) : null;
    },
    async modelReload(stop) {
      if (scenario.busy && !stop) {
        throw new BackendError({
          code: 'busy',
          message: 'An answer is being written.',
          hint: 'Wait until it is written, or let it be stopped.',
          details: null,
        });
      }
      const before = model.get();
      loadedWith = new Map(chosen);
      if (before.state !== 'ready') return;
      model.set({ state: 'loading', name: before.model.name });
      setTimeout(() => {
        const context_size = (chosen.get('context_tokens') as number | undefined) ?? 1_048_576;
        const threads = (chosen.get('threads') as number | undefined) ?? 16;
        model.set({ state: 'ready', model: { ...before.model, context_size, threads } });
      }, 300);
    },
  };
}

function inside(value: Setting['value'], range: { min: number; max: number }): boolean {
  return typeof value === 'number' && value >= range.min && value <= range.max;
}

export const settingsScenarios: Record<string, SettingsScenario> = {
  token: {
    chosen: {
      download_token: true,
      download_endpoint: 'https://mirror.example/hf',
      download_bytes_per_second: 12_500_000,
    },
  },
  chosen: { chosen: { temperature: 1.2, expert_cache_bytes: 30e9, threads: 8, top_k: 40 } },
  wrongsettings: {
    problems: {
      theme:
        'The setting `theme` in /home/you/.local/share/fastar/settings.json is "blue" and must be system, light or dark; until it is changed, the default is used.',
    },
  },
  given: { given: { temperature: 0.2, expert_cache_bytes: 8e9, models_folder: '/mnt/big/models' } },
  nosettings: {
    unreadable: {
      code: 'internal',
      message: 'FaStar made a mistake of its own at settings.rs:12:4.',
      hint: 'Your chats are safe. Try again, or start FaStar again.',
      details: null,
    },
  },
  unmeasured: { unmeasured: true },
  reloadbusy: { busy: true },
  nonetwork: { noNetwork: true, chosen: { server: true, server_lan: true } },
  porttaken: { chosen: { server: true, server_port: 8080 } },
  served: { chosen: { server: true, server_lan: true, server_origins: 'https://notes.example' } },
};
