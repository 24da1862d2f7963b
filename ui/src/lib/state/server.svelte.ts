/** The local server of the window, as the app says it is. What it should be is among the settings. */
import type { ApiError, ServerState } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { failure } from './failure';

export class LocalServer {
  state = $state.raw<ServerState | null>(null);
  error = $state<ApiError | null>(null);

  constructor(private readonly backend: Backend) {}

  async read(): Promise<void> {
    await this.ask(() => this.backend.serverState());
  }

  /** The whole key, for the clipboard; null when it cannot be had. */
  async key(): Promise<string | null> {
    try {
      return await this.backend.serverKey();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
      return null;
    }
  }

  async newKey(): Promise<void> {
    await this.ask(() => this.backend.serverKeyNew());
  }

  private async ask(what: () => Promise<ServerState>): Promise<void> {
    try {
      this.state = await what();
      this.error = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }
}
