/** Input methods: while one composes, Enter chooses among its words, and no field sends, saves or searches. */
import type { Locator, Page } from '@playwright/test';
import { expect, questions, rows, send, settled, test } from '../page';

/** Begins a composition in the field with the focus, as an input method does. */
async function compose(page: Page, text: string): Promise<void> {
  const session = await page.context().newCDPSession(page);
  await session.send('Input.imeSetComposition', {
    text,
    selectionStart: text.length,
    selectionEnd: text.length,
  });
  await session.detach();
}

/** Enter in the middle of a composition, and as WebKit reports the one that ends it. Neither may do anything. */
async function enters(page: Page, field: Locator): Promise<void> {
  await field.focus();
  await compose(page, 'nihao');
  await page.evaluate(() => {
    addEventListener(
      'keydown',
      (event) => ((window as unknown as { composing: boolean }).composing = event.isComposing),
      { capture: true, once: true },
    );
  });
  await page.keyboard.press('Enter');
  expect(await page.evaluate(() => (window as unknown as { composing?: boolean }).composing)).toBe(true);
  await field.evaluate((element) =>
    element.dispatchEvent(
      new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true }),
    ),
  );
}

test('a message is sent by the Enter after the composition, not by the one in it', async ({ page }) => {
  await page.goto('/?fake=demo');
  const composer = page.getByTestId('composer');
  await enters(page, composer);
  await expect(questions(page)).toHaveCount(0);
  await composer.fill('你好');
  await page.keyboard.press('Enter');
  await expect(questions(page)).toHaveText(['你好']);
});

test('an edited message, a title, a search and a find go on', async ({ page }) => {
  await page.goto('/?fake=demo');
  await send(page, 'Hello!');
  await settled(page);
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const edit = page.getByTestId('edit-field');
  await enters(page, edit);
  // Here it is Ctrl+Enter that sends.
  await compose(page, 'nihao');
  await page.keyboard.press('Control+Enter');
  await expect(edit).toBeVisible();
  await page.getByRole('button', { name: 'Cancel' }).click();

  await rows(page).first().focus();
  await page.keyboard.press('F2');
  const title = page.getByRole('textbox', { name: 'Title of the chat' });
  await enters(page, title);
  await expect(title).toBeFocused();
  await title.fill('你好');
  await page.keyboard.press('Enter');
  await expect(rows(page)).toHaveText(['你好']);

  // The arrow keys choose among words, too.
  const search = page.getByTestId('search');
  await search.fill('Hello');
  await expect(page.getByTestId('results').locator('button').first()).toBeVisible();
  await enters(page, search);
  await compose(page, 'ni');
  await page.keyboard.press('ArrowDown');
  await expect(search).toBeFocused();
});

test('a new folder, saved instructions and a setting wait', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await rows(page).first().click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Move to a folder…' }).click();
  const folder = page.getByLabel('Name of a new folder');
  await enters(page, folder);
  await expect(folder).toBeVisible();
  await folder.fill('旅行');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('navigation').locator('h2').filter({ hasText: '旅行' })).toHaveCount(1);

  await page.getByTestId('instructions-button').click();
  const instructions = page.getByTestId('instructions');
  await instructions.getByLabel('Instructions for this chat').fill('Short.');
  const name = instructions.getByLabel('Save these under a name');
  await enters(page, name);
  await expect(instructions.getByText('Nothing saved yet.')).toBeVisible();
  await name.fill('短');
  await page.keyboard.press('Enter');
  await expect(instructions.getByRole('button', { name: /短/ }).first()).toBeVisible();
  await page.keyboard.press('Escape');

  await page.keyboard.press('Control+,');
  await page.getByRole('tab', { name: 'Models' }).click();
  const mirror = page.locator('#setting-download_endpoint');
  await enters(page, mirror);
  await expect(page.getByRole('alert')).toHaveCount(0);
});
