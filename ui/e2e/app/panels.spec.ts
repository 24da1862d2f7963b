/** Settings, monitor and help with the real app: the demo model lies on the disk as a file, so its experts are paged. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answers, expect, send, settled, test as base } from '../page';
import { expected } from '../expected';
import { Server } from '../server';

const demo = fileURLToPath(new URL('../../../src-tauri/crates/app/demo', import.meta.url));

const test = base.extend<{ server: Server }>({
  server: async ({ page }, use) => {
    const program = process.env.FASTAR_BIN;
    if (!program) throw new Error('FASTAR_BIN must name the built `fastar` program.');
    const folder = mkdtempSync(join(tmpdir(), 'fastar-paged-'));
    const model = join(folder, 'demo.fst');
    execFileSync(program, ['convert', demo, model], { stdio: 'pipe' });
    const server = new Server({ FASTAR_MODEL: model });
    await server.start();
    await use(server);
    // First the page: one that is still being loaded must not miss the server.
    await page.close();
    await server.remove();
    rmSync(folder, { recursive: true, force: true });
  },
});

test('another cache size is planned before, counts after a reload, and the real value is shown', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  await page.keyboard.press('Control+,');
  const panel = page.getByTestId('settings-panel');
  await panel.getByRole('tab', { name: 'Performance' }).click();
  const plan = panel.getByTestId('cache-plan');
  await expect(plan).toContainText('Room for 96 of 96 experts (100 %).');
  const setting = panel.locator('[data-setting=expert_cache_bytes]');
  const before = /was loaded with ([\d.]+ MB)\./.exec(await setting.innerText())?.[1];
  // All 96 experts of the demo, exactly.
  expect(before).toBeTruthy();

  await panel.locator('#setting-expert_cache_bytes').fill('0.002');
  await page.keyboard.press('Enter');
  const slots = Number(/Room for (\d+) of 96 experts/.exec(await plan.innerText())?.[1]);
  await expect(plan).not.toContainText('Room for 96');
  await expect(setting).toContainText(`was loaded with ${before}.`);
  await panel.getByTestId('reload').click();
  await expect(panel.getByTestId('reload')).toHaveCount(0);
  await expect(setting).not.toContainText(`was loaded with ${before}.`);
  await expect(setting).toContainText(/was loaded with [\d.]+ MB\./);
  expect(slots).toBeGreaterThan(0);
  const file = JSON.parse(readFileSync(join(server.folder, 'settings.json'), 'utf8'));
  expect(file).toEqual({ expert_cache_bytes: 2_000_000 });

  // It still writes the same.
  await page.keyboard.press('Escape');
  await send(page, 'Who are you?');
  await settled(page);
  await page.keyboard.press('Control+n');
  await send(page, 'Who are you?');
  await settled(page);
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
});

test('a choice of colours and of a language is there again after a restart', async ({ page, server }) => {
  await page.goto(server.address);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+,');
  await page.getByRole('radio', { name: 'Dark' }).check();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await page.getByRole('radio', { name: '简体中文' }).check();
  await expect(page.getByRole('dialog', { name: '设置' })).toBeVisible();
  await server.kill();
  await server.start();
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await expect(page.locator('html')).toHaveAttribute('lang', 'zh-Hans');
  await expect(page.getByTestId('new-chat')).toContainText('新对话');
});

test('the monitor shows the real numbers of the model, and a recording can be simulated', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+Shift+m');
  const panel = page.getByTestId('monitor-panel');
  await expect(panel.getByTestId('expert-map')).toHaveAccessibleName(
    /Map of 6 layers with 16 experts each; \d+ experts/,
  );
  await panel.getByRole('button', { name: 'Record', exact: true }).click();
  await expect(panel.getByTestId('recording')).toContainText('Recording, 32 B so far');
  await page.keyboard.press('Escape');
  await send(page, 'Tell me a story about a fox.');
  await settled(page);
  await page.keyboard.press('Control+Shift+m');
  // Experts of the demo that this story took are in memory now.
  await expect(panel).toContainText(/\d+ of 96 places are filled; the model has 96 experts\./);
  await expect(panel.getByRole('meter')).toHaveAttribute('aria-valuetext', /FaStar uses [\d.]+ [MG]B of the/);
  await panel.getByRole('button', { name: 'Stop' }).click();
  await expect(panel.getByTestId('recorded')).toBeVisible();
  const path = await panel.locator('.path').innerText();
  const program = process.env.FASTAR_BIN ?? '';
  const simulated = execFileSync(program, ['simulate', path], { encoding: 'utf8' });
  expect(simulated).toContain('tokens through 6 layers of 16 experts');
});

test('what happens is in the log as it happens, at the chosen level, and in the report', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await page.getByTestId('app-menu').click();
  await page.getByRole('menuitem', { name: 'Help and shortcuts' }).click();
  const panel = page.getByTestId('help-panel');
  await panel.getByRole('tab', { name: 'Log' }).click();
  const lines = panel.getByTestId('log-lines');
  await expect(lines).toContainText('FaStar begins');
  await expect(lines).toContainText('the model is ready');
  await panel.getByRole('button', { name: 'Choose what is written down' }).click();
  await page.locator('[data-setting=log_level]').getByRole('radio', { name: 'Details' }).check();
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await panel.getByRole('tab', { name: 'Log' }).click();
  await expect(lines).toContainText('a setting was changed setting="log_level"');
  const text = readFileSync(join(server.folder, 'logs/fastar.log'), 'utf8');
  expect(text).toContain('INFO fastar_app: FaStar begins');
  await panel.getByRole('tab', { name: 'Report' }).click();
  await expect(panel.getByTestId('report')).toContainText('log_level = "debug"');
  await expect(panel.getByTestId('report')).toContainText('FaStar begins');
  await panel.getByRole('tab', { name: 'This computer' }).click();
  await expect(panel.getByTestId('computer')).toContainText(/Computes with AVX|has no AVX2/);
});
