/** Finding, searching, pins, folders and files, with the scripted back end. */
import { expectAccessible, answers, expect, questions, rows, test } from '../page';

const FOX = 'Tell me a story about a fox.';

test('words are found in the open chat, folded thoughts included, and painted', async ({ page }) => {
  await page.goto('/?fake=branches');
  await rows(page).first().click();
  await expect(answers(page).first()).toBeVisible();
  await page.keyboard.press('Control+f');
  await expect(page.getByTestId('find').locator('input')).toBeFocused();
  await page.keyboard.type('fox');
  // Once in the question, twice in the thoughts, once in the answer.
  const count = page.getByTestId('find-count');
  await expect(count).toHaveText('1 of 4');
  const painted = (name: string) => page.evaluate((name) => CSS.highlights.get(name)?.size ?? 0, name);
  await expect.poll(() => painted('found-now')).toBe(1);
  await expect(page.getByTestId('thoughts').locator('.markdown')).toHaveCount(0);
  await page.keyboard.press('Enter');
  await expect(count).toHaveText('2 of 4');
  await expect(page.getByTestId('thoughts').locator('.markdown')).toBeVisible();
  await expect.poll(() => painted('found')).toBe(4);
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.press('Shift+Enter');
  await expect(count).toHaveText('4 of 4');
  await page.getByTestId('find').locator('input').fill('zebra');
  await expect(count).toHaveText('Nothing found');
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('find')).toHaveCount(0);
  await expect(page.getByTestId('composer')).toBeFocused();
  expect(await painted('found')).toBe(0);
});

test('a match far up comes into view', async ({ page }) => {
  await page.goto('/?fake=long');
  await rows(page).first().click();
  await expect(page.getByText('Answer 1000.')).toBeVisible();
  await page.keyboard.press('Control+f');
  await expect(page.getByTestId('find').locator('input')).toBeFocused();
  const far = (n: number) => questions(page).filter({ hasText: `Question ${n}?` });
  const field = page.getByTestId('find').locator('input');
  // What lies above a place that was just come to is measured then, and pushes it down: both ways, pasted and typed.
  for (const n of [500, 20, 777]) {
    await field.fill(`Question ${n}?`);
    await expect(page.getByTestId('find-count')).toHaveText('1 of 1');
    await expect(far(n)).toBeInViewport();
  }
  await field.fill('');
  await page.keyboard.type('Question 501?');
  await expect(far(501)).toBeInViewport();
  // Whoever scrolls away afterwards stays there.
  await page.getByRole('log').hover();
  await page.mouse.wheel(0, 5000);
  await expect(far(501)).not.toBeInViewport();
});

test('a result far up in a long chat comes into view', async ({ page }) => {
  await page.goto('/?fake=long');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+k');
  await page.getByTestId('search').fill('Question 500?');
  await expect(page.getByTestId('results').getByRole('status')).toHaveText('1 place found');
  await page.getByTestId('results').locator('mark').first().click();
  await expect(answers(page).last()).toBeAttached();
  await expect(questions(page).filter({ hasText: 'Question 500?' })).toBeInViewport();
  await expect(answers(page).filter({ hasText: 'Answer 500.' })).toBeInViewport();
});

test('all chats are searched, and a result opens at its message', async ({ page }) => {
  await page.goto('/?fake=organised');
  await expect(page.getByTestId('composer')).toBeFocused();
  await page.keyboard.press('Control+k');
  await expect(page.getByTestId('search')).toBeFocused();
  await page.keyboard.type('sort');
  const results = page.getByTestId('results');
  await expect(results.getByRole('status')).toHaveText('3 places found');
  await expect(results.locator('mark').first()).toHaveText('Sort');
  await expect(rows(page).first()).toBeHidden();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(page.locator('header .title')).toHaveText('Sort words by length in Rust');
  await expect(answers(page)).toContainText('Two good ways');
  await page.getByTestId('search').fill('nothing like this');
  await expect(results.getByRole('status')).toHaveText('Nothing found in your chats.');
  await page.keyboard.press('Escape');
  await expect(rows(page)).toHaveCount(9);
  await page.getByTestId('search').fill('量子');
  await expect(results.locator('button')).toHaveCount(1);
});

