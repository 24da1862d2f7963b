/** The way to a model, from the first click to its first answer: the real interface, `fastar serve`, and a hub of its own. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HubProcess } from '../hub';
import { answers, expect, send, settled, test as base } from '../page';
import { Server } from '../server';

const NAME = 'DeepSeek V4 Flash 0731';
const ANSWER = 'I came over the wire, and every byte is here.';

const test = base.extend<{ hub: HubProcess; models: string; server: Server }>({
  hub: async ({}, use) => {
    const hub = await HubProcess.start('deepseek-ai/DeepSeek-V4-Flash-0731', ANSWER);
    await use(hub);
    await hub.end();
  },
  models: async ({}, use) => {
    const folder = mkdtempSync(join(tmpdir(), 'fastar models ü '));
    await use(folder);
    rmSync(folder, { recursive: true, force: true });
  },
  server: async ({ hub, models, page }, use) => {
    const server = new Server({ HF_ENDPOINT: hub.address, FASTAR_MODELS_DIR: models });
    await server.start();
    await use(server);
    // First the page: one that is still being loaded must not miss the server.
    await page.close();
    await server.remove();
  },
});

test('a download is started in the page, paused, killed, gone on with, and its model answers', async ({
  page,
  hub,
  models,
  server,
}) => {
  test.setTimeout(180_000);
  hub.allow(5_000_000);
  await page.goto(server.address);
  await page.getByRole('button', { name: 'Get the real model' }).click();
  const plan = page.getByTestId('plan-panel');
  await expect(plan.getByTestId('plan-folder')).toContainText(models);
  // Whatever this machine is: what was measured is said, or why nothing was.
  await expect(plan.getByTestId('plan-speed')).toContainText(/tokens\/s|memory/);
  // What is free on the machine of a test does not matter for a model this small.
  await plan.getByTestId('plan-download').click();
  const panel = page.getByTestId('model-panel');
  await expect(panel.getByTestId('model-folder')).toContainText(models);

  const row = panel.getByRole('group', { name: NAME, exact: true });
  const part = async () => Number(await row.getByRole('progressbar').getAttribute('aria-valuenow'));
  await expect.poll(part).toBeGreaterThan(9);
  await row.getByRole('button', { name: `Pause: ${NAME}` }).click();
  await expect(row.getByTestId('job')).toHaveAttribute('data-state', 'paused');
  const paused = await part();
  expect(paused).toBeLessThan(70);

  // Paused is paused, over a crash too.
  await server.kill();
  await expect(panel.getByText('FaStar is not answering')).toBeVisible();
  await server.start();
  await expect(panel.getByText('FaStar is not answering')).toHaveCount(0);
  await expect(row.getByTestId('job')).toHaveAttribute('data-state', 'paused');
  // A percent is more than what an unflushed write may be.
  expect(Math.abs((await part()) - paused)).toBeLessThanOrEqual(1);

  // A crash in the middle of it, and a page that is opened anew.
  hub.allow(10_000_000);
  await row.getByRole('button', { name: `Resume: ${NAME}` }).click();
  await expect.poll(part).toBeGreaterThan(paused);
  await server.kill();
  await server.start();
  await page.reload();
  await expect(page.getByTestId('download-chip')).toHaveAccessibleName(/download paused at \d+ %/);
  await page.getByTestId('download-chip').click();
  await expect(row.getByTestId('job')).toHaveAttribute('data-state', 'paused');
  expect(await part()).toBeGreaterThanOrEqual(paused - 1);

  hub.allow(null);
  await row.getByRole('button', { name: `Resume: ${NAME}` }).click();
  const use = row.getByRole('button', { name: `Use: ${NAME}`, exact: true });
  await expect(use).toBeVisible({ timeout: 60_000 });
  expect(readdirSync(models)).toEqual(['DeepSeek-V4-Flash-0731.fst']);
  await row.getByRole('button', { name: 'Check every byte' }).click();
  await expect(row.getByTestId('job')).toContainText('Every weight is as it was made');
  await use.click();
  await expect(page.getByTestId('status-model')).toHaveText('DeepSeek-V4-Flash-0731');
  await expect(row).toContainText('In use');

  await page.keyboard.press('Escape');
  await send(page, 'Are you there?');
  await settled(page);
  await expect(answers(page)).toHaveText([ANSWER]);
});
