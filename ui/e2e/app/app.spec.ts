/** The real interface against the real app: `fastar serve` with the demo model. */
import type { Page } from '@playwright/test';
import { setTimeout as sleep } from 'node:timers/promises';
import { expected } from '../expected';
import { expectAccessible, answers, expect, questions, rows, send, settled, test as base } from '../page';
import { Server } from '../server';

const STORY = 'Tell me a story about a fox.';

const test = base.extend<{ server: Server }>({
  server: async ({ page }, use) => {
    const server = new Server();
    await server.start();
    await use(server);
    // First the page: one that is still being loaded must not miss the server.
    await page.close();
    await server.remove();
  },
});

/** Sends, and holds the server still in the middle of the answer: it gets a few milliseconds at a time until some is there. */
async function sendAndPause(page: Page, server: Server, text: string): Promise<void> {
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  server.pause();
  await send(page, text);
  const some = () =>
    page.evaluate(() => {
      const shown = [...document.querySelectorAll<HTMLElement>('article.answer .markdown')].at(-1);
      return (shown?.innerText ?? '') !== '';
    });
  // The page gets its time too before the next tick: where it is slow, the answer would be over before its first words are seen.
  const seen = async () => {
    for (let waited = 0; waited < 200; waited += 40) {
      if (await some()) return true;
      await sleep(40);
    }
    return false;
  };
  while (!(await seen())) server.tick();
}

/** A prefix of the story and not all of it. */
async function expectPart(page: Page): Promise<string> {
  const text = await answers(page).last().innerText();
  expect(expected(STORY).startsWith(text) && text !== '' && text !== expected(STORY), text).toBe(true);
  return text;
}

test('the first message streams in and is the known answer, with true numbers', async ({ page, server }) => {
  await page.goto(server.address);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.type('Hello!');
  await page.keyboard.press('Enter');
  await settled(page);
  await expect(answers(page)).toHaveText([expected('Hello!')]);
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  await expect(page.getByTestId('status-speed')).toHaveText(/^[\d.,]+ tokens\/s$/);
  await expect(page.getByTestId('status-first')).toHaveText(
    /^first token (<1|\d+) ms$|^first token [\d.]+ s$/,
  );
  // 6 tokens of the prompt and 14 of the answer, its end included, of which the last need not be kept.
  await expect(page.getByTestId('status-context')).toHaveText(/^\s*context (19|20) of 4,096$/);
  await expect(rows(page)).toHaveText(['Hello!']);
});

test('an answer is shown while it is written', async ({ page, server }) => {
  await page.goto(server.address);
  await sendAndPause(page, server, STORY);
  const part = await expectPart(page);
  await expect(page.locator('article.answer')).toHaveAttribute('aria-busy', 'true');
  await expect(page.getByTestId('stop')).toBeVisible();
  await expect(page.getByTestId('status')).toHaveText('Demo model');
  server.goOn();
  await settled(page);
  expect(expected(STORY).startsWith(part)).toBe(true);
  await expect(answers(page)).toHaveText([expected(STORY)]);
});

test('a second turn knows the first', async ({ page, server }) => {
  await page.goto(server.address);
  await send(page, 'My name is Zoe.');
  await settled(page);
  await expect(answers(page)).toHaveText([expected('My name is Zoe.')]);
  await send(page, 'What is my name?');
  await settled(page);
  await expect(answers(page)).toHaveText([
    expected('My name is Zoe.'),
    expected('(second turn) What is my name?'),
  ]);
});

test('Escape stops an answer, what was written stays, and the next message is answered', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await sendAndPause(page, server, STORY);
  const stop = page.waitForRequest(/generation_stop/);
  await page.keyboard.press('Escape');
  await stop;
  server.goOn();
  await settled(page);
  const part = await expectPart(page);
  await expect(page.locator('article.answer').last()).toContainText('Stopped');
  await send(page, 'Hello!');
  await settled(page);
  await page.reload();
  await expect(answers(page).first()).toHaveText(part);
});

test('regenerate writes the same answer in the same place', async ({ page, server }) => {
  await page.goto(server.address);
  await send(page, 'Who are you?');
  await settled(page);
  const again = page.waitForResponse(/message_regenerate/);
  await page.getByRole('button', { name: 'Regenerate' }).click();
  expect((await again).status()).toBe(200);
  await settled(page);
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
  await page.reload();
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
  await expect(questions(page)).toHaveText(['Who are you?']);
});

test('question and answer are copied as they are', async ({ page, context, server }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: server.address });
  await page.goto(server.address);
  await send(page, 'Write a poem about the sea.');
  await settled(page);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await page.locator('article.answer').getByRole('button', { name: 'Copy' }).click();
  expect(await clipboard()).toBe(expected('Write a poem about the sea.'));
  await page.locator('article.user').hover();
  await page.locator('article.user').getByRole('button', { name: 'Copy' }).click();
  expect(await clipboard()).toBe('Write a poem about the sea.');
});

