/** The real window: what a person does in it, and what a page in it can never do. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { dataFolder, keys, start, until } from './driver.mjs';

const expectedFile = new URL('../../../src-tauri/crates/app/demo/expected.json', import.meta.url);
const expected = Object.fromEntries(
  JSON.parse(readFileSync(expectedFile, 'utf8')).map(({ prompt, text }) => [prompt, text]),
);
const STORY = 'Tell me a story about a fox.';

/** Changes the data folder of an app that is not running. Python comes with the headers the desktop app needs. */
function plant(folder, answer) {
  const script = `
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
# The system's SQLite may be too old for the index of words that the app keeps; it is left as it is.
(trigger,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'words_of_changed'").fetchone()
database.execute("DROP TRIGGER words_of_changed")
changed = database.execute("UPDATE messages SET text = ? WHERE role = 'assistant'", (sys.stdin.read(),)).rowcount
database.execute(trigger)
database.commit()
database.close()
assert changed == 1, changed`;
  execFileSync('python3', ['-c', script, join(folder, 'chats.db')], { input: answer });
}

/** In the page: waits until the answer is longer than `size` and gives its length. */
const GROWN = `const grown = async (size) => {
  for (;;) {
    const now = document.querySelector('article.answer .markdown')?.innerText.length ?? 0;
    if (now > size) return now;
    await new Promise((resolve) => setTimeout(resolve, 4));
  }
};`;

/** Sends, and holds the program still as soon as some of the answer is in the window. */
async function sendAndHold(app, text) {
  const { threw } = await app.slowly(() =>
    app.runAsync(
      `${GROWN}
       const field = document.querySelector('[data-testid=composer]');
       field.value = args[0];
       field.dispatchEvent(new Event('input', { bubbles: true }));
       await new Promise((resolve) => setTimeout(resolve));
       document.querySelector('[data-testid=send]').click();
       await grown(0);`,
      text,
    ),
  );
  assert.equal(threw, undefined);
}

test('a person types at once, sees the answer stream, and finds the chat after a restart', async (t) => {
  const folder = dataFolder(t);
  let app = await start(t, folder);
  assert.equal(await app.run(`return document.activeElement?.dataset.testid`), 'composer');
  await app.send('Hello!');
  await app.settled();
  assert.deepEqual(await app.answers(), [expected['Hello!']]);
  const status = (await app.texts('[data-testid=status]'))[0];
  assert.match(status, /Demo model/);
  assert.match(status, /tokens\/s/);
  assert.match(status, /first token/);
  assert.match(status, /context \d+ of 4,096/);
  assert.deepEqual(await app.chats(), ['Hello!']);
  await app.close();

  app = await start(t, folder);
  await until('the chat is listed', async () => (await app.chats()).length === 1);
  await app.click('nav [data-chat]');
  await until('the answer is there', async () => (await app.answers())[0] === expected['Hello!']);
  await app.send('My name is Zoe.');
  await app.settled();
  assert.equal((await app.answers()).length, 2);
});

test('the answer grows while one looks, and Escape stops it', async (t) => {
  const app = await start(t, dataFolder(t));
  await sendAndHold(app, STORY);
  const { threw } = await app.slowly(() =>
    app.runAsync(
      `${GROWN}
       await grown(await grown(0));
       window.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true }));`,
    ),
  );
  assert.equal(threw, undefined);
  app.goOn();
  await app.settled();
  const [answer] = await app.answers();
  assert.ok(expected[STORY].startsWith(answer) && answer.length < expected[STORY].length, answer);
  assert.match((await app.texts('article.answer'))[0], /Stopped$/);
});

test('kill -9 in the middle of an answer keeps the question and what was written', async (t) => {
  const folder = dataFolder(t);
  let app = await start(t, folder);
  await sendAndHold(app, STORY);
  // Longer than the app waits before it saves: when it goes on for a moment, saving is due.
  for (let i = 0; i < 2; i++) {
    await sleep(600);
    await app.slowly(() => sleep(1));
  }
  await app.kill();

  app = await start(t, folder);
  await until('the chat is listed', async () => (await app.chats()).length === 1);
  await app.click('nav [data-chat]');
  await until('the question is there', async () => (await app.texts('article.user .bubble'))[0] === STORY);
  const [answer] = await app.answers();
  assert.ok(answer && expected[STORY].startsWith(answer) && answer.length < expected[STORY].length, answer);
  assert.match((await app.texts('article.answer'))[0], /The app closed while this was being written/);
  await app.click('article.answer [aria-label=Regenerate]');
  await app.settled();
  assert.deepEqual(await app.answers(), [expected[STORY]]);
});

