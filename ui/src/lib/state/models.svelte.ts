/**
 * Models on the disk, models that can be fetched, and the work on them. Asks the app again and again while someone looks or
 * something is at work; nothing here asks the network for anything.
 */
import type {
  ApiError,
  CatalogueEntry,
  DownloadSettings,
  DownloadSettingsChange,
  Job,
  Library,
  ModelFile,
} from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { strings } from '../strings';
import { failure } from './failure';

const LOOK_MS = 600;

/** A model in the list: what is on the disk of it, and what is being done with it. */
export interface ModelRow {
  file: string;
  name: string;
  /** None before a download has written anything. */
  onDisk: ModelFile | null;
  job: Job | null;
}

export function atWork(job: Job): boolean {
  return job.state === 'running' || job.state === 'queued';
}

export class Models {
  library = $state<Library | null>(null);
  jobs = $state<Job[]>([]);
  settings = $state<DownloadSettings | null>(null);
  /** Why the last thing that was asked for was not done. */
  error = $state<ApiError | null>(null);
  /** What a screen reader is told: that something began, stopped or ended, not every percent. */
  announcement = $state('');
  /** The settings are unfolded. */
  settingsOpen = $state(false);
  private looking = false;
  private watched = false;

  constructor(
    private readonly backend: Backend,
    private readonly modelChanged: () => Promise<void>,
  ) {}

  rows = $derived.by<ModelRow[]>(() => {
    const latest = new Map<string, Job>();
    // Newest first: the first one of each file counts.
    for (const job of this.jobs) {
      if (job.state !== 'cancelled' && !latest.has(job.file)) latest.set(job.file, job);
    }
    const rows = (this.library?.files ?? []).map((onDisk): ModelRow => {
      const job = latest.get(onDisk.file) ?? null;
      latest.delete(onDisk.file);
      return { file: onDisk.file, name: onDisk.name, onDisk, job };
    });
    for (const job of latest.values()) {
      if (job.state !== 'done') rows.unshift({ file: job.file, name: job.title, onDisk: null, job });
    }
    return rows;
  });

  /** The download at work, to be seen from everywhere. */
  download = $derived(this.jobs.find((job) => job.kind === 'download' && job.state === 'running') ?? null);

  /** Whether this entry is on the disk or on its way already. */
  has(entry: CatalogueEntry): boolean {
    return this.rows.some((row) => row.file === entry.file);
  }

  /** Called when the screen with the models opens and closes. */
  async watch(open: boolean): Promise<void> {
    this.watched = open;
    if (!open) return;
    this.error = null;
    await Promise.all([this.readLibrary(), this.readSettings(), this.readJobs()]);
  }

  async readLibrary(): Promise<void> {
    await this.read(async () => (this.library = await this.backend.modelLibrary()));
  }

  private async readSettings(): Promise<void> {
    await this.read(async () => (this.settings = await this.backend.downloadSettings()));
  }

  async readJobs(): Promise<void> {
    const before = new Map(this.jobs.map((job) => [job.id, job.state]));
    await this.read(async () => (this.jobs = await this.backend.jobList()));
    let changed = false;
    for (const job of this.jobs) {
      const was = before.get(job.id);
      if (was === job.state) continue;
      changed = true;
      if (was !== undefined) this.announcement = strings.models.announce(job);
    }
    if (changed && this.library) await this.readLibrary();
    this.lookAgain();
  }

  private lookAgain(): void {
    if (this.looking || !(this.watched || this.jobs.some(atWork))) return;
    this.looking = true;
    setTimeout(() => {
      this.looking = false;
      void this.readJobs();
    }, LOOK_MS);
  }

  private async read(ask: () => Promise<unknown>): Promise<void> {
    try {
      await ask();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }

  private async act(ask: () => Promise<unknown>): Promise<boolean> {
    this.error = null;
    let done = true;
    try {
      await ask();
    } catch (error) {
      this.error = failure(error);
      done = false;
    }
    await Promise.all([this.readJobs(), this.readLibrary()]);
    return done;
  }

  chooseFolder = () => this.act(() => this.backend.modelFolderChoose());
  show = (file: string) => this.act(() => this.backend.modelShow(file));
  verify = (file: string) => this.act(() => this.backend.modelVerify(file));
  repair = (file: string) => this.act(() => this.backend.modelRepair(file));
  resumeDownload = (file: string) => this.act(() => this.backend.downloadResume(file));
  pause = (job: Job) => this.act(() => this.backend.jobPause(job.id));
  resume = (job: Job) => this.act(() => this.backend.jobResume(job.id));
  cancel = (job: Job, keep: boolean) => this.act(() => this.backend.jobCancel(job.id, keep));
  dismiss = (job: Job) => this.act(() => this.backend.jobDismiss(job.id));
  start = (entry: CatalogueEntry, drafter: boolean) =>
    this.act(() => this.backend.downloadStart({ entry: entry.id, drafter }));

  async use(file: string): Promise<void> {
    await this.act(() => this.backend.modelUse(file));
    await this.modelChanged();
  }

  async delete(file: string): Promise<void> {
    await this.act(() => this.backend.modelDelete(file));
    await this.modelChanged();
  }

  saveSettings = (change: DownloadSettingsChange) =>
    this.act(async () => (this.settings = await this.backend.downloadSettingsSet(change)));
}
