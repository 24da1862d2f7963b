/** The settings screen: every kind of field, what a change means, and when it counts. */
import type { Page } from '@playwright/test';
import { expectAccessible, connect, expect, goOn, send, test } from '../page';

const panel = (page: Page) => page.getByTestId('settings-panel');
const setting = (page: Page, key: string) => panel(page).locator(`[data-setting="${key}"]`);
const field = (page: Page, key: string) => page.locator(`#setting-${key}`);
const tab = (page: Page, name: string) => panel(page).getByRole('tab', { name });
const plan = (page: Page) => panel(page).getByTestId('cache-plan');
const reload = (page: Page) => panel(page).getByTestId('reload');

async function open(page: Page, scenario: string, section?: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await page.getByTestId('app-menu').click();
  await page.getByRole('menuitem', { name: 'Settings' }).click();
  await expect(panel(page).getByTestId('settings-panel-section')).toBeVisible();
  if (section) await tab(page, section).click();
}

test('the keyboard reaches the settings, every section, and the chat again', async ({ page }) => {
  await page.goto('/?fake=chosen');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+,');
  await expect(tab(page, 'Appearance')).toHaveAttribute('aria-selected', 'true');
  await tab(page, 'Appearance').focus();
  await page.keyboard.press('ArrowDown');
  await expect(tab(page, 'Answers')).toBeFocused();
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('ArrowUp');
  await expect(tab(page, 'Logs')).toBeFocused();
  await expect(tab(page, 'Logs')).toHaveAttribute('aria-selected', 'true');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('the key that follows Escape is the window’s, however soon', async ({ page }) => {
  await open(page, 'chosen');
  // As between two events that were both waiting: what was promised is done, and no task comes between.
  await page.evaluate(async () => {
    document.querySelector('dialog')?.requestClose();
    for (let step = 0; step < 20; step += 1) await Promise.resolve();
    window.dispatchEvent(
      new KeyboardEvent('keydown', { key: ',', ctrlKey: true, bubbles: true, cancelable: true }),
    );
  });
  await expect(panel(page)).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('app-menu')).toBeFocused();
});

test('colours and text size count at once', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'light' });
  await open(page, 'demo');
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await panel(page).getByRole('radio', { name: 'Dark' }).check();
  await expect.poll(background).not.toBe(light);
  await panel(page).getByRole('radio', { name: 'As the system' }).check();
  await expect.poll(background).toBe(light);
  await field(page, 'text_size').fill('150');
  await page.keyboard.press('Enter');
  const size = () => page.evaluate(() => getComputedStyle(document.documentElement).fontSize);
  await expect.poll(size).toBe('24px');
  await setting(page, 'text_size').getByRole('button', { name: 'Back to the default: Text size' }).click();
  await expect.poll(size).toBe('16px');
});

