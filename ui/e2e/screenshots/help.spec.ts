/** Pictures of every state of the help, for people to look at. */
import type { Page } from '@playwright/test';
import { shoot, type Shot } from './shoot';

const open = (section: string) => async (page: Page) => {
  await page.keyboard.press('Escape');
  await page.getByTestId('app-menu').click();
  await page.getByRole('menuitem', { name: 'Help and shortcuts' }).click();
  await page.getByRole('tab', { name: section }).click();
  await page.mouse.move(2, 2);
};
const shots: Shot[] = [
  { name: 'help-shortcuts', scenario: 'weeksdemo', act: open('Shortcuts') },
  { name: 'help-computer', scenario: 'weeksdemo', act: open('This computer') },
  { name: 'help-computer-small', scenario: 'smallcomputer', act: open('This computer') },
  { name: 'help-log', scenario: 'weeksdemo', act: open('Log') },
  { name: 'help-log-empty', scenario: 'emptylog', act: open('Log') },
  { name: 'help-report', scenario: 'weeksdemo', act: open('Report') },
];

shoot(shots, { wide: { width: 1280, height: 800 }, narrow: { width: 400, height: 800 } });
