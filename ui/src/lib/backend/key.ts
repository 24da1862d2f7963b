/**
 * The key of the local server: `fastar serve` prints an address that ends with it. It stands behind the `#`, which a browser sends to nobody; it
 * is taken out of the address at once and kept for this address alone, so that bookmarks and other tabs work without it.
 */
const NAME = 'fastar-key';
const FRAGMENT = /^#key=([0-9a-f]{64})$/;

export function keyOfPage(): () => string | null {
  // Where nothing may be kept, it lives as long as the page.
  let here: string | null = null;
  const take = (): boolean => {
    const key = FRAGMENT.exec(location.hash)?.[1];
    if (key === undefined) return false;
    here = key;
    try {
      localStorage.setItem(NAME, key);
    } catch {
      // Not allowed here.
    }
    history.replaceState(null, '', location.pathname + location.search);
    return true;
  };
  take();
  // Typed or pasted into the address of a page that is open already: it begins anew with it.
  window.addEventListener('hashchange', () => {
    if (take()) location.reload();
  });
  return () => {
    try {
      // Another tab may have been given a newer one.
      return localStorage.getItem(NAME) ?? here;
    } catch {
      return here;
    }
  };
}
