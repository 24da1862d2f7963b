/** The monitor: what it shows of a paged model, of one in memory, and of nothing; and that it costs nothing while it is closed. */
import type { Page } from '@playwright/test';
import { expectAccessible, connect, expect, goOn, send, test } from '../page';

const panel = (page: Page) => page.getByTestId('monitor-panel');
const trend = (page: Page, id: string) => panel(page).getByTestId(`trend-${id}`);
const map = (page: Page) => panel(page).getByTestId('expert-map');
const asked = (page: Page, name: string) =>
  page.evaluate(
    (wanted) => (window as unknown as { asked: string[] }).asked.filter((other) => other === wanted).length,
    name,
  );

async function open(page: Page, scenario: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await page.getByTestId('app-menu').click();
  await page.getByRole('menuitem', { name: 'Monitor' }).click();
  await expect(panel(page)).toBeVisible();
}

test('a paged model is shown in pictures that have words too', async ({ page }) => {
  await open(page, 'weeks');
  await expect(trend(page, 'answer')).toContainText(/[\d.]+ tokens\/s/);
  await expect(trend(page, 'hits')).toContainText(/\d+ %/);
  await expect(trend(page, 'disk')).toContainText(/[\d.]+ GB\/s/);
  await expect(trend(page, 'cpu')).toContainText(/\d+ %/);
  await expect(trend(page, 'cpu').locator('.top')).toHaveText('100 %');
  // The line has the whole tile and a height that can be read.
  const tile = (await trend(page, 'disk').boundingBox())!;
  const picture = (await trend(page, 'disk').locator('svg').boundingBox())!;
  expect(picture.width).toBeGreaterThan(tile.width - 4);
  expect(picture.height).toBeGreaterThan(60);
  await expect(map(page)).toHaveAccessibleName(
    /Map of 43 layers with 256 experts each; [\d,]+ experts are in memory\./,
  );
  // A pixel for each expert, no more.
  expect(await map(page).evaluate((c: HTMLCanvasElement) => [c.width, c.height])).toEqual([256, 43]);
  const colours = await map(page).evaluate((canvas: HTMLCanvasElement) => {
    const data = canvas.getContext('2d')?.getImageData(0, 0, 256, 43).data ?? [];
    const seen = new Set<string>();
    for (let i = 0; i < data.length; i += 4) seen.add([data[i], data[i + 1], data[i + 2]].join());
    return seen.size;
  });
  // On the disk, in use, and several steps of heat.
  expect(colours).toBeGreaterThan(4);
  await expect(panel(page).getByRole('meter')).toHaveAttribute(
    'aria-valuetext',
    'FaStar uses 57.3 GB of the 61.2 GB it may use.',
  );
  await expect(panel(page)).toContainText('3,588 of 3,600 places are filled');
  await expect(panel(page).getByTestId('layer-times').getByRole('img')).toHaveAccessibleName(
    /Time in each of 43 layers for a token: .* of which .* are waiting for experts\./,
  );
});

test('a model that is in memory as a whole has no map, and says why', async ({ page }) => {
  await open(page, 'demo');
  await expect(panel(page).getByTestId('all-in-memory')).toContainText('Everything is in memory');
  await expect(map(page)).toHaveCount(0);
  await expect(trend(page, 'hits')).toHaveCount(0);
  await expect(trend(page, 'answer')).toContainText('tokens/s');
  await expect(panel(page).getByTestId('layer-times').getByRole('img')).toHaveAccessibleName(
    /Time in each of 6 layers/,
  );
});

test('nothing to show is said: idle, silent, no model, broken, disconnected', async ({ page }) => {
  await open(page, 'idle');
  await expect(panel(page)).toContainText('Nothing was computed while this was watched.');
  await open(page, 'silent');
  await expect(trend(page, 'cpu')).toContainText('–');
  await expect(panel(page).getByRole('meter')).toHaveCount(0);
  await open(page, 'loading');
  await expect(panel(page)).toContainText('The model is being loaded.');
  await open(page, 'broken');
  await expect(panel(page)).toContainText('FaStar made a mistake of its own');
  await open(page, 'weeks');
  await connect(page, false);
  await expect(panel(page)).toContainText('The pictures go on by themselves when FaStar is back.');
  await connect(page, true);
  const before = await asked(page, 'monitor');
  await expect.poll(() => asked(page, 'monitor')).toBeGreaterThan(before);
});

test('a recording is begun, grows, and ends with the command that reads it', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, 'weeks');
  await panel(page).getByRole('button', { name: 'Record', exact: true }).click();
  await expect(panel(page).getByTestId('recording')).toContainText(/Recording, [\d.]+ kB so far/);
  await panel(page).getByRole('button', { name: 'Stop' }).click();
  await expect(panel(page).getByTestId('recorded')).toContainText(/Recorded, [\d.]+ kB/);
  await panel(page).getByRole('button', { name: 'Copy the command that reads it' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(
    /^fastar simulate '\/home\/you\/.*\.trace'$/,
  );
});

