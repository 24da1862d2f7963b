import { defineConfig } from '@playwright/test';

/** Debian's browser unless CHROMIUM names another. */
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const statesPort = Number(process.env.STATES_PORT ?? 4174);

export default defineConfig({
  outputDir: 'test-results/playwright',
  fullyParallel: true,
  workers: 2,
  timeout: 60_000,
  expect: { timeout: 15_000 },
  forbidOnly: true,
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    viewport: { width: 1280, height: 800 },
    launchOptions: {
      executablePath,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
    trace: 'off',
  },
  projects: [
    { name: 'app', testDir: 'e2e/app' },
    { name: 'states', testDir: 'e2e/states', use: { baseURL: `http://127.0.0.1:${statesPort}` } },
    { name: 'measure', testDir: 'e2e/measure', use: { baseURL: `http://127.0.0.1:${statesPort}` } },
    { name: 'screenshots', testDir: 'e2e/screenshots', use: { baseURL: `http://127.0.0.1:${statesPort}` } },
  ],
  webServer: {
    command: `npx vite build --mode states --logLevel warn && npx vite preview --mode states --host 127.0.0.1 --port ${statesPort} --strictPort`,
    url: `http://127.0.0.1:${statesPort}/`,
    reuseExistingServer: false,
    timeout: 120_000,
  },
});
