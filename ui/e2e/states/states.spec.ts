/** States a real app is hard to bring into, with the scripted back end and under the real content security policy. */
import { expectAccessible, answers, expect, goOn, rows, send, settled, test } from '../page';

test('the composer has the focus and Enter sends', async ({ page }) => {
  await page.goto('/?fake=demo');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.type('Hello!');
  await page.keyboard.press('Enter');
  await expect(answers(page)).toHaveText('Hi there! Ask me something, or ask for a story.');
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('Shift+Enter makes a line, and the field grows with the text and back', async ({ page }) => {
  await page.goto('/?fake=demo');
  const field = page.getByTestId('composer');
  const height = async () => (await field.boundingBox())?.height ?? 0;
  await expect(field).toBeFocused();
  const one = await height();
  await page.keyboard.type('a');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('b');
  await expect(field).toHaveValue('a\nb');
  expect(await height()).toBeGreaterThan(one);
  await field.fill('line\n'.repeat(30));
  expect(await height()).toBeLessThanOrEqual(241);
  await field.fill('');
  expect(await height()).toBe(one);
});

test('a pasted book goes along as a file at once, whole', async ({ page }) => {
  await page.goto('/?fake=demo');
  const field = page.getByTestId('composer');
  await expect(field).toBeFocused();
  const paste = (text: string, times: number) =>
    field.evaluate(
      (element, [text, times]) => {
        const data = new DataTransfer();
        data.setData('text/plain', text.repeat(times));
        element.dispatchEvent(
          new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }),
        );
      },
      [text, times] as const,
    );
  await page.keyboard.type('Read: ');
  await paste('a few pages\r\n', 500);
  await expect(field).toHaveValue(`Read: ${'a few pages\n'.repeat(500)}`);
  await field.fill('Read this.');
  await paste('All happy families are alike.\r\n', 33_000);
  await expect(page.getByTestId('attachment')).toContainText('Pasted text.txt');
  await expect(page.getByTestId('attachment')).toContainText('990 kB');
  await expect(field).toHaveValue('Read this.');
  await page.keyboard.press('Enter');
  await settled(page);
  await expect(field).toHaveValue('');
  await expect(page.getByTestId('attachment')).toHaveCount(0);
  await page.getByRole('button', { name: 'Show Pasted text.txt' }).click();
  await expect(page.locator('article.user pre')).toContainText('All happy families are alike.');
});

test('while a model loads one can write, send and stop', async ({ page }) => {
  await page.goto('/?fake=loading');
  await expect(page.getByTestId('status-model')).toHaveText('Loading deepseek-v4-flash…');
  await send(page, 'Hello!');
  await expect(page.getByText('Waiting for the model to load…')).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByText('Stopped before the first word')).toBeVisible();
});

test('a model that cannot be loaded says why and what can be done', async ({ page }) => {
  await page.goto('/?fake=failed');
  const note = page.getByRole('alert');
  await expect(note).toContainText('deepseek-v4-flash could not be loaded');
  await expect(note).toContainText('its directory names 160.2 GB, and the file has 97.4 GB');
  await expect(page.getByTestId('status-model')).toHaveText('No model loaded');
  await expect(page.getByTestId('model-pill').locator('.lamp')).toHaveClass(/failed/);
  await note.getByRole('button', { name: 'Use the demo model' }).click();
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  await expect(note).toHaveCount(0);
});

test('the model that answers meanwhile is named', async ({ page }) => {
  await page.goto('/?fake=fallback');
  await expect(page.getByRole('alert')).toContainText('could not be loaded');
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  const lamp = page.getByTestId('model-pill').locator('.lamp');
  await expect(lamp).toHaveClass(/loading/);
  await expect(lamp).not.toHaveClass(/failed/);
  await page.getByRole('button', { name: 'Dismiss' }).click();
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a browser without its server says so, keeps the text and sends nothing', async ({ page }) => {
  await page.goto('/?fake=offline');
  await expect(page.getByTestId('offline')).toContainText('FaStar is not answering');
  await page.getByTestId('composer').fill('still here');
  await page.keyboard.press('Enter');
  await expect(page.getByTestId('composer')).toHaveValue('still here');
  await expect(page.getByTestId('status-model')).toHaveText('Not connected');
});

