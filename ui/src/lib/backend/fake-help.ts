/** The scripted app's computer, log and report. */
import type { Hardware, LogLine, LogPage, MachinePlan } from '../api/types';
import { type Backend, BackendError } from './backend';

const hardware: Hardware = {
  system: 'linux 6.12.0, Some Linux 13, x86_64',
  processor: 'Some Processor 9 with 8 Cores',
  instructions: 'avx512',
  processors: 16,
  cores: 8,
  quota: null,
  threads: 8,
  memory_bytes: 66_600_000_000,
  available_bytes: 58_100_000_000,
  data: { folder: '/home/you/.local/share/fastar', free_bytes: 120_400_000_000 },
  models: { folder: '/home/you/FaStar models', free_bytes: 1_214_600_000_000 },
  npu: false,
};

const begun: [LogLine['level'], target: string, text: string][] = [
  ['info', 'fastar_app', 'FaStar begins version="0.1.0" face=Desktop'],
  [
    'info',
    'fastar_engine::load',
    'Expert cache: 48.1 GB for 3600 of 11008 experts; 7.6 GB of other weights stay in memory. slots=3600 cache=48129638400',
  ],
  ['info', 'fastar_app::models', 'the model is ready model=deepseek-v4-flash threads=8'],
  [
    'warn',
    'fastar_app::sessions',
    'a chat is read again from its beginning error=The saved state belongs to another model.',
  ],
  ['debug', 'fastar_engine::pager::disk', 'reads will be buffered error=Invalid argument (os error 22)'],
  [
    'error',
    'fastar_app::jobs',
    'a job failed error=huggingface.co cannot be reached: the name could not be resolved.',
  ],
];

type Methods = Pick<Backend, 'hardware' | 'machinePlan' | 'machineMeasure' | 'logRead' | 'diagnostics'>;

/** As the app works it out for a computer with 64 GB, or for one with too little of something. */
function machine(name: string, at: number | null): MachinePlan {
  const small = name === 'smallmachine';
  const peak_bytes = 163_408_743_436;
  const free_bytes = name === 'fulldisk' || small ? 82_300_000_000 : hardware.models.free_bytes;
  const available_bytes = small ? 5_200_000_000 : hardware.available_bytes;
  const slow = name === 'nodirect';
  const is_measured = at !== null && !small && !slow;
  return {
    measured_at: is_measured ? at : null,
    entry: 'flash-0731',
    name: 'DeepSeek V4 Flash 0731',
    hardware: { ...hardware, available_bytes, models: { ...hardware.models, free_bytes } },
    download_bytes: 156_023_192_948,
    peak_bytes,
    fits_disk: (free_bytes ?? 0) >= peak_bytes,
    dense_bytes: 7_794_392_436,
    cache_bytes: small ? 6 * 13_369_344 : 3512 * 13_369_344,
    slots: small ? 6 : 3512,
    experts: 11_008,
    fits_memory: !small,
    memory_note: small
      ? 'This model needs at least 7.9 GB of memory: 7.8 GB for weights that every token reads and 80.2 MB for the experts of one token in one layer. Of that, 5.2 GB are available. Close other programs, or use a computer with more memory.'
      : null,
    speed: is_measured
      ? { least: 3.67, most: 7.18, memory_rate: 96.2e9, disk_rate: 6.31e9, hit_rate: 0.739 }
      : null,
    not_measured:
      at !== null && slow
        ? 'The disk of /home/you/FaStar models cannot be measured: its file system reads through memory only.'
        : null,
  };
}

export function fakeHelp(name: string): Methods {
  const empty = name === 'emptylog';
  const lines: LogLine[] = (empty ? [] : begun).map(([level, target, text], i) => ({
    number: i + 1,
    at: 1_796_000_000_000 + 1300 * i,
    level,
    target,
    text,
  }));
  // A page says what happened: one line more each time the event comes.
  window.addEventListener('fake-log', (event) => {
    lines.push({
      number: lines.length + 1,
      at: 1_796_000_100_000,
      level: 'info',
      target: 'fastar_app',
      text: (event as CustomEvent<string>).detail,
    });
  });
  // One that was measured before the page was opened.
  let at: number | null = name === 'measured' ? Date.now() - 12.4 * 60_000 : null;
  const plan = () => machine(name, at);
  return {
    async machinePlan() {
      return plan();
    },
    async machineMeasure() {
      await new Promise((resolve) => setTimeout(resolve, 200));
      at = Date.now();
      return plan();
    },
    async hardware() {
      if (name === 'brokenhelp') {
        throw new BackendError({
          code: 'internal',
          message: 'FaStar made a mistake of its own at hardware.rs:20:5.',
          hint: 'Your chats are safe. Try again, or start FaStar again.',
          details: null,
        });
      }
      return name === 'smallcomputer'
        ? {
            ...hardware,
            processor: 'An Old Processor',
            instructions: 'baseline',
            cores: 4,
            processors: 4,
            threads: 1,
            quota: 1.5,
            memory_bytes: null,
            available_bytes: null,
            npu: true,
            models: { folder: `/mnt/${'a very long name of a disk '.repeat(6)}/models`, free_bytes: null },
          }
        : hardware;
    },
    async logRead(after): Promise<LogPage> {
      return {
        lines: lines.filter((line) => line.number > after),
        next: lines.length,
        file: '/home/you/.local/share/fastar/logs/fastar.log',
        written: name !== 'emptylog',
      };
    },
    async diagnostics() {
      return [
        'FaStar 0.1.0, desktop',
        `System: ${hardware.system}`,
        `Processor: ${hardware.processor}, AVX-512, 8 threads on 8 cores of 16 processors`,
        'Memory: 58.1 GB available of 66.6 GB',
        'NPU: none found',
        'Data: ~/.local/share/fastar, 120 GB free',
        'Models: ~/FaStar models, 1.2 TB free',
        'Model: deepseek-v4-flash, 160 GB, 43 layers of 256 experts, 8 threads',
        'Settings that differ from the defaults:',
        '  temperature = 1.2',
        '  download_proxy = "http://***@proxy.example:3128/"',
        'Log (~/.local/share/fastar/logs/fastar.log):',
        ...begun.map(([level, target, text]) => `  ${level.toUpperCase()} ${target}: ${text}`),
        '',
      ].join('\n');
    },
  };
}
