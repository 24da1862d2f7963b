/** Picks who answers: the desktop shell, `fastar serve`, or (never in a production bundle) a scripted fake. */
import type { Backend } from './backend';

export { BackendError, toBackendError, Unreachable } from './backend';
export type { Backend, OnEvent } from './backend';

export async function connect(): Promise<Backend> {
  if (__FAKE__) {
    const query = new URLSearchParams(location.search);
    const scenario = query.get('fake');
    const holds = query.get('hold')?.split(',').map(Number);
    if (scenario !== null) return (await import('./fake')).fake(scenario, holds);
  }
  if ('__TAURI_INTERNALS__' in window) return (await import('./tauri')).tauri;
  return (await import('./http')).browserHttp();
}