test('a message that does not fit goes along into a new chat, with its files, before what stands there', async ({
  page,
}) => {
  await page.goto('/?fake=contextfull');
  await page.getByTestId('attach').click();
  await expect(page.getByTestId('attachment')).toContainText('quarterly-report.txt');
  await send(page, 'A whole book');
  await expect(page.getByRole('alert')).toContainText('212,480 tokens');
  await expect(page.locator('article')).toHaveCount(2);
  await page.keyboard.press('Control+n');
  await page.getByTestId('composer').fill('begun before');
  await rows(page).first().click();
  await page.getByRole('button', { name: 'Start a new chat' }).click();
  await expect(page.getByRole('alert')).toHaveCount(0);
  await expect(page.locator('article')).toHaveCount(0);
  await expect(page.getByTestId('composer')).toHaveValue('A whole book\n\nbegun before');
  await expect(page.getByTestId('attachment')).toContainText('quarterly-report.txt');
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('a full disk is told and the text stays', async ({ page }) => {
  await page.goto('/?fake=diskfull');
  await send(page, 'Hello!');
  await expect(page.getByRole('alert')).toContainText('is full');
  await expect(page.getByTestId('composer')).toHaveValue('Hello!');
  // Nor is it kept for the next start, which is told where one types until it is.
  const note = page.getByTestId('composer-note');
  await expect(note).toHaveText(
    'What you are writing is only in this window at the moment. The disk is full: nothing more can be saved in /home/you/.local/share/fastar/chats.db.',
  );
  await page.evaluate(() => window.dispatchEvent(new Event('fake-go-on')));
  await page.getByTestId('composer').pressSequentially('!');
  await expect(note).toHaveText('');
  await expect(page.getByTestId('composer')).toHaveValue('Hello!!');
});

test('reading a long prompt shows how far it is, and Escape stops it', async ({ page }) => {
  await page.goto('/?fake=prefill');
  await send(page, 'Sum up.');
  await expect(page.getByText('Reading the prompt: 6,144 of 20,480 tokens')).toBeVisible();
  await expect(page.getByRole('progressbar')).toHaveAttribute('value', '6144');
  await page.keyboard.press('Escape');
  await settled(page);
  await expect(page.getByText('Stopped before the first word')).toBeVisible();
});

test('a place in the queue is shown and can be left', async ({ page }) => {
  await page.goto('/?fake=queued');
  await send(page, 'Hello!');
  await expect(page.getByText('Waiting for 2 other answers…')).toBeVisible();
  await page.getByTestId('stop').click();
  await settled(page);
});

test('an answer that failed keeps its words and says why', async ({ page }) => {
  await page.goto('/?fake=failsinanswer');
  await send(page, 'Hello!');
  await settled(page);
  await expect(answers(page)).toContainText('Hi there!');
  await expect(page.getByRole('alert')).toContainText('could not be read while the answer was being written');
  await expect(page.getByRole('button', { name: 'Regenerate' })).toBeEnabled();
});

for (const [scenario, words] of [
  ['interrupted', 'The app closed while this was being written.'],
  ['stopped', 'Stopped'],
  ['lengthlimit', 'The model’s context is full, so the answer ends here.'],
] as const) {
  test(`an answer that was ${scenario} says so`, async ({ page }) => {
    await page.goto(`/?fake=${scenario}`);
    await rows(page).first().click();
    await expect(page.locator('article.answer')).toContainText(words);
  });
}

test('numbers that are not known are not shown', async ({ page }) => {
  await page.goto('/?fake=interrupted');
  await rows(page).first().click();
  await expect(page.getByText('The app closed')).toBeVisible();
  await expect(page.getByTestId('status')).toHaveText('Demo model');
});

test('how fast an answer comes is there while it is being written', async ({ page }) => {
  await page.goto('/?fake=demo&hold=20');
  await send(page, 'Tell me a story about a fox.');
  await expect(page.getByTestId('stop')).toBeVisible();
  await expect(page.getByTestId('status-speed')).toHaveText('4.50 tokens/s');
  await goOn(page);
  await expect(page.getByTestId('stop')).toBeHidden();
  await expect(page.getByTestId('status-speed')).not.toHaveText('4.50 tokens/s');
});

test('numbers stand beside the name of the model that they were measured with', async ({ page }) => {
  await page.goto('/?fake=weeksdemo&hold=9');
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  await rows(page).nth(1).click();
  await expect(page.getByTestId('status-speed')).toBeVisible();
  await expect(page.getByTestId('status-model')).toHaveText('deepseek-v4-flash');
  await expect(page.getByTestId('model-pill')).toHaveText('Demo model');
  await send(page, 'Tell me a story about a fox.');
  // Until the new answer has numbers, those of the other model are not put beside its name.
  await expect(answers(page).last()).toContainText('Of course.');
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
  await expect(page.getByTestId('status-speed')).toHaveText('4.50 tokens/s');
  await expect(page.getByTestId('status-context')).toHaveCount(0);
  await goOn(page);
  await settled(page);
  await expect(page.getByTestId('status-context')).toContainText('of 4,096');
  await expect(page.getByTestId('status-model')).toHaveText('Demo model');
});

test('where the last answer has no numbers, none of an earlier one stand in their place', async ({
  page,
}) => {
  await page.goto('/?fake=halfmeasured');
  await rows(page).first().click();
  await expect(answers(page).last()).toHaveText('There once');
  await expect(page.getByTestId('status')).toHaveText('deepseek-v4-flash');
});

test('icons grow with the letters, and the field has room for its words in a narrow window', async ({
  page,
}) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await page.goto('/?fake=demo');
  const icon = page.getByTestId('open-sidebar').locator('svg');
  expect((await icon.boundingBox())!.width).toBe(18);
  await page.keyboard.press('Control+,');
  await page.locator('#setting-text_size').fill('200');
  await page.keyboard.press('Enter');
  await expect(page.locator('html')).toHaveCSS('font-size', '32px');
  await page.keyboard.press('Escape');
  expect((await icon.boundingBox())!.width).toBe(36);
  const field = page.getByTestId('composer');
  const hidden = () => field.evaluate((it: HTMLTextAreaElement) => it.scrollHeight - it.clientHeight);
  await expect.poll(hidden).toBeLessThanOrEqual(1);
  // A line of 45 pixels with 16 around it, neither cut nor loose.
  await expect.poll(async () => Math.round((await field.boundingBox())!.height)).toBe(61);
});

test('that a page has no key is said once', async ({ page }) => {
  await page.goto('/?fake=nokey');
  await expect(page.getByRole('alert')).toHaveCount(1);
  await expect(page.getByText('does not have the key')).toHaveCount(1);
});

test('chats of the same title say when they were written to; others do not', async ({ page }) => {
  await page.goto('/?fake=twins');
  await expect(rows(page)).toHaveCount(3);
  await expect(rows(page).locator('.when')).toHaveCount(2);
  const [first, second] = await rows(page).locator('.when').allInnerTexts();
  expect(first).toMatch(/\d:\d\d/);
  expect(first).not.toBe(second);
  await expect(rows(page).filter({ hasText: 'Only this one' }).locator('.when')).toHaveCount(0);
  // As high as the others: nothing of it is cut off.
  for (const row of await rows(page).all())
    expect(await row.evaluate((it) => it.scrollHeight - it.clientHeight)).toBeLessThanOrEqual(0);
});

test('a hostile answer leaves the page as it was', async ({ page }) => {
  const requests: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  await page.goto('/?fake=hostile');
  await send(page, 'Show me tricks.');
  await settled(page);
  const here = page.url();
  await expect(page.locator('article').getByText("<script>document.title = 'owned'</script>")).toBeVisible();
  await expect(page).not.toHaveTitle('owned');
  await expect(page.locator('article img, article iframe, article script, article style')).toHaveCount(0);
  const links = page.locator('article a');
  for (let i = 0; i < (await links.count()); i++) {
    const href = await links.nth(i).getAttribute('href');
    await links.nth(i).click();
    await expect(page.getByTestId('link-address')).toHaveText(href ?? '');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await links.nth(i).click({ button: 'middle' });
    await page.getByRole('button', { name: 'Cancel' }).click();
  }
  expect(page.url()).toBe(here);
  expect(page.context().pages()).toHaveLength(1);
  expect(requests.filter((url) => !url.startsWith(new URL(here).origin))).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
});

test('a link is opened only after its whole address was agreed to', async ({ page }) => {
  await page.goto('/?fake=hostile');
  await send(page, 'Show me tricks.');
  await settled(page);
  await page.getByRole('link', { name: 'https://good.example' }).click();
  await expect(page.getByTestId('link-host')).toHaveText('evil.example');
  await expect(page.getByTestId('link-address')).toHaveText('https://evil.example/login');
  await expect(page.getByRole('button', { name: 'Cancel' })).toBeFocused();
  const opened = () => page.evaluate(() => (window as unknown as { opened?: string[] }).opened ?? []);
  await page.keyboard.press('Escape');
  expect(await opened()).toEqual([]);
  await page.getByRole('link', { name: 'https://good.example' }).click();
  await page.getByTestId('link-open').click();
  expect(await opened()).toEqual(['https://evil.example/login']);
});

test('the view follows the answer only while one is at its end', async ({ page }) => {
  await page.setViewportSize({ width: 800, height: 420 });
  await page.goto('/?fake=demo&hold=550,700');
  await send(page, 'How do I sort words by length in Rust?');
  await expect(answers(page)).toContainText('Sort a copy');
  const scroller = page.locator('.scroller');
  const fromEnd = () => scroller.evaluate((el) => el.scrollHeight - el.clientHeight - el.scrollTop);
  const top = () => scroller.evaluate((el) => el.scrollTop);
  await expect(answers(page)).toContainText('select_nth');
  await expect.poll(top).toBeGreaterThan(60);
  await expect.poll(fromEnd).toBeLessThan(60);
  await page.mouse.move(400, 200);
  await page.mouse.wheel(0, -2000);
  await expect(page.getByRole('button', { name: 'Jump to latest' })).toBeVisible();
  await goOn(page);
  await expect(answers(page)).toContainText('A few things');
  expect(await top()).toBe(0);
  await page.getByRole('button', { name: 'Jump to latest' }).click();
  await goOn(page);
  await settled(page);
  await expect.poll(fromEnd).toBeLessThan(60);
});

test('a chat of a thousand turns opens without freezing the window', async ({ page }) => {
  await page.goto('/?fake=long');
  await page.evaluate(() => {
    const state = { longest: 0, last: performance.now() };
    (window as unknown as { gap: typeof state }).gap = state;
    setInterval(() => {
      const now = performance.now();
      state.longest = Math.max(state.longest, now - state.last);
      state.last = now;
    }, 5);
  });
  await rows(page).first().click();
  await expect(page.getByText('Answer 1000.')).toBeVisible();
  await page.getByTestId('composer').fill('I can type meanwhile');
  const scroller = page.locator('.scroller');
  const fromEnd = () => scroller.evaluate((el) => el.scrollHeight - el.clientHeight - el.scrollTop);
  await expect.poll(fromEnd).toBeLessThan(60);
  const gap = await page.evaluate(() => (window as unknown as { gap: { longest: number } }).gap.longest);
  test.info().annotations.push({ type: 'longest pause', description: `${Math.round(gap)} ms` });
});

test('a pasted book is folded and can be shown', async ({ page }) => {
  await page.goto('/?fake=book');
  await rows(page).first().click();
  const bubble = page.locator('article.user .bubble');
  await expect(bubble).toContainText('All happy families');
  expect((await bubble.textContent())?.length).toBeLessThan(4000);
  await page.getByRole('button', { name: 'Show the whole message' }).click();
  expect((await bubble.textContent())?.length).toBeGreaterThan(1_000_000);
});

test('chats are reached, renamed and deleted with the keyboard alone', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await expect(rows(page)).toHaveCount(9);
  await rows(page).first().focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await expect(
    page.getByRole('button', { name: 'Dinner for six, two of them vegan', exact: true }),
  ).toBeFocused();
  await page.keyboard.press('F2');
  await page.keyboard.type('Dinner');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'Dinner', exact: true })).toBeFocused();
  await page.keyboard.press('F2');
  await page.keyboard.type('Never mind');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('button', { name: 'Dinner', exact: true })).toBeFocused();
  await page.keyboard.press('Delete');
  await expect(page.getByTestId('toast')).toContainText('Chat deleted');
  await expect(rows(page)).toHaveCount(8);
  await expect(
    page.getByRole('button', { name: 'Why is the sky dark at night?', exact: true }),
  ).toBeFocused();
  await page.getByRole('button', { name: 'Undo' }).press('Enter');
  await expect(rows(page)).toHaveCount(9);
  await page.keyboard.press('Control+n');
  await expect(page.getByTestId('composer')).toBeFocused();
});

