/**
 * The real window through tauri-driver: a small WebDriver client and the life of one app with its own data folder.
 * Needs a display, TAURI_DRIVER (or tauri-driver in the path) and FASTAR_DESKTOP_BIN.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';
const PATIENCE_MS = 30_000;

export const keys = { enter: '\uE007', escape: '\uE00C', shift: '\uE008', control: '\uE009', f2: '\uE032' };

export function binary() {
  const path = process.env.FASTAR_DESKTOP_BIN;
  if (!path) throw new Error('FASTAR_DESKTOP_BIN must name the built desktop program.');
  return realpathSync(path);
}

/** The command line beside it, which makes a model file of the demo's checkpoint. */
export const cli = () => join(dirname(binary()), 'fastar');

export async function freePort() {
  const server = createServer();
  await new Promise((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Asks until `condition` gives something true; fails with what it gave last. */
export async function until(what, condition) {
  const end = Date.now() + PATIENCE_MS;
  let last;
  for (;;) {
    last = await condition();
    if (last) return last;
    if (Date.now() > end) throw new Error(`Still not so after ${PATIENCE_MS} ms: ${what} (${last})`);
    await sleep(50);
  }
}

/** Whether nothing of a process is left: it loses its program before it closes its files, and holds its locks until then. */
export function isGone(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].startsWith('Z');
  } catch {
    return true;
  }
}

export function dataFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), 'fastar-window-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts the app on `folder` and ends it with the test. */
export async function start(t, folder, environment = {}) {
  const app = new App(folder, environment);
  t.after(() => app.end());
  await app.begin();
  return app;
}

class App {
  constructor(folder, environment) {
    this.folder = folder;
    this.environment = environment;
    this.session = null;
    this.log = '';
  }

