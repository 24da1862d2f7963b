/** Conversations that branch, are searched and leave as files, against the real app with the demo model at temperature 0. */
import type { Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { expected } from '../expected';
import { answers, expect, questions, rows, send, settled, test as base } from '../page';
import { Server } from '../server';

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

test('an edited question is answered as in a fresh chat, and the walker leads back, after a reload too', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await send(page, 'My name is Zoe.');
  await settled(page);
  await send(page, 'What is my name?');
  await settled(page);
  const old = await answers(page).allInnerTexts();
  await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
  await page.getByTestId('edit-field').fill('Who are you?');
  await page.keyboard.press('Control+Enter');
  await settled(page);
  await expect(questions(page)).toHaveText(['Who are you?']);
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
  await page.reload();
  const walker = page.getByTestId('versions');
  await expect(walker).toContainText('2 / 2');
  await walker.getByRole('button', { name: 'Previous version' }).click();
  await expect(questions(page)).toHaveText(['My name is Zoe.', 'What is my name?']);
  expect(await answers(page).allInnerTexts()).toEqual(old);
  await page.reload();
  await expect(questions(page)).toHaveText(['My name is Zoe.', 'What is my name?']);
  // Another answer to the first question, and what followed is still there.
  await page.locator('article.answer').first().getByRole('button', { name: 'Regenerate' }).click();
  await settled(page);
  await expect(answers(page)).toHaveText([expected('My name is Zoe.')]);
  await page.locator('article.answer').first().getByRole('button', { name: 'Previous version' }).click();
  await expect(answers(page)).toHaveText(old);
});

test('an edited answer is what the model reads next', async ({ page, server }) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  await page.getByRole('button', { name: 'Edit the answer' }).click();
  await page.getByTestId('edit-field').fill('Good morning.');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(answers(page)).toHaveText(['Good morning.']);
  await page.reload();
  await expect(answers(page)).toHaveText(['Good morning.']);
  await expect(page.locator('article.answer')).toContainText('Edited by you');
});

test('an answer that was stopped goes on where it ended', async ({ page, server }) => {
  await page.goto(server.address);
  const story = 'Tell me a story about a fox.';
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  server.pause();
  await send(page, story);
  const some = async () =>
    (await answers(page).count()) > 0 ? (await answers(page).innerText()) !== '' : false;
  while (!(await some())) {
    server.tick();
    await page.waitForTimeout(40);
  }
  const stop = page.waitForRequest(/generation_stop/);
  await page.keyboard.press('Escape');
  await stop;
  server.goOn();
  await settled(page);
  const part = (await answers(page).innerText()).trimEnd();
  await page.getByTestId('continue').click();
  await settled(page);
  const whole = await answers(page).innerText();
  expect(whole.startsWith(part) && whole.length > part.length, `${part} | ${whole}`).toBe(true);
  await expect(answers(page)).toHaveCount(1);
  await page.reload();
  await expect(answers(page)).toHaveText([whole]);
});

test('a chat is found, exported, deleted and imported again with all its versions', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await send(page, 'Hello!');
  await settled(page);
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  await page.getByTestId('edit-field').fill('Who are you?');
  await page.keyboard.press('Control+Enter');
  await settled(page);
  await page.getByTestId('search').fill(expected('Hello!').slice(3, 14));
  await page.getByTestId('results').locator('button').first().click();
  await expect(questions(page)).toHaveText(['Hello!']);
  await page.getByTestId('search').fill('');

  const download = page.waitForEvent('download');
  await rows(page).first().click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Export as JSON…' }).click();
  const file = await download;
  expect(file.suggestedFilename()).toBe('Hello!.json');
  const path = (await file.path()) ?? '';
  const [chat] = JSON.parse(readFileSync(path, 'utf8')).chats;
  expect(chat.messages).toHaveLength(4);

  await rows(page).first().focus();
  await page.keyboard.press('Delete');
  await expect(rows(page)).toHaveCount(0);
  const chooser = page.waitForEvent('filechooser');
  await page.getByTestId('chats-menu').click();
  await page.getByRole('menuitem', { name: 'Import chats…' }).click();
  await (await chooser).setFiles(path);
  await expect(page.getByText('1 chat was imported.')).toBeVisible();
  await rows(page).first().click();
  await expect(answers(page)).toHaveText([expected('Hello!')]);
  await page.getByRole('button', { name: 'Next version' }).click();
  await expect(answers(page)).toHaveText([expected('Who are you?')]);
});