test('F2 renames the open chat from the composer and gives the focus back', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await rows(page).nth(1).click();
  const composer = page.getByTestId('composer');
  await composer.fill('half a message');
  await page.keyboard.press('F2');
  await page.keyboard.type('Landlord');
  await page.keyboard.press('Enter');
  await expect(rows(page).nth(1)).toHaveText('Landlord');
  await expect(composer).toBeFocused();
  await expect(composer).toHaveValue('half a message');
  // The list is opened for it, beside the conversation and over it.
  await page.getByRole('button', { name: 'Hide chats' }).click();
  await composer.focus();
  await page.keyboard.press('F2');
  await expect(page.getByRole('textbox', { name: 'Title of the chat' })).toBeFocused();
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 360, height: 640 });
  await expect(page.getByRole('navigation')).toHaveCount(0);
  await composer.focus();
  await page.keyboard.press('F2');
  await page.keyboard.type('Heating');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'Heating', exact: true })).toBeFocused();
});

test('F2 and Delete in an empty chat do nothing', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await expect(rows(page)).toHaveCount(9);
  await page.keyboard.press('F2');
  await page.keyboard.press('Delete');
  await page.keyboard.type('Hi');
  await expect(page.getByTestId('composer')).toHaveValue('Hi');
  await expect(rows(page)).toHaveCount(9);
});

