/** Pictures of every state of the models screen, for people to look at. The windows are high so that all of it is seen. */
import type { Page } from '@playwright/test';
import { connect } from '../page';
import { shoot, type Shot } from './shoot';

const open = async (page: Page) => {
  await page.getByTestId('model-pill').click();
  await page.getByTestId('model-panel').waitFor();
  await page.mouse.move(2, 2);
};
/** Opens the screen and presses what has these words. */
const press = (words: string) => async (page: Page) => {
  await open(page);
  const panel = page.getByTestId('model-panel');
  await panel
    .getByRole('button', { name: words })
    .or(panel.getByText(words, { exact: true }))
    .first()
    .click();
};

const states = (scenarios: string[]): Shot[] =>
  scenarios.map((scenario) => ({ name: `models-${scenario}`, scenario, act: open }));

const shots: Shot[] = [
  { name: 'models-demo', scenario: 'weeksdemo', act: open },
  { name: 'models-web', scenario: 'web', act: open },
  { name: 'models-loading', scenario: 'loading', act: open },
  { name: 'models-failed', scenario: 'failed', act: open },
  {
    name: 'models-offline',
    scenario: 'downloading',
    act: async (page) => {
      await open(page);
      await connect(page, false);
    },
  },
  ...states([
    'library',
    'longnames',
    'left',
    'lowspace',
    'linked',
    'moving',
    'verifying',
    'verified',
    'damagedmodel',
  ]),
  ...states(['resolving', 'begun', 'downloading', 'slow', 'converting', 'stalled', 'retrying', 'stopping']),
  ...states(['waiting', 'paused', 'nospace', 'noaccess']),
  { name: 'models-ask', scenario: 'demo', act: press('Download: DeepSeek V4 Flash 0731') },
  { name: 'models-ask-lowspace', scenario: 'lowspace', act: press('Download: DeepSeek V4 Flash 0731') },
  { name: 'models-cancel', scenario: 'downloading', act: press('Cancel…') },
  { name: 'models-delete', scenario: 'library', act: press('Delete…') },
  { name: 'models-facts', scenario: 'library', act: press('Details') },
  { name: 'chip-downloading', scenario: 'downloading' },
  { name: 'chip-paused', scenario: 'paused' },
  { name: 'chip-failed', scenario: 'nospace' },
];

shoot(shots, { wide: { width: 1280, height: 1500 }, narrow: { width: 360, height: 2200 } });
