/** The first screen: what this computer would do with the real model, how that is known, and the way to it. */
import type { Page } from '@playwright/test';
import { expectAccessible, expect, test } from '../page';

const prospect = (page: Page) => page.getByTestId('prospect');
const plan = (page: Page) => page.getByTestId('plan-panel');
const models = (page: Page) => page.getByTestId('model-panel');
const asked = (page: Page) => page.evaluate(() => (window as unknown as { asked: string[] }).asked);

test('the first screen says what fits and how fast it would be, and moves nothing when it is known', async ({
  page,
}) => {
  await page.goto('/?fake=demo');
  await expect(prospect(page)).toContainText('DeepSeek V4 Flash 0731 fits this computer.');
  await expect(prospect(page)).toContainText(
    '58.1 GB of memory free · 1.2 TB of disk free · 8 threads · no NPU',
  );
  const button = prospect(page).getByRole('button', { name: 'See the plan' });
  const heading = page.getByRole('heading', { level: 1 });
  const before = await heading.boundingBox();
  await expect(prospect(page)).toContainText('About 3.7 to 7.2 tokens/s.');
  expect(await heading.boundingBox()).toEqual(before);
  await button.click();
  await expect(plan(page).getByRole('heading', { level: 2 })).toHaveText(
    'DeepSeek V4 Flash 0731 on this computer',
  );
});

for (const locale of ['en-US', 'zh-CN']) {
  test.describe(locale, () => {
    test.use({ locale });
    test('nothing moves when the estimate is there, at any width and with large letters', async ({
      page,
    }) => {
      const sizes: [width: number, letters: string][] = [
        [400, ''],
        [400, '200%'],
        [800, ''],
      ];
      for (const [width, letters] of sizes) {
        await page.setViewportSize({ width, height: 1000 });
        await page.goto('about:blank');
        await page.goto('/?fake=demo');
        await page.evaluate((size) => (document.documentElement.style.fontSize = size), letters);
        await expect(prospect(page).getByRole('button')).toBeVisible();
        const heading = page.getByRole('heading', { level: 1 });
        await expect(prospect(page)).not.toContainText('3.7');
        const before = await heading.boundingBox();
        await expect(prospect(page)).toContainText('3.7');
        expect(await heading.boundingBox(), `${width} ${letters}`).toEqual(before);
      }
    });
  });
}

test('the title of the plan leaves most of a narrow window with large letters to the plan', async ({
  page,
}) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await page.goto('/?fake=demo');
  await page.getByRole('button', { name: 'See the plan' }).click();
  await page.evaluate(() => (document.documentElement.style.fontSize = '200%'));
  const heading = plan(page).getByRole('heading', { level: 2 });
  await expect(heading).toBeInViewport();
  expect((await heading.boundingBox())?.height).toBeLessThan(200);
  // And none of it while one reads on.
  await plan(page).evaluate((body) => (body.closest('dialog') ?? body).scrollTo(0, 600));
  await expect(heading).not.toBeInViewport();
  // In a window as wide as its letters ask for it stays.
  await page.evaluate(() => (document.documentElement.style.fontSize = ''));
  await page.setViewportSize({ width: 360, height: 400 });
  await plan(page).evaluate((body) => (body.closest('dialog') ?? body).scrollTo(0, 300));
  await expect(heading).toBeInViewport();
});

test('the plan is as high as what it says, and its buttons are in view in a narrow window', async ({
  page,
}) => {
  for (const [width, height] of [
    [1280, 800],
    [400, 600],
  ] as const) {
    await page.setViewportSize({ width, height });
    await page.goto('/?fake=demo');
    await page.getByRole('button', { name: 'Get the real model' }).click();
    const download = plan(page).getByTestId('plan-download');
    await expect(download).toBeInViewport({ ratio: 1 });
    const dialog = (await page.getByRole('dialog').boundingBox())!;
    const last = (await plan(page).getByRole('button', { name: 'Not now' }).boundingBox())!;
    expect(dialog.y + dialog.height - last.y - last.height).toBeLessThan(24);
  }
});

