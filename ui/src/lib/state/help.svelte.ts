/** What helps when something is not as it should be: asked for when its section is looked at; the log each second while it is. */
import type { ApiError, Hardware, LogLine, LogPage } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { failure } from './failure';

const LOOK_MS = 1000;
/** Lines that are shown. */
const MOST = 2000;

export type HelpSection = 'shortcuts' | 'computer' | 'log' | 'report';

export class Help {
  open = $state<HelpSection | null>(null);
  hardware = $state.raw<Hardware | null>(null);
  report = $state<string | null>(null);
  lines = $state.raw<LogLine[]>([]);
  file = $state<LogPage | null>(null);
  error = $state<ApiError | null>(null);
  /** Which time it is followed: a question of an earlier time is asked in vain. */
  private turn = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private next = 0;

  constructor(private readonly backend: Backend) {}

  async readHardware(): Promise<void> {
    await this.ask(async () => (this.hardware = await this.backend.hardware()));
  }

  async readReport(): Promise<void> {
    await this.ask(async () => (this.report = await this.backend.diagnostics()));
  }

  /** Follows the log from now on, or no longer. */
  follow(on: boolean): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.turn += 1;
    if (!on) return;
    this.next = 0;
    this.lines = [];
    void this.look(this.turn);
  }

  private async look(turn: number): Promise<void> {
    if (document.visibilityState === 'visible') {
      await this.ask(async () => {
        const page = await this.backend.logRead(this.next);
        if (turn !== this.turn) return;
        // Another start of the app counts anew.
        if (page.next < this.next) this.lines = [];
        this.next = page.next;
        this.file = page;
        if (page.lines.length > 0) this.lines = [...this.lines, ...page.lines].slice(-MOST);
      });
    }
    if (turn === this.turn) this.timer = setTimeout(() => void this.look(turn), LOOK_MS);
  }

  private async ask(what: () => Promise<unknown>): Promise<void> {
    try {
      await what();
      this.error = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }
}
