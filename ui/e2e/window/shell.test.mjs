/** What the shell does around the page: further starts, where the window is, a page that does not come up, the end of a crash. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { binary, cli, dataFolder, isGone, start, until } from './driver.mjs';

/** Starts the program without a driver, as a person does. */
function run(t, folder, options = [], environment = {}) {
  const child = spawn(binary(), options, {
    env: { ...process.env, LANGUAGE: 'en', LC_ALL: 'C.UTF-8', FASTAR_DATA_DIR: folder, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.said = '';
  child.stderr.on('data', (chunk) => (child.said += chunk));
  child.ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal)));
  t.after(async () => {
    child.kill('SIGKILL');
    await child.ended;
  });
  return child;
}

/** The windows of a title, as the X server knows them. */
function windows(title) {
  try {
    return execFileSync('xdotool', ['search', '--onlyvisible', '--name', title], { encoding: 'utf8' })
      .trim()
      .split('\n');
  } catch {
    return [];
  }
}

const xdotool = (...words) => execFileSync('xdotool', words.map(String), { encoding: 'utf8' });

/** Whether what is on top in the middle of the screen is dark. */
function isDark() {
  const pixel = execFileSync('import', ['-window', 'root', '-crop', '1x1+500+300', 'txt:-'], {
    encoding: 'utf8',
  });
  // As "0,0: (62708,62708,61937)", of 65535 each.
  return Number(/\((\d+)/.exec(pixel.split('\n')[1])[1]) < 32_768;
}

/** The process of WebKit's own in which the page of a program runs. */
function pageProcess(pid) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((id) => {
      try {
        const [, name, rest] = /^\d+ \((.*)\) (.*)$/s.exec(readFileSync(`/proc/${id}/stat`, 'utf8'));
        const [state, parent] = rest.split(' ');
        return name.startsWith('WebKitWebProc') && Number(parent) === pid && state !== 'Z';
      } catch {
        return false;
      }
    });
}

const environ = (pid) => readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');

function screenshot(name) {
  mkdirSync('test-results/window', { recursive: true });
  execFileSync('import', ['-window', 'root', `test-results/window/${name}.png`]);
}

test('a second start shows the window of the first and ends, also without a session bus', async (t) => {
  const folder = dataFolder(t);
  const without = { DBUS_SESSION_BUS_ADDRESS: '', XDG_RUNTIME_DIR: '', GTK_THEME: 'Adwaita' };
  const first = await start(t, folder, without);
  const [pid] = first.pids();
  await until('its window is there', () => !isDark());
  // Another one, of other data, over it.
  await start(t, dataFolder(t), { ...without, GTK_THEME: 'Adwaita:dark' });
  await until('it is covered', isDark);

  const second = run(t, folder, [], without);
  assert.equal(await second.ended, 0, second.said);
  await until('it is on top again', () => !isDark());
  assert.deepEqual(first.pids(), [pid]);

  // One that wants a model says why it does not count.
  const third = run(t, folder, ['--model', '/no/such.fst'], without);
  assert.equal(await third.ended, 0);
  assert.match(third.said, /running already.*--model only counts when it starts/);
});

test('a file that is opened is asked about and not loaded', async (t) => {
  const folder = dataFolder(t);
  const file = join(folder, 'no model.fst');
  writeFileSync(file, 'This is not a model.');
  const app = await start(t, folder);
  const opened = run(t, folder, [file]);
  assert.equal(await opened.ended, 0, opened.said);
  await until('it is said that the file is no model', () => windows('This file cannot be used').length === 1);
  screenshot('opened-no-model');
  await until('the demo answers', async () => /Demo model/.test(await app.texts('[data-testid=status]')));
});

