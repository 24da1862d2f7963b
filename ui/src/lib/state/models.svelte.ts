/**
 * Models on the disk, models that can be fetched, and the work on them. The app is asked again each second while something is at
 * work, and else only when a person comes to look; nothing here asks the network for anything.
 */
import type { ApiError, CatalogueEntry, Job, Library, ModelFile } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { strings } from '../strings';
import { failure } from './failure';
import { ofJob, tell } from './notices';

const LOOK_MS = 1000;

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
  /** Why what is shown could not be read. */
  error = $state<ApiError | null>(null);
  /** What a screen reader is told: that something began, stopped or ended, not every percent. */
  announcement = $state('');
  /** The download that ended while nobody looked. */
  private ended = $state<string | null>(null);
  private watched = false;
  private looking = false;
  private jobsKnown = false;
  /** Jobs that have been more than an order. */
  private begun = new Set<string>();
  /** Counts the questions, so that a late answer does not undo a later one. */
  private asked = { library: 0, jobs: 0 };

  constructor(
    private readonly backend: Backend,
    private readonly modelChanged: () => Promise<void>,
  ) {}

  /** Downloads that are not at their end first, then what is on the disk, by name. */
  rows = $derived.by<ModelRow[]>(() => {
    const latest = new Map<string, Job>();
    // Newest first: the first one of each file counts.
    for (const job of this.jobs) {
      if (job.state !== 'cancelled' && !latest.has(job.file)) latest.set(job.file, job);
    }
    const names = new Map(this.library?.catalogue.map((entry) => [entry.file, entry.name]));
    const rows = (this.library?.files ?? []).map((onDisk): ModelRow => {
      const job = latest.get(onDisk.file) ?? null;
      latest.delete(onDisk.file);
      return { file: onDisk.file, name: names.get(onDisk.file) ?? onDisk.name, onDisk, job };
    });
    for (const job of latest.values()) {
      const name = names.get(job.file) ?? job.title;
      if (job.state !== 'done') rows.push({ file: job.file, name, onDisk: null, job });
    }
    const coming = ({ job }: ModelRow) => job?.kind === 'download' && job.state !== 'done';
    return [...rows.filter(coming), ...rows.filter((row) => !coming(row))];
  });

  /** The download that is told about beside the model's name: one at work, else one that waits for the person. */
  download = $derived.by<Job | null>(() => {
    const downloads = this.jobs.filter((job) => job.kind === 'download');
    const running = downloads.find((job) => job.state === 'running');
    return (
      running ??
      downloads.find(atWork) ??
      downloads.find((job) => job.state === 'failed') ??
      downloads.find((job) => job.state === 'paused') ??
      downloads.find((job) => job.id === this.ended) ??
      null
    );
  });

  /** What is on the disk, or on its way there, of an entry of the catalogue. */
  rowOf(entry: CatalogueEntry): ModelRow | null {
    return this.rows.find((row) => row.file === entry.file) ?? null;
  }

  /** Called when the screen with the models opens and closes. */
  async watch(open: boolean): Promise<void> {
    this.watched = open;
    if (!open) return;
    this.ended = null;
    await Promise.all([this.readLibrary(), this.readJobs()]);
  }

  /** Reads again what may have changed while the window was not looked at. */
  async refresh(): Promise<void> {
    await (this.watched ? this.watch(true) : this.readJobs());
  }

  async readLibrary(): Promise<void> {
    const asked = (this.asked.library += 1);
    await this.read(async () => {
      const library = await this.backend.modelLibrary();
      if (asked === this.asked.library) this.library = library;
      this.error = null;
    });
  }

  async readJobs(): Promise<void> {
    const asked = (this.asked.jobs += 1);
    let reached = true;
    await this.read(
      async () => {
        const jobs = await this.backend.jobList();
        if (asked === this.asked.jobs) this.take(jobs);
      },
      // The window reads again when the app answers again.
      () => (reached = false),
    );
    if (reached) this.lookAgain();
  }

  private take(jobs: Job[]): void {
    const before = new Map(this.jobs.map((job) => [job.id, job]));
    this.jobs = jobs;
    const changed = jobs.filter((job) => before.get(job.id)?.state !== job.state);
    // From its first bytes on there is something of it on the disk.
    const arrived = jobs.some((job) => job.done_bytes > 0 && before.get(job.id)?.done_bytes === 0);
    for (const job of this.jobsKnown ? changed : []) {
      // With nothing before it, it waits for a moment that nobody has to hear of.
      const told = job.state !== 'queued' || jobs.some((other) => other.state === 'running');
      if (told) this.announcement = strings.models.announce(job, !this.begun.has(job.id));
      tell(this.backend, ofJob(job));
      if (job.state === 'done' && job.kind === 'download' && !this.watched) this.ended = job.id;
    }
    for (const job of jobs) if (!this.jobsKnown || job.state !== 'queued') this.begun.add(job.id);
    this.jobsKnown = true;
    if ((changed.length > 0 || arrived) && this.library) void this.readLibrary();
  }

  private lookAgain(): void {
    if (this.looking || !this.jobs.some(atWork)) return;
    this.looking = true;
    setTimeout(() => {
      this.looking = false;
      void this.readJobs();
    }, LOOK_MS);
  }

  private async read(ask: () => Promise<unknown>, unreachable?: () => void): Promise<void> {
    try {
      await ask();
    } catch (error) {
      if (error instanceof Unreachable) unreachable?.();
      else this.error = failure(error);
    }
  }

  /** Asks for something to be done. What is returned is why it was not. */
  private async act(ask: () => Promise<unknown>): Promise<ApiError | null> {
    let refused: ApiError | null = null;
    try {
      await ask();
    } catch (error) {
      refused = failure(error);
    }
    await Promise.all([this.readJobs(), this.readLibrary()]);
    return refused;
  }

  chooseFolder = () => this.act(() => this.backend.modelFolderChoose());
  moveFolder = () => this.act(() => this.backend.modelFolderMove());
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

  async use(file: string): Promise<ApiError | null> {
    const refused = await this.act(() => this.backend.modelUse(file));
    await this.modelChanged();
    return refused;
  }

  async delete(row: ModelRow): Promise<ApiError | null> {
    let freed = 0;
    const refused = await this.act(async () => {
      freed = await this.backend.modelDelete(row.file);
    });
    if (refused === null) this.announcement = strings.models.deleted(row.name, freed);
    await this.modelChanged();
    return refused;
  }
}
