/** What all browser tests share: a page that fails the test when its security policy is violated or a script throws. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test as base, expect, type Page } from '@playwright/test';

const axePath = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** Collects what must not happen in any page. */
export async function watch(page: Page): Promise<string[]> {
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(`script error: ${error.message}`));
  page.on('console', (message) => {
    const text = message.text();
    if (/Content Security Policy|TrustedHTML|TrustedScript|Refused to/i.test(text)) wrong.push(text);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(
        `Content Security Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`,
      );
    });
  });
  return wrong;
}

export const test = base.extend({
  page: async ({ page }, use) => {
    const wrong = await watch(page);
    await use(page);
    expect(wrong).toEqual([]);
  },
});

export { expect };

export async function send(page: Page, text: string): Promise<void> {
  await page.getByTestId('composer').fill(text);
  await page.keyboard.press('Enter');
}

/** Lets the answer go on that the scripted app holds (`hold=CHARACTERS,CHARACTERS` in the address). */
export async function goOn(page: Page): Promise<void> {
  await page.evaluate(() => window.dispatchEvent(new Event('fake-go-on')));
}

/** Moves the scripted app's jobs by a share of the whole, from 0 to 1; they never move by themselves. The page looks at once. */
export async function step(page: Page, share: number): Promise<void> {
  await page.evaluate((detail) => {
    window.dispatchEvent(new CustomEvent('fake-step', { detail }));
    window.dispatchEvent(new Event('focus'));
  }, share);
}

/** From now on the scripted app answers, or does not. */
export async function connect(page: Page, connected: boolean): Promise<void> {
  await page.evaluate(
    (detail) => window.dispatchEvent(new CustomEvent('fake-connected', { detail })),
    connected,
  );
}

/** Waits until nothing is being written. */
export async function settled(page: Page): Promise<void> {
  await expect(page.getByTestId('send')).toBeVisible();
}

/** The answers of the open chat, oldest first. */
export const answers = (page: Page) => page.locator('article.answer .markdown');
export const questions = (page: Page) => page.locator('article.user .bubble');
export const rows = (page: Page) => page.getByRole('navigation').locator('[data-chat]');

/** Serious and critical findings of axe; its script is run by the test and is no part of the page. */
export async function expectAccessible(page: Page, where = ''): Promise<void> {
  await page.evaluate(readFileSync(axePath, 'utf8'));
  const found = await page.evaluate(async () => {
    const axe = (window as unknown as { axe: { run: (...args: unknown[]) => Promise<AxeResult> } }).axe;
    return (await axe.run(document, { resultTypes: ['violations'] })).violations;
  });
  const serious = found
    .filter((violation) => violation.impact === 'serious' || violation.impact === 'critical')
    .map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join(' | ')}`);
  expect(serious, where).toEqual([]);
}

interface AxeResult {
  violations: { id: string; impact: string | null; nodes: { html: string }[] }[];
}