test('nothing is asked before it is opened and after it is closed', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await expect(page.getByTestId('composer')).toBeVisible();
  expect(await asked(page, 'monitor')).toBe(0);
  await page.keyboard.press('Control+Shift+m');
  await expect.poll(() => asked(page, 'monitor')).toBeGreaterThan(1);
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  const before = await asked(page, 'monitor');
  // Long enough for two more looks, had there been any.
  await page.waitForTimeout(2500);
  expect(await asked(page, 'monitor')).toBe(before);
});

test('it stands beside the chat, which stays usable; Escape closes it and gives the focus back', async ({
  page,
}) => {
  await page.goto('/?fake=weeks');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+Shift+m');
  const heading = panel(page).getByRole('heading', { name: 'Monitor' });
  await expect(heading).toBeFocused();
  // Side by side, and nothing of the chat is out of reach.
  const chat = (await page.getByRole('main').boundingBox())!;
  const beside = (await panel(page).boundingBox())!;
  expect(chat.x + chat.width).toBeLessThanOrEqual(beside.x + 1);
  expect(beside.x + beside.width).toBeLessThanOrEqual(1280);
  await page.keyboard.press('Tab');
  await expect(panel(page).getByRole('button', { name: 'Close' })).toBeFocused();
  await page.getByTestId('composer').click();
  await send(page, 'Hello!');
  await expect(page.locator('article.answer').last()).toContainText('Ask me something, or ask for a story.');
  await expect(trend(page, 'answer')).toContainText('tokens/s');
  await expect(page.getByTestId('composer')).toBeFocused();
  // From the chat as well; and the same keys open and close it.
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+Shift+m');
  await expect(heading).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('Escape stops an answer before it closes what stands beside it', async ({ page }) => {
  await page.goto('/?fake=weeks&hold=12');
  // Keys are heard from then on.
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+Shift+m');
  await expect(panel(page)).toBeVisible();
  await page.getByTestId('composer').click();
  await send(page, 'Hello!');
  await expect(page.getByTestId('stop')).toBeVisible();
  await page.keyboard.press('Escape');
  await goOn(page);
  await expect(page.getByTestId('send')).toBeVisible();
  await expect(panel(page)).toBeVisible();
});

test('in a narrow window, or with large letters, it has the window to itself, and closing returns', async ({
  page,
}) => {
  await page.setViewportSize({ width: 400, height: 700 });
  await page.goto('/?fake=weeks');
  await page.getByTestId('composer').click();
  await page.keyboard.press('Control+Shift+m');
  await expect(panel(page).getByRole('heading', { name: 'Monitor' })).toBeFocused();
  expect(await panel(page).boundingBox()).toEqual({ x: 0, y: 0, width: 400, height: 700 });
  await expect(page.locator('main')).toHaveAttribute('inert', '');
  await panel(page).getByRole('button', { name: 'Close' }).click();
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.keyboard.press('Control+Shift+m');
  await expect(page.locator('main')).not.toHaveAttribute('inert');
  await page.setViewportSize({ width: 900, height: 800 });
  await expect(page.locator('main')).toHaveAttribute('inert', '');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.keyboard.press('Control+,');
  await page.locator('#setting-text_size').fill('200');
  await page.keyboard.press('Enter');
  await expect(page.locator('html')).toHaveCSS('font-size', '32px');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await page.keyboard.press('Control+Shift+m');
  await expect(page.locator('main')).toHaveAttribute('inert', '');
});

test('while nothing is computed there is no speed, and no line', async ({ page }) => {
  await open(page, 'idle');
  await expect(trend(page, 'answer').locator('.value')).toHaveText('Idle');
  await expect.poll(() => trend(page, 'cpu').locator('.line').getAttribute('d')).toContain('L');
  expect(await trend(page, 'answer').locator('.line').getAttribute('d')).toBe('');
});

for (const [name, width, height] of [
  ['400 pixels wide', 400, 700],
  ['zoomed to 200 %', 640, 400],
] as const) {
  test(`nothing is cut off when the window is ${name}`, async ({ page }) => {
    await page.setViewportSize({ width, height });
    for (const scenario of ['weeks', 'demo']) {
      await open(page, scenario);
      await expect(panel(page).getByTestId('layer-times')).toBeVisible();
      const wide = await panel(page)
        .locator('.body')
        .evaluate((body) => body.scrollWidth - body.clientWidth);
      expect(wide, scenario).toBeLessThanOrEqual(0);
      await expect(panel(page).getByRole('button', { name: 'Close' })).toBeInViewport();
    }
  });
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in the monitor, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const scenario of ['weeks', 'demo', 'broken']) {
      await open(page, scenario);
      if (scenario !== 'broken') await expect(panel(page).getByTestId('layer-times')).toBeVisible();
      await expectAccessible(page, scenario);
    }
  });
}

test('what an answer did is there when the screen is opened after it', async ({ page }) => {
  await page.goto('/?fake=demo&hold=20');
  const asked = () => page.evaluate(() => (window as unknown as { asked: string[] }).asked);
  await send(page, 'Hello!');
  await expect
    .poll(async () => (await asked()).filter((name) => name === 'monitor').length)
    .toBeGreaterThan(3);
  await page.keyboard.press('Control+Shift+m');
  await expect(page.getByTestId('monitor-panel').locator('[data-testid=trend-cpu] .line')).toHaveAttribute(
    'd',
    /L/,
  );
});
