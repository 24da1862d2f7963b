import './app.css';
import './lib/markdown/code.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { connect } from './lib/backend';
import { App as State } from './lib/state/app.svelte';

const target = document.getElementById('app');
if (target) {
  const app = new State(await connect());
  mount(App, { target, props: { app } });
  void app.start();
}
