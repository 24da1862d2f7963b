/** The real window: a person's ways through its panels, from end to end. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { cli, dataFolder, freePort, keys, start, until } from './driver.mjs';

const expectedFile = new URL('../../../src-tauri/crates/app/demo/expected.json', import.meta.url);
const expected = Object.fromEntries(
  JSON.parse(readFileSync(expectedFile, 'utf8')).map(({ prompt, text }) => [prompt, text]),
);

/** The demo model as a file in the models folder. */
function plantModel(folder) {
  mkdirSync(join(folder, 'models'));
  const file = join(folder, 'models', 'small.fst');
  execFileSync(cli(), ['convert', '../src-tauri/crates/app/demo', file], { stdio: 'pipe' });
  return file;
}

const shows = (app, selector, words) =>
  until(`${selector} says ${words}`, async () => words.test((await app.texts(selector)).join('\n')));

test('a question is edited, both ways are walked, and they are there after a restart', async (t) => {
  const folder = dataFolder(t);
  let app = await start(t, folder);
  await app.send('My name is Zoe.');
  await app.settled();
  const first = await app.answers();
  await app.press('article.user', 'Edit');
  await app.click('[data-testid=edit-field]');
  await app.run(`document.querySelector('[data-testid=edit-field]').select()`);
  await app.type('[data-testid=edit-field]', 'Who are you?');
  await app.chord(keys.control, keys.enter);
  await until('the new question is answered', async () => {
    const [answer] = await app.answers();
    return answer === expected['Who are you?'];
  });
  await app.settled();
  await shows(app, '[data-testid=versions]', /2 \/ 2/);
  await app.press('[data-testid=versions]', 'Previous version');
  await until('the first way is shown', async () => (await app.answers()).join() === first.join());
  assert.deepEqual(await app.texts('article.user .bubble'), ['My name is Zoe.']);
  await app.close();

  app = await start(t, folder);
  await until('the chat is listed', async () => (await app.chats()).length === 1);
  await app.click('nav [data-chat]');
  await until('the way that was shown is shown', async () => (await app.answers()).join() === first.join());
  await app.press('[data-testid=versions]', 'Next version');
  await until('the other way is there', async () => (await app.answers())[0] === expected['Who are you?']);
});

test('a model in the folder is checked, used and kept from deletion, and another is deleted', async (t) => {
  const folder = dataFolder(t);
  const file = plantModel(folder);
  const app = await start(t, folder);
  await app.click('[data-testid=model-pill]');
  const row = '[data-testid=model-row][data-file="small.fst"]';
  await app.press(row, 'Check every byte');
  await shows(
    app,
    `${row} [data-testid=job][data-state=done]`,
    /Every weight is as it was made: [\d.]+ MB read\./,
  );
  await app.press(row, 'Use: small');
  await shows(app, '[data-testid=model-in-use]', /small/);
  await shows(app, row, /In use/i);
  assert.ok(!(await app.texts(`${row} button`)).includes('Delete…'));
  await app.chord(keys.escape);
  await app.send('Hello!');
  await app.settled();
  assert.deepEqual(await app.answers(), [expected['Hello!']]);
  assert.equal(JSON.parse(readFileSync(join(folder, 'settings.json'), 'utf8')).model, file);

  await app.click('[data-testid=model-pill]');
  await app.press('[data-testid=model-panel]', 'Use the demo model');
  await until('the demo is in use', async () => !/In use/i.test((await app.texts(row))[0]));
  await app.press(row, 'Delete…');
  assert.ok(existsSync(file));
  await app.press(row, 'Delete');
  await until('the file is gone', () => !existsSync(file));
  await until('its row is gone', async () => (await app.texts(row)).length === 0);
});

test('the monitor shows what an answer did', async (t) => {
  const folder = dataFolder(t);
  const app = await start(t, folder, { FASTAR_MODEL: plantModel(folder) });
  await app.send('Who are you?');
  await app.settled();
  assert.deepEqual(await app.answers(), [expected['Who are you?']]);
  await app.chord(keys.control, keys.shift, 'M');
  await shows(app, '[data-testid=monitor-panel]', /\d+ of 96 places are filled; the model has 96 experts\./);
  await until('the map is drawn', () =>
    app.run(`const map = document.querySelector('[data-testid=expert-map] canvas, canvas[data-testid=expert-map]');
      if (!map) return false;
      const { data } = map.getContext('2d').getImageData(0, 0, map.width, map.height);
      return new Set(Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 4).join())).size > 2;`),
  );
  mkdirSync('test-results/window', { recursive: true });
  writeFileSync('test-results/window/monitor.png', await app.screenshot());
});

test('the local server answers whoever has its key, and ends with its switch', async (t) => {
  const folder = dataFolder(t);
  const port = await freePort();
  writeFileSync(join(folder, 'settings.json'), JSON.stringify({ server_port: port }));
  const app = await start(t, folder);
  await app.chord(keys.control, ',');
  await app.press('[data-testid=settings-panel]', 'Server');
  await app.click('#setting-server');
  await shows(app, '[data-testid=server-now]', new RegExp(`127\\.0\\.0\\.1:${port}`));
  const address = `http://127.0.0.1:${port}`;
  const ask = (headers) =>
    fetch(`${address}/api/app_info`, {
      method: 'POST',
      body: '{}',
      headers: { 'content-type': 'application/json', ...headers },
    });
  assert.equal((await ask({})).status, 401);
  const key = readFileSync(join(folder, 'server.key'), 'utf8').trim();
  const answer = await ask({ authorization: `Bearer ${key}` });
  assert.equal(answer.status, 200);
  assert.ok((await answer.json()).version);
  await app.click('#setting-server');
  await until('nobody listens any more', () =>
    ask({}).then(
      () => false,
      () => true,
    ),
  );
});
