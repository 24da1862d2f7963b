/** The scripted app's models: files that are not there, and jobs that move on only when the page gets the event `fake-step`. */
import type { ApiError, CatalogueEntry, Job, JobPhase, Library, ModelFile } from '../api/types';
import { type Backend, BackendError } from './backend';

export interface LibraryScenario {
  files?: ModelFile[];
  jobs?: Job[];
  freeBytes?: number | null;
  /** Every order is refused with this. */
  refuses?: ApiError;
}

const GB = 1_000_000_000;
/** Moves all running jobs by a share of the whole, `detail`, from 0 to 1. */
const STEP = 'fake-step';

const real = (
  id: string,
  name: string,
  about: string,
  download: number,
  largestShard: number,
  drafter: number | null,
  repository = name.replaceAll(' ', '-'),
): CatalogueEntry => ({
  id,
  name,
  about,
  repository: `deepseek-ai/${repository}`,
  file: `${repository}.fst`,
  download_bytes: download,
  disk_bytes: download,
  peak_bytes: download + 2 * largestShard,
  drafter_bytes: drafter,
  approximate: false,
});

export const catalogue: CatalogueEntry[] = [
  real(
    'flash-0731',
    'DeepSeek V4 Flash 0731',
    'The newest version, of 31 July, with a drafter for speculative decoding.',
    166_886_535_336,
    3_692_775_244,
    10_863_342_388,
  ),
  real(
    'flash-dspark',
    'DeepSeek V4 Flash DSpark',
    'The version of 27 June, with a drafter for speculative decoding.',
    166_886_535_336,
    3_692_775_244,
    10_863_342_388,
  ),
  real(
    'flash-preview',
    'DeepSeek V4 Flash Preview',
    'The first version, of 24 April.',
    159_617_149_040,
    3_596_229_272,
    3_593_956_092,
    'DeepSeek-V4-Flash',
  ),
  {
    id: 'flash-dspark-fst',
    name: 'DeepSeek V4 Flash DSpark, ready-made',
    about:
      'Made by the FaStar project, in its older file format. Exact for conversations of up to 2,048 tokens.',
    repository: 'RaffaelloMolinari/Deepseek-V4-Flash-DSpark-FST',
    file: 'deepseek_v4_dspark.fst',
    download_bytes: 174_800_000_000,
    disk_bytes: 174_800_000_000,
    peak_bytes: 174_800_000_000,
    drafter_bytes: 13_400_000_000,
    approximate: true,
  },
];

const newest = catalogue[0]!;

const whole = (file: string, bytes: number): ModelFile => ({
  file,
  name: file.replace(/\.fst$/, ''),
  disk_bytes: bytes,
  condition: { condition: 'whole' },
  linked_bytes: null,
  linked_to: null,
  in_use: false,
  source: 'deepseek-ai/DeepSeek-V4-Flash-0731',
});

const incomplete = (done: number, resumable = true): ModelFile => ({
  file: newest.file,
  name: newest.file.replace(/\.fst$/, ''),
  disk_bytes: done,
  condition: {
    condition: 'incomplete',
    done_bytes: done,
    total_bytes: resumable ? newest.download_bytes : null,
    resumable,
  },
  linked_bytes: null,
  linked_to: null,
  in_use: false,
  source: 'deepseek-ai/DeepSeek-V4-Flash-0731',
});

const job = (change: Partial<Job> = {}): Job => ({
  id: 'job-1',
  kind: 'download',
  title: newest.name,
  file: newest.file,
  state: 'running',
  phase: { phase: 'downloading' },
  done_bytes: 0.4 * newest.download_bytes,
  total_bytes: newest.download_bytes,
  bytes_per_second: 41_300_000,
  seconds_left: 2425,
  error: null,
  outcome: null,
  created_at: Date.now() - 3_600_000,
  ...change,
});

const failed = (error: ApiError, change: Partial<Job> = {}): Job =>
  job({ state: 'failed', phase: null, bytes_per_second: null, seconds_left: null, error, ...change });
