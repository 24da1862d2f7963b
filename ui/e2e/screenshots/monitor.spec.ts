/** Pictures of every state of the monitor, for people to look at. */
import type { Page } from '@playwright/test';
import { shoot, type Shot } from './shoot';

/** Opens it and looks a few times, so that the lines have some length. */
const open = (looks: number) => async (page: Page) => {
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+Shift+m');
  await page.getByTestId('monitor-panel').waitFor();
  await page.mouse.move(2, 2);
  await page.waitForFunction(
    (wanted) =>
      (window as unknown as { asked: string[] }).asked.filter((name) => name === 'monitor').length >= wanted,
    looks,
  );
};
const shots: Shot[] = [
  { name: 'monitor-paged', scenario: 'weeks', act: open(14) },
  { name: 'monitor-demo', scenario: 'demo', act: open(6) },
  { name: 'monitor-idle', scenario: 'idle', act: open(2) },
  { name: 'monitor-silent', scenario: 'silent', act: open(3) },
  { name: 'monitor-loading', scenario: 'loading', act: open(1) },
  { name: 'monitor-broken', scenario: 'broken', act: open(1) },
  {
    name: 'monitor-recording',
    scenario: 'weeks',
    act: async (page) => {
      await open(3)(page);
      await page.getByRole('button', { name: 'Record', exact: true }).click();
      await page.getByTestId('recording').scrollIntoViewIfNeeded();
    },
  },
];

shoot(shots, { wide: { width: 1280, height: 1000 }, narrow: { width: 400, height: 1300 } });
