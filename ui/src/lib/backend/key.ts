/**
 * The key of the local server: `fastar serve` prints an address that ends with it. It stands behind the `#`, which a browser sends to nobody; it
 * is taken out of the address at once and kept for this tab alone. Not for the address: another account of the computer may listen there while
 * FaStar does not run, and its page could read what is kept for it.
 */
const NAME = 'fastar-key';
const FRAGMENT = /^#key=([0-9a-f]{64})$/;

/** Where nothing may be kept or read, there is nothing. */
function quietly<T>(what: () => T): T | null {
  try {
    return what();
  } catch {
    return null;
  }
}

export function keyOfPage(): () => string | null {
  // An earlier version kept it for the address.
  quietly(() => localStorage.removeItem(NAME));
  // Where nothing may be kept, it lives as long as the page.
  let key = quietly(() => sessionStorage.getItem(NAME));
  const take = (): boolean => {
    const given = FRAGMENT.exec(location.hash)?.[1];
    if (given === undefined) return false;
    key = given;
    // An older one must not come back with the next page of this tab.
    quietly(() => sessionStorage.removeItem(NAME));
    quietly(() => sessionStorage.setItem(NAME, given));
    history.replaceState(null, '', location.pathname + location.search);
    return true;
  };
  take();
  // Typed or pasted into the address of a page that is open already: it begins anew with it.
  window.addEventListener('hashchange', () => {
    if (take()) location.reload();
  });
  return () => key;
}