const during = (phase: JobPhase, change: Partial<Job> = {}): LibraryScenario => ({
  files: [incomplete(0.4 * newest.download_bytes)],
  jobs: [job({ phase, ...change })],
});
const still = { bytes_per_second: null, seconds_left: null };

const VERIFIED = 'Every weight is as it was made: 160 GB read.';

const flashFile = whole('deepseek-v4-flash.fst', 160_200_000_000);

export const libraries: Record<string, LibraryScenario> = {
  library: {
    files: [
      flashFile,
      { ...whole('DeepSeek-V4-Flash.fst', 159_700_000_000), source: 'deepseek-ai/DeepSeek-V4-Flash' },
      incomplete(66_754_614_134),
      {
        ...whole('deepseek_v4_dspark.fst', 161_300_000_000),
        source: null,
        condition: {
          condition: 'unusable',
          error: {
            code: 'no_model',
            message:
              'deepseek_v4_dspark.fst has no file deepseek_v4_dspark.fst.norm beside it, and cannot be used without.',
            hint: 'Download it from the same place, or delete this model and download it anew.',
            details: null,
          },
        },
      },
    ],
  },
  downloading: during({ phase: 'downloading' }),
  resolving: {
    jobs: [job({ phase: { phase: 'resolving' }, ...still, done_bytes: 0, total_bytes: null })],
  },
  slow: during({ phase: 'downloading' }, { bytes_per_second: 612_000, seconds_left: 163_700 }),
  begun: during({ phase: 'downloading' }, { ...still, done_bytes: 3.1 * GB }),
  stopping: during({ phase: 'stopping' }, still),
  waiting: {
    files: [incomplete(0.4 * newest.download_bytes)],
    jobs: [
      job({
        id: 'job-2',
        title: catalogue[1]!.name,
        file: catalogue[1]!.file,
        state: 'queued',
        phase: null,
        ...still,
        done_bytes: 0,
      }),
      job(),
    ],
  },
  converting: during({ phase: 'converting' }),
  // With a speed and a time that once were: they may not be shown.
  stalled: during({ phase: 'stalled', seconds: 40 }),
  retrying: during(
    { phase: 'retrying', seconds: 12, reason: 'The connection to huggingface.co was closed.' },
    still,
  ),
  paused: {
    files: [incomplete(0.4 * newest.download_bytes)],
    jobs: [job({ state: 'paused', phase: null, ...still })],
  },
  nospace: {
    freeBytes: 21.3 * GB,
    files: [incomplete(0.4 * newest.download_bytes)],
    jobs: [
      failed({
        code: 'no_space',
        message: 'The download needs 107.5 GB more in /home/you/FaStar models, and 21.3 GB are free there.',
        hint: 'Make room there, or choose another folder. What has arrived is kept.',
        details: null,
      }),
    ],
  },
  noaccess: {
    jobs: [
      failed(
        {
          code: 'no_access',
          message: 'huggingface.co does not give deepseek-ai/DeepSeek-V4-Flash-0731 without a token.',
          hint: 'Enter a token in the settings.',
          details: 'GET /api/models/deepseek-ai/DeepSeek-V4-Flash-0731/revision/main: 401 Unauthorized',
        },
        { done_bytes: 0, total_bytes: null },
      ),
    ],
  },
  moving: {
    jobs: [
      job({
        kind: 'move',
        title: 'DeepSeek-V4-Flash',
        file: 'DeepSeek-V4-Flash.fst',
        phase: { phase: 'copying' },
        done_bytes: 48 * GB,
        total_bytes: 160 * GB,
        bytes_per_second: 1.2 * GB,
        seconds_left: 94,
      }),
    ],
  },
  verifying: {
    files: [flashFile],
    jobs: [
      job({
        kind: 'verify',
        title: 'deepseek-v4-flash',
        file: flashFile.file,
        phase: { phase: 'verifying' },
        done_bytes: 48 * GB,
        total_bytes: flashFile.disk_bytes,
        bytes_per_second: 2.1 * GB,
        seconds_left: 53,
      }),
    ],
  },
  verified: {
    files: [flashFile],
    jobs: [
      job({
        kind: 'verify',
        title: 'deepseek-v4-flash',
        file: flashFile.file,
        state: 'done',
        phase: null,
        ...still,
        outcome: VERIFIED,
      }),
    ],
  },
  damagedmodel: {
    files: [flashFile],
    jobs: [
      failed(
        {
          code: 'damaged',
          message:
            '2 of 11,008 expert records of deepseek-v4-flash.fst are not what was written: layer 9, expert 113, and layer 28, expert 7.',
          hint: 'Repair fetches these records again and nothing else (26.7 MB).',
          details: null,
        },
        {
          kind: 'verify',
          title: 'deepseek-v4-flash',
          file: flashFile.file,
          done_bytes: 0,
          total_bytes: null,
        },
      ),
    ],
  },
  longnames: {
    files: [
      whole(`${'a-very-long-name-that-somebody-gave-to-a-model-'.repeat(4)}.fst`, 160 * GB),
      whole('Ein Modell mit Leerzeichen, Umlauten (äöü) und 中文 🙂.fst', 12_345),
    ],
  },
  linked: {
    files: [
      {
        ...whole('DeepSeek-V4-Flash.fst', 0),
        linked_bytes: 159_700_000_000,
        linked_to: '/media/you/large disk/DeepSeek-V4-Flash.fst',
      },
    ],
  },
  lowspace: { freeBytes: 66.4 * GB },
  left: { files: [incomplete(9.2 * GB, false)] },
  unknownspace: { freeBytes: null },
  refused: {
    files: [whole('DeepSeek-V4-Flash.fst', 159_700_000_000)],
    refuses: {
      code: 'no_space',
      message: 'The download needs 174 GB in /home/you/FaStar models, and 170 GB are free there.',
      hint: 'Make room there, or choose another folder.',
      details: null,
    },
  },
};

