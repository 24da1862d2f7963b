import { describe, expect, it } from 'vitest';
import type { Setting } from '../api/types';
import type { Backend } from '../backend';
import { Settings } from './settings.svelte';

const waiting = (pending: boolean) => ({ key: 'threads', value: 2, pending }) as unknown as Setting;

describe('a reload of the model', () => {
  it('shows what is in use then, also when it is over before it is looked at', async () => {
    let pending = true;
    const backend = {
      settingList: async () => [waiting(pending)],
      modelReload: async () => {
        pending = false;
      },
    };
    const settings = new Settings(backend as unknown as Backend, async () => {});
    await settings.read();
    expect(settings.pending.length).toBe(1);
    expect(await settings.reload(false)).toBe(true);
    expect(settings.pending.length).toBe(0);
  });
});
