/** The window without an X server. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { dataFolder, start, until } from './driver.mjs';

test('the window opens and answers on Wayland', async (t) => {
  // Its name must be short, and only its owner may enter it.
  const runtime = mkdtempSync(join(tmpdir(), 'fastar-'));
  chmodSync(runtime, 0o700);
  const environment = { XDG_RUNTIME_DIR: runtime, WAYLAND_DISPLAY: 'wayland-test' };
  const weston = spawn(
    'weston',
    [
      '--backend=headless-backend.so',
      '--socket=wayland-test',
      '--width=1280',
      '--height=800',
      '--idle-time=0',
    ],
    { env: { ...process.env, ...environment, DISPLAY: '' }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let said = '';
  weston.stderr.on('data', (chunk) => (said += chunk));
  const ended = new Promise((resolve) => weston.once('exit', resolve));
  t.after(async () => {
    weston.kill();
    await ended;
    rmSync(runtime, { recursive: true, force: true });
  });
  await until('weston is there', () => {
    if (weston.exitCode !== null) throw new Error(`weston ended: ${said}`);
    return existsSync(join(runtime, 'wayland-test'));
  });

  const app = await start(t, dataFolder(t), { ...environment, GDK_BACKEND: 'wayland', DISPLAY: '' });
  await app.send('Hello!');
  await app.settled();
  assert.equal((await app.answers()).length, 1);
  mkdirSync('test-results/window', { recursive: true });
  writeFileSync('test-results/window/wayland.png', await app.screenshot());
  await app.close();
});