test('a result in a version out of sight shows that version', async ({ page }) => {
  await page.goto('/?fake=branches');
  await rows(page).first().click();
  await page.locator('article.answer').first().getByRole('button', { name: 'Regenerate' }).click();
  await expect(page.getByTestId('send')).toBeVisible();
  await expect(questions(page)).toHaveText([FOX]);
  await page.getByTestId('search').fill('could not sleep');
  await page.getByTestId('results').locator('button').click();
  await expect(questions(page)).toHaveText([FOX, 'And now one about a badger, please.']);
});

test('chats are pinned and put into folders', async ({ page }) => {
  // Noon, so that an hour ago is today, and of a day whose groups are known.
  await page.clock.setFixedTime(new Date(2026, 10, 30, 12));
  await page.goto('/?fake=organised');
  const nav = page.getByRole('navigation');
  await expect(nav.locator('h2')).toHaveText([
    'Pinned',
    'Home',
    'Work and things to remember',
    'Today',
    'Yesterday',
    'Previous 7 days',
    'September 2026',
  ]);
  await nav.getByRole('button', { name: 'Home', exact: true }).click();
  await expect(
    page.getByRole('button', { name: 'Dinner for six, two of them vegan', exact: true }),
  ).toBeHidden();
  await nav.getByRole('button', { name: 'Home', exact: true }).click();

  const row = page.getByRole('button', { name: 'Packing list for the Alps', exact: true });
  await row.focus();
  await page.keyboard.press('Shift+F10');
  await page.getByRole('menuitem', { name: 'Move to a folder…' }).press('Enter');
  await page.getByLabel('Name of a new folder').fill('Holidays');
  await page.keyboard.press('Enter');
  await expect(nav.locator('h2')).toContainText(['Pinned', 'Holidays', 'Home']);
  await row.click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Pin', exact: true }).click();
  await expect(rows(page).filter({ hasText: 'Alps' })).toHaveCount(1);
  await expect(nav.locator('h2').filter({ hasText: 'Holidays' })).toHaveCount(0);
  await row.click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Unpin' }).click();
  await row.click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Move to a folder…' }).click();
  await page.getByTestId('move').getByRole('button', { name: 'No folder' }).click();
  await expect(nav.locator('h2').filter({ hasText: 'Holidays' })).toHaveCount(0);
});

test('chats leave as files and come back, and a foreign file is refused with a sentence', async ({
  page,
}) => {
  await page.goto('/?fake=weeks');
  await rows(page).first().click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Export as Markdown…' }).click();
  await expect(
    page.getByText('Exported to /home/you/Documents/Sort words by length in Rust.md'),
  ).toBeVisible();
  await page.getByTestId('chats-menu').click();
  await page.getByRole('menuitem', { name: 'Import chats…' }).click();
  await expect(page.getByText('2 chats were imported.')).toBeVisible();
  await expect(rows(page)).toHaveCount(11);
  await page.goto('/?fake=binaryfile');
  await page.getByTestId('chats-menu').click();
  await page.getByRole('menuitem', { name: 'Import chats…' }).click();
  await expect(page.getByRole('alert')).toContainText('no file of chats that FaStar has exported');
});