test('the keys that the menu of a chat names work in it', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await rows(page).nth(2).focus();
  await page.keyboard.press('Shift+F10');
  await page.keyboard.press('F2');
  await page.keyboard.type('Dinner');
  await page.keyboard.press('Enter');
  const row = page.getByRole('button', { name: 'Dinner', exact: true });
  await expect(row).toBeFocused();
  await page.keyboard.press('Shift+F10');
  await page.keyboard.press('Delete');
  await expect(row).toHaveCount(0);
  await expect(page.getByTestId('toast')).toContainText('Dinner');
});

test('the menu of a chat works with the keyboard and gives the focus back', async ({ page }) => {
  await page.goto('/?fake=weeks');
  const row = page.getByRole('button', { name: 'Packing list for the Alps', exact: true });
  await row.focus();
  await page.keyboard.press('Shift+F10');
  await expect(page.getByRole('menuitem', { name: /Rename/ })).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await expect(page.getByRole('menuitem', { name: 'Pin', exact: true })).toBeFocused();
  await page.keyboard.press('End');
  await expect(page.getByRole('menuitem', { name: /Delete/ })).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(row).toBeFocused();
});

test('a right click brings the menu of the chat, or that of the browser only where there is text', async ({
  page,
}) => {
  await page.goto('/?fake=weeks');
  await rows(page).first().click();
  await expect(answers(page)).toContainText('Sort a copy');
  await page.evaluate(() => {
    const seen: boolean[] = [];
    (window as unknown as { browserMenu: boolean[] }).browserMenu = seen;
    addEventListener('contextmenu', (event) => {
      setTimeout(() => seen.push(!event.defaultPrevented));
    });
  });
  const last = () => page.evaluate(() => (window as unknown as { browserMenu: boolean[] }).browserMenu.pop());
  await page.locator('header .title').click({ button: 'right' });
  await expect.poll(last).toBe(false);
  await page.getByTestId('composer').click({ button: 'right' });
  await expect.poll(last).toBe(true);
  const rename = page.getByRole('menuitem', { name: /Rename/ });
  await rows(page).nth(2).click({ button: 'right' });
  await expect.poll(last).toBe(false);
  await expect(rename).toBeFocused();
  await page.keyboard.press('Escape');
  await page
    .getByRole('button', { name: 'Options for “Dinner for six, two of them vegan”' })
    .click({ button: 'right' });
  await expect.poll(last).toBe(false);
  await expect(rename).toBeFocused();
  await page.keyboard.press('Escape');
  await answers(page).locator('p').first().selectText();
  await answers(page).locator('p').first().click({ button: 'right' });
  await expect.poll(last).toBe(true);
});

