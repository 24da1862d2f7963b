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

interface Dropped {
  name: string;
  text?: string;
  folder?: boolean;
}

/** Lets files hang over the window, and drops them. A folder cannot be made by a page: it is told as a browser tells one. */
async function drop(page: Page, files: Dropped[], hangs = false): Promise<void> {
  await expect(page.getByTestId('composer')).toBeVisible();
  await page.evaluate(
    ([files, hangs]) => {
      const transfer = new DataTransfer();
      for (const { name, text } of files) transfer.items.add(new File([text ?? ''], name));
      const folders = files.map(({ name, folder }) => ({
        webkitGetAsEntry: () => ({ name, isDirectory: folder === true }),
      }));
      for (const type of hangs ? ['dragenter', 'dragover'] : ['dragenter', 'dragover', 'drop']) {
        const event = new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true });
        Object.defineProperty(transfer, 'items', { value: folders, configurable: true });
        document.querySelector('main')?.dispatchEvent(event);
        if (!event.defaultPrevented) throw new Error(`the browser would have taken the files at ${type}`);
      }
    },
    [files, hangs] as const,
  );
}

test('text files that are dropped on the window go along, each with its size and tokens', async ({
  page,
}) => {
  await page.goto('/?fake=demo');
  const target = page.getByTestId('drop-target');
  await drop(page, [{ name: 'a.txt', text: 'x'.repeat(400) }], true);
  await expect(target).toHaveText('Drop text files here to attach them');
  await page.evaluate(() =>
    document.querySelector('main')?.dispatchEvent(new DragEvent('dragleave', { bubbles: true })),
  );
  await expect(target).toHaveCount(0);
  await drop(page, [
    { name: 'a.txt', text: 'x'.repeat(400) },
    { name: 'notes.md', text: 'y'.repeat(2000) },
  ]);
  await expect(target).toHaveCount(0);
  // Of the fake app a token is four letters.
  await expect(page.getByTestId('attachment')).toHaveText([
    /^a\.txt 400 B, 100 tokens/,
    /^notes\.md 2\.0 kB, 500 tokens/,
  ]);
  await page.getByTestId('composer').fill('What is in these?');
  await expect(page.getByTestId('attachment').first()).toContainText('100 tokens');
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('what cannot be attached is said by name, and nothing else happens', async ({ page }) => {
  await page.goto('/?fake=demo');
  for (const [files, words] of [
    [
      [{ name: 'work', folder: true }],
      'work is a folder. Drop the text files in it instead, up to 20 at once.',
    ],
    [
      [{ name: 'v4.fst', text: 'x' }],
      'v4.fst is a model, not a text. Models are chosen in the Models panel.',
    ],
    [[{ name: 'cat.png', text: 'a\0b' }], 'cat.png is not a text file'],
    [[{ name: 'big.txt', text: 'x'.repeat(2_000_001) }], 'big.txt has 2,000,001 bytes'],
  ] as [Dropped[], string][]) {
    await drop(page, files);
    await expect(page.getByRole('alert')).toContainText(words);
    await expect(page.getByTestId('attachment')).toHaveCount(0);
  }
  // Under a dialog there is nothing to drop on, and still the browser does not leave for the file.
  await page.keyboard.press('Control+,');
  await expect(page.getByTestId('settings-panel')).toBeVisible();
  await drop(page, [{ name: 'a.txt', text: 'x' }], true);
  await expect(page.getByTestId('drop-target')).toHaveCount(0);
  await drop(page, [{ name: 'a.txt', text: 'x' }]);
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('attachment')).toHaveCount(0);
});
