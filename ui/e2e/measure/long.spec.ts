/**
 * How long chats and many chats feel, in numbers for people to read: `npm run measure`. The app is the real one, the databases are made
 * up. Nothing is asserted about time, only that what was measured is what was meant.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, rows, test } from '../page';
import { Server } from '../server';

async function planted(chats: number, turns: number, words: number): Promise<Server> {
  const server = new Server();
  await server.start();
  await server.kill();
  const file = join(server.folder, 'chats.db');
  expect(existsSync(file)).toBe(true);
  execFileSync('python3', [
    join(import.meta.dirname, 'plant.py'),
    file,
    String(chats),
    String(turns),
    String(words),
  ]);
  return server;
}

const say = (what: string, value: string) => console.log(`${what}: ${value}`);

/** From now on the page notes its longest pause between two timers. */
const watchPauses = (page: Page) =>
  page.evaluate(() => {
    const state = { longest: 0, last: performance.now() };
    (window as unknown as { pause: typeof state }).pause = state;
    setInterval(() => {
      const now = performance.now();
      state.longest = Math.max(state.longest, now - state.last);
      state.last = now;
    }, 4);
  });
const longestPause = (page: Page) =>
  page.evaluate(() => {
    const { pause } = window as unknown as { pause: { longest: number; last: number } };
    const longest = pause.longest;
    pause.longest = 0;
    pause.last = performance.now();
    return Math.round(longest);
  });
/** What the page holds after a collection: megabytes of objects, nodes (in the page or not), and listeners. */
async function held(page: Page): Promise<{ heap: number; nodes: number; listeners: number }> {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { nodes, jsEventListeners } = await session.send('Memory.getDOMCounters');
  await session.detach();
  return { heap: Math.round(usedSize / 1e5) / 10, nodes, listeners: jsEventListeners };
}
const heap = async (page: Page) => (await held(page)).heap;
const words = ({ heap, nodes, listeners }: Awaited<ReturnType<typeof held>>) =>
  `${heap} MB, ${nodes} nodes, ${listeners} listeners`;

test('a chat of 300,000 tokens', async ({ page }) => {
  test.setTimeout(300_000);
  // A token of prose is about 0.75 words.
  const server = await planted(50, 250, 870);
  try {
    await server.start();
    await page.goto(server.address);
    await rows(page).first().waitFor();
    await watchPauses(page);
    const before = await heap(page);
    await longestPause(page);
    const opened = await page.evaluate(async () => {
      const begin = performance.now();
      document.querySelector<HTMLElement>('[data-chat=long]')?.click();
      for (;;) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
        const last = [...document.querySelectorAll('article.answer')].at(-1);
        if (last?.textContent?.includes('Answer 250.') && last.querySelector('.markdown p')) break;
      }
      return Math.round(performance.now() - begin);
    });
    say('opened, the last answer drawn', `${opened} ms`);
    say('longest pause while opening', `${await longestPause(page)} ms`);
    await page.waitForTimeout(6000);
    say('longest pause while the rest is drawn', `${await longestPause(page)} ms`);
    say('memory of the page', `${before} MB before, ${await heap(page)} MB after`);
    const frames = await page.evaluate(async () => {
      const scroller = document.querySelector<HTMLElement>('.scroller')!;
      const gaps: number[] = [];
      let last = performance.now();
      for (let i = 0; i < 240; i++) {
        scroller.scrollTop -= 400;
        await new Promise((resolve) => requestAnimationFrame(resolve));
        const now = performance.now();
        gaps.push(now - last);
        last = now;
      }
      gaps.sort((a, b) => a - b);
      return { median: gaps[120]!, p95: gaps[228]!, worst: gaps[239]!, top: scroller.scrollTop };
    });
    say(
      'scrolled up by 96,000 pixels, a frame',
      `median ${frames.median.toFixed(1)} ms, 95 % ${frames.p95.toFixed(1)} ms, worst ${frames.worst.toFixed(1)} ms`,
    );
    await expect(page.locator('article')).not.toHaveCount(0);
  } finally {
    await server.remove();
  }
});

for (const chats of [10, 1000]) {
  test(`a start with ${chats} chats`, async ({ page }) => {
    test.setTimeout(120_000);
    const server = await planted(chats, 0, 0);
    try {
      const begin = performance.now();
      await server.start();
      say(`server up with ${chats} chats`, `${Math.round(performance.now() - begin)} ms`);
      await page.goto(server.address);
      await rows(page).first().waitFor();
      const shown = await page.evaluate(() => Math.round(performance.now()));
      say(`list of ${chats} chats in the page`, `${shown} ms after its beginning`);
      await rows(page).first().press('End');
      await expect(page.locator(':focus')).toHaveText('Chat number 0');
    } finally {
      await server.remove();
    }
  });
}

test('50,000 streamed tokens', async ({ page }) => {
  test.setTimeout(300_000);
  await page.goto('/?fake=flood');
  const composer = page.getByTestId('composer');
  await composer.waitFor();
  const before = await held(page);
  say('at rest', words(before));
  await watchPauses(page);
  // The second time tells what stays for each answer from what is made once.
  for (const turn of ['first', 'second']) {
    await composer.fill('Begin.');
    await page.keyboard.press('Enter');
    await page.getByTestId('stop').waitFor();
    const marks: number[] = [];
    while (!(await page.getByTestId('send').isVisible())) {
      await page.waitForTimeout(3000);
      marks.push(await heap(page));
    }
    say(`while the ${turn} 50,000 tokens came`, `${marks.join(', ')} MB`);
    say('longest pause meanwhile', `${await longestPause(page)} ms`);
    say('the answer shown', words(await held(page)));
    await page.keyboard.press('Control+n');
    await expect(page.locator('article')).toHaveCount(0);
    await page.waitForTimeout(500);
    say('the answer put away', words(await held(page)));
    const made = await page.evaluate(() => document.querySelectorAll('*').length);
    say('elements in the page', String(made));
  }
});