const refuse = (code: ApiError['code'], message: string) =>
  new BackendError({ code, message, hint: null, details: null });

type Methods = Pick<
  Backend,
  | 'modelLibrary'
  | 'modelFolderChoose'
  | 'modelFolderMove'
  | 'modelShow'
  | 'modelDelete'
  | 'modelVerify'
  | 'modelRepair'
  | 'downloadStart'
  | 'downloadResume'
  | 'jobList'
  | 'jobPause'
  | 'jobResume'
  | 'jobCancel'
  | 'jobDismiss'
>;

/** `inUse` tells the file of the model that answers. */
export function fakeLibrary(scenario: LibraryScenario, inUse: () => string | null): Methods {
  const library: Library = {
    folder: '/home/you/FaStar models',
    free_bytes: scenario.freeBytes === undefined ? 1_214.6 * GB : scenario.freeBytes,
    files: structuredClone(scenario.files ?? []),
    catalogue,
  };
  let jobs: Job[] = structuredClone(scenario.jobs ?? []);
  let ids = 1;

  const find = (id: string): Job => {
    const found = jobs.find((job) => job.id === id);
    if (!found) throw refuse('not_found', 'This work is no longer in the list.');
    return found;
  };
  const begin = (change: Partial<Job>) => {
    if (scenario.refuses) throw new BackendError(scenario.refuses);
    jobs = jobs.filter((other) => other.file !== change.file);
    jobs.unshift(
      job({
        id: `job-${(ids += 1)}`,
        state: 'queued',
        phase: null,
        ...still,
        done_bytes: 0,
        created_at: Date.now(),
        ...change,
      }),
    );
  };
  const fileOf = (file: string) => library.files.find((other) => other.file === file);

  function end(job: Job): void {
    Object.assign(job, { state: 'done', phase: null, ...still, done_bytes: job.total_bytes });
    if (job.kind === 'verify') job.outcome = VERIFIED;
    if (job.kind === 'repair') job.outcome = '2 records were fetched again; the file is right now.';
    if (job.kind !== 'download') return;
    library.files = library.files.filter((other) => other.file !== job.file);
    library.files.push(whole(job.file, job.total_bytes ?? 0));
  }

  function move(job: Job, share: number): void {
    if (job.state === 'queued') Object.assign(job, { state: 'running', phase: { phase: 'resolving' } });
    if (job.state !== 'running') return;
    const entry = catalogue.find((other) => other.file === job.file);
    job.total_bytes ??=
      job.kind === 'download' ? (entry?.download_bytes ?? 0) : (fileOf(job.file)?.disk_bytes ?? 0);
    job.phase = { phase: job.kind === 'download' ? 'downloading' : 'verifying' };
    job.done_bytes = Math.min(job.total_bytes, job.done_bytes + share * job.total_bytes);
    job.bytes_per_second = 41_300_000;
    job.seconds_left = Math.round((job.total_bytes - job.done_bytes) / job.bytes_per_second);
    if (job.kind === 'download' && !fileOf(job.file)) {
      library.files.push({
        ...incomplete(job.done_bytes),
        file: job.file,
        name: job.file.replace(/\.fst$/, ''),
      });
    }
    const onDisk = fileOf(job.file);
    if (onDisk?.condition.condition === 'incomplete') {
      onDisk.condition.done_bytes = job.done_bytes;
      onDisk.disk_bytes = job.done_bytes;
    }
    if (job.done_bytes >= job.total_bytes) end(job);
  }
  window.addEventListener(STEP, (event) => {
    for (const job of jobs) move(job, (event as CustomEvent<number>).detail);
  });

  return {
    async modelLibrary() {
      const files = library.files.map((file) => ({ ...file, in_use: file.file === inUse() }));
      return structuredClone({ ...library, files });
    },
    async modelFolderChoose() {
      library.folder = '/media/you/large disk/models';
      library.free_bytes = 3_400 * GB;
    },
    async modelFolderMove() {
      const whole = library.files.filter((file) => file.condition.condition === 'whole');
      const used = whole.find((file) => file.file === inUse());
      if (used) throw refuse('busy', `${used.name} is in use.`);
      library.folder = '/media/you/large disk/models';
      library.free_bytes = 3_400 * GB;
      library.files = library.files.filter((file) => !whole.includes(file));
      for (const { file, name, disk_bytes } of whole)
        begin({ kind: 'move', title: name, file, total_bytes: disk_bytes });
    },
    async modelShow() {},
    async modelDelete(file) {
      const onDisk = fileOf(file);
      if (!onDisk) throw refuse('not_found', 'This model is no longer there.');
      if (file === inUse()) throw refuse('busy', 'This model is in use. Choose another one first.');
      library.files = library.files.filter((other) => other.file !== file);
      jobs = jobs.filter((other) => other.file !== file);
      library.free_bytes = (library.free_bytes ?? 0) + onDisk.disk_bytes;
      return onDisk.disk_bytes;
    },
    async modelVerify(file) {
      begin({ kind: 'verify', title: file, file, total_bytes: null });
    },
    async modelRepair(file) {
      begin({ kind: 'repair', title: file, file, total_bytes: 26_700_000 });
    },
    async downloadStart({ entry, drafter }) {
      const found = catalogue.find((other) => other.id === entry);
      if (!found) throw refuse('not_found', 'This model is not in the catalogue.');
      begin({
        title: found.name,
        file: found.file,
        total_bytes: found.download_bytes - (drafter ? 0 : (found.drafter_bytes ?? 0)),
      });
    },
    async downloadResume(file) {
      const left = fileOf(file)?.condition;
      if (left?.condition !== 'incomplete') throw refuse('not_found', 'There is nothing to go on with.');
      begin({ file, title: newest.name, done_bytes: left.done_bytes });
    },
    async jobList() {
      return structuredClone(jobs);
    },
    async jobPause(id) {
      Object.assign(find(id), { state: 'paused', phase: null, ...still });
    },
    async jobResume(id) {
      Object.assign(find(id), { state: 'queued', phase: null, error: null });
    },
    async jobCancel(id, keep) {
      const job = find(id);
      Object.assign(job, { state: 'cancelled', phase: null, ...still });
      if (!keep && job.kind === 'download')
        library.files = library.files.filter((other) => other.file !== job.file);
    },
    async jobDismiss(id) {
      jobs = jobs.filter((other) => other.id !== id);
    },
  };
}
