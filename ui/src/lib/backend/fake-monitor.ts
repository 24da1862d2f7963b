/** The scripted app at work: every question finds it a second further, so the same pictures come each time. */
import type { ModelInfo, ModelMemory, Monitor, TraceFile } from '../api/types';
import { type Backend, BackendError } from './backend';

export interface MonitorScenario {
  /** Nothing is being computed. */
  idle?: boolean;
  /** The system says nothing about this process. */
  silent?: boolean;
  /** Questions about it fail. */
  broken?: boolean;
}

const EXPERT = 13_369_344;
const SLOTS = 3600;
const TAKEN = 6;

type Methods = Pick<Backend, 'monitor' | 'modelMemory' | 'traceStart' | 'traceStop'>;

export function fakeMonitor(scenario: MonitorScenario, inUse: () => ModelInfo | null): Methods {
  let now = 0;
  let tokens = 0;
  let hits = 0;
  let misses = 0;
  let cpu = 0;
  let recorded: number | null = null;
  let layersMs: number[] = [];
  let waitedMs: number[] = [];
  let random = 1;
  const next = () => {
    random = (random * 16_807) % 2_147_483_647;
    return random / 2_147_483_647;
  };
  /** How much each expert is liked, the same each time. */
  let liked: number[] = [];

  function second(model: ModelInfo): void {
    const { layers, experts } = model;
    if (layersMs.length !== layers) {
      layersMs = Array<number>(layers).fill(0);
      waitedMs = Array<number>(layers).fill(0);
      liked = Array.from({ length: layers * experts }, () => next() ** 4);
    }
    now += 1000;
    if (scenario.idle) return;
    const written = model.is_demo ? 160 : 3 + Math.round(2 * next());
    const rate = 0.74 + 0.12 * Math.sin(now / 9000) + 0.04 * next();
    tokens += written;
    hits += Math.round(written * layers * TAKEN * rate);
    misses += Math.round(written * layers * TAKEN * (1 - rate));
    cpu += model.is_demo ? 1700 : 9000 + 1500 * next();
    for (let l = 0; l < layers; l += 1) {
      const wait = model.is_demo ? 0 : 1.5 + 3 * next();
      const computed = model.is_demo ? 0.9 + 0.2 * next() : 3.2 + 0.6 * next();
      layersMs[l] = (layersMs[l] ?? 0) + written * (computed + wait);
      waitedMs[l] = (waitedMs[l] ?? 0) + written * wait;
    }
    if (recorded !== null) recorded += written * (1 + layers * TAKEN);
  }

  const trace = (bytes: number): TraceFile => ({
    path: '/home/you/.local/share/fastar/traces/routing-2026-11-30-144512.trace',
    bytes,
    whole: true,
  });

  function map(model: ModelInfo): string[] {
    const busy = Math.floor(now / 1000) % model.layers;
    return Array.from({ length: model.layers }, (_, l) => {
      let row = '';
      for (let e = 0; e < model.experts; e += 1) {
        const heat = liked[l * model.experts + e] ?? 0;
        const drift = 0.02 * Math.sin(now / 4000 + e);
        if (!scenario.idle && l === busy && heat > 0.78) row += 'x';
        else if (heat + drift < 0.21) row += '.';
        else row += String(Math.min(7, Math.round(7 * Math.sqrt(heat))));
      }
      return row;
    });
  }

  return {
    async monitor(): Promise<Monitor> {
      if (scenario.broken) {
        throw new BackendError({
          code: 'internal',
          message: 'FaStar made a mistake of its own at monitor.rs:40:9.',
          hint: 'Your chats are safe. Try again, or start FaStar again.',
          details: null,
        });
      }
      const model = inUse();
      if (model) second(model);
      return {
        at_ms: now,
        load: model ? 1 : null,
        activity: model
          ? {
              ...{ prompt_tokens: 24, answer_tokens: tokens, prompt_ms: 12 },
              answer_ms: layersMs.reduce((sum, ms) => sum + ms, 0),
              layers_ms: [...layersMs],
            }
          : null,
        experts: model && !model.is_demo ? map(model) : [],
        process: scenario.silent
          ? { resident_bytes: null, available_bytes: null, cpu_ms: null, processors: 16, read_bytes: null }
          : {
              resident_bytes: model?.is_demo ? 182_000_000 : 57_300_000_000,
              available_bytes: model?.is_demo ? 21_400_000_000 : 3_900_000_000,
              cpu_ms: cpu,
              processors: 16,
              read_bytes: model?.is_demo ? 31_000_000 : misses * EXPERT,
            },
        recording: recorded === null ? null : trace(recorded),
      };
    },
    async modelMemory(): Promise<ModelMemory | null> {
      const model = inUse();
      if (!model) return null;
      // As the embedded demo: in memory as a whole.
      if (model.is_demo)
        return { dense_bytes: 0, cache_bytes: 0, slots: 96, experts: 96, note: null, paging: null };
      return {
        dense_bytes: 7_610_000_000,
        cache_bytes: SLOTS * EXPERT,
        slots: SLOTS,
        experts: model.layers * model.experts,
        note: null,
        paging: {
          filled: 3588,
          expert_bytes: EXPERT,
          tokens,
          hits,
          misses,
          late: 0,
          waited_ms: waitedMs.reduce((sum, ms) => sum + ms, 0),
          demand_bytes: misses * EXPERT,
          ahead_bytes: 0,
          warm_bytes: 0,
          useful: 0,
          wasted: 0,
          last: { tokens: 1, hits: 0, misses: 0, late: 0, waited_ms: 0, demand_bytes: 0 },
          layers: waitedMs.map((waited_ms) => ({ hits: 0, misses: 0, late: 0, waited_ms })),
        },
      };
    },
    async traceStart() {
      recorded = 32;
      return trace(32);
    },
    async traceStop() {
      const ended = recorded === null ? null : trace(recorded);
      recorded = null;
      return ended;
    },
  };
}

export const monitorScenarios: Record<string, MonitorScenario> = {
  idle: { idle: true },
  silent: { silent: true },
  broken: { broken: true },
};
