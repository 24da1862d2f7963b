/// The build of the web page that the desktop window and `fastar serve` show.
import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';
import { listOfSources } from './sources.ts';

/** What the desktop window and the server send; the pages of the state tests run under it too. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-src 'none'",
  "object-src 'none'",
  'trusted-types svelte-trusted-html',
  "require-trusted-types-for 'script'",
].join('; ');

/** Serves and emits the app's icon from its one source outside this folder. */
function icon(): Plugin {
  const source = () => readFileSync(new URL('../icons/icon.svg', import.meta.url));
  return {
    name: 'fastar-icon',
    configureServer(server) {
      server.middlewares.use('/icon.svg', (_request, response) => {
        response.setHeader('content-type', 'image/svg+xml');
        response.end(source());
      });
    },
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'icon.svg', source: source() });
    },
  };
}

export default defineConfig(({ mode }) => ({
  plugins: [svelte(), icon(), listOfSources()],
  define: {
    // The fake back end is for development and tests; a production bundle does not contain it.
    __FAKE__: JSON.stringify(mode !== 'production'),
  },
  build: {
    target: ['safari16', 'chrome105'],
    outDir: mode === 'production' ? 'dist' : 'test-results/states',
    emptyOutDir: true,
    // Inlined assets would be data: addresses, which the page's content security policy refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  preview: { headers: { 'content-security-policy': contentSecurityPolicy } },
  server: { host: '127.0.0.1', port: 5173, strictPort: true },
}));
