import './app.css';
import './lib/markdown/code.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { connect } from './lib/backend';
import { App as State } from './lib/state/app.svelte';
import { mark } from './lib/strings/language.svelte';

const target = document.getElementById('app');
if (target) {
  mark();
  const backend = await connect();
  const app = new State(backend);
  // Colours and text size are known before anything is painted, unless the app does not answer at once.
  await Promise.race([app.settings.read(), new Promise((resolve) => setTimeout(resolve, 300))]);
  mount(App, { target, props: { app } });
  void app.start();
  void drawn().then(() => backend.pageShown().catch(() => {}));
}

/** Resolves once something has been drawn. A window that nobody can see draws nothing, and is as good as drawn. */
function drawn(): Promise<void> {
  return new Promise((resolve) => {
    if (document.hidden) resolve();
    document.addEventListener('visibilitychange', () => resolve(), { once: true });
    // The second frame comes when the first has been handed over.
    requestAnimationFrame(() => requestAnimationFrame(() => resolve()));
  });
}
