/** Help: shortcuts, the computer in words, the log as it comes, and a report that is shown before it is copied. */
import type { Page } from '@playwright/test';
import { expectAccessible, expect, test } from '../page';

const panel = (page: Page) => page.getByTestId('help-panel');
const tab = (page: Page, name: string) => panel(page).getByRole('tab', { name });
const lines = (page: Page) => panel(page).getByTestId('log-lines');
const asked = (page: Page, name: string) =>
  page.evaluate(
    (wanted) => (window as unknown as { asked: string[] }).asked.filter((other) => other === wanted).length,
    name,
  );

async function open(page: Page, scenario: string, section?: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await page.getByTestId('app-menu').click();
  await page.getByRole('menuitem', { name: 'Help and shortcuts' }).click();
  await expect(panel(page)).toBeVisible();
  if (section) await tab(page, section).click();
}

test('a question mark shows the shortcuts, but not while somebody writes', async ({ page }) => {
  await page.goto('/?fake=demo');
  const composer = page.getByTestId('composer');
  await composer.fill('Really');
  await page.keyboard.press('?');
  await expect(composer).toHaveValue('Really?');
  await expect(panel(page)).toHaveCount(0);
  await composer.fill('');
  await page.keyboard.press('?');
  await expect(panel(page)).toContainText('Bring back the chat that was just deleted');
  await expect(composer).toHaveValue('');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(composer).toBeFocused();
});

test('the computer is told in words, with the reason where a number may surprise', async ({ page }) => {
  await open(page, 'demo', 'This computer');
  const computer = panel(page).getByTestId('computer');
  await expect(computer).toContainText('Computes with AVX-512.');
  await expect(computer).toContainText('8 used, of 16 processors on 8 cores');
  await expect(computer).toContainText('58.1 GB may be used now, of 66.6 GB');
  await expect(computer).toContainText('Not found');
  await expect(computer).toContainText('FaStar does not use one yet.');
  await expect(computer.getByText('Speed of the disk').locator('..')).toContainText('6.3 GB/s');
  await open(page, 'smallcomputer', 'This computer');
  await expect(computer).toContainText('It has no AVX2, so computing is slow.');
  await expect(computer).toContainText('granted the time of 1.5 processors');
  await expect(computer).toContainText('an unknown amount may be used now');
  await expect(computer).toContainText('Not measured');
  await open(page, 'brokenhelp', 'This computer');
  await expect(panel(page)).toContainText('FaStar made a mistake of its own');
});

test('the log comes as it is written, is filtered by level, and rests when it is not looked at', async ({
  page,
}) => {
  await open(page, 'demo', 'Log');
  await expect(lines(page).getByRole('listitem')).toHaveCount(6);
  await page.evaluate(() => window.dispatchEvent(new CustomEvent('fake-log', { detail: 'something new' })));
  await expect(lines(page)).toContainText('something new');
  await panel(page).getByTestId('log-filter').selectOption('warn');
  await expect(lines(page).getByRole('listitem')).toHaveCount(2);
  await panel(page).getByTestId('log-filter').selectOption('error');
  await expect(lines(page)).toHaveText(/a job failed/);
  await tab(page, 'Report').click();
  const before = await asked(page, 'logRead');
  // Long enough for two more looks, had there been any.
  await page.waitForTimeout(2500);
  expect(await asked(page, 'logRead')).toBe(before);
  await open(page, 'emptylog', 'Log');
  await expect(panel(page)).toContainText('Nothing of that kind was written down.');
  await expect(panel(page)).toContainText('cannot be written; these lines are in memory only');
});

test('all of the report is shown before it is copied, and that is what is copied', async ({
  page,
  context,
}) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, 'demo', 'Report');
  const shown = await panel(page).getByTestId('report').textContent();
  expect(shown).toContain('FaStar 0.1.0, desktop');
  await panel(page).getByRole('button', { name: 'Copy the report' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(shown);
});

test('nothing is cut off when the window is 400 pixels wide', async ({ page }) => {
  await page.setViewportSize({ width: 400, height: 700 });
  for (const section of ['Shortcuts', 'This computer', 'Log', 'Report']) {
    await open(page, 'smallcomputer', section);
    const wide = await panel(page).evaluate((body) => body.scrollWidth - body.clientWidth);
    expect(wide, section).toBeLessThanOrEqual(0);
    const inner = await page
      .getByTestId('help-panel-section')
      .evaluate((body) => body.scrollWidth - body.clientWidth);
    expect(inner, section).toBeLessThanOrEqual(0);
    await expect(panel(page).getByRole('button', { name: 'Close' })).toBeInViewport();
  }
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in the help, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const section of ['Shortcuts', 'This computer', 'Log', 'Report']) {
      await open(page, 'demo', section);
      await expectAccessible(page, section);
    }
  });
}
