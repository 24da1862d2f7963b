/** Takes the pictures of a list of states: both themes, wide and narrow, into ui/test-results/screenshots. */
import { type Page, test } from '@playwright/test';

export interface Shot {
  name: string;
  /** Of the scripted app, with what else stands in the address. */
  scenario: string;
  act?: (page: Page) => Promise<void>;
}

interface Size {
  width: number;
  height: number;
}

export function shoot(shots: Shot[], sizes: { wide: Size; narrow: Size }, locale = 'en-US'): void {
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const [size, viewport] of Object.entries(sizes)) {
      test(`${colorScheme} ${size}`, async ({ browser, baseURL }) => {
        test.setTimeout(240_000);
        const context = await browser.newContext({
          colorScheme,
          locale,
          viewport,
          reducedMotion: 'reduce',
          baseURL: baseURL ?? '',
        });
        const page = await context.newPage();
        for (const shot of shots) {
          await page.goto('about:blank');
          await page.goto(`/?fake=${shot.scenario}`);
          await page.getByTestId('composer').waitFor();
          await shot.act?.(page);
          await page.waitForTimeout(150);
          await page.screenshot({ path: `test-results/screenshots/${shot.name}-${size}-${colorScheme}.png` });
        }
        await context.close();
      });
    }
  }
}
