import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { keyOfPage } from './key';

const key = '0123456789abcdef'.repeat(4);

describe('the key of the page', () => {
  beforeEach(() => {
    localStorage.clear();
    history.replaceState(null, '', '/?x=1');
  });
  afterEach(() => vi.unstubAllGlobals());

  it('comes with the address, leaves it at once, and is there without it the next time', () => {
    expect(keyOfPage()()).toBeNull();
    history.replaceState(null, '', `/?x=1#key=${key}`);
    expect(keyOfPage()()).toBe(key);
    expect(location.href).not.toContain(key);
    expect(location.search + location.hash).toBe('?x=1');
    expect(keyOfPage()()).toBe(key);
    // A newer one counts, in every tab.
    const tab = keyOfPage();
    history.replaceState(null, '', `/#key=${'f'.repeat(64)}`);
    keyOfPage();
    expect(tab()).toBe('f'.repeat(64));
  });

  it('is nothing else that stands in an address', () => {
    for (const hash of ['#key=', '#key=abc', `#key=${key}0`, `#x&key=${key}`, '#0190a1b2-chat']) {
      history.replaceState(null, '', `/${hash}`);
      expect(keyOfPage()()).toBeNull();
      expect(location.hash).toBe(hash);
    }
  });

  it('works for the page where nothing may be kept', () => {
    vi.stubGlobal('localStorage', {
      getItem: () => {
        throw new DOMException('no', 'SecurityError');
      },
      setItem: () => {
        throw new DOMException('no', 'SecurityError');
      },
    });
    history.replaceState(null, '', `/#key=${key}`);
    expect(keyOfPage()()).toBe(key);
  });
});
