/** Pictures of every state of the conversation, for people to look at. */
import type { Page } from '@playwright/test';
import { shoot, type Shot } from './shoot';

const send = async (page: Page, text: string) => {
  await page.getByTestId('composer').fill(text);
  await page.keyboard.press('Enter');
};
const settled = (page: Page) => page.getByTestId('send').waitFor();

const shots: Shot[] = [
  { name: 'welcome', scenario: 'weeksdemo' },
  { name: 'welcome-empty', scenario: 'demo' },
  {
    name: 'answer',
    scenario: 'weeks',
    act: async (page) => {
      await page.keyboard.press('Escape');
      await openChat(page, 'Sort words by length in Rust');
    },
  },
  {
    name: 'story',
    scenario: 'demo',
    act: async (page) => {
      await send(page, 'Hello!');
      await settled(page);
      await send(page, 'Tell me a story about a fox.');
      await settled(page);
    },
  },
  {
    name: 'writing',
    scenario: 'demo&hold=120',
    act: async (page) => {
      await send(page, 'Tell me a story about a fox.');
      await page.getByText('gentle fox').waitFor();
    },
  },
  {
    name: 'link',
    scenario: 'weeks',
    act: async (page) => {
      await openChat(page, 'Sort words by length in Rust');
      await page.getByRole('link', { name: 'documentation of slices' }).click();
    },
  },
  {
    name: 'menu',
    scenario: 'weeks',
    act: async (page) => {
      await openSidebar(page);
      await page
        .getByRole('button', { name: 'Dinner for six, two of them vegan', exact: true })
        .click({ button: 'right' });
    },
  },
  {
    name: 'rename',
    scenario: 'weeks',
    act: async (page) => {
      await openSidebar(page);
      await page.getByRole('button', { name: 'Packing list for the Alps', exact: true }).focus();
      await page.keyboard.press('F2');
    },
  },
  {
    name: 'deleted',
    scenario: 'weeks',
    act: async (page) => {
      await openSidebar(page);
      await page.getByRole('button', { name: 'Names for a small boat', exact: true }).focus();
      await page.keyboard.press('Delete');
      await page.getByTestId('toast').waitFor();
    },
  },
  { name: 'loading', scenario: 'loading' },
  { name: 'failed', scenario: 'failed' },
  { name: 'fallback', scenario: 'fallback' },
  { name: 'offline', scenario: 'offline' },
  { name: 'notice', scenario: 'notice' },
  { name: 'context-full', scenario: 'contextfull', act: (page) => send(page, 'Please read this book.') },
  { name: 'disk-full', scenario: 'diskfull', act: (page) => send(page, 'Hello!') },
  {
    name: 'failed-answer',
    scenario: 'failsinanswer',
    act: async (page) => {
      await send(page, 'Hello!');
      await settled(page);
    },
  },
  { name: 'prefill', scenario: 'prefill', act: (page) => send(page, 'Please sum up the report above.') },
  { name: 'queued', scenario: 'queued', act: (page) => send(page, 'Hello!') },
  {
    name: 'hostile',
    scenario: 'hostile',
    act: async (page) => {
      await send(page, 'Show me tricks.');
      await settled(page);
      await page.getByRole('heading', { name: 'Not what it seems' }).scrollIntoViewIfNeeded();
    },
  },
  { name: 'interrupted', scenario: 'interrupted', act: (page) => openChat(page, 'A story about a fox') },
  { name: 'stopped', scenario: 'stopped', act: (page) => openChat(page, 'A story about a fox') },
  { name: 'length-limit', scenario: 'lengthlimit', act: (page) => openChat(page, 'A story about a fox') },
  {
    name: 'versions',
    scenario: 'branches',
    act: async (page) => {
      await openChat(page, 'A story about a fox');
      await page.getByTestId('thoughts').locator('summary').click();
      await page.getByRole('button', { name: 'Regenerate' }).last().click();
      await settled(page);
      await page.getByTestId('timing-button').last().click();
    },
  },
  {
    name: 'edit',
    scenario: 'branches',
    act: async (page) => {
      await openChat(page, 'A story about a fox');
      await page.getByRole('button', { name: 'Edit', exact: true }).last().click();
    },
  },
  {
    name: 'timing',
    scenario: 'weeks',
    act: async (page) => {
      await openChat(page, 'Why is the sky dark at night?');
      await page.getByTestId('timing-button').click();
    },
  },
  {
    name: 'thinking',
    scenario: 'thinking',
    act: async (page) => {
      await page.getByTestId('thinking').selectOption('max');
      await send(page, 'Tell me a story about a fox.');
      await page.getByTestId('thoughts').locator('summary').click();
    },
  },
  {
    name: 'waiting',
    scenario: 'demo&hold=120',
    act: async (page) => {
      await send(page, 'Tell me a story about a fox.');
      await page.getByText('gentle fox').waitFor();
      await send(page, 'And then one about a badger who cannot sleep because the moon is so bright, please.');
      await send(page, 'Hello!');
      await page.getByTestId('composer').fill('One more');
    },
  },
  {
    name: 'file',
    scenario: 'nearlyfull',
    act: async (page) => {
      await openChat(page, 'Why is the sky dark at night?');
      await page.getByTestId('composer').fill('Please sum this up in three sentences.');
      await page.getByTestId('attach').click();
      await page.getByText('more than the 4,096').waitFor();
    },
  },
  {
    name: 'file-sent',
    scenario: 'weeks',
    act: async (page) => {
      await page.getByTestId('attach').click();
      await send(page, 'Please sum this up in three sentences.');
      await settled(page);
      await page.getByRole('button', { name: 'Show quarterly-report.txt' }).click();
    },
  },
  {
    name: 'instructions',
    scenario: 'presets',
    act: async (page) => {
      await page.getByTestId('instructions-button').click();
      await page.getByRole('button', { name: /^Proofreader / }).click();
    },
  },
  {
    name: 'maths',
    scenario: 'maths',
    act: async (page) => {
      await send(page, 'Show me formulas.');
      await settled(page);
      await page.locator('math').nth(5).waitFor();
    },
  },
  {
    name: 'find',
    scenario: 'branches',
    act: async (page) => {
      await openChat(page, 'A story about a fox');
      await page.keyboard.press('Control+f');
      await page.getByTestId('find').locator('input').fill('fox');
      await page.getByText('1 of 4').waitFor();
    },
  },
  {
    name: 'search',
    scenario: 'organised',
    act: async (page) => {
      await openSidebar(page);
      await page.getByTestId('search').fill('sort');
      await page.locator('mark').first().waitFor();
    },
  },
  { name: 'folders', scenario: 'organised', act: openSidebar },
  {
    name: 'move',
    scenario: 'organised',
    act: async (page) => {
      await openSidebar(page);
      await page
        .getByRole('button', { name: 'Packing list for the Alps', exact: true })
        .click({ button: 'right' });
      await page.getByRole('menuitem', { name: 'Move to a folder…' }).click();
    },
  },
  { name: 'book', scenario: 'book', act: (page) => openChat(page, 'A whole book') },
  {
    name: 'draft-long',
    scenario: 'demo',
    act: (page) => page.getByTestId('composer').fill('A line of a long letter.\n'.repeat(60)),
  },
];

async function openSidebar(page: Page) {
  const button = page.getByTestId('open-sidebar');
  if (await button.isVisible()) await button.click();
}

async function openChat(page: Page, title: string) {
  await openSidebar(page);
  await page.getByRole('button', { name: title, exact: true }).click();
  await page.getByRole('log').waitFor();
  await page.mouse.move(640, 300);
}

shoot(shots, { wide: { width: 1280, height: 800 }, narrow: { width: 400, height: 720 } });