test('a model that is opened is asked about, and only a yes loads it and remembers it', async (t) => {
  const folder = dataFolder(t);
  const file = join(folder, 'small.fst');
  execFileSync(cli(), ['convert', '../src-tauri/crates/app/demo', file], { stdio: 'pipe' });
  const remembered = () => {
    try {
      return JSON.parse(readFileSync(join(folder, 'settings.json'), 'utf8')).model;
    } catch {
      return undefined;
    }
  };
  const asked = (times) => until('it is asked', () => windows('Use this model').length === times);
  // The start with the file is the first one here: the question comes over a window that is just being made.
  run(t, folder, [file]);
  const [question] = await until('it is asked', () => {
    const ids = windows('Use this model');
    return ids.length === 1 && ids;
  });
  screenshot('opened-model');
  xdotool('windowfocus', '--sync', question, 'key', 'Escape');
  await asked(0);
  assert.equal(remembered(), undefined);

  const second = run(t, folder, [file]);
  assert.equal(await second.ended, 0, second.said);
  await asked(1);
  assert.equal(remembered(), undefined);
  xdotool('windowfocus', '--sync', windows('Use this model')[0], 'key', 'Return');
  await asked(0);
  await until('it is remembered', () => remembered() === file);
});

test('the questions of the system’s dialogs are in the language of the window', async (t) => {
  const folder = dataFolder(t);
  writeFileSync(join(folder, 'settings.json'), JSON.stringify({ language: 'zh' }));
  const file = join(folder, 'small.fst');
  execFileSync(cli(), ['convert', '../src-tauri/crates/app/demo', file], { stdio: 'pipe' });
  const app = await start(t, folder);
  const opened = run(t, folder, [file]);
  assert.equal(await opened.ended, 0, opened.said);
  const [question] = await until('it is asked in Chinese', () => {
    const ids = windows('使用此模型');
    return ids.length === 1 && ids;
  });
  screenshot('opened-model-zh');
  xdotool('windowfocus', '--sync', question, 'key', 'Escape');
  await until('it is gone', () => windows('使用此模型').length === 0);
  await app.close();
});

test('the window opens where it was, and never off the screen', async (t) => {
  const folder = dataFolder(t);
  const rect = async (app) => {
    const { x, y, width, height } = await app.ask('GET', '/window/rect');
    return { x, y, width, height };
  };
  let app = await start(t, folder);
  const wanted = { x: 60, y: 40, width: 900, height: 620 };
  await app.ask('POST', '/window/rect', wanted);
  await until('it is there', async () => {
    const now = await rect(app);
    return now.x === 60 && now.width === 900 && now.height === 620;
  });
  await app.terminate();
  app = await start(t, folder);
  assert.deepEqual(await rect(app), wanted);
  await app.terminate();

  // As if on a screen that is no longer there, and larger than the one that is.
  const kept = join(folder, 'window.json');
  const far = { place: [5000, 3000], width: 3000, height: 2000, maximized: false };
  for (const text of [JSON.stringify(far), 'nonsense']) {
    writeFileSync(kept, text);
    app = await start(t, folder);
    const { x, y, width, height } = await rect(app);
    assert.ok(x >= 0 && y >= 0 && x + width <= 1280 && y + height <= 800, `${x} ${y} ${width} ${height}`);
    await app.terminate();
  }
});

test('a page that does not come up is drawn without the graphics card, and then it is said', async (t) => {
  const folder = dataFolder(t);
  const own = { WEBKIT_DISABLE_DMABUF_RENDERER: '0' };
  const app = run(t, folder, [], own);
  const commandLine = () => readFileSync(`/proc/${app.pid}/cmdline`, 'utf8').split('\0');
  // A driver that ends the page's process: killed whenever it is there.
  let seen = null;
  await until('it has started again in the safe mode', async () => {
    if (commandLine().includes('--safe-graphics=instead')) return true;
    const page = pageProcess(app.pid);
    // Not before WebKit knows of it: that would end the whole program.
    if (page && page === seen) process.kill(page, 'SIGKILL');
    seen = page;
    await sleep(300);
    return false;
  });
  assert.match(app.said, /starts again and draws it without the graphics card/);
  // And one in which the page hangs for ever.
  const page = await until('the page is begun again', () => pageProcess(app.pid));
  process.kill(page, 'SIGSTOP');
  // The person's own value stays.
  assert.ok(environ(page).includes('WEBKIT_DISABLE_DMABUF_RENDERER=0'));
  assert.ok(environ(page).includes('WEBKIT_SKIA_ENABLE_CPU_RENDERING=1'));
  await until('it is said', () => windows('FaStar cannot show its window').length === 1);
  screenshot('window-stays-empty');
  // The page was only slow: everything goes on.
  process.kill(page, 'SIGCONT');
  await until('the page is up', () => !readFileSync(join(folder, 'doing.json'), 'utf8').includes('opening'));
  assert.equal(app.exitCode, null);
});