test('a hostile answer cannot lead out of the app', async (t) => {
  const folder = dataFolder(t);
  let app = await start(t, folder);
  await app.send('Hello!');
  await app.settled();
  await app.close();
  plant(
    folder,
    `[web](https://example.org/path?a=b) [mail](mailto:a@example.org) [script](javascript:document.title='owned')
[data](data:text/html,owned) [file](file:///etc/passwd) [asset](tauri://localhost/owned) <a href="https://example.org/raw">raw</a>
<img src="https://example.org/pixel.png" onerror="document.title='owned'"> ![image](https://example.org/pixel.png)
<script>document.title='owned'</script>`,
  );

  app = await start(t, folder);
  await until('the chat is listed', async () => (await app.chats()).length === 1);
  await app.click('nav [data-chat]');
  await app.element('article a');
  const here = await app.location();
  assert.match(here, /^tauri:\/\/localhost\//);
  assert.deepEqual(
    await app.run(`return [...document.querySelectorAll('article a')].map((a) => a.getAttribute('href'))`),
    ['https://example.org/path?a=b', 'mailto:a@example.org', 'https://example.org/pixel.png'],
  );
  assert.equal(await app.run(`return document.querySelectorAll('article img, article script').length`), 0);

  await app.click('article a');
  assert.deepEqual(await app.texts('[data-testid=link-host]'), ['example.org']);
  assert.deepEqual(await app.texts('[data-testid=link-address]'), ['https://example.org/path?a=b']);
  await app.chord(keys.escape);
  await until('the dialog is closed', () => app.run(`return !document.querySelector('dialog')`));

  // Links and jumps that are not ours: the shell itself must refuse them.
  for (const address of [
    'https://example.org/',
    'http://127.0.0.1:9/',
    "javascript:document.title='owned'",
    'data:text/html,owned',
    'file:///etc/passwd',
    'about:blank',
    'mailto:a@example.org',
  ]) {
    await app.run(
      `const a = document.createElement('a'); a.href = arguments[0]; document.body.append(a); a.click(); a.remove();
       const b = document.createElement('a'); b.href = arguments[0]; b.target = '_blank'; document.body.append(b); b.click(); b.remove();`,
      address,
    );
    await app.run('try { location.href = arguments[0] } catch {}', address);
    await sleep(250);
    assert.equal(await app.location(), here, address);
    assert.ok(await app.run(`return !!document.querySelector('[data-testid=composer]')`), address);
  }
  assert.equal(await app.run(`return window.open('https://example.org/')`), null);
  assert.notEqual(await app.run('return document.title'), 'owned');

  // And it still works.
  await app.send('My name is Zoe.');
  await app.settled();
  assert.equal((await app.answers()).length, 2);
});

test('the content security policy and trusted types are in force', async (t) => {
  const app = await start(t, dataFolder(t));
  // What must throw, each in its own way of running or fetching something.
  for (const script of [
    `return new Function('return 1')()`,
    `return (0, eval)('1')`,
    `return await import('data:text/javascript,export default 1')`,
    `return await import('https://example.org/a.js')`,
    `return new Worker(URL.createObjectURL(new Blob(['1'])))`,
    `return await (await fetch('https://example.org/')).text()`,
    `return await (await fetch('http://127.0.0.1:9/')).text()`,
    `await new Promise((resolve, reject) => {
       const request = new XMLHttpRequest();
       request.onload = resolve;
       request.onerror = reject;
       request.open('GET', 'http://127.0.0.1:9/');
       request.send();
     })`,
    `await new Promise((resolve, reject) => {
       const socket = new WebSocket('ws://127.0.0.1:9/');
       socket.onopen = resolve;
       socket.onerror = reject;
     })`,
    `await new Promise((resolve, reject) => {
       const events = new EventSource('http://127.0.0.1:9/');
       events.onopen = resolve;
       events.onerror = reject;
     })`,
    `document.body.innerHTML = '<b>x</b>'`,
    `document.body.insertAdjacentHTML('beforeend', '<b>x</b>')`,
    `document.write('<b>x</b>')`,
    `document.createElement('script').src = 'https://example.org/a.js'`,
    `document.createElement('iframe').srcdoc = '<b>x</b>'`,
    `document.body.setAttribute('onclick', 'owned = 1')`,
    `return new DOMParser().parseFromString('<b>x</b>', 'text/html')`,
    `return trustedTypes.createPolicy('another', { createHTML: (x) => x }).createHTML('<b>x</b>')`,
    `return trustedTypes.createPolicy('svelte-trusted-html', { createHTML: (x) => x }).createHTML('<b>x</b>')`,
    `(function () { 'use strict'; Object.prototype.owned = 1; })()`,
  ]) {
    const { threw, value } = await app.runAsync(script);
    assert.ok(threw, `${script} went through: ${JSON.stringify(value)}`);
  }

  // What fails without a word: looked at by what it would have done.
  const { value } = await app.runAsync(`
    const seen = new Set();
    document.addEventListener('securitypolicyviolation', (event) => seen.add(event.effectiveDirective));
    const add = (name, attributes) => {
      const element = document.createElement(name);
      for (const [key, to] of Object.entries(attributes)) {
        try { element.setAttribute(key, to); } catch {}
      }
      document.body.append(element);
      return element;
    };
    const loads = (element) => new Promise((resolve) => {
      element.onload = () => resolve(true);
      element.onerror = () => resolve(false);
      setTimeout(() => resolve(false), 3000);
    });
    window.ran = [];
    const script = document.createElement('script');
    try { script.textContent = 'window.ran.push("inline")'; document.body.append(script); } catch {}
    add('img', { src: 'x', onerror: 'window.ran.push("onerror")' });
    add('a', { href: 'javascript:window.ran.push("link")' }).click();
    const loaded = {
      image: await loads(add('img', { src: 'https://example.org/pixel.png' })),
      style: await loads(add('link', { rel: 'stylesheet', href: 'https://example.org/a.css' })),
    };
    add('iframe', { src: 'https://example.org/' });
    add('object', { data: 'https://example.org/' });
    add('base', { href: 'https://example.org/' });
    const form = add('form', { action: 'https://example.org/', method: 'post' });
    form.submit();
    const box = add('p', { style: 'position: fixed' });
    const sheet = document.createElement('style');
    sheet.textContent = '.sheet { position: fixed }';
    document.body.append(sheet);
    const other = add('p', { class: 'sheet' });
    const own = add('p', {});
    own.style.position = 'fixed';
    const position = [box, other, own].map((element) => getComputedStyle(element).position);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { ran: window.ran, loaded, position, base: document.baseURI, seen: [...seen].sort() };`);
  assert.deepEqual(value.ran, []);
  assert.deepEqual(value.loaded, { image: false, style: false });
  // Styles that the page itself sets through the object model work; those in a text do not.
  assert.deepEqual(value.position, ['static', 'static', 'fixed']);
  assert.match(value.base, /^tauri:\/\/localhost($|\/)/);
  for (const directive of ['base-uri', 'form-action', 'frame-src', 'img-src', 'style-src-attr']) {
    assert.ok(value.seen.includes(directive), `${directive} in ${value.seen}`);
  }
});

test('the page may use its own commands and nothing else', async (t) => {
  const app = await start(t, dataFolder(t));
  const invoke = (command, args = {}) =>
    app.runAsync(`return await window.__TAURI_INTERNALS__.invoke(args[0], args[1])`, command, args);
  assert.equal((await invoke('app_info')).value.face, 'desktop');
  assert.deepEqual((await invoke('job_list')).value, []);
  const settings = (await invoke('setting_list')).value;
  assert.equal(settings.find((setting) => setting.key === 'download_token').value, false);
  // A page names no paths.
  for (const key of ['model', 'models_folder']) {
    const { threw } = await app.runAsync(
      `try { await window.__TAURI_INTERNALS__.invoke('setting_set', { key: args[0], value: '/etc' }) } catch (error) { throw error.code ?? error }`,
      key,
    );
    assert.equal(threw, 'bad_request', key);
  }
  const { folder, files, catalogue } = (await invoke('model_library')).value;
  assert.ok(folder.startsWith('/') && catalogue.length > 0);
  assert.deepEqual(files, []);
  for (const [command, args] of [
    ['no_such_command', {}],
    ['plugin:window|set_title', { label: 'main', value: 'owned' }],
    ['plugin:webview|create_webview_window', { options: { label: 'x', url: 'https://example.org' } }],
    ['plugin:event|listen', { event: 'x', target: { kind: 'Any' }, handler: 1 }],
    ['plugin:app|version', {}],
    ['plugin:path|resolve_directory', { directory: 1 }],
    ['plugin:dialog|open', { options: {} }],
    ['plugin:dialog|message', { message: 'owned' }],
    ['plugin:opener|open_url', { url: 'https://example.org/' }],
    ['plugin:opener|open_path', { path: '/etc/passwd' }],
    ['plugin:opener|reveal_item_in_dir', { paths: ['/etc/passwd'] }],
    ['plugin:fs|read_text_file', { path: '/etc/passwd' }],
    ['plugin:shell|open', { path: 'https://example.org/' }],
  ]) {
    const { threw } = await invoke(command, args);
    assert.match(threw ?? 'went through', /not allowed|not found/i, command);
  }
  for (const url of [
    'javascript:alert(1)',
    'file:///etc/passwd',
    'https://user:secret@example.org/',
    'x'.repeat(3000),
  ]) {
    const { threw } = await app.runAsync(
      `try { await window.__TAURI_INTERNALS__.invoke('link_open', { url: args[0] }) } catch (error) { throw error.code ?? error }`,
      url,
    );
    assert.equal(threw, 'bad_request', url);
  }
  // A model is named by its file name; what leads out of the folder is no model.
  for (const file of ['../chats.fst', '/etc/passwd', '..', '.fst', 'no-such-model.fst']) {
    for (const command of [
      'model_use',
      'model_show',
      'model_delete',
      'model_verify',
      'model_repair',
      'download_resume',
    ]) {
      const { threw } = await app.runAsync(
        `try { await window.__TAURI_INTERNALS__.invoke(args[0], { file: args[1] }) } catch (error) { throw error.code ?? error }`,
        command,
        file,
      );
      assert.equal(threw, 'not_found', `${command} ${file}`);
    }
  }
  for (const command of ['job_pause', 'job_resume', 'job_dismiss']) {
    assert.match(
      (await invoke(command, { id: 'nonsense' })).threw ?? 'went through',
      /no longer in the list/,
    );
  }
  assert.ok((await invoke('chat_open', { id: 7 })).threw);
});

test('settings are opened with the keyboard, and a changed one is there after a restart', async (t) => {
  const folder = dataFolder(t);
  let app = await start(t, folder);
  await app.chord(keys.control, ',');
  await app.element('[data-testid=settings-panel]');
  await app.click('[data-setting=theme] label:nth-child(3)');
  await until('it is dark', () => app.run(`return document.documentElement.dataset.theme === 'dark'`));
  const dark = await app.run('return getComputedStyle(document.body).backgroundColor');
  await app.click('[data-setting=theme] label:nth-child(2)');
  await until('it is light', () => app.run(`return document.documentElement.dataset.theme === 'light'`));
  assert.notEqual(await app.run('return getComputedStyle(document.body).backgroundColor'), dark);
  await app.chord(keys.escape);
  await until('the dialog is closed', () => app.run(`return !document.querySelector('dialog')`));
  await app.close();
  assert.deepEqual(JSON.parse(readFileSync(join(folder, 'settings.json'), 'utf8')), { theme: 'light' });

  app = await start(t, folder, { GTK_THEME: 'Adwaita:dark' });
  await until('it is light again', () =>
    app.run(`return document.documentElement.dataset.theme === 'light'`),
  );
});

test('the window follows the system into light and dark', async (t) => {
  mkdirSync('test-results/window', { recursive: true });
  const backgrounds = {};
  for (const [theme, gtk] of [
    ['light', 'Adwaita'],
    ['dark', 'Adwaita:dark'],
  ]) {
    const app = await start(t, dataFolder(t), { GTK_THEME: gtk });
    await app.ask('POST', '/window/rect', { width: 1280, height: 800 });
    for (const chat of [['My name is Zoe.', 'What is my name?'], ['Who are you?'], ['Hello!', STORY]]) {
      await app.click('[data-testid=new-chat]');
      for (const message of chat) {
        await app.send(message);
        await app.settled();
      }
    }
    const dark = await app.run(`return matchMedia('(prefers-color-scheme: dark)').matches`);
    assert.equal(dark, theme === 'dark');
    backgrounds[theme] = await app.run('return getComputedStyle(document.body).backgroundColor');
    writeFileSync(`test-results/window/${theme}.png`, await app.screenshot());
    // Nothing may hang over the edge, in this engine either.
    assert.ok(await app.run('return document.documentElement.scrollWidth <= innerWidth'));
    await app.close();
  }
  assert.notEqual(backgrounds.light, backgrounds.dark);
});
