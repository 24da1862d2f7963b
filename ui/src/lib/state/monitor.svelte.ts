/**
 * What the app is doing, once a second, while somebody looks or an answer is being written: who opens the screen then sees what led there.
 * What is drawn are differences between two looks; a number that is not known is null and is not drawn. Tokens a second are of the time that
 * they took: a look that was idle for a part does not seem slow, and one that was idle altogether has no speed.
 */
import type { Activity, ApiError, ModelMemory, Monitor as Snapshot, TraceFile } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { failure } from './failure';

const LOOK_MS = 1000;
/** Looks that are kept: three minutes. */
export const KEPT = 180;
/** Nobody looked for longer than this: what was between is not known. */
const GAP_MS = 3500;
/** Looks that are compared for what jumps about too much from one to the next. */
const CALM = 5;

interface Look {
  snapshot: Snapshot;
  memory: ModelMemory | null;
}

/** What happened between two looks. */
export interface Point {
  /** Tokens a second of the time that they took; null where there were none. */
  answerRate: number | null;
  promptRate: number | null;
  /** Share of the experts asked for that were in memory, 0 to 1; null where none was asked for. */
  hitRate: number | null;
  /** Bytes a second from disks. */
  readRate: number | null;
  /** Share of all processors this app may use, 0 to 1. */
  cpu: number | null;
  resident: number | null;
}

/** Time in a layer for each token, and of that, time in which it waited for experts. */
export interface LayerTime {
  ms: number;
  waitedMs: number;
}

/** Whether layers were computed between two looks, of the same model. */
function busy(before: Look, now: Look): boolean {
  const [a, b] = [before.snapshot.activity, now.snapshot.activity];
  if (a === null || b === null || before.snapshot.load !== now.snapshot.load) return false;
  return b.layers_ms.some((ms, l) => ms > (a.layers_ms[l] ?? 0));
}

/** How fast tokens came that are done. */
function speeds(a: Activity, b: Activity): Pick<Point, 'answerRate' | 'promptRate'> {
  const speed = (tokens: number, ms: number) => (tokens > 0 && ms > 0 ? tokens / (ms / 1000) : null);
  return {
    answerRate: speed(b.answer_tokens - a.answer_tokens, b.answer_ms - a.answer_ms),
    promptRate: speed(b.prompt_tokens - a.prompt_tokens, b.prompt_ms - a.prompt_ms),
  };
}

export function between(before: Look, now: Look): Point {
  const seconds = (now.snapshot.at_ms - before.snapshot.at_ms) / 1000;
  const nothing: Point = {
    answerRate: null,
    promptRate: null,
    hitRate: null,
    readRate: null,
    cpu: null,
    resident: now.snapshot.process.resident_bytes,
  };
  if (!(seconds > 0)) return nothing;
  const [p, q] = [before.snapshot.process, now.snapshot.process];
  const rate = (a: number | null, b: number | null) =>
    a === null || b === null || b < a ? null : (b - a) / seconds;
  const cpu = rate(p.cpu_ms, q.cpu_ms);
  const point: Point = {
    ...nothing,
    readRate: rate(p.read_bytes, q.read_bytes),
    cpu: cpu === null ? null : Math.min(1, cpu / 1000 / Math.max(1, q.processors)),
  };
  const [a, b] = [before.snapshot.activity, now.snapshot.activity];
  // Another model counts from zero.
  if (a === null || b === null || before.snapshot.load !== now.snapshot.load) return point;
  Object.assign(point, speeds(a, b));
  const [m, n] = [before.memory?.paging, now.memory?.paging];
  if (m && n) {
    const hits = n.hits - m.hits;
    const all = hits + n.misses - m.misses + n.late - m.late;
    if (all > 0 && hits >= 0) point.hitRate = hits / all;
  }
  return point;
}

const UNKNOWN: Point = {
  answerRate: null,
  promptRate: null,
  hitRate: null,
  readRate: null,
  cpu: null,
  resident: null,
};