test('a file from this computer is read by the model, and one that is no text is refused', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  const pick = async (name: string, bytes: Buffer) => {
    const chooser = page.waitForEvent('filechooser');
    await page.getByTestId('attach').click();
    await (await chooser).setFiles({ name, mimeType: 'application/octet-stream', buffer: bytes });
  };
  await pick('photo.png', Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0xff]));
  await expect(page.getByRole('alert')).toContainText('photo.png is not a text file');
  await pick('note.txt', Buffer.from('The fox is called Ada.'));
  // As the tokenizer counts it.
  await expect(page.getByTestId('attachment')).toContainText(/22 B, \d+ tokens/);
  await send(page, 'Who is the fox?');
  await settled(page);
  await page.reload();
  await page.getByRole('button', { name: 'Show note.txt' }).click();
  await expect(page.locator('article.user pre')).toHaveText('The fox is called Ada.');
});

/** Until the app has kept a draft with all of this in it: one may be kept more than once, and an earlier one still be on its way. */
const kept = (page: Page, ...parts: string[]) =>
  page.waitForResponse((response) => {
    const sent = response.url().includes('draft_save') ? response.request().postData() : null;
    return sent !== null && parts.every((part) => sent.includes(part));
  });

test('what was typed is there after the server was killed and the page opened anew', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  const saved = kept(page, 'a long thought');
  await page.getByTestId('composer').fill('a long thought');
  await saved;
  await server.kill();
  await server.start();
  await page.goto('about:blank');
  await page.goto(server.address);
  await expect(page.getByTestId('composer')).toHaveValue('a long thought');

  // In a chat as well, opened by its address; and that of the new chat is where it was.
  await send(page, 'Hello!');
  await settled(page);
  const newer = kept(page, 'in this chat');
  await page.getByTestId('composer').fill('in this chat');
  await newer;
  const chat = page.url();
  expect(chat).toContain('#');
  await page.keyboard.press('Control+n');
  const newest = kept(page, 'for a new one');
  await page.getByTestId('composer').fill('for a new one');
  await newest;
  await server.kill();
  await server.start();
  await page.goto('about:blank');
  await page.goto(chat);
  await expect(page.getByTestId('composer')).toHaveValue('in this chat');
  await page.keyboard.press('Control+n');
  await expect(page.getByTestId('composer')).toHaveValue('for a new one');
  await page.goBack();
  await expect(page.getByTestId('composer')).toHaveValue('in this chat');
});

test('files attached to a draft and an open edit are there after kill -9 and a reload, with their contents', async ({
  page,
  server,
}) => {
  await page.goto(server.address);
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  const attach = async (files: { name: string; text: string }[]) => {
    const chooser = page.waitForEvent('filechooser');
    const saved = kept(page, ...files.map(({ name }) => name));
    await page.getByTestId('attach').click();
    await (
      await chooser
    ).setFiles(files.map(({ name, text }) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(text) })));
    await saved;
  };
  const attached = page.getByTestId('attachment');
  await attach([
    { name: 'note.txt', text: 'The fox is called Ada.' },
    { name: '修.md', text: '# 修复' },
  ]);
  await server.kill();
  await server.start();
  await page.goto('about:blank');
  await page.goto(server.address);
  await expect(attached).toHaveCount(2);
  await expect(attached.first()).toContainText('note.txt');
  await expect(attached.first()).toContainText('22 B');

  // Sent, they are read and gone from the draft.
  await send(page, 'Who is the fox?');
  await settled(page);
  await expect(attached).toHaveCount(0);
  await page.getByRole('button', { name: 'Show note.txt' }).click();
  await expect(page.locator('article.user pre')).toHaveText('The fox is called Ada.');

  // In a chat too, beside a question that is being changed.
  await attach([{ name: 'more.txt', text: 'More.' }]);
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const saved = kept(page, 'Who is Ada?');
  await page.getByTestId('edit-field').fill('Who is Ada?');
  await saved;
  const chat = page.url();
  await server.kill();
  await server.start();
  await page.goto('about:blank');
  await page.goto(chat);
  await expect(attached).toHaveText(/more\.txt/);
  await expect(page.getByTestId('edit-field')).toHaveValue('Who is Ada?');
  const ended = kept(page, '"edit":null');
  await page.getByTestId('edit-field').press('Escape');
  await ended;
  await page.reload();
  await expect(attached).toHaveText(/more\.txt/);
  await expect(page.getByTestId('edit-field')).toHaveCount(0);
});
