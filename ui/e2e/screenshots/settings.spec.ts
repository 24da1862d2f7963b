/** Pictures of every state of the settings screen, for people to look at. */
import type { Page } from '@playwright/test';
import { connect } from '../page';
import { shoot, type Shot } from './shoot';

const open = (section: string, act?: (page: Page) => Promise<void>) => async (page: Page) => {
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+,');
  await page.getByTestId('settings-panel-section').waitFor();
  await page.getByRole('tab', { name: section }).click();
  await page.mouse.move(2, 2);
  await act?.(page);
};
const type = (key: string, text: string) => async (page: Page) => {
  await page.locator(`#setting-${key}`).fill(text);
  await page.keyboard.press('Enter');
};

const shots: Shot[] = [
  {
    name: 'menu-app',
    scenario: 'weeksdemo',
    act: async (page) => {
      await page.keyboard.press('Escape');
      await page.getByTestId('app-menu').click();
    },
  },
  { name: 'settings-appearance', scenario: 'weeksdemo', act: open('Appearance') },
  { name: 'settings-answers', scenario: 'chosen', act: open('Answers') },
  { name: 'settings-performance', scenario: 'chosen', act: open('Performance') },
  {
    name: 'settings-pending',
    scenario: 'chosen',
    act: open('Performance', async (page) => {
      await type('expert_cache_bytes', '500')(page);
      await type('threads', '4')(page);
    }),
  },
  { name: 'settings-demo', scenario: 'demo', act: open('Performance') },
  { name: 'settings-models', scenario: 'token', act: open('Models') },
  {
    name: 'settings-refused',
    scenario: 'token',
    act: open('Models', type('download_endpoint', 'mirror.example')),
  },
  { name: 'settings-wrong', scenario: 'wrongsettings', act: open('Appearance') },
  {
    name: 'settings-unreadable',
    scenario: 'nosettings',
    act: async (page) => {
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+,');
      await page.getByText('could not be read').waitFor();
    },
  },
  {
    name: 'settings-offline',
    scenario: 'chosen',
    act: open('Answers', (page) => connect(page, false)),
  },
];

shoot(shots, { wide: { width: 1280, height: 800 }, narrow: { width: 400, height: 800 } });