  async begin() {
    const port = await freePort();
    const native = await freePort();
    this.address = `http://127.0.0.1:${port}`;
    this.driver = spawn(
      process.env.TAURI_DRIVER ?? 'tauri-driver',
      ['--port', String(port), '--native-port', String(native)],
      {
        // The app is a child of the driver's child: it gets its folder from here, and the language that the tests are in.
        env: {
          ...process.env,
          LANGUAGE: 'en',
          LC_ALL: 'C.UTF-8',
          FASTAR_DATA_DIR: this.folder,
          FASTAR_TEMPERATURE: '0',
          ...this.environment,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    this.gone = new Promise((resolve) => this.driver.once('exit', resolve));
    const failed = new Promise((_, reject) => this.driver.once('error', reject));
    for (const stream of [this.driver.stdout, this.driver.stderr]) {
      stream.on('data', (chunk) => (this.log = (this.log + chunk).slice(-8000)));
    }
    const ready = until('tauri-driver answers', () =>
      fetch(`${this.address}/status`).then(
        (response) => response.ok,
        () => false,
      ),
    );
    await Promise.race([ready, failed]);
    const capabilities = {
      alwaysMatch: { browserName: 'wry', 'tauri:options': { application: binary() } },
    };
    const { sessionId } = await this.request('POST', '/session', { capabilities });
    this.session = sessionId;
    await this.ask('POST', '/timeouts', { script: PATIENCE_MS, pageLoad: PATIENCE_MS });
    await until('the page is up', () =>
      this.run(`return !!document.querySelector('[data-testid=composer]')`),
    );
  }

  async request(method, path, body) {
    const response = await fetch(this.address + path, {
      method,
      // Longer than anything asked for may take: an app that does not start must end the test.
      signal: AbortSignal.timeout(3 * PATIENCE_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${value?.error} ${value?.message}\n${this.log}`);
    return value;
  }

  ask(method, path, body) {
    return this.request(method, `/session/${this.session}${path}`, body);
  }

  /** Runs a function body in the page. */
  run(script, ...args) {
    return this.ask('POST', '/execute/sync', { script, args });
  }

  /** Runs a function body that may await; what it throws comes back as `{ threw }`. */
  runAsync(script, ...args) {
    return this.ask('POST', '/execute/async', {
      script: `const done = arguments[arguments.length - 1];
        (async (...args) => { ${script} })(...arguments)
          .then((value) => done({ value }), (reason) => done({ threw: String(reason?.message ?? reason) }));`,
      args,
    });
  }

  async element(selector) {
    const found = await until(selector, () =>
      this.ask('POST', '/element', { using: 'css selector', value: selector }).catch(() => null),
    );
    return found[ELEMENT];
  }

  async click(selector) {
    await this.ask('POST', `/element/${await this.element(selector)}/click`, {});
  }

  /** Clicks the button or tab of that name in a part of the page, once it is there and can be clicked. */
  async press(within, name) {
    const found = await until(`${name} in ${within}`, () =>
      this.run(
        `const parts = document.querySelectorAll(arguments[0]);
         const controls = [...parts].flatMap((part) => [...part.querySelectorAll('button, [role=tab]')]);
         const called = (control) => control.getAttribute('aria-label') ?? control.innerText.trim();
         return controls.find((control) => called(control) === arguments[1] && !control.disabled) ?? null;`,
        within,
        name,
      ),
    );
    await this.ask('POST', `/element/${found[ELEMENT]}/click`, {});
  }

  /** Types into whatever has the focus in the element. */
  async type(selector, text) {
    await this.ask('POST', `/element/${await this.element(selector)}/value`, { text });
  }

  async send(text) {
    await this.type('[data-testid=composer]', text + keys.enter);
  }

  /** Keys pressed one after the other, all held until the last. */
  async chord(...pressed) {
    await this.ask('POST', '/actions', {
      actions: [
        {
          type: 'key',
          id: 'keyboard',
          actions: [
            ...pressed.map((value) => ({ type: 'keyDown', value })),
            ...pressed.toReversed().map((value) => ({ type: 'keyUp', value })),
          ],
        },
      ],
    });
  }

  texts(selector) {
    return this.run(
      `return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())`,
      selector,
    );
  }

  answers() {
    return this.texts('article.answer .markdown');
  }

  chats() {
    return this.texts('nav [data-chat]');
  }

  /** Resolves once nothing is being written. */
  async settled() {
    await until('the answer is finished', () =>
      this.run(
        `return !!document.querySelector('[data-testid=send]') && !document.querySelector('[aria-busy=true]')`,
      ),
    );
  }

  location() {
    return this.run('return location.href');
  }

  async screenshot() {
    return Buffer.from(await this.ask('GET', '/screenshot'), 'base64');
  }

  /** The ids of this app's own processes (the program, not the web view's helpers). */
  pids() {
    const program = binary();
    const marker = `FASTAR_DATA_DIR=${this.folder}`;
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        try {
          return (
            readlinkSync(`/proc/${pid}/exe`) === program &&
            readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(marker)
          );
        } catch {
          // Ended meanwhile, or another person's.
          return false;
        }
      })
      .map(Number);
  }

  signal(name) {
    for (const pid of this.pids()) process.kill(pid, name);
  }

  /**
   * Gives the program a few milliseconds at a time until `action` is done, and leaves it held still: the demo model writes
   * a whole answer in a fraction of a second, and a test that wants its middle must not race it.
   */
  async slowly(action) {
    const [pid] = this.pids();
    process.kill(pid, 'SIGSTOP');
    let done = false;
    const result = action().finally(() => (done = true));
    result.catch(() => {});
    const last = Date.now() + PATIENCE_MS;
    while (!done && Date.now() < last) {
      process.kill(pid, 'SIGCONT');
      // Waits busily: a timer could be late and the answer over.
      const end = performance.now() + 4;
      while (performance.now() < end);
      process.kill(pid, 'SIGSTOP');
      // The window gets its time too, or the answer is over before it has drawn the first words.
      await sleep(60);
    }
    if (!done) this.goOn();
    return result;
  }

  goOn() {
    this.signal('SIGCONT');
  }

  /** Closes the window as a person does, and waits for the program's end. */
  async close() {
    const pids = this.pids();
    await this.ask('DELETE', '').catch(() => {});
    this.session = null;
    await until('the program has ended', () => pids.every(isGone));
    await this.endDriver();
  }

  /** As the end of a session ends it. */
  terminate() {
    return this.kill('SIGTERM');
  }

  /** As a crash or a power cut would end it. */
  async kill(signal = 'SIGKILL') {
    const pids = this.pids();
    this.signal(signal);
    await until('the program is gone', () => pids.every(isGone));
    this.session = null;
    await this.endDriver();
  }

  async endDriver() {
    this.driver.kill();
    await this.gone;
  }

  async end() {
    if (!this.driver || this.driver.exitCode !== null || this.driver.signalCode !== null) return;
    this.goOn();
    if (this.session) await this.ask('DELETE', '').catch(() => {});
    this.signal('SIGKILL');
    await this.endDriver();
  }
}
