/** Pictures of the local server among the settings, for people to look at. */
import type { Page } from '@playwright/test';
import { shoot } from './shoot';

const open = async (page: Page) => {
  await page.keyboard.press('Control+,');
  await page.getByTestId('settings-panel').getByRole('tab', { name: 'Server' }).click();
  await page.getByTestId('server-now').waitFor();
  await page.mouse.move(2, 2);
};

shoot(
  [
    { name: 'server-off', scenario: 'demo', act: open },
    { name: 'server-on', scenario: 'served', act: open },
    { name: 'server-taken', scenario: 'porttaken', act: open },
    {
      name: 'server-new-key',
      scenario: 'served',
      act: async (page) => {
        await open(page);
        await page.getByRole('button', { name: 'New key…' }).click();
      },
    },
  ],
  { wide: { width: 1280, height: 900 }, narrow: { width: 360, height: 1100 } },
);
