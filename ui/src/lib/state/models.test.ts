import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Job, Library } from '../api/types';
import { type Backend, BackendError, Unreachable } from '../backend';
import { Models } from './models.svelte';

const job = (change: Partial<Job> = {}): Job => ({
  id: 'one',
  kind: 'download',
  title: 'A model',
  file: 'a.fst',
  state: 'running',
  phase: { phase: 'downloading' },
  done_bytes: 10,
  total_bytes: 100,
  bytes_per_second: null,
  seconds_left: null,
  error: null,
  outcome: null,
  created_at: 0,
  ...change,
});

const library = (files: Library['files'] = []): Library => ({
  folder: '/models',
  free_bytes: null,
  files,
  catalogue: [],
});

const onDisk = (file: string): Library['files'][number] => ({
  file,
  name: file.replace('.fst', ''),
  disk_bytes: 1,
  condition: { condition: 'whole' },
  linked_bytes: null,
  linked_to: null,
  in_use: false,
  source: null,
});

/** A backend whose answers are what the test says, and a count of the questions. */
function backend(jobList: () => Promise<Job[]>, modelLibrary = async () => library()) {
  const asked = { jobList: 0 };
  const told: string[] = [];
  const answers: Partial<Backend> = {
    jobList: () => {
      asked.jobList += 1;
      return jobList();
    },
    modelLibrary,
    notify: async (title) => void told.push(title),
    jobPause: async () => {
      throw new BackendError({ code: 'busy', message: 'Not now.', hint: null, details: null });
    },
  };
  return { asked, told, models: new Models(answers as Backend, async () => {}) };
}

describe('the models on the screen', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('do not go back when an earlier question is answered later', async () => {
    const waiting: ((jobs: Job[]) => void)[] = [];
    const { models } = backend(() => new Promise((resolve) => waiting.push(resolve)));
    const first = models.readJobs();
    const second = models.readJobs();
    waiting[1]?.([job({ state: 'paused', done_bytes: 50 })]);
    await second;
    waiting[0]?.([job({ done_bytes: 20 })]);
    await first;
    expect(models.jobs.map(({ state, done_bytes }) => [state, done_bytes])).toEqual([['paused', 50]]);
  });

  it('tell the system of an end that they have seen, and not of one from before', async () => {
    let jobs = [job({ id: 'old', state: 'done' }), job({ title: 'B' })];
    const { models, told } = backend(async () => jobs);
    await models.readJobs();
    jobs = [job({ id: 'old', state: 'done' }), job({ title: 'B', state: 'done' })];
    await models.readJobs();
    await models.readJobs();
    expect(told).toEqual(['B']);
  });

  it('are asked for once a second while something runs, and no more once it has ended', async () => {
    let state: Job['state'] = 'running';
    const { models, asked } = backend(async () => [job({ state })]);
    await models.readJobs();
    await vi.advanceTimersByTimeAsync(5000);
    expect(asked.jobList).toBe(6);
    state = 'done';
    await vi.advanceTimersByTimeAsync(1000);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked.jobList).toBe(7);
  });

  it('are not asked for while the app does not answer, and again when it does', async () => {
    let reachable = true;
    const { models, asked } = backend(async () => {
      if (!reachable) throw new Unreachable();
      return [job()];
    });
    await models.readJobs();
    reachable = false;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked.jobList).toBe(2);
    expect(models.jobs).toHaveLength(1);
    reachable = true;
    await models.refresh();
    await vi.advanceTimersByTimeAsync(3000);
    expect(asked.jobList).toBe(6);
  });

  it('stand with downloads that are not at their end first', async () => {
    const jobs = [
      job({ id: '4', file: 'new.fst', title: 'New', state: 'queued' }),
      job({ id: '3', file: 'b.fst', state: 'failed' }),
      job({ id: '2', file: 'b.fst', state: 'cancelled' }),
      job({ id: '1', file: 'c.fst', state: 'done' }),
      job({ id: '0', file: 'gone.fst', state: 'done' }),
    ];
    const files = [onDisk('a.fst'), onDisk('b.fst'), onDisk('c.fst')];
    const { models } = backend(
      async () => jobs,
      async () => library(files),
    );
    await models.watch(true);
    expect(models.rows.map(({ name, job }) => [name, job?.id ?? null])).toEqual([
      ['b', '3'],
      ['New', '4'],
      ['a', null],
      ['c', '1'],
    ]);
  });

  it('are looked for on the disk when the first bytes of a download are there', async () => {
    let done = 0;
    const { models } = backend(
      async () => [job({ done_bytes: done })],
      async () => library(done > 0 ? [onDisk('a.fst')] : []),
    );
    await models.watch(true);
    expect(models.rows.map((row) => row.onDisk)).toEqual([null]);
    done = 5;
    await vi.advanceTimersByTimeAsync(1000);
    expect(models.rows.map((row) => row.onDisk?.file)).toEqual(['a.fst']);
  });

  it('say what was refused to the one who asked', async () => {
    const { models } = backend(async () => [job({ state: 'paused' })]);
    expect((await models.pause(job()))?.message).toBe('Not now.');
    expect(models.error).toBeNull();
  });

  it('tell how much was freed, and not what the list said before', async () => {
    const { models } = backend(
      async () => [],
      async () => library([onDisk('a.fst')]),
    );
    const answers = (models as unknown as { backend: Partial<Backend> }).backend;
    answers.modelDelete = async () => 160_200_000_000;
    const row = { file: 'a.fst', name: 'A model', onDisk: { ...onDisk('a.fst'), disk_bytes: 5 } };
    expect(await models.delete(row as unknown as Parameters<Models['delete']>[0])).toBeNull();
    expect(models.announcement).toContain('160 GB');
  });
});
