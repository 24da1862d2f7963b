/** What this computer would do with the recommended model: asked for when somebody looks, and measured once. */
import type { ApiError, MachinePlan } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { failure } from './failure';

export class Machine {
  plan = $state.raw<MachinePlan | null>(null);
  measuring = $state(false);
  error = $state<ApiError | null>(null);
  /** The screen with the whole plan. */
  open = $state(false);

  constructor(private readonly backend: Backend) {}

  /** What is known at once; free space and memory change, so it is read anew each time. */
  async read(): Promise<void> {
    await this.ask(() => this.backend.machinePlan());
  }

  /** Reads it, and then measures what is not known. */
  async measure(): Promise<void> {
    if (this.measuring) return;
    this.measuring = true;
    await this.read();
    if (this.plan && !this.plan.speed && this.plan.fits_memory === true) {
      await this.ask(() => this.backend.machineMeasure(false));
    }
    this.measuring = false;
  }

  /** Measures what was measured before: other programs may have slowed it down. */
  async measureAgain(): Promise<void> {
    if (this.measuring) return;
    this.measuring = true;
    await this.ask(() => this.backend.machineMeasure(true));
    this.measuring = false;
  }

  private async ask(what: () => Promise<MachinePlan>): Promise<void> {
    try {
      this.plan = await what();
      this.error = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }
}
