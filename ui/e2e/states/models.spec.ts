/** The models screen: every state of the work on models, and every way on from there. */
import type { Page } from '@playwright/test';
import { expectAccessible, connect, expect, step, test } from '../page';

const NEWEST = 'DeepSeek V4 Flash 0731';

const panel = (page: Page) => page.getByTestId('model-panel');
const row = (page: Page, name: string) => panel(page).getByRole('group', { name, exact: true });
const offer = (page: Page, id: string) => panel(page).locator(`[data-entry="${id}"]`);
const settings = (page: Page) => page.getByTestId('settings-panel');
const bar = (page: Page) => panel(page).getByRole('progressbar');
const chip = (page: Page) => page.getByTestId('download-chip');
/** What a screen reader is told about the work on models. */
const told = (page: Page) => page.locator('[aria-live=polite]').nth(1);

async function open(page: Page, scenario: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await page.getByTestId('model-pill').click();
  await expect(panel(page).getByTestId('model-folder')).toBeVisible();
}

/** Everything that was said to a screen reader, in order. */
async function listen(page: Page): Promise<() => Promise<string[]>> {
  await told(page).evaluate((element) => {
    const heard: string[] = [];
    (window as unknown as { heard: string[] }).heard = heard;
    new MutationObserver(() => heard.push(element.textContent ?? '')).observe(element, {
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  return () => page.evaluate(() => (window as unknown as { heard: string[] }).heard);
}

test('sizes, place and room are said before a download begins', async ({ page }) => {
  await open(page, 'demo');
  await expect(panel(page)).toContainText('has not been tried with the real files yet');
  await expect(offer(page, 'flash-0731')).toContainText(
    '156 GB to download, up to 163 GB of the disk meanwhile. With the drafter 167 GB, up to 174 GB of the disk.',
  );
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  const question = offer(page, 'flash-0731');
  await expect(question).toContainText(
    'Download 156 GB from deepseek-ai/DeepSeek-V4-Flash-0731 to /home/you/FaStar models?',
  );
  await expect(question).toContainText('Needs up to 163 GB there; 1.2 TB are free.');
  // Nothing has begun before the yes.
  expect(await page.evaluate(() => (window as unknown as { asked: string[] }).asked)).not.toContain(
    'downloadStart',
  );
  await question.getByRole('button', { name: 'Start the download' }).click();
  await expect(row(page, NEWEST)).toBeFocused();
  await expect(row(page, NEWEST).getByTestId('job')).toHaveAttribute('data-state', 'queued');
  await expect(offer(page, 'flash-0731')).toContainText('Waiting');
  await expect(offer(page, 'flash-0731').getByRole('button')).toHaveCount(0);
});

test('the first version has one name, and what it was published as stands beside the choice', async ({
  page,
}) => {
  await open(page, 'demo');
  await expect(offer(page, 'flash-preview')).toContainText('DeepSeek V4 Flash Preview');
  await expect(offer(page, 'flash-preview')).toContainText('Published as deepseek-ai/DeepSeek-V4-Flash.');
});

test('the drafter is left out unless it is asked for, and the question says what it would take', async ({
  page,
}) => {
  await open(page, 'demo');
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  const question = offer(page, 'flash-0731');
  const drafter = question.getByRole('checkbox', { name: 'With the drafter (10.9 GB)' });
  await expect(drafter).not.toBeChecked();
  await expect(question).toContainText('Download 156 GB from');
  await expect(question).toContainText('Needs up to 163 GB there');
  await drafter.check();
  await expect(question).toContainText('Download 167 GB from');
  await expect(question).toContainText('Needs up to 174 GB there');
  await drafter.uncheck();
  await question.getByRole('button', { name: 'Start the download' }).click();
  await step(page, 0.5);
  await expect(row(page, NEWEST)).toContainText('78.0 GB of 156 GB');
});

test('a no to the question, by button or Escape, gives the focus back and begins nothing', async ({
  page,
}) => {
  await open(page, 'demo');
  const button = panel(page).getByRole('button', { name: `Download: ${NEWEST}` });
  await button.click();
  await page.keyboard.press('Escape');
  await expect(button).toBeFocused();
  await button.press('Enter');
  await offer(page, 'flash-0731').getByRole('button', { name: 'Not now' }).press('Enter');
  await expect(button).toBeFocused();
  await expect(panel(page)).toContainText('There is no model in this folder yet.');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
});

test('without enough room that is said before anything starts, and another folder can be chosen there', async ({
  page,
}) => {
  await open(page, 'lowspace');
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  const question = offer(page, 'flash-0731');
  await expect(question).toContainText('Needs up to 163 GB there, and only 66.4 GB are free.');
  await expect(question.getByRole('button', { name: 'Start anyway' })).toBeEnabled();
  await question.getByRole('button', { name: 'Change folder…' }).click();
  await expect(question).toContainText('to /media/you/large disk/models?');
  await expect(question).toContainText('Needs up to 163 GB there; 3.4 TB are free.');
  await expect(question.getByRole('button', { name: 'Start the download' })).toBeEnabled();
});

test('room that is not known is not shown', async ({ page }) => {
  await open(page, 'unknownspace');
  await expect(panel(page).getByTestId('model-folder')).toHaveText(
    'Models are kept in /home/you/FaStar models',
  );
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  await expect(offer(page, 'flash-0731').getByRole('button', { name: 'Start the download' })).toBeEnabled();
  await expect(offer(page, 'flash-0731')).not.toContainText('free');
});

test('a download that is refused says why in its place, and can be asked for again', async ({ page }) => {
  await open(page, 'refused');
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  const question = offer(page, 'flash-0731');
  await question.getByRole('button', { name: 'Start the download' }).click();
  await expect(question.getByRole('alert')).toContainText('needs 174 GB in /home/you/FaStar models');
  await expect(question.getByRole('button', { name: 'Start the download' })).toBeEnabled();
  // So does a check of a model on the disk.
  const other = row(page, 'DeepSeek V4 Flash Preview');
  await other.getByRole('button', { name: 'Check every byte' }).click();
  await expect(other.getByRole('alert')).toContainText('needs 174 GB');
  await other.getByRole('button', { name: 'Dismiss' }).click();
  await expect(other.getByRole('alert')).toHaveCount(0);
});

test('a download shows true numbers, pauses, goes on and ends in a model to use', async ({ page }) => {
  await open(page, 'downloading');
  const download = row(page, NEWEST);
  await expect(download).toContainText('40 % Downloading');
  await expect(download).toContainText('66.8 GB of 167 GB');
  await expect(download).toContainText('41.3 MB/s');
  await expect(download).toContainText('40 min left');
  await expect(bar(page)).toHaveAttribute('aria-valuenow', '40');
  await expect(bar(page)).toHaveAttribute('aria-valuetext', '40 %, Downloading');
  await expect(bar(page)).toHaveAccessibleName(`Progress of ${NEWEST}`);

  await download.getByRole('button', { name: `Pause: ${NEWEST}` }).click();
  const resume = download.getByRole('button', { name: `Resume: ${NEWEST}` });
  await expect(resume).toBeFocused();
  await expect(download).toContainText('40 % Paused');
  await expect(download).not.toContainText('left');
  await expect(download).not.toContainText('/s');
  await expect(offer(page, 'flash-0731')).toContainText('Paused');

  await resume.press('Enter');
  await expect(download.getByRole('button', { name: `Pause: ${NEWEST}` })).toBeFocused();
  await step(page, 0.25);
  await expect(download).toContainText('65 % Downloading');
  await step(page, 0.5);
  await expect(bar(page)).toHaveCount(0);
  await expect(offer(page, 'flash-0731')).toContainText('On this computer');
  await download.getByRole('button', { name: `Use: ${NEWEST}`, exact: true }).click();
  await expect(panel(page).getByTestId('model-in-use')).toContainText('DeepSeek-V4-Flash-0731');
  await expect(download).toContainText('In use');
  await expect(download.getByRole('button', { name: 'Delete…' })).toHaveCount(0);
});

test('numbers keep their places while they change', async ({ page }) => {
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    await open(page, 'downloading');
    const place = async () => {
      const boxes: unknown[] = [];
      for (const part of ['.state', '.amount', '.speed', '.left'])
        boxes.push(await panel(page).locator(part).boundingBox());
      return [boxes, await row(page, NEWEST).boundingBox()];
    };
    const before = await place();
    await step(page, 0.3);
    await expect(row(page, NEWEST)).toContainText('117 GB of 167 GB');
    expect(await place()).toEqual(before);
    await step(page, 0.299);
    await expect(row(page, NEWEST)).toContainText('under 1 min left');
    expect(await place()).toEqual(before);
    // These two phases take turns all the time.
    await open(page, 'converting');
    await expect(row(page, NEWEST)).toContainText('40 % Converting');
    expect(await place()).toEqual(before);
  }
});

for (const [scenario, words] of [
  ['resolving', 'Looking at what there is'],
  ['begun', '1 % Downloading'],
  ['converting', '40 % Converting'],
  ['stalled', '40 % No data for 40 s; trying again'],
  ['retrying', '40 % Waiting 12 s before trying again. The connection to huggingface.co was closed.'],
  ['stopping', '40 % Stopping'],
] as const) {
  test(`a download that is ${scenario} says so, and no time that is not known`, async ({ page }) => {
    await open(page, scenario);
    await expect(row(page, NEWEST)).toContainText(words);
    if (scenario !== 'converting') await expect(row(page, NEWEST)).not.toContainText('left');
    if (scenario === 'stalled' || scenario === 'retrying') {
      // Neither speed nor motion, and the bar has the colour of one that rests.
      await expect(row(page, NEWEST)).not.toContainText('/s');
      await expect(bar(page)).toHaveClass(/still/);
      await expect(bar(page)).not.toHaveClass(/unknown/);
    }
    // Nor does the header show an arrow where nothing arrives.
    const stands = scenario === 'stalled' || scenario === 'retrying';
    await page.keyboard.press('Escape');
    await expect(chip(page)).toHaveAccessibleName(
      stands ? /nothing arrives, 40 % downloaded/ : /: \d+ % downloaded/,
    );
    await expect(chip(page).locator('svg')).toHaveAttribute('data-icon', stands ? 'clock' : 'down');
    await chip(page).click();
    const pause = row(page, NEWEST).getByRole('button', { name: `Pause: ${NEWEST}` });
    await (scenario === 'stopping' ? expect(pause).toBeDisabled() : expect(pause).toBeEnabled());
    if (scenario === 'resolving') await expect(bar(page)).not.toHaveAttribute('aria-valuenow');
  });
}

test('a second download waits for the first and can be cancelled while it does', async ({ page }) => {
  await open(page, 'waiting');
  const waiting = row(page, 'DeepSeek V4 Flash DSpark');
  await expect(waiting).toContainText('0 % Waiting for its turn');
  await waiting.getByRole('button', { name: 'Cancel…' }).click();
  await waiting.getByRole('button', { name: 'Cancel the download' }).click();
  await expect(waiting).toHaveCount(0);
  await expect(panel(page).getByRole('heading', { name: 'On this computer' })).toBeFocused();
  await expect(offer(page, 'flash-dspark').getByRole('button', { name: /Download/ })).toBeEnabled();
});

test('cancel asks what becomes of the bytes: back, keep, or delete', async ({ page }) => {
  await open(page, 'downloading');
  const download = row(page, NEWEST);
  const cancel = download.getByRole('button', { name: 'Cancel…' });
  await cancel.click();
  const question = 'Cancel the download. Keep the 66.8 GB that have arrived, to go on later, or delete them?';
  await expect(download.getByText(question)).toBeFocused();
  await download.getByRole('button', { name: 'Back' }).click();
  await expect(cancel).toBeFocused();
  await expect(download.getByTestId('job')).toHaveAttribute('data-state', 'running');
  await cancel.click();
  await download.getByRole('button', { name: 'Keep them' }).click();
  await expect(download).toContainText('Incomplete: 66.8 GB of 167 GB');
  await expect(offer(page, 'flash-0731')).toContainText('Incomplete');

  await download.getByRole('button', { name: `Resume: ${NEWEST}` }).click();
  await step(page, 0.1);
  await expect(download).toContainText('50 % Downloading');
  await download.getByRole('button', { name: 'Cancel…' }).click();
  await download.getByRole('button', { name: 'Delete them' }).click();
  await expect(download).toHaveCount(0);
  await expect(panel(page)).toContainText('There is no model in this folder yet.');
});

test('what an earlier run left is listed, with a way on or only a way to delete it', async ({ page }) => {
  await open(page, 'library');
  await expect(row(page, NEWEST)).toContainText('Incomplete: 66.8 GB of 167 GB');
  await row(page, NEWEST)
    .getByRole('button', { name: `Resume: ${NEWEST}` })
    .click();
  await expect(row(page, NEWEST).getByTestId('job')).toHaveAttribute('data-state', 'queued');
  await open(page, 'left');
  await expect(row(page, NEWEST)).toContainText('Left over from a download, 9.2 GB');
  await expect(row(page, NEWEST).getByRole('button', { name: /Resume/ })).toHaveCount(0);
  await expect(row(page, NEWEST).getByRole('button', { name: 'Delete…' })).toBeEnabled();
});

test('a download that met a full disk keeps what has arrived and can be tried again', async ({ page }) => {
  await open(page, 'nospace');
  const note = row(page, NEWEST).getByRole('alert');
  await expect(note).toContainText('needs 107.5 GB more');
  await expect(note).toContainText('21.3 GB are free there');
  await expect(note).toContainText('What has arrived is kept.');
  await note.getByRole('button', { name: 'Try again' }).click();
  await expect(note).toHaveCount(0);
  await step(page, 0.1);
  await expect(row(page, NEWEST)).toContainText('50 % Downloading');
});

test('a repository that wants a token leads to the field for it, and the token is never shown again', async ({
  page,
}) => {
  await open(page, 'noaccess');
  await row(page, NEWEST).getByRole('button', { name: 'Enter a token…' }).click();
  // The settings take the place of the models.
  await expect(panel(page)).toHaveCount(0);
  const field = settings(page).getByLabel('Access token', { exact: true });
  await expect(field).toBeFocused();
  await expect(field).toHaveAttribute('type', 'password');
  await expect(field).toBeInViewport();
  await page.keyboard.type('hf_secretsecret');
  await page.keyboard.press('Enter');
  await expect(field).toHaveValue('');
  await expect(field).toHaveAttribute('placeholder', 'A token is stored');
  expect(await page.content()).not.toContain('secretsecret');
  await settings(page).getByRole('button', { name: 'Forget it: Access token' }).click();
  await expect(field).toHaveAttribute('placeholder', '');
  await page.keyboard.press('Escape');
  await expect(settings(page)).toHaveCount(0);
  await page.getByTestId('model-pill').click();
  await row(page, NEWEST).getByRole('button', { name: 'Try again' }).click();
  await expect(row(page, NEWEST).getByTestId('job')).toHaveAttribute('data-state', 'queued');
});

test('a check runs, can be stopped, and tells its result', async ({ page }) => {
  await open(page, 'library');
  const flash = row(page, 'deepseek-v4-flash');
  await flash.getByRole('button', { name: 'Check every byte' }).click();
  await step(page, 0.3);
  await expect(flash).toContainText('30 % Checking');
  await expect(flash).toContainText('48.1 GB of 160 GB');
  await flash.getByRole('button', { name: 'Stop: deepseek-v4-flash' }).click();
  await expect(flash.getByTestId('job')).toHaveCount(0);
  await flash.getByRole('button', { name: 'Check every byte' }).click();
  await step(page, 1);
  await expect(flash).toContainText('Every weight is as it was made: 160 GB read.');
  await flash.getByRole('button', { name: 'Dismiss' }).click();
  await expect(flash.getByTestId('job')).toHaveCount(0);
});

test('a damaged model is explained and repaired', async ({ page }) => {
  await open(page, 'damagedmodel');
  const flash = row(page, 'deepseek-v4-flash');
  await expect(flash.getByRole('alert')).toContainText('layer 9, expert 113');
  await flash.getByRole('button', { name: 'Repair' }).click();
  await step(page, 0.5);
  await expect(flash).toContainText('13.4 MB of 26.7 MB');
  await step(page, 0.5);
  await expect(flash).toContainText('2 records were fetched again; the file is right now.');
  await expect(flash.getByRole('alert')).toHaveCount(0);
});

test('a model that cannot be used says why and is not offered for use', async ({ page }) => {
  await open(page, 'library');
  const broken = row(page, 'DeepSeek V4 Flash DSpark, ready-made');
  await expect(broken).toContainText('Cannot be used. deepseek_v4_dspark.fst has no file');
  await expect(broken.getByRole('button', { name: /Use/ })).toHaveCount(0);
  await expect(offer(page, 'flash-dspark-fst')).toContainText('Cannot be used');
});

test('delete asks once, says what it frees, and frees it', async ({ page }) => {
  await open(page, 'library');
  const flash = row(page, 'DeepSeek V4 Flash Preview');
  const button = flash.getByRole('button', { name: 'Delete…' });
  await button.click();
  await expect(flash.getByText('Delete DeepSeek V4 Flash Preview and free 160 GB?')).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(button).toBeFocused();
  await expect(panel(page)).toBeVisible();
  await button.click();
  await flash.getByRole('button', { name: 'Delete', exact: true }).click();
  await expect(flash).toHaveCount(0);
  await expect(told(page)).toHaveText('DeepSeek V4 Flash Preview was deleted; 160 GB are free again.');
  await expect(panel(page).getByTestId('model-folder')).toContainText('1.4 TB free');
  await expect(panel(page).getByRole('heading', { name: 'On this computer' })).toBeFocused();
  await expect(offer(page, 'flash-preview').getByRole('button', { name: /Download/ })).toBeEnabled();
});

test('another model is used, and the demo again', async ({ page }) => {
  await open(page, 'library');
  await row(page, 'DeepSeek V4 Flash Preview').getByRole('button', { name: /^Use/ }).click();
  await expect(row(page, 'DeepSeek V4 Flash Preview')).toContainText('In use');
  await expect(row(page, 'deepseek-v4-flash')).not.toContainText('In use');
  await expect(page.getByTestId('status-model')).toHaveText('DeepSeek-V4-Flash');
  await panel(page).getByRole('button', { name: 'Use the demo model' }).click();
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  await expect(row(page, 'DeepSeek V4 Flash Preview')).not.toContainText('In use');
});

test('folder and file are chosen on the desktop, and a browser is told the command', async ({ page }) => {
  await open(page, 'demo');
  await panel(page).getByRole('button', { name: 'Change folder…' }).click();
  await expect(panel(page).getByTestId('model-folder')).toHaveText(
    'Models are kept in /media/you/large disk/models · 3.4 TB free',
  );
  await panel(page).getByRole('button', { name: 'Choose a model file…' }).click();
  await expect(page.getByTestId('status-model')).toHaveText('deepseek-v4-flash');
  await open(page, 'web');
  await expect(panel(page)).toContainText('fastar serve --model model.fst');
  for (const name of ['Change folder…', 'Choose a model file…', 'Show in folder'])
    await expect(panel(page).getByRole('button', { name })).toHaveCount(0);
});

test('a screen reader hears what begins and ends, and not every percent', async ({ page }) => {
  await open(page, 'demo');
  const heard = await listen(page);
  await panel(page)
    .getByRole('button', { name: `Download: ${NEWEST}` })
    .click();
  await panel(page).getByRole('button', { name: 'Start the download' }).click();
  const download = row(page, NEWEST);
  for (const [share, words] of [
    [0.1, '10 %'],
    [0.2, '30 %'],
    [0.3, '60 %'],
  ] as const) {
    await step(page, share);
    await expect(download).toContainText(words);
  }
  await download.getByRole('button', { name: /Pause/ }).click();
  await expect(download).toContainText('Paused');
  await download.getByRole('button', { name: /Resume/ }).click();
  await expect(download).not.toContainText('Paused');
  await step(page, 0);
  await expect(download).toContainText('60 % Downloading');
  await step(page, 0.5);
  await expect(download.getByRole('button', { name: /^Use/ })).toBeVisible();
  const of = `The download of ${NEWEST}`;
  expect(await heard()).toEqual([
    `${of} has begun.`,
    `${of} is paused.`,
    `${of} goes on.`,
    `${of} is finished.`,
  ]);
});

test('with the screen closed the window still tells how the download goes', async ({ page }) => {
  const close = async () => {
    await page.keyboard.press('Escape');
    await expect(panel(page)).toHaveCount(0);
  };
  await page.goto('/?fake=downloading');
  await expect(chip(page)).toHaveText('40 %');
  await expect(chip(page)).toHaveAccessibleName(`${NEWEST}: 40 % downloaded. Show models`);
  await step(page, 0.2);
  await expect(chip(page)).toHaveText('60 %');
  await chip(page).click();
  await row(page, NEWEST).getByRole('button', { name: /Pause/ }).click();
  await close();
  await expect(chip(page)).toHaveAccessibleName(/download paused at 60 %/);
  await chip(page).click();
  await row(page, NEWEST)
    .getByRole('button', { name: /Resume/ })
    .click();
  await close();
  await step(page, 1);
  await expect(chip(page)).toHaveText('Ready');
  await chip(page).click();
  await close();
  await expect(chip(page)).toHaveCount(0);
  await page.goto('/?fake=nospace');
  await expect(chip(page)).toHaveText('Stopped');
  await expect(chip(page)).toHaveAccessibleName(`${NEWEST}: the download stopped. Show models`);
});

test('the screen opens again at once, with what it showed', async ({ page }) => {
  await open(page, 'library');
  await page.keyboard.press('Escape');
  // The app answers no more; what was known is shown all the same.
  await connect(page, false);
  await page.getByTestId('model-pill').click();
  await expect(row(page, 'deepseek-v4-flash')).toBeVisible();
  await expect(panel(page).getByText('FaStar is not answering')).toBeVisible();
});

test('a lost connection is told, and the numbers go on when it is back', async ({ page }) => {
  await open(page, 'downloading');
  await connect(page, false);
  const offline = panel(page).getByRole('status').filter({ hasText: 'FaStar is not answering' });
  await expect(offline).toBeVisible();
  await row(page, NEWEST).getByRole('button', { name: /Pause/ }).click();
  await expect(row(page, NEWEST).getByRole('alert')).toContainText('FaStar is not answering');
  await step(page, 0.2);
  await connect(page, true);
  await expect(row(page, NEWEST)).toContainText('60 %');
  await expect(offline).toHaveCount(0);
  await step(page, 0.1);
  await expect(row(page, NEWEST)).toContainText('70 %');
});

test('the app is asked once a second while something runs, and not at all when nothing does', async ({
  page,
}) => {
  await page.clock.install();
  const asked = () => page.evaluate(() => (window as unknown as { asked: string[] }).asked.splice(0).sort());
  await page.goto('/?fake=downloading');
  await expect(chip(page)).toHaveText('40 %');
  // From here on only the test moves the clock, however slow the machine is.
  await page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000));
  await asked();
  for (let second = 0; second < 10; second++) await page.clock.runFor(1000);
  const running = await asked();
  expect(new Set(running)).toEqual(new Set(['jobList']));
  expect(running.length).toBeGreaterThanOrEqual(9);
  expect(running.length).toBeLessThanOrEqual(10);
  // Only by asking again it can see the end.
  await page.evaluate(() => window.dispatchEvent(new CustomEvent('fake-step', { detail: 1 })));
  await page.clock.runFor(2000);
  await expect(chip(page)).toHaveText('Ready');
  await asked();
  for (let second = 0; second < 10; second++) await page.clock.runFor(6000);
  expect(await asked()).toEqual([]);
});

test('everything can be done with the keyboard alone', async ({ page }) => {
  await page.goto('/?fake=demo');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.getByTestId('model-pill').press('Enter');
  await expect(panel(page).getByRole('heading', { name: 'Models', exact: true })).toBeFocused();
  const reach = async (name: string | RegExp) => {
    for (let tabs = 0; tabs < 40; tabs++) {
      await page.keyboard.press('Tab');
      const focused = panel(page).locator(':focus');
      const words =
        (await focused.getAttribute('aria-label').catch(() => null)) ?? (await focused.innerText());
      if (typeof name === 'string' ? words === name : name.test(words)) return;
    }
    throw new Error(`Tab does not reach ${String(name)}`);
  };
  await reach(`Download: ${NEWEST}`);
  await page.keyboard.press('Enter');
  await reach('Start the download');
  await page.keyboard.press('Enter');
  await expect(row(page, NEWEST)).toBeFocused();
  await step(page, 0.5);
  await reach(`Pause: ${NEWEST}`);
  await page.keyboard.press('Enter');
  await expect(row(page, NEWEST)).toContainText('Paused');
  await reach('Cancel…');
  await page.keyboard.press('Enter');
  await reach('Keep them');
  await page.keyboard.press('Enter');
  await expect(row(page, NEWEST)).toContainText('Incomplete');
  await page.keyboard.press('Escape');
  await expect(panel(page)).toHaveCount(0);
  await expect(page.getByTestId('model-pill')).toBeFocused();
});

for (const [name, width, height] of [
  ['360 pixels wide', 360, 640],
  // A window of 1280 by 800 at 200 % leaves half the CSS pixels.
  ['zoomed to 200 %', 640, 400],
] as const) {
  test(`nothing is cut off when the window is ${name}`, async ({ page }) => {
    await page.setViewportSize({ width, height });
    for (const scenario of ['library', 'downloading', 'longnames', 'noaccess', 'retrying', 'token']) {
      await open(page, scenario);
      const wide = await page
        .getByRole('dialog')
        .evaluate((dialog) => dialog.scrollWidth - dialog.clientWidth);
      expect(wide, scenario).toBeLessThanOrEqual(0);
      for (const button of await panel(page).getByRole('button').all()) {
        const box = await button.boundingBox();
        expect(
          box && box.x >= 0 && box.x + box.width <= width,
          `${scenario}: ${await button.innerText()}`,
        ).toBe(true);
      }
      // The way out stays in sight.
      await expect(panel(page).getByRole('button', { name: 'Close' })).toBeInViewport();
    }
  });
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in the models screen, ${colorScheme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const check = async (scenario: string, act?: () => Promise<unknown>) => {
      await open(page, scenario);
      await act?.();
      await expectAccessible(page, scenario);
    };
    const press = (name: string) => () => panel(page).getByRole('button', { name }).first().click();
    await check('library', press('Delete…'));
    await check('downloading', press('Cancel…'));
    await check('paused');
    await check('noaccess', press('Enter a token…'));
    await check('verified');
    await check('lowspace', press(`Download: ${NEWEST}`));
  });
}