test('the word of a deleted chat has its place under the header and leaves the composer free', async ({
  page,
}) => {
  for (const width of [1280, 760, 360]) {
    await page.setViewportSize({ width, height: 640 });
    await page.goto('/?fake=weeks');
    if (width === 360) await page.getByTestId('open-sidebar').click();
    await rows(page).nth(1).press('Delete');
    const box = async () => (await page.getByTestId('toast').boundingBox())!;
    const long = await box();
    const header = (await page.locator('main > header').boundingBox())!;
    const composer = (await page.locator('form.composer').boundingBox())!;
    expect(long.y).toBeGreaterThanOrEqual(header.y + header.height);
    expect(long.y + long.height).toBeLessThan(composer.y);
    if (width !== 360) expect(long.x).toBeGreaterThanOrEqual(header.x);
    expect(long.x + long.width).toBeLessThanOrEqual(width);
    const undo = (await page.getByRole('button', { name: 'Undo' }).boundingBox())!;
    await rows(page).nth(2).press('Delete');
    await expect(page.getByTestId('toast')).toContainText('dark at night');
    expect(await box()).toEqual(long);
    expect(await page.getByRole('button', { name: 'Undo' }).boundingBox()).toEqual(undo);
  }
});

test('Ctrl+Z brings a deleted chat back, and in a text it undoes the text', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await rows(page).first().click();
  await expect(answers(page)).toContainText('Sort a copy');
  await rows(page).first().press('Delete');
  await expect(rows(page)).toHaveCount(8);
  await page.getByTestId('composer').pressSequentially('abc');
  await page.keyboard.press('Control+z');
  await expect(page.getByTestId('composer')).toHaveValue('');
  await expect(rows(page)).toHaveCount(8);
  await page.keyboard.press('Control+z');
  await expect(rows(page)).toHaveCount(9);
  // It was the open one, and nothing else has been begun.
  await expect(answers(page)).toContainText('Sort a copy');
  await expect(page.getByTestId('toast')).toHaveCount(0);
});