test('chats are renamed, deleted and brought back', async ({ page, server }) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  await page.keyboard.press('Control+n');
  await send(page, 'Who are you?');
  await settled(page);
  await expect(rows(page)).toHaveText(['Who are you?', 'Hello!']);

  await rows(page).nth(1).dblclick();
  await page.getByRole('textbox', { name: 'Title of the chat' }).fill('Greetings  🙂');
  await page.keyboard.press('Enter');
  await expect(rows(page).filter({ hasText: 'Greetings 🙂' })).toHaveCount(1);

  await rows(page).filter({ hasText: 'Greetings' }).click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await expect(rows(page)).toHaveText(['Who are you?']);
  await page.reload();
  await expect(rows(page)).toHaveText(['Who are you?']);

  await rows(page).first().focus();
  await page.keyboard.press('Delete');
  await expect(rows(page)).toHaveCount(0);
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(rows(page)).toHaveText(['Who are you?']);
  // It was not the open chat, so undoing does not open it either.
  await expect(answers(page)).toHaveCount(0);
  await rows(page).first().click();
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
});

test('a reload in the middle of an answer takes it up again', async ({ page, server }) => {
  await page.goto(server.address);
  await sendAndPause(page, server, STORY);
  const reloaded = page.reload();
  server.goOn();
  await reloaded;
  await expect(answers(page)).toHaveText([expected(STORY)]);
  await settled(page);
});

test('two pages show the same chat and the same answer', async ({ page, context, server }) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  const other = await context.newPage();
  await other.goto(page.url());
  await expect(answers(other)).toHaveText([expected('Hello!')]);

  await send(other, STORY);
  await page.bringToFront();
  await page.evaluate(() => window.dispatchEvent(new Event('focus')));
  await expect(answers(page)).toHaveText([expected('Hello!'), await finalText(other)]);
  await settled(page);
  await settled(other);
});

async function finalText(page: Page): Promise<string> {
  await settled(page);
  return answers(page).last().innerText();
}

test('kill -9 in the middle of an answer: the page waits, and after a restart the part is there', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  // Nothing can hold a program at a certain word from outside: where the answer was over already, it is not the case that is meant.
  for (let attempt = 1; ; attempt++) {
    await sendAndPause(page, server, STORY);
    // Longer than the app waits before it saves: when it goes on, saving is due.
    for (let i = 0; i < 2; i++) {
      await sleep(600);
      server.tick();
    }
    await server.kill();
    await expect(page.getByTestId('offline')).toBeVisible();
    await page.getByTestId('composer').fill('kept while away');
    await server.start();
    await expect(page.getByTestId('offline')).toHaveCount(0);
    await settled(page);
    await expect(page.getByTestId('composer')).toHaveValue('kept while away');
    await expect(questions(page)).toHaveText([STORY]);
    await expect(answers(page)).not.toHaveText(['']);
    if (attempt === 8 || (await answers(page).last().innerText()) !== expected(STORY)) break;
    await page.keyboard.press('Control+n');
    await expect(page.getByTestId('composer')).toHaveValue('');
  }
  const text = await expectPart(page);
  await expect(page.locator('article.answer')).toContainText('The app closed while this was being written.');
  await page.reload();
  await expect(questions(page)).toHaveText([STORY]);
  await expect(answers(page)).toHaveText([text]);
});

test('a server that is stopped between answers is told, and comes back by itself', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  await server.kill();
  await send(page, 'Who are you?');
  await expect(page.getByTestId('offline')).toBeVisible();
  await expect(page.getByTestId('composer')).toHaveValue('Who are you?');
  await server.start();
  await expect(page.getByTestId('offline')).toHaveCount(0);
  await page.getByTestId('composer').press('Enter');
  await settled(page);
  await expect(answers(page)).toHaveCount(2);
});

test('everything can be done with the keyboard alone', async ({ page, server }) => {
  await page.goto(server.address);
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.type('Hello!');
  await page.keyboard.press('Enter');
  await settled(page);
  // From the field backwards to the answer's own buttons.
  for (let i = 0; i < 3; i++) await page.keyboard.press('Shift+Tab');
  await expect(page.getByRole('button', { name: 'Regenerate' })).toBeFocused();
  await page.keyboard.press('Enter');
  await settled(page);
  await page.keyboard.press('Control+n');
  await expect(page.getByTestId('composer')).toBeFocused();
  await rows(page).first().focus();
  await page.keyboard.press('F2');
  await page.keyboard.type('By hand');
  await page.keyboard.press('Enter');
  await expect(rows(page)).toHaveText(['By hand']);
  await page.keyboard.press('Enter');
  await expect(answers(page)).toHaveText([expected('Hello!')]);
});

for (const [name, colorScheme, width] of [
  ['light', 'light', 1280],
  ['dark', 'dark', 1280],
  ['narrow', 'light', 360],
] as const) {
  test(`axe finds nothing serious in a real chat, ${name}`, async ({ page, server }) => {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 720 });
    await page.goto(server.address);
    await send(page, STORY);
    await settled(page);
    await expectAccessible(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    const dark = await page.evaluate(() => {
      const [r = 0, g = 0, b = 0] = (
        getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) ?? []
      ).map(Number);
      return r + g + b < 384;
    });
    expect(dark).toBe(colorScheme === 'dark');
  });
}

test('the page is locked down', async ({ page, server }) => {
  const response = await page.goto(server.address);
  const policy = response?.headers()['content-security-policy'] ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain("require-trusted-types-for 'script'");
  expect(policy).not.toMatch(/unsafe|\*/);
});