test('a list of 1,000 chats is all there, and only what is near the view is made', async ({ page }) => {
  await page.goto('/?fake=thousand');
  const row = (n: number) => page.getByRole('button', { name: `Chat number ${n}`, exact: true });
  await expect(row(1)).toBeVisible();
  expect(await rows(page).count()).toBeLessThan(100);
  // The whole list has its height, and each row says where it stands.
  const nav = page.getByRole('navigation');
  const height = await nav.evaluate((list) => list.scrollHeight);
  const rowHeight = (await row(1).boundingBox())!.height;
  expect(height).toBeGreaterThan(1000 * rowHeight);
  const places = await nav.evaluate((list) =>
    [...list.querySelectorAll('ul')].map((ul) => ul.querySelector('li')?.getAttribute('aria-setsize')),
  );
  expect(places.slice(0, 2)).toEqual([expect.stringMatching(/^\d+$/), expect.stringMatching(/^\d+$/)]);
  await expect(nav.locator('li').filter({ has: row(1) })).toHaveAttribute('aria-posinset', '1');
  // To the end and back with the keyboard.
  await row(1).focus();
  await page.keyboard.press('End');
  await expect(row(1000)).toBeFocused();
  await expect(row(1000)).toBeInViewport();
  await expect(row(1)).toHaveCount(0);
  await page.keyboard.press('ArrowUp');
  await expect(row(999)).toBeFocused();
  await page.keyboard.press('Home');
  await expect(row(1)).toBeFocused();
  await expect(row(1)).toBeInViewport();
  // Scrolled anywhere there are rows in view, one below the other, and the one with the focus stays.
  await nav.evaluate((list) => (list.scrollTop = list.scrollHeight / 2));
  const seen = rows(page).filter({ visible: true });
  await expect(async () => {
    const tops = await nav.evaluate((list) => {
      const view = list.getBoundingClientRect();
      return [...list.querySelectorAll('[data-chat], h2')]
        .map((element) => element.getBoundingClientRect())
        .filter((box) => box.bottom > view.top && box.top < view.bottom)
        .map((box) => [box.top, box.bottom] as const);
    });
    expect(tops.length).toBeGreaterThan(10);
    tops.slice(1).forEach(([top], i) => expect(Math.abs(top - tops[i]![1])).toBeLessThan(1));
  }).toPass();
  expect(await seen.count()).toBeLessThan(110);
  await expect(row(1)).toBeFocused();
  // What is renamed or deleted far down stays where it is.
  await page.keyboard.press('End');
  await page.keyboard.press('F2');
  await page.keyboard.type('The very first');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'The very first', exact: true })).toBeFocused();
  await page.keyboard.press('Delete');
  await expect(row(999)).toBeFocused();
  await expect(row(999)).toBeInViewport();
});

test('the title field of a chat that is out of view or in a folded folder comes into view', async ({
  page,
}) => {
  await page.goto('/?fake=thousand');
  await rows(page).first().click();
  await page.getByRole('navigation').evaluate((list) => (list.scrollTop = list.scrollHeight));
  await expect(page.getByRole('button', { name: 'Chat number 1000', exact: true })).toBeVisible();
  await page.getByTestId('composer').focus();
  await page.keyboard.press('F2');
  const field = page.getByRole('textbox', { name: 'Title of the chat' });
  await expect(field).toBeFocused();
  await expect(field).toBeInViewport();
  await page.goto('/?fake=organised');
  await page.getByRole('button', { name: 'Dinner for six, two of them vegan', exact: true }).click();
  await page.getByRole('navigation').getByRole('button', { name: 'Home', exact: true }).click();
  await page.getByTestId('composer').focus();
  await page.keyboard.press('F2');
  await expect(field).toBeFocused();
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious while searching and moving, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.goto('/?fake=organised');
    await rows(page).nth(4).click();
    await page.keyboard.press('Control+f');
    await page.keyboard.type('sort');
    await expect(page.getByTestId('find-count')).not.toBeEmpty();
    await expectAccessible(page);
    await page.getByTestId('search').fill('sort');
    await expect(page.getByTestId('results').locator('mark').first()).toBeVisible();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await rows(page).first().click({ button: 'right' });
    await page.getByRole('menuitem', { name: 'Move to a folder…' }).click();
    await expectAccessible(page);
  });
}