test('a chat that is brought back does not push away what was begun meanwhile', async ({ page }) => {
  await page.goto('/?fake=weeks');
  const composer = page.getByTestId('composer');
  await rows(page).nth(1).click();
  await rows(page).nth(1).press('Delete');
  await composer.fill('something else');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(rows(page)).toHaveCount(9);
  await expect(composer).toHaveValue('something else');
  await expect(composer).toBeFocused();
  // Nor does one that was not open.
  await rows(page).first().click();
  await expect(answers(page)).toContainText('Sort a copy');
  await rows(page).nth(3).press('Delete');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(rows(page)).toHaveCount(9);
  await expect(answers(page)).toContainText('Sort a copy');
});

test('the name of the button that opens the list is gone before the list is there', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await page.getByRole('button', { name: 'Hide chats' }).click();
  const button = page.getByTestId('open-sidebar');
  await button.hover();
  await expect(button).toHaveAttribute('title', 'Show chats');
  await page.mouse.down();
  await expect(button).not.toHaveAttribute('title');
  await page.mouse.up();
  await expect(rows(page)).toHaveCount(9);
});

test('what was typed in one chat waits there', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await page.getByTestId('composer').fill('for a new chat');
  await rows(page).nth(1).click();
  await expect(page.getByTestId('composer')).toHaveValue('');
  await page.getByTestId('composer').fill('for the landlord');
  await page.getByTestId('new-chat').click();
  await expect(page.getByTestId('composer')).toHaveValue('for a new chat');
  await rows(page).nth(1).click();
  await expect(page.getByTestId('composer')).toHaveValue('for the landlord');
});