test('a value that cannot be is refused beside its field, stays to be put right, and Escape takes it back', async ({
  page,
}) => {
  await open(page, 'demo', 'Answers');
  const temperature = field(page, 'temperature');
  await expect(temperature).toHaveValue('0.6');
  await temperature.fill('hot');
  await page.keyboard.press('Enter');
  await expect(temperature).toHaveAttribute('aria-invalid', 'true');
  await expect(temperature).toHaveAccessibleDescription(/Temperature must be a number\./);
  await temperature.fill('11');
  await page.keyboard.press('Enter');
  await expect(temperature).toHaveAccessibleDescription(/Temperature must be a number from 0 to 10/);
  await expect(temperature).toHaveValue('11');
  await page.keyboard.press('Escape');
  await expect(temperature).toHaveValue('0.6');
  await expect(temperature).toHaveAttribute('aria-invalid', 'false');
  await temperature.fill('0,9');
  await page.keyboard.press('Enter');
  await expect(temperature).toHaveValue('0.9');
  await expect(setting(page, 'temperature')).toContainText('From the next message');
  await setting(page, 'temperature')
    .getByRole('button', { name: /Back to the default/ })
    .click();
  await expect(temperature).toHaveValue('0.6');

  // As the window itself prints a thousand.
  const longest = field(page, 'max_tokens');
  await longest.fill('1,000');
  await page.keyboard.press('Enter');
  await expect(longest).toHaveValue('1000');

  await tab(page, 'Models').click();
  const mirror = field(page, 'download_endpoint');
  await mirror.fill('mirror.example');
  await mirror.blur();
  await expect(setting(page, 'download_endpoint').getByRole('alert')).toContainText('does not begin with');
  await expect(mirror).toHaveValue('mirror.example');
  const limit = field(page, 'download_bytes_per_second');
  await expect(limit).toHaveAttribute('placeholder', 'No limit');
  await limit.fill('2,5');
  await page.keyboard.press('Enter');
  await expect(limit).toHaveValue('2.5');
  // Megabytes may have decimals: it could be one or a thousand.
  await limit.fill('1,000');
  await page.keyboard.press('Enter');
  await expect(limit).toHaveAccessibleDescription(/must be a number/);
  await expect(limit).toHaveValue('1,000');
});

test('the cache has a slider and an exact number, and says what either would mean before a reload', async ({
  page,
}) => {
  await open(page, 'chosen', 'Performance');
  const number = field(page, 'expert_cache_bytes');
  const slider = panel(page).getByRole('slider');
  await expect(number).toHaveValue('30');
  await expect(plan(page)).toContainText('Room for 2,243 of 11,008 experts (20 %)');
  await expect(plan(page)).toContainText(/About [\d.]+ tokens\/s\. An estimate/);
  await expect(setting(page, 'expert_cache_bytes')).toContainText(
    'The model in use was loaded with 30.0 GB.',
  );
  await expect(reload(page)).toHaveCount(0);

  // While it is dragged the plan follows; nothing is kept yet.
  await slider.fill(String(20e9));
  await expect(plan(page)).toContainText('(13 %)');
  await expect(reload(page)).toHaveText('Reload to apply (1 change)');
  await number.fill('0.01');
  await page.keyboard.press('Enter');
  await expect(plan(page)).toContainText('too small to compute a single token');
  await number.fill('500');
  await page.keyboard.press('Enter');
  await expect(plan(page)).toContainText('does not fit into');
  await expect(number).toHaveValue('500');
  await expect(setting(page, 'expert_cache_bytes')).toContainText(
    'The model in use was loaded with 30.0 GB.',
  );
  await number.fill('');
  await page.keyboard.press('Enter');
  await expect(number).toHaveAttribute('placeholder', 'Automatic: 48.13');

  await field(page, 'threads').fill('4');
  await page.keyboard.press('Enter');
  await expect(setting(page, 'threads')).toContainText('The model in use was loaded with 8 threads.');
  await expect(setting(page, 'threads')).toContainText('Waits for a reload');
  await expect(reload(page)).toHaveText('Reload to apply (2 changes)');
  await reload(page).click();
  await expect(panel(page)).toContainText('The model is being loaded…');
  await expect(reload(page)).toHaveCount(0);
  await expect(setting(page, 'threads')).not.toContainText('was loaded with');
  await expect(setting(page, 'expert_cache_bytes')).toContainText(
    'The model in use was loaded with 48.1 GB.',
  );
});

test('a change that is taken back waits for nothing', async ({ page }) => {
  await open(page, 'chosen', 'Performance');
  await panel(page).getByText('More', { exact: true }).click();
  const ahead = panel(page).getByRole('switch', { name: 'Read ahead' });
  await expect(ahead).toBeChecked();
  await ahead.uncheck();
  await expect(reload(page)).toBeVisible();
  await ahead.check();
  await expect(reload(page)).toHaveCount(0);
});

