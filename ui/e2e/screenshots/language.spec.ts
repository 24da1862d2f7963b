/** Pictures of the main screens in Chinese, for people to look at. */
import type { Page } from '@playwright/test';
import { rows, send, settled } from '../page';
import { shoot, type Shot } from './shoot';

const list = async (page: Page) => {
  const opener = page.getByTestId('open-sidebar');
  if (await opener.isVisible()) await opener.click();
};
const panel = (keys: string, tab: string | null) => async (page: Page) => {
  await page.keyboard.press('Escape');
  await page.keyboard.press(keys);
  if (tab === null) await page.getByTestId('layer-times').waitFor();
  else await page.getByRole('tab', { name: tab }).click();
  await page.mouse.move(2, 2);
};

const shots: Shot[] = [
  { name: 'zh-welcome', scenario: 'weeksdemo' },
  {
    name: 'zh-chat',
    scenario: 'weeks',
    act: async (page) => {
      await list(page);
      await rows(page).first().click();
      await page.locator('article.answer .markdown').waitFor();
    },
  },
  {
    name: 'zh-answer',
    scenario: 'unmeasured',
    act: async (page) => {
      await page.getByTestId('thinking').selectOption('on');
      await send(page, '你好！');
      await settled(page);
      await page.getByTestId('timing-button').click();
    },
  },
  {
    name: 'zh-menu',
    scenario: 'organised',
    act: async (page) => {
      await list(page);
      await rows(page).nth(2).click({ button: 'right' });
    },
  },
  { name: 'zh-appearance', scenario: 'chosen', act: panel('Control+,', '外观') },
  { name: 'zh-performance', scenario: 'chosen', act: panel('Control+,', '性能') },
  { name: 'zh-settings-models', scenario: 'token', act: panel('Control+,', '模型') },
  {
    name: 'zh-models',
    scenario: 'library',
    act: async (page) => {
      await page.getByTestId('model-pill').click();
      await page.getByTestId('catalogue-entry').first().waitFor();
    },
  },
  { name: 'zh-monitor', scenario: 'weeks', act: panel('Control+Shift+m', null) },
  { name: 'zh-help', scenario: 'weeks', act: panel('?', '快捷键') },
  { name: 'zh-computer', scenario: 'weeks', act: panel('?', '这台电脑') },
  { name: 'zh-failed', scenario: 'failed' },
  { name: 'zh-offline', scenario: 'offline' },
];

shoot(shots, { wide: { width: 1280, height: 800 }, narrow: { width: 360, height: 700 } }, 'zh-CN');
