/** The languages: one is chosen in the settings and counts at once; the system's counts until then; and every screen works in Chinese. */
import type { Page } from '@playwright/test';
import { expectAccessible, answers, expect, rows, send, settled, test } from '../page';

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

test('a language that is chosen counts at once, for every word, number and date', async ({ page }) => {
  await page.goto('/?fake=weeks');
  await page.evaluate(() => ((window as unknown as { same: boolean }).same = true));
  await rows(page).first().click();
  await expect(answers(page)).toContainText('Sort a copy');
  await page.keyboard.press('Control+,');
  const language = page.locator('[data-setting=language]');
  await expect(language.getByRole('radio', { name: 'Automatic' })).toBeChecked();
  await language.getByRole('radio', { name: '简体中文' }).check();
  await expect(page.locator('html')).toHaveAttribute('lang', 'zh-Hans');
  const settings = page.getByRole('dialog', { name: '设置' });
  await expect(settings.getByRole('tab', { name: '外观' })).toHaveAttribute('aria-selected', 'true');
  await expect(settings.getByRole('radio', { name: '跟随系统' })).toBeChecked();
  await expect(settings).toContainText('界面语言。');
  await page.keyboard.press('Escape');
  await expect(page.getByTestId('new-chat')).toContainText('新对话');
  // Which days there are depends on the hour; the last is a month of its own.
  const days = await page.getByRole('navigation').locator('h2').allInnerTexts();
  expect(days.length).toBeGreaterThan(2);
  for (const day of days) expect(day).toMatch(/^(今天|昨天|过去 (7|30) 天|\d{4}年\d{1,2}月)$/);
  expect(days.at(-1)).toMatch(/^\d{4}年\d{1,2}月$/);
  await expect(page.getByRole('textbox', { name: '你的消息' })).toBeVisible();
  await expect(page.getByTestId('status')).toContainText('token/秒');
  await expect(button(page, '重新生成')).toHaveCount(1);
  // What was sent before is as it was.
  await expect(answers(page)).toContainText('Sort a copy');
  await page.keyboard.press('Control+,');
  await page.locator('[data-setting=language]').getByRole('radio', { name: 'English' }).check();
  await expect(page.getByRole('dialog', { name: 'Settings' })).toBeVisible();
  await expect(page.locator('html')).toHaveAttribute('lang', 'en-US');
  expect(await page.evaluate(() => (window as unknown as { same?: boolean }).same)).toBe(true);
});

test.describe('on a Chinese system', () => {
  test.use({ locale: 'zh-CN' });

  test('the window is in Chinese from the start, and can be put into English', async ({ page }) => {
    await page.goto('/?fake=demo');
    await expect(page.getByRole('heading', { name: '今天想聊点什么？' })).toBeVisible();
    await expect(page.getByTestId('model-pill')).toHaveAccessibleName('模型：演示模型');
    await send(page, 'Hello!');
    await settled(page);
    await page.keyboard.press('Control+,');
    await expect(page.getByRole('dialog', { name: '设置' })).toBeVisible();
    await page.locator('[data-setting=language]').getByRole('radio', { name: 'English' }).check();
    await page.keyboard.press('Escape');
    await expect(page.getByTestId('new-chat')).toContainText('New chat');
  });

  test('what the app says in English is said in Chinese where it is known', async ({ page }) => {
    await page.goto('/?fake=demo');
    await expect(page.getByTestId('composer')).toBeFocused();
    await page.keyboard.press('Control+,');
    await page.getByRole('tab', { name: '性能' }).click();
    const threads = page.locator('#setting-threads');
    await threads.fill('1000');
    await threads.press('Enter');
    await expect(page.getByRole('alert')).toHaveText('“线程数”必须是 1 到 512 之间的整数。');
    await expect(page.locator('[data-setting=threads]')).toContainText('每个核心一个，这样最快。');
  });

  /** Every screen, one after the other. */
  const screens: [name: string, scenario: string, open: (page: Page) => Promise<void>][] = [
    ['welcome', 'demo', async () => {}],
    [
      'chats',
      'organised',
      async (page) => {
        if (await page.getByTestId('open-sidebar').isVisible())
          await page.getByTestId('open-sidebar').click();
        await expect(page.getByRole('navigation')).toBeVisible();
        await page.getByTestId('chats-menu').click();
        await expect(page.getByRole('menuitem', { name: '导入对话…' })).toBeVisible();
      },
    ],
    [
      'an answer',
      'demo',
      async (page) => {
        await send(page, 'Hello!');
        await settled(page);
        await page.getByTestId('timing-button').click();
        await expect(page.getByTestId('timing')).toContainText('写回答');
      },
    ],
    ...(['外观', '回答', '性能', '模型'] as const).map((section): (typeof screens)[number] => [
      `settings, ${section}`,
      'chosen',
      async (page) => {
        await page.keyboard.press('Control+,');
        await page.getByRole('tab', { name: section }).click();
        await expect(page.getByRole('tabpanel')).toBeVisible();
      },
    ]),
    [
      'models',
      'library',
      async (page) => {
        await page.getByTestId('model-pill').click();
        await expect(page.getByRole('heading', { name: '这台电脑上的模型' })).toBeVisible();
      },
    ],
    [
      'the monitor',
      'weeks',
      async (page) => {
        await page.keyboard.press('Control+Shift+m');
        await expect(page.getByTestId('layer-times')).toBeVisible();
      },
    ],
    ...(['快捷键', '这台电脑', '日志', '报告'] as const).map((section): (typeof screens)[number] => [
      `help, ${section}`,
      'weeks',
      async (page) => {
        await page.keyboard.press('?');
        await page.getByRole('tab', { name: section }).click();
        await expect(page.getByRole('tabpanel')).toBeVisible();
      },
    ]),
    [
      'instructions',
      'demo',
      async (page) => {
        await page.getByTestId('instructions-button').click();
        await expect(page.getByRole('dialog', { name: '指令' })).toBeVisible();
      },
    ],
  ];

  for (const width of [360, 1280]) {
    test(`every screen passes axe and cuts nothing off, ${width} pixels wide`, async ({ page }) => {
      test.setTimeout(180_000);
      await page.emulateMedia({ reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: 700 });
      for (const [name, scenario, open] of screens) {
        await page.goto('about:blank');
        await page.goto(`/?fake=${scenario}`);
        await page.getByTestId('composer').waitFor();
        await open(page);
        await expectAccessible(page, name);
        const wide = await page.evaluate(() => {
          const dialog = document.querySelector<HTMLElement>('dialog[open]');
          const outer = [document.documentElement, ...(dialog ? [dialog] : [])];
          // Text that is wider than its button runs out of it.
          const buttons = [
            ...(dialog ?? document).querySelectorAll<HTMLElement>('button, [role=tab]'),
          ].filter(
            (element) => element.offsetParent !== null && getComputedStyle(element).overflow === 'visible',
          );
          return [...outer, ...buttons]
            .filter((element) => element.scrollWidth > element.clientWidth + 1)
            .map((element) => element.outerHTML.slice(0, 120));
        });
        expect(wide, name).toEqual([]);
      }
    });
  }
});
