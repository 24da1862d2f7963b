/** How a rendered answer asks the window to open a link. */
import { createContext } from 'svelte';

export type OpenLink = (href: string, bidi: boolean) => void;

export const [openLinkFrom, provideOpenLink] = createContext<OpenLink>();