test('an answer goes on while another chat is looked at', async ({ page }) => {
  await page.goto('/?fake=demo&hold=9');
  await send(page, 'Tell me a story about a fox.');
  await expect(answers(page)).toContainText('Of course.');
  await page.keyboard.press('Control+n');
  await expect(page.getByText('What’s on your mind?')).toBeVisible();
  await expect(rows(page).first()).toContainText('Answer being written');
  await goOn(page);
  await expect(rows(page).first()).not.toContainText('Answer being written');
  await rows(page).first().click();
  await expect(answers(page)).toContainText('David slept well that night.');
});

test('a notice is shown until it is put away', async ({ page }) => {
  await page.goto('/?fake=notice');
  await expect(page.getByText('was damaged')).toBeVisible();
  await page.getByRole('button', { name: 'Dismiss this notice' }).click();
  await expect(page.getByText('was damaged')).toHaveCount(0);
});

for (const [name, width, height] of [
  ['360 pixels wide', 360, 640],
  // A window of 1280 by 800 at 200 % leaves half the CSS pixels.
  ['zoomed to 200 %', 640, 400],
] as const) {
  test(`nothing is cut off when the window is ${name}`, async ({ page }) => {
    await page.setViewportSize({ width, height });
    await page.goto('/?fake=weeks');
    const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(await overflow()).toBeLessThanOrEqual(0);
    await page.getByTestId('open-sidebar').click();
    await rows(page).first().click();
    await expect(page.getByRole('navigation')).toHaveCount(0);
    await expect(page.getByRole('log')).toBeVisible();
    expect(await overflow()).toBeLessThanOrEqual(0);
    for (const id of ['composer', 'send', 'model-pill', 'open-sidebar']) {
      const box = await page.getByTestId(id).boundingBox();
      expect(box && box.x >= 0 && box.x + box.width <= width && box.y + box.height <= height, id).toBe(true);
    }
    await page.getByTestId('open-sidebar').click();
    await page.keyboard.press('Escape');
    await expect(page.getByTestId('open-sidebar')).toBeFocused();
  });
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious in the ${colorScheme} theme`, async ({ page }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const check = async (scenario: string, act?: () => Promise<void>) => {
      await page.goto('about:blank');
      await page.goto(`/?fake=${scenario}`);
      await expect(page.getByTestId('status-model')).not.toBeEmpty();
      await act?.();
      await expectAccessible(page, scenario);
    };
    await check('weeksdemo');
    await check('weeks', () => rows(page).first().click());
    await check('failed');
    await check('offline');
    await check('contextfull', () => send(page, 'x'));
    await check('prefill', () => send(page, 'x'));
    await check('demo', () => page.getByTestId('model-pill').click());
    await check('hostile', async () => {
      await send(page, 'x');
      await settled(page);
      await page.getByRole('link', { name: 'plain' }).click();
    });
    await check('weeks', async () => {
      await rows(page).first().press('Delete');
      await expect(page.getByTestId('toast')).toBeVisible();
    });
  });
}

test('a screen reader hears that an answer came, once, and its words', async ({ page }) => {
  await page.goto('/?fake=demo');
  const live = page.locator('[aria-live=polite]').first();
  await send(page, 'Hello!');
  await settled(page);
  await expect(live).toHaveText('Answer: Hi there! Ask me something, or ask for a story.');
});
