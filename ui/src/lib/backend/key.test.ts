import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { keyOfPage } from './key';

const key = '0123456789abcdef'.repeat(4);

describe('the key of the page', () => {
  beforeEach(() => {
    localStorage.clear();
    sessionStorage.clear();
    history.replaceState(null, '', '/?x=1');
  });
  afterEach(() => vi.unstubAllGlobals());

  it('comes with the address, leaves it at once, and is there without it as long as the tab', () => {
    expect(keyOfPage()()).toBeNull();
    history.replaceState(null, '', `/?x=1#key=${key}`);
    expect(keyOfPage()()).toBe(key);
    expect(location.href).not.toContain(key);
    expect(location.search + location.hash).toBe('?x=1');
    expect(keyOfPage()()).toBe(key);
    // A newer one counts from then on.
    history.replaceState(null, '', `/#key=${'f'.repeat(64)}`);
    expect(keyOfPage()()).toBe('f'.repeat(64));
    expect(keyOfPage()()).toBe('f'.repeat(64));
  });

  it('is nothing else that stands in an address', () => {
    for (const hash of ['#key=', '#key=abc', `#key=${key}0`, `#x&key=${key}`, '#0190a1b2-chat']) {
      history.replaceState(null, '', `/${hash}`);
      expect(keyOfPage()()).toBeNull();
      expect(location.hash).toBe(hash);
    }
  });

  it('is never kept for the address, where whoever listens there later could read it', () => {
    // As an earlier version did.
    localStorage.setItem('fastar-key', key);
    expect(keyOfPage()()).toBeNull();
    history.replaceState(null, '', `/#key=${key}`);
    keyOfPage();
    expect(Object.values({ ...localStorage })).toEqual([]);
    // A new tab.
    sessionStorage.clear();
    expect(keyOfPage()()).toBeNull();
  });

  it('works for the page where nothing may be kept', () => {
    const refuse = () => {
      throw new DOMException('no', 'SecurityError');
    };
    const nothing = { getItem: refuse, setItem: refuse, removeItem: refuse };
    vi.stubGlobal('localStorage', nothing);
    vi.stubGlobal('sessionStorage', nothing);
    history.replaceState(null, '', `/#key=${key}`);
    expect(keyOfPage()()).toBe(key);
  });

  it('is the new one where there is no room to keep it and an older one is kept', () => {
    const kept = new Map([['fastar-key', 'e'.repeat(64)]]);
    vi.stubGlobal('sessionStorage', {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: () => {
        throw new DOMException('full', 'QuotaExceededError');
      },
      removeItem: (name: string) => kept.delete(name),
    });
    history.replaceState(null, '', `/#key=${key}`);
    expect(keyOfPage()()).toBe(key);
    // And the old one does not come back.
    expect(keyOfPage()()).toBeNull();
  });
});