test('it says when it was measured, and measures again when asked', async ({ page }) => {
  const speed = plan(page).getByTestId('plan-speed');
  await page.goto('/?fake=measured');
  await page.getByRole('button', { name: 'Get the real model' }).click();
  await expect(speed).toContainText('Measured 12 min ago: memory reads 96.2 GB/s');
  expect(await asked(page)).not.toContain('machineMeasure');
  await speed.getByRole('button', { name: 'Measure again' }).click();
  await expect(speed).toContainText('Measured just now: memory reads 96.2 GB/s');
  expect((await asked(page)).filter((name) => name === 'machineMeasure')).toHaveLength(1);
});

test('the real model is three clicks away, and every number has its reason before the first byte', async ({
  page,
}) => {
  await page.goto('/?fake=demo');
  await page.getByRole('button', { name: 'Get the real model' }).click();
  await expect(plan(page).getByTestId('plan-speed')).toContainText('About 3.7 to 7.2 tokens/s');
  await expect(plan(page).getByTestId('plan-speed')).toContainText(
    'An estimate: the model was not run. Measured just now: memory reads 96.2 GB/s, the disk 6.3 GB/s. About 74 % of the experts asked for should be in memory.',
  );
  await expect(plan(page)).toContainText(
    '7.8 GB for what every word needs, 47.0 GB for 3,512 of 11,008 experts (31 %).',
  );
  await expect(plan(page)).toContainText('Needs up to 163 GB while it is downloaded, and 156 GB then.');
  await expect(plan(page)).toContainText('has not been tried with the real files yet');
  await expect(plan(page).getByTestId('plan-folder')).toHaveText('Into /home/you/FaStar models');
  await expectAccessible(page);
  expect(await asked(page)).not.toContain('downloadStart');
  await plan(page).getByRole('button', { name: 'Download 156 GB' }).click();
  // What has begun is looked at, without the drafter, which nobody asked for.
  await expect(plan(page)).toHaveCount(0);
  await expect(models(page).getByTestId('job')).toHaveAttribute('data-state', 'queued');
});

test('another folder can be chosen on the way, and the plan is made for it', async ({ page }) => {
  await page.goto('/?fake=demo');
  await page.getByRole('button', { name: 'Get the real model' }).click();
  await plan(page).getByRole('button', { name: 'Change folder…' }).click();
  await expect.poll(() => asked(page)).toContain('modelFolderChoose');
  await expect
    .poll(async () => {
      const questions = await asked(page);
      return questions.lastIndexOf('machinePlan') > questions.lastIndexOf('modelFolderChoose');
    })
    .toBe(true);
});

test('what is missing is said, and a computer that cannot load it is not measured', async ({ page }) => {
  await page.goto('/?fake=smallmachine');
  await expect(prospect(page)).toContainText('DeepSeek V4 Flash 0731 needs more memory than is free here.');
  await prospect(page).getByRole('button').click();
  await expect(plan(page).getByTestId('plan-speed')).toContainText('Not enough memory');
  await expect(plan(page)).toContainText('This model needs at least 7.9 GB of memory');
  await expect(plan(page).getByTestId('plan-download')).toHaveText('Start anyway');
  expect(await asked(page)).not.toContain('machineMeasure');
  await page.keyboard.press('Escape');
  await page.goto('/?fake=fulldisk');
  await expect(prospect(page)).toContainText('DeepSeek V4 Flash 0731 needs 163 GB of free disk.');
  await expectAccessible(page);
});

test('a disk that cannot be measured is told, and no speed is made up', async ({ page }) => {
  await page.goto('/?fake=nodirect');
  await page.getByRole('button', { name: 'Get the real model' }).click();
  await expect(plan(page).getByTestId('plan-speed')).toContainText('How fast it would be is not known');
  await expect(plan(page).getByTestId('plan-speed')).toContainText(
    'its file system reads through memory only',
  );
  await expect(plan(page).getByTestId('plan-speed')).not.toContainText('tokens/s');
});