test('after a crash the next start says what happened and does not do it again by itself', async (t) => {
  const folder = dataFolder(t);
  const model = join(folder, 'big.fst');
  writeFileSync(model, 'whatever ends the program when it is loaded');
  writeFileSync(join(folder, 'settings.json'), JSON.stringify({ model }));
  const crashed = { running: [{ doing: 'opening' }, { doing: 'loading', name: 'big', path: model }] };
  writeFileSync(join(folder, 'doing.json'), JSON.stringify(crashed));
  const app = await start(t, folder);
  await until('it is said', async () => (await app.texts('.notice')).length > 0);
  const [said] = await app.texts('.notice');
  assert.match(said, /it is drawn without the graphics card this time/);
  assert.match(said, /ended unexpectedly while loading big\. It is not loaded by itself/);
  await until('the demo answers', async () => /Demo model/.test(await app.texts('[data-testid=status]')));
  const [pid] = app.pids();
  const page = pageProcess(pid);
  assert.ok(environ(page).includes('WEBKIT_DISABLE_DMABUF_RENDERER=1'));
  await until('the page is up', () => !readFileSync(join(folder, 'doing.json'), 'utf8').includes('opening'));
  screenshot('after-a-crash');
  await app.close();
  assert.ok(isGone(pid));
  // Still so after a clean end, and the window is as usual again.
  const next = await start(t, folder);
  await until('the demo answers', async () => /Demo model/.test(await next.texts('[data-testid=status]')));
  assert.ok(!environ(pageProcess(next.pids()[0])).includes('WEBKIT_DISABLE_DMABUF_RENDERER=1'));
});

/** Every process that was begun with this data folder: the program's and WebKit's. */
function processesOf(folder) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return environ(pid).includes(`FASTAR_DATA_DIR=${folder}`) && !isGone(pid);
      } catch {
        return false;
      }
    });
}

test('however it ends, nothing of it is left and the next start works', async (t) => {
  const folder = dataFolder(t);
  const note = join(folder, 'doing.json');
  const isUp = () => {
    try {
      return !readFileSync(note, 'utf8').includes('opening');
    } catch {
      return false;
    }
  };
  for (const [how, when] of [
    ['SIGTERM', 'up'],
    ['SIGINT', 'up'],
    ['SIGKILL', 'up'],
    ['SIGKILL', 'begun'],
    ['SIGTERM', 'begun'],
  ]) {
    const app = run(t, folder);
    await until('the page is begun', () => pageProcess(app.pid));
    if (when === 'up') await until('the page is up', isUp);
    app.kill(how);
    const ended = await app.ended;
    assert.equal(ended, how === 'SIGKILL' ? how : 0, `${how} ${when}: ${app.said}`);
    await until(`nothing is left after ${how} ${when}`, () => processesOf(folder).length === 0);
    // A clean end leaves no note behind.
    if (how.startsWith('SIGT') || how === 'SIGINT')
      assert.ok(!readdirSync(folder).includes('doing.json'), how);
  }
});

test('a program and a page that were stopped go on, in the middle of an answer', async (t) => {
  const app = await start(t, dataFolder(t));
  const [pid] = app.pids();
  const all = () => [pid, pageProcess(pid)];
  await app.type('[data-testid=composer]', 'Tell me a story about a fox.');
  await app.click('[data-testid=send]');
  // The lid is closed; longer than anything of ours waits for.
  for (const id of all()) process.kill(id, 'SIGSTOP');
  await sleep(6000);
  for (const id of all()) process.kill(id, 'SIGCONT');
  await app.settled();
  assert.equal((await app.answers()).length, 1);
  assert.doesNotMatch((await app.texts('article.answer'))[0], /Stopped|closed while/);
  await app.send('Hello!');
  await app.settled();
  assert.equal((await app.answers()).length, 2);
});