export class Monitor {
  snapshot = $state.raw<Snapshot | null>(null);
  memory = $state.raw<ModelMemory | null>(null);
  points = $state.raw<Point[]>([]);
  layers = $state.raw<LayerTime[]>([]);
  error = $state<ApiError | null>(null);
  /** What came of the last recording. */
  saved = $state<TraceFile | null>(null);
  open = $state(false);
  private looks: Look[] = [];
  /** What is being computed and not done yet: the look before it, and how many points it has so far. */
  private begun: { look: Look; points: number } | null = null;
  private watched = false;
  private answering = false;
  private running = false;
  /** Which time it is watched: a question of an earlier time is asked in vain. */
  private turn = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly backend: Backend) {}

  latest = $derived.by<Point | null>(() => this.points.at(-1) ?? null);

  /** Called when the screen opens and closes. */
  watch(open: boolean): void {
    this.watched = open;
    if (open) this.saved = null;
    this.run();
  }

  /** Called when the writing of answers begins and ends: what is drawn of it is there when the screen is opened. */
  follow(answering: boolean): void {
    this.answering = answering;
    this.run();
  }

  private run(): void {
    const wanted = this.watched || this.answering;
    if (wanted === this.running) return;
    this.running = wanted;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.turn += 1;
    if (wanted) void this.look(this.turn);
  }

  private async look(turn: number): Promise<void> {
    const begun = performance.now();
    // A window that nobody sees is not drawn; it looks again when it is seen.
    if (document.visibilityState === 'visible') await this.read();
    if (turn !== this.turn) return;
    const spent = performance.now() - begun;
    this.timer = setTimeout(() => void this.look(turn), Math.max(0, LOOK_MS - spent));
  }

  private async read(): Promise<void> {
    const turn = this.turn;
    try {
      const [snapshot, memory] = await Promise.all([this.backend.monitor(), this.backend.modelMemory()]);
      if (turn !== this.turn) return;
      this.take({ snapshot, memory });
      this.error = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }

  private take(now: Look): void {
    let before = this.looks.at(-1);
    const since = before ? now.snapshot.at_ms - before.snapshot.at_ms : 0;
    if (since > GAP_MS || since < 0) {
      const missing = Math.min(KEPT, Math.round(since / LOOK_MS));
      this.points = [...this.points, ...Array<Point>(Math.max(0, missing)).fill(UNKNOWN)].slice(-KEPT);
      this.looks = [];
      before = undefined;
    }
    this.snapshot = now.snapshot;
    this.memory = now.memory;
    if (before) {
      this.points = [...this.points.slice(1 - KEPT), between(before, now)];
      this.span(before, now);
    } else this.begun = null;
    if (before && before.snapshot.load !== now.snapshot.load) {
      this.looks = [];
      this.layers = [];
    }
    this.looks = [...this.looks.slice(-CALM), now];
    this.time(this.looks[0] ?? now, now);
  }

  /**
   * A token, or a chunk of a prompt, may take longer than from one look to the next. Until it is done the speed stays what it was, and then all
   * looks it took get the one it had.
   */
  private span(before: Look, now: Look): void {
    const [a, b] = [before.snapshot.activity, now.snapshot.activity];
    if (a === null || b === null || !busy(before, now)) {
      this.begun = null;
      return;
    }
    this.begun ??= { look: before, points: 0 };
    this.begun.points += 1;
    const { look, points } = this.begun;
    const done = a.answer_tokens !== b.answer_tokens || a.prompt_tokens !== b.prompt_tokens;
    const first = this.points.length - points;
    const known = this.points[first - 1] ?? UNKNOWN;
    const rates =
      done && look.snapshot.activity
        ? speeds(look.snapshot.activity, b)
        : { answerRate: known.answerRate, promptRate: known.promptRate };
    this.points = this.points.map((point, i) => (i < first ? point : { ...point, ...rates }));
    if (done) this.begun = null;
  }

  /** Times stay as they were while nothing is computed. */
  private time(before: Look, now: Look): void {
    const [a, b] = [before.snapshot.activity, now.snapshot.activity];
    if (a === null || b === null) return;
    const tokens = b.answer_tokens - a.answer_tokens + b.prompt_tokens - a.prompt_tokens;
    if (!(tokens > 0)) return;
    const [m, n] = [before.memory?.paging?.layers, now.memory?.paging?.layers];
    this.layers = b.layers_ms.map((ms, l) => ({
      ms: Math.max(0, ms - (a.layers_ms[l] ?? 0)) / tokens,
      waitedMs: Math.max(0, (n?.[l]?.waited_ms ?? 0) - (m?.[l]?.waited_ms ?? 0)) / tokens,
    }));
  }

  async record(): Promise<void> {
    await this.act(async () => {
      this.saved = null;
      await this.backend.traceStart();
    });
  }

  async stop(): Promise<void> {
    await this.act(async () => {
      this.saved = await this.backend.traceStop();
    });
  }

  private async act(ask: () => Promise<void>): Promise<void> {
    try {
      await ask();
      this.error = null;
    } catch (error) {
      this.error = failure(error);
    }
    await this.read();
  }
}