test('an answer is not stopped for a reload without asking', async ({ page }) => {
  await page.goto('/?fake=reloadbusy&hold=12');
  await send(page, 'Hello!');
  await expect(page.getByTestId('stop')).toBeVisible();
  await page.keyboard.press('Control+,');
  await tab(page, 'Performance').click();
  await field(page, 'threads').fill('4');
  await page.keyboard.press('Enter');
  await reload(page).click();
  await expect(panel(page)).toContainText('An answer is being written. Stop it, and keep what is there?');
  await expect(panel(page).getByRole('button', { name: 'Stop it and reload' })).toBeFocused();
  await panel(page).getByRole('button', { name: 'Not now' }).click();
  await expect(reload(page)).toBeVisible();
  expect(await page.evaluate(() => (window as unknown as { asked: string[] }).asked)).toContain(
    'modelReload',
  );
  await reload(page).click();
  await panel(page).getByRole('button', { name: 'Stop it and reload' }).click();
  await expect(panel(page)).toContainText('The model is being loaded…');
  await expect(reload(page)).toHaveCount(0);
  await goOn(page);
});

test('the demo is in memory as a whole, and nothing measured promises nothing', async ({ page }) => {
  await open(page, 'demo', 'Performance');
  await expect(plan(page)).toContainText('in memory as a whole and needs no cache');
  await expect(panel(page).getByRole('slider')).toHaveCount(0);
  await open(page, 'unmeasured', 'Performance');
  await expect(plan(page)).toContainText('can be estimated once the model has written an answer');
  await expect(plan(page)).not.toContainText('tokens/s');
});

test('what was given at the start is shown with its value, and that it counts until the end', async ({
  page,
}) => {
  await open(page, 'given', 'Answers');
  await expect(setting(page, 'temperature')).toContainText(
    'Given when FaStar was started; counts until it is closed',
  );
  await expect(field(page, 'temperature')).toHaveValue('0.2');
  await expect(field(page, 'temperature')).toHaveAttribute('readonly');
  await tab(page, 'Performance').click();
  await expect(setting(page, 'expert_cache_bytes')).toContainText('Given when FaStar was started');
  await expect(field(page, 'expert_cache_bytes')).toHaveValue('8');
  await expect(field(page, 'expert_cache_bytes')).toHaveAttribute('readonly');
  await expect(panel(page).getByRole('slider')).toBeDisabled();
  await expect(plan(page)).toContainText('Room for 598 of');
  await tab(page, 'Models').click();
  await expect(setting(page, 'models_folder')).toContainText('/mnt/big/models');
});

test('what is wrong in the file or unreadable is said', async ({ page }) => {
  await open(page, 'wrongsettings');
  await expect(setting(page, 'theme').getByRole('alert')).toContainText(
    'is "blue" and must be system, light or dark',
  );
  await page.goto('/?fake=nosettings');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+,');
  await expect(panel(page)).toContainText('The settings could not be read');
  await expect(panel(page).getByRole('button', { name: 'Try again' })).toBeVisible();
  await open(page, 'web', 'Models');
  await expect(setting(page, 'models_folder').getByRole('button', { name: /Change folder/ })).toHaveCount(0);
  await connect(page, false);
  await expect(panel(page)).toContainText('Settings can be changed again when FaStar is back.');
});

test('nothing is asked while the screen is closed', async ({ page }) => {
  await open(page, 'chosen', 'Performance');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  const asked = () =>
    page.evaluate(
      () =>
        (window as unknown as { asked: string[] }).asked.filter((name) => /setting|plan/i.test(name)).length,
    );
  const before = await asked();
  await send(page, 'Hello!');
  await expect(page.getByTestId('send')).toBeVisible();
  expect(await asked()).toBe(before);
});

