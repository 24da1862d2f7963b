/** Who has the printed address has the chats; no other page, tab or account of this computer has. */
import { answers, expect, send, settled, test } from '../page';
import { Server } from '../server';

test('the printed address opens the chats, the tab keeps the key, and without it there is a way', async ({
  page,
}) => {
  const server = new Server({}, true);
  try {
    await server.start();
    const { address } = server;
    await page.goto(address);
    await expect(page.getByRole('alert').first()).toContainText('does not have the key');
    await expect(page.getByRole('alert').first()).toContainText('fastar serve');

    // Pasted into the same tab, as one would.
    await page.goto(server.printed);
    await expect(page.getByTestId('status-model')).toHaveText('Demo model');
    await expect(page.getByRole('alert')).toHaveCount(0);
    expect(page.url()).toBe(`${address}/`);
    await send(page, 'Hello!');
    await settled(page);
    await expect(answers(page)).toHaveCount(1);
    await page.reload();
    await expect(answers(page)).toHaveCount(1);

    // After the next start the tab still has it.
    await server.kill();
    await server.start();
    await page.goto(address);
    await expect(page.getByRole('navigation').locator('[data-chat]')).toHaveCount(1);

    // Nothing is kept for the address: whoever listens there while FaStar does not run cannot read it in another tab.
    const stranger = await page.context().newPage();
    await stranger.goto(address);
    await expect(stranger.getByRole('alert').first()).toContainText('does not have the key');
    await expect(stranger.locator('[data-chat]')).toHaveCount(0);
    expect(
      await stranger.evaluate(() => Object.values({ ...localStorage, ...sessionStorage }).join()),
    ).not.toMatch(/[0-9a-f]{64}/);
    await stranger.close();
  } finally {
    await server.remove();
  }
});
