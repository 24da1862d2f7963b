/** One `fastar serve` of a test's own: a free port, a temporary data folder, the demo model at temperature 0. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), 'fastar-browser-'));
  private port = 0;
  private process: ChildProcess | null = null;
  private said = '';

  /** `environment` is what this one has of its own; without `withKey` it asks for none. */
  constructor(
    private readonly environment: Record<string, string> = {},
    private readonly withKey = false,
  ) {}

  get address(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The address as it was printed, with the key. */
  get printed(): string {
    return /http:\/\/\S+/.exec(this.said)?.[0] ?? '';
  }

  async start(): Promise<void> {
    const program = process.env.FASTAR_BIN;
    if (!program) throw new Error('FASTAR_BIN must name the built `fastar` program.');
    this.port ||= await freePort();
    const child = spawn(
      program,
      ['serve', '--port', String(this.port), ...(this.withKey ? [] : ['--no-key'])],
      {
        env: {
          ...process.env,
          FASTAR_DATA_DIR: this.folder,
          FASTAR_TEMPERATURE: '0',
          ...this.environment,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    this.process = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (this.said = (this.said + chunk.toString()).slice(-4000)));
    }
    const end = Date.now() + 30_000;
    for (;;) {
      if (child.exitCode !== null || Date.now() > end)
        throw new Error(`fastar serve did not start: ${this.said}`);
      const up = await fetch(this.address).then(
        (response) => response.ok,
        () => false,
      );
      if (up) return;
      await sleep(50);
    }
  }

  /** As a crash or a power cut would end it. */
  async kill(): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  /** Holds the whole program still, so that something can be done in the middle of an answer. */
  pause(): void {
    this.process?.kill('SIGSTOP');
  }

  goOn(): void {
    this.process?.kill('SIGCONT');
  }

  /** Lets a paused program run for a few milliseconds. Waits busily: a timer could be late and the answer over. */
  tick(): void {
    this.goOn();
    const end = performance.now() + 4;
    while (performance.now() < end);
    this.pause();
  }

  async remove(): Promise<void> {
    this.goOn();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
