/** Settings, Server: the local server of the window, what it is doing, and its key. */
import type { Page } from '@playwright/test';
import { expectAccessible, expect, test } from '../page';

const panel = (page: Page) => page.getByTestId('settings-panel');
const now = (page: Page) => page.getByTestId('server-now');
const clipboard = (page: Page) => page.evaluate(() => navigator.clipboard.readText());

async function open(page: Page, scenario: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await page.getByTestId('model-pill').waitFor();
  await page.keyboard.press('Control+,');
  await panel(page).getByRole('tab', { name: 'Server' }).click();
  await expect(now(page)).toBeVisible();
}

test('it is off, is turned on at once, and says where it is', async ({ page }) => {
  await open(page, 'demo');
  await expect(now(page)).toContainText('Off');
  await panel(page).getByRole('switch', { name: 'Local server' }).check();
  await expect(now(page)).toContainText('Running');
  await expect(now(page)).toContainText('http://127.0.0.1:8642');
  await expect(now(page)).not.toContainText('In this network');
  await panel(page).getByRole('switch', { name: 'For this network too' }).check();
  await expect(now(page)).toContainText('http://192.168.1.23:8642');
  await expectAccessible(page);
  await panel(page).getByRole('switch', { name: 'Local server' }).uncheck();
  await expect(now(page)).toContainText('Off');
  await expect(now(page)).not.toContainText('http://');
});

test('the key is hidden, can be copied, and a new one is asked about first', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, 'served');
  const key = `7c1e${'0'.repeat(60)}`;
  await expect(now(page)).toContainText('7c1e');
  expect(await panel(page).innerHTML()).not.toContain(key);
  await now(page).getByRole('button', { name: 'Copy the key' }).click();
  await expect.poll(() => clipboard(page)).toBe(key);
  await now(page).getByRole('button', { name: 'Copy the address with the key' }).click();
  await expect.poll(() => clipboard(page)).toBe(`http://127.0.0.1:8642/#key=${key}`);
  await now(page).getByRole('button', { name: 'Copy the address for the network with the key' }).click();
  await expect.poll(() => clipboard(page)).toBe(`http://192.168.1.23:8642/#key=${key}`);
  await now(page).getByRole('button', { name: 'New key…' }).click();
  await now(page).getByRole('button', { name: 'Keep it' }).click();
  await expect(now(page)).toContainText('7c1e');
  await now(page).getByRole('button', { name: 'New key…' }).click();
  await now(page).getByRole('button', { name: 'Make a new key' }).click();
  await expect(now(page)).toContainText('91f0');
});

test('a port that is taken says what to do, and another one works at once', async ({ page }) => {
  await open(page, 'porttaken');
  await expect(now(page)).toContainText('Not running');
  await expect(now(page)).toContainText('Port 8080 is in use by another program.');
  await expect(now(page)).toContainText('Choose another port');
  await panel(page).getByLabel('Port', { exact: true }).fill('9000');
  await page.keyboard.press('Enter');
  await expect(now(page)).toContainText('http://127.0.0.1:9000');
  await expect(now(page)).not.toContainText('in use by another program');
});

test('without a network that is said, and a page of the server has no such section', async ({ page }) => {
  await open(page, 'nonetwork');
  await expect(now(page)).toContainText('This computer is in no network now');
  await page.goto('/?fake=web');
  await page.getByTestId('model-pill').waitFor();
  await page.keyboard.press('Control+,');
  await expect(panel(page).getByRole('tab', { name: 'Models' })).toBeVisible();
  await expect(panel(page).getByRole('tab', { name: 'Server' })).toHaveCount(0);
});