for (const [name, width, height] of [
  ['400 pixels wide', 400, 700],
  ['zoomed to 200 %', 640, 400],
] as const) {
  test(`nothing is cut off when the window is ${name}`, async ({ page }) => {
    await page.setViewportSize({ width, height });
    for (const section of ['Appearance', 'Answers', 'Performance', 'Models']) {
      await open(page, 'chosen', section);
      const wide = await panel(page).evaluate((body) => body.scrollWidth - body.clientWidth);
      expect(wide, section).toBeLessThanOrEqual(0);
      for (const input of await panel(page).locator('input:visible, button:visible').all()) {
        const box = await input.boundingBox();
        const label = await input.evaluate((element) => element.outerHTML.slice(0, 80));
        expect(box && box.x >= 0 && box.x + box.width <= width, `${section}: ${label}`).toBe(true);
      }
      await expect(panel(page).getByRole('button', { name: 'Close' })).toBeInViewport();
    }
  });
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in the settings, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const section of ['Appearance', 'Answers', 'Performance', 'Models']) {
      await open(page, 'chosen', section);
      await expectAccessible(page, section);
    }
    await open(page, 'wrongsettings');
    await expectAccessible(page);
  });
}

test('how a message is thought about by default is chosen once, and a message may say otherwise', async ({
  page,
}) => {
  await open(page, 'unmeasured', 'Answers');
  await expect(page.getByTestId('settings-panel')).toContainText('“fastar chat” has options of its own');
  await setting(page, 'thinking').getByRole('radio', { name: 'On' }).check();
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('thinking')).toHaveValue('on');
  await page.getByTestId('thinking').selectOption('max');
  // Another setting does not take that back.
  await page.keyboard.press('Control+,');
  await tab(page, 'Appearance').click();
  await setting(page, 'theme').getByRole('radio', { name: 'Dark' }).check();
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('thinking')).toHaveValue('max');
});

test('a thousand with a comma is no number of gigabytes, and decimals may have one', async ({ page }) => {
  await open(page, 'flash', 'Performance');
  const field = page.locator('#setting-expert_cache_bytes');
  await field.fill('1,000');
  await page.keyboard.press('Enter');
  await expect(setting(page, 'expert_cache_bytes')).toContainText('must be a number');
  await field.fill('30,5');
  await page.keyboard.press('Enter');
  await expect(setting(page, 'expert_cache_bytes')).not.toContainText('must be a number');
  await expect(field).toHaveValue('30.5');
});

test('how much is written into the log is chosen here, and the viewer leads to it', async ({ page }) => {
  await open(page, 'demo', 'Logs');
  await setting(page, 'log_level').getByRole('radio', { name: 'Details' }).check();
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  const help = page.getByTestId('help-panel');
  await help.getByRole('tab', { name: 'Log' }).click();
  await expect(help.locator('[data-setting]')).toHaveCount(0);
  await help.getByRole('button', { name: 'Choose what is written down' }).click();
  await expect(help).toHaveCount(0);
  await expect(setting(page, 'log_level').getByRole('radio', { name: 'Details' })).toBeChecked();
});

test('the number of gigabytes stands where every other number stands', async ({ page }) => {
  for (const [width, scenario] of [
    [1280, 'demo'],
    [1280, 'chosen'],
    [400, 'demo'],
    [400, 'chosen'],
  ] as const) {
    await page.setViewportSize({ width, height: 800 });
    await open(page, scenario, 'Performance');
    await expect(plan(page)).not.toBeEmpty();
    const memory = (await field(page, 'expert_cache_bytes').boundingBox())!;
    const threads = (await field(page, 'threads').boundingBox())!;
    if (width === 400) expect(memory.x, scenario).toBeCloseTo(threads.x, 0);
    else expect(memory.x + memory.width, scenario).toBeCloseTo(threads.x + threads.width, 0);
    if (scenario === 'demo') {
      const name = (await setting(page, 'expert_cache_bytes').locator('.name').boundingBox())!;
      if (width === 1280)
        expect(Math.abs(name.y + name.height / 2 - memory.y - memory.height / 2)).toBeLessThan(12);
    }
  }
});
