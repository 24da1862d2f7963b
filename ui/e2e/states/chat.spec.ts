/** Versions, thoughts, waiting messages, files and instructions, with the scripted back end. */
import type { Page } from '@playwright/test';
import { expectAccessible, answers, expect, goOn, questions, rows, send, settled, test } from '../page';

const FOX = 'Tell me a story about a fox.';
const versions = (page: Page) => page.getByTestId('versions');

async function openFirst(page: Page, scenario: string): Promise<void> {
  await page.goto(`/?fake=${scenario}`);
  await rows(page).first().click();
  await expect(answers(page).first()).toBeVisible();
}

test('an edited question is answered anew, and the old one is a step away', async ({ page }) => {
  await openFirst(page, 'branches');
  const old = await answers(page).allInnerTexts();
  await questions(page).first().hover();
  await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
  const field = page.getByTestId('edit-field');
  await expect(field).toBeFocused();
  await expect(field).toHaveValue(FOX);
  await field.fill('Hello!');
  await page.keyboard.press('Control+Enter');
  await settled(page);
  await expect(questions(page)).toHaveText(['Hello!']);
  await expect(answers(page)).toHaveText(['Hi there! Ask me something, or ask for a story.']);
  await expect(page.getByTestId('composer')).toBeFocused();
  await expect(versions(page)).toContainText('2 / 2');

  // With the keyboard alone: the focus stays on the walker.
  await versions(page).getByRole('button', { name: 'Previous version' }).focus();
  await page.keyboard.press('Enter');
  await expect(questions(page)).toHaveText([FOX, 'And now one about a badger, please.']);
  expect(await answers(page).allInnerTexts()).toEqual(old);
  await expect(versions(page).getByRole('button', { name: 'Previous version' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(versions(page)).toContainText('1 / 2');
  await page.keyboard.press('ArrowRight');
  await expect(questions(page)).toHaveText(['Hello!']);
  await expect(versions(page)).toContainText('2 / 2');
});

test('Escape gives an edit up and changes nothing', async ({ page }) => {
  await openFirst(page, 'branches');
  await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
  await page.getByTestId('edit-field').fill('something else');
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('edit-field')).toHaveCount(0);
  await expect(questions(page).first()).toHaveText(FOX);
  await expect(versions(page)).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('an edit that is refused, or left for another chat, keeps its words', async ({ page }) => {
  await openFirst(page, 'fullbranches');
  const field = page.getByTestId('edit-field');
  for (const [label, send, article] of [
    ['Edit', 'Send', 'article.user'],
    ['Edit the answer', 'Save', 'article.answer'],
  ] as const) {
    await page.locator(article).first().getByRole('button', { name: label, exact: true }).click();
    await field.fill('a long new thought');
    await page.locator('.edit').getByRole('button', { name: send, exact: true }).click();
    await expect(page.getByRole('alert')).toContainText('is full');
    await expect(field).toHaveValue('a long new thought');
    await page.keyboard.press('Control+n');
    await expect(field).toHaveCount(0);
    await rows(page).first().click();
    await expect(field).toHaveValue('a long new thought');
    await field.press('Escape');
    await expect(page.locator(article).first()).toBeVisible();
    await expect(field).toHaveCount(0);
  }
  await expect(questions(page).first()).toHaveText(FOX);
});

test('an answer in the middle is regenerated, and both ways stay', async ({ page }) => {
  await openFirst(page, 'branches');
  await page.locator('article.answer').first().getByRole('button', { name: 'Regenerate' }).click();
  await settled(page);
  await expect(questions(page)).toHaveText([FOX]);
  await expect(versions(page)).toContainText('2 / 2');
  await versions(page).getByRole('button', { name: 'Previous version' }).click();
  await expect(questions(page)).toHaveCount(2);
  await expect(page.locator('article.answer').first().getByTestId('versions')).toContainText('1 / 2');
});

test('the model’s answer can be edited; the page says so, and what it was stays', async ({ page }) => {
  await openFirst(page, 'branches');
  const last = page.locator('article.answer').last();
  await last.getByRole('button', { name: 'Edit the answer' }).click();
  await page.getByTestId('edit-field').fill('There once was an **otter**.');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(last.locator('strong')).toHaveText('otter');
  await expect(last).toContainText('Edited by you');
  await last.getByRole('button', { name: 'Previous version' }).click();
  await expect(last).toContainText('badger');
});

test('an answer that was cut off is continued in its place', async ({ page }) => {
  await openFirst(page, 'interrupted');
  await expect(answers(page)).toHaveText(['Of course. There once was a gentle fox called David. Dav']);
  await page.getByTestId('continue').click();
  await settled(page);
  await expect(answers(page)).toHaveCount(1);
  await expect(answers(page)).toContainText('fox called David. David lived in a lighthouse');
  await expect(page.getByTestId('continue')).toHaveCount(0);
});

test('an answer that filled the context cannot be continued; one at its limit can', async ({ page }) => {
  await openFirst(page, 'lengthlimit');
  await expect(page.getByTestId('continue')).toHaveCount(0);
  await openFirst(page, 'stopped');
  await expect(page.getByTestId('continue')).toBeVisible();
});

test('thoughts come folded, with their time, and can be read', async ({ page }) => {
  await page.goto('/?fake=unmeasured');
  await page.getByTestId('thinking').selectOption('on');
  await send(page, FOX);
  await settled(page);
  const thoughts = page.getByTestId('thoughts');
  await expect(thoughts.locator('summary')).toHaveText('Thought for 12.4 s');
  await expect(thoughts.locator('.markdown')).toHaveCount(0);
  await thoughts.locator('summary').click();
  await expect(thoughts).toContainText('Maybe the fox lives somewhere unusual');
  // The next message can do without.
  await page.getByTestId('thinking').selectOption('off');
  await send(page, 'Hello!');
  await settled(page);
  await expect(page.getByTestId('thoughts')).toHaveCount(1);
});

for (const [letters, width] of [
  ['200%', 400],
  ['200%', 1280],
  ['100%', 360],
] as const) {
  test(`why the demo model does not think is read whole, letters ${letters}, ${width} px`, async ({
    page,
  }) => {
    await page.setViewportSize({ width, height: 800 });
    await page.goto('/?fake=demo');
    await page.evaluate((size) => (document.documentElement.style.fontSize = size), letters);
    const words = page.getByTestId('no-thinking');
    await expect(words).toBeInViewport({ ratio: 1 });
    expect(await words.evaluate((it) => it.scrollWidth <= it.clientWidth + 1)).toBe(true);
    // As wide as its longest word at least: no word is broken.
    expect(
      await words.evaluate((it) => it.clientWidth / parseFloat(getComputedStyle(it).fontSize)),
    ).toBeGreaterThan(4.5);
    await expect(page.getByTestId('send')).toBeInViewport({ ratio: 1 });
  });
}

test('the demo model is not asked to think, whatever is chosen, and the reason stands there', async ({
  page,
}) => {
  await page.goto('/?fake=demo');
  await expect(page.getByTestId('no-thinking')).toHaveText('The demo model cannot think first');
  await expect(page.getByTestId('thinking')).toHaveCount(0);
  await page.keyboard.press('Control+,');
  await page.getByRole('tab', { name: 'Answers' }).click();
  await page.locator('[data-setting=thinking]').getByRole('radio', { name: 'Most' }).check();
  await page.keyboard.press('Escape');
  await send(page, FOX);
  await settled(page);
  await expect(page.getByTestId('thoughts')).toHaveCount(0);
  await expect(page.locator('article.answer')).toHaveCount(1);
});

test('while it thinks the page says so, and Stop ends it', async ({ page }) => {
  await page.goto('/?fake=thinking');
  await page.getByTestId('thinking').selectOption('max');
  await send(page, FOX);
  await expect(page.locator('article.answer .progress')).toContainText('Thinking…');
  await page.getByTestId('thoughts').locator('summary').click();
  await expect(page.getByTestId('thoughts')).toContainText('The person asks for a story.');
  await page.keyboard.press('Escape');
  await settled(page);
  await expect(page.getByText('Stopped before the first word')).toBeVisible();
  await expect(page.getByTestId('continue')).toBeVisible();
});

test('reading a long prompt says how long it will take', async ({ page }) => {
  await page.goto('/?fake=prefill');
  await send(page, 'Sum up.');
  await expect(page.getByText('about 4 min left')).toBeVisible();
});

test('messages sent meanwhile wait, can be changed or withdrawn, and go one by one', async ({ page }) => {
  await page.goto('/?fake=demo&hold=20');
  await send(page, FOX);
  await expect(answers(page)).toContainText('Of course.');
  await send(page, 'Hello!');
  await send(page, 'Withdraw me');
  await send(page, 'Change me');
  const queue = page.getByTestId('queue-list').locator('li');
  await expect(queue).toHaveCount(3);
  await expect(queue.first()).toContainText('Sent when the answer is done');
  await queue.nth(1).getByRole('button', { name: 'Do not send it' }).click();
  await queue.nth(1).getByRole('button', { name: 'Edit the waiting message' }).click();
  await expect(page.getByTestId('composer')).toHaveValue('Change me');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.getByTestId('composer').fill('');
  await expect(questions(page)).toHaveCount(1);
  await goOn(page);
  await expect(questions(page)).toHaveText([FOX, 'Hello!']);
  await settled(page);
  await expect(answers(page).last()).toHaveText('Hi there! Ask me something, or ask for a story.');
  await expect(queue).toHaveCount(0);
});

test('after a stop a waiting message is sent only when one says so', async ({ page }) => {
  await page.goto('/?fake=demo&hold=20,9999');
  await send(page, FOX);
  await expect(answers(page)).toContainText('Of course.');
  await send(page, 'Hello!');
  await page.keyboard.press('Escape');
  await settled(page);
  const queue = page.getByTestId('queue-list').locator('li');
  await expect(queue).toContainText('Not sent yet');
  await goOn(page);
  await queue.getByRole('button', { name: 'Send now' }).click();
  await expect(questions(page)).toHaveText([FOX, 'Hello!']);
});

test('a file goes along, with its size and tokens shown before', async ({ page }) => {
  await page.goto('/?fake=demo');
  await page.getByTestId('attach').click();
  const file = page.getByTestId('attachment');
  await expect(file).toContainText('quarterly-report.txt');
  await expect(file).toContainText('19.6 kB, 4,900 tokens');
  await expect(page.getByTestId('composer-note')).toContainText('more than the 4,096 the model can hold');
  await file.getByRole('button', { name: 'Remove quarterly-report.txt' }).click();
  await expect(file).toHaveCount(0);
  await expect(page.getByTestId('composer-note')).toHaveText('');
  await page.getByTestId('attach').click();
  await send(page, 'Sum it up.');
  await settled(page);
  const sent = page.locator('article.user').getByRole('button', { name: 'Show quarterly-report.txt' });
  await sent.click();
  await expect(page.locator('article.user pre')).toContainText('Revenue grew by four percent.');
});

test('a file that is no text is refused with a sentence', async ({ page }) => {
  await page.goto('/?fake=binaryfile');
  await page.getByTestId('attach').click();
  await expect(page.getByRole('alert')).toContainText('holiday.png is not a text file');
  await expect(page.getByTestId('attachment')).toHaveCount(0);
});

test('the context is told before it is full, and what to do', async ({ page }) => {
  await page.goto('/?fake=nearlyfull');
  await rows(page).first().click();
  await page.getByTestId('composer').fill('One more thing.');
  await expect(page.getByTestId('composer-note')).toContainText('the context is 85 % full');
  await page.goto('/?fake=overfull');
  await rows(page).first().click();
  await page.getByTestId('composer').fill('One more thing, and a little more than that.');
  await expect(page.getByTestId('composer-note')).toHaveText(
    /6 tokens more than the 4,096 .* start a new chat/,
  );
});

test('where the time went is told in true numbers', async ({ page }) => {
  await openFirst(page, 'weeks');
  await page.getByTestId('timing-button').click();
  const timing = page.getByTestId('timing');
  await expect(timing.locator('dt')).toHaveText([
    'Reading the prompt, 31 tokens',
    'of this, waiting for the disk',
    'Writing, 412 tokens',
    'of this, waiting for the disk',
    'First word after',
    'Speed',
    'Model',
  ]);
  await expect(timing.locator('dd')).toHaveText([
    '1.7 s',
    '610 ms',
    '1 min 30 s',
    '38.4 s',
    '1.8 s',
    '4.56 tokens/s',
    'deepseek-v4-flash',
  ]);
});

test('formulas are drawn as MathML, prices and code stay what they are', async ({ page }) => {
  await page.goto('/?fake=maths');
  await send(page, 'Show me formulas.');
  await settled(page);
  await expect(page.locator('article math')).toHaveCount(6);
  await expect(page.locator('article math[display=block]')).toHaveCount(3);
  const root = page.locator('article math').nth(1);
  await expect(root.locator('mfrac msqrt')).toHaveCount(1);
  expect(await root.evaluate((math) => math.namespaceURI)).toBe('http://www.w3.org/1998/Math/MathML');
  expect(
    await root.locator('mfrac').evaluate((element) => element.getBoundingClientRect().height),
  ).toBeGreaterThan(20);
  await expect(answers(page)).toContainText('It costs $5, not $10, and $x$ is code.');
  await expect(answers(page)).toContainText('What cannot be read stays as it is: \\frac{1}{');
  await expectAccessible(page);
});

test('instructions are set for a chat and kept under a name', async ({ page }) => {
  await page.goto('/?fake=presets');
  await rows(page).first().click();
  await page.getByTestId('instructions-button').click();
  const dialog = page.getByTestId('instructions');
  await dialog.getByRole('button', { name: /^Brief / }).click();
  const field = dialog.getByLabel('Instructions for this chat');
  await expect(field).toHaveValue('Answer in one or two sentences.');
  await field.fill('Answer in verse.');
  await dialog.getByLabel('Save these under a name').fill('Poet');
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(dialog.getByRole('button', { name: /^Poet / })).toBeVisible();
  await dialog.getByRole('button', { name: 'Delete “Proofreader”' }).click();
  await expect(dialog.getByRole('button', { name: /^Proofreader / })).toHaveCount(0);
  await dialog.getByRole('button', { name: 'Use in this chat' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByTestId('instructions-button')).toHaveAccessibleName('Instructions (set)');
  await rows(page).nth(1).click();
  await expect(page.getByTestId('instructions-button')).toHaveAccessibleName('Instructions');
  await rows(page).first().click();
  await page.getByTestId('instructions-button').click();
  await expect(field).toHaveValue('Answer in verse.');
});

test('what one has begun to write stays with its chat', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await rows(page).first().click();
  await page.getByTestId('composer').fill('half a thought');
  await rows(page).nth(1).click();
  await expect(page.getByTestId('composer')).toHaveValue('');
  await rows(page).first().click();
  await expect(page.getByTestId('composer')).toHaveValue('half a thought');
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in any of it, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await openFirst(page, 'branches');
    await page.getByTestId('thoughts').locator('summary').click();
    await page.locator('article.answer').last().getByTestId('timing-button').click();
    await page.locator('article.answer').last().getByRole('button', { name: 'Regenerate' }).click();
    await settled(page);
    await page.getByTestId('attach').click();
    await expectAccessible(page);
    await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
    await expectAccessible(page);
    await page.goto('/?fake=presets');
    await page.getByTestId('instructions-button').click();
    await page.getByRole('button', { name: /^Brief / }).waitFor();
    await expectAccessible(page);
  });
}

test('files stay with the draft of their chat when one looks at another', async ({ page }) => {
  await page.goto('/?fake=demo');
  await send(page, 'Hello!');
  await settled(page);
  const attached = page.getByTestId('attachment');
  await page.getByTestId('attach').click();
  await expect(attached).toHaveText(/quarterly-report\.txt/);
  await page.keyboard.press('Control+n');
  await expect(page.getByTestId('composer')).toBeFocused();
  await expect(attached).toHaveCount(0);
  await rows(page).first().click();
  await expect(attached).toHaveText(/quarterly-report\.txt/);
  await page.getByRole('button', { name: 'Remove quarterly-report.txt' }).click();
  await expect(attached).toHaveCount(0);
});
