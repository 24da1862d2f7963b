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
  const app = new State(await connect());
  // Colours and text size are known before anything is painted, unless the app does not answer at once.
  await Promise.race([app.settings.read(), new Promise((resolve) => setTimeout(resolve, 300))]);
  mount(App, { target, props: { app } });
  void app.start();
}
