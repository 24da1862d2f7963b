/** Pictures of the plan for this computer, for people to look at. */
import type { Page } from '@playwright/test';
import { shoot } from './shoot';

const open = async (page: Page) => {
  await page.getByRole('button', { name: 'Get the real model' }).click();
  await page.getByTestId('plan-speed').filter({ hasNotText: 'Measuring' }).waitFor();
  await page.mouse.move(2, 2);
};
const known = async (page: Page) => {
  await page.getByTestId('prospect').filter({ hasText: 'tokens/s' }).waitFor();
};

shoot(
  [
    { name: 'first-run', scenario: 'demo', act: known },
    { name: 'plan', scenario: 'demo', act: open },
    { name: 'plan-small', scenario: 'smallmachine', act: open },
    { name: 'plan-fulldisk', scenario: 'fulldisk', act: open },
    { name: 'plan-nodirect', scenario: 'nodirect', act: open },
  ],
  { wide: { width: 1280, height: 900 }, narrow: { width: 360, height: 900 } },
);