test('models move to another folder, can be paused, and stay where they are when it is cancelled', async ({
  page,
}) => {
  await open(page, 'moving');
  const moving = row(page, 'DeepSeek V4 Flash Preview');
  await expect(moving.getByTestId('job')).toContainText('Copying');
  await expect(moving.getByTestId('job')).toContainText('48.0 GB of 160 GB');
  await moving.getByRole('button', { name: /^Pause/ }).click();
  await expect(moving.getByTestId('job')).toHaveAttribute('data-state', 'paused');
  await expectAccessible(page);
  await moving.getByRole('button', { name: 'Cancel…' }).click();
  await expect(moving).toHaveCount(0);
});

test('moving is offered where there is something to move, and refused while a model is in use', async ({
  page,
}) => {
  await open(page, 'demo');
  await expect(panel(page).getByRole('button', { name: 'Move models…' })).toHaveCount(0);
  await open(page, 'library');
  await panel(page).getByRole('button', { name: 'Move models…' }).click();
  await expect(panel(page)).toContainText('is in use.');
  await open(page, 'refused');
  await panel(page).getByRole('button', { name: 'Move models…' }).click();
  await expect(panel(page)).toContainText('The download needs 174 GB');
});

test('a linked model has the size of what it leads to, and its file stays when it is deleted', async ({
  page,
}) => {
  await open(page, 'linked');
  const linked = row(page, 'DeepSeek V4 Flash Preview');
  await expect(linked).toContainText('160 GB, linked from /media/you/large disk/DeepSeek-V4-Flash.fst');
  await linked.getByRole('button', { name: 'Delete…' }).click();
  await expect(linked).toContainText('Its file stays: /media/you/large disk/DeepSeek-V4-Flash.fst');
});
