/** A hub of a test's own: serves one small model, on a free port, as fast and as far as the test says. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

export class HubProcess {
  private constructor(
    private readonly process: ChildProcessByStdio<Writable, Readable, null>,
    /** For HF_ENDPOINT. */
    readonly address: string,
  ) {}

  /** Serves `repository`, whose model answers everything with `answer`. */
  static async start(repository: string, answer: string): Promise<HubProcess> {
    const program = process.env.FASTAR_HUB_BIN;
    if (!program) throw new Error('FASTAR_HUB_BIN must name the built example `hub` of fastar-testkit.');
    const child = spawn(program, [repository, answer], { stdio: ['pipe', 'pipe', 'inherit'] });
    for await (const line of createInterface(child.stdout)) return new HubProcess(child, line);
    throw new Error('the hub ended before it had an address');
  }

  /** After so many bytes in all nothing more comes; null for no end. */
  allow(bytes: number | null): void {
    this.process.stdin.write(bytes === null ? 'allow\n' : `allow ${bytes}\n`);
  }

  async end(): Promise<void> {
    const gone = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.stdin.end();
    await gone;
  }
}
