/**
 * Settings as the app has them. Every change is asked of the app and what it answers is shown; nothing is kept here that it does not know.
 */
import type { ApiError, CachePlan, Setting } from '../api/types';
import { type Backend, Unreachable } from '../backend';
import { setLanguage } from '../strings/language.svelte';
import { failure } from './failure';

export type Value = Setting['value'];
export type Section = Setting['section'];

export class Settings {
  list = $state<Setting[] | null>(null);
  /** Why the list could not be read. */
  error = $state<ApiError | null>(null);
  /** Why a change was refused, by its setting. */
  refused = $state<Record<string, ApiError>>({});
  /** The screen is open at this section, and at this setting if it is named. */
  open = $state<{ section: Section; key?: string } | null>(null);
  /** Why a reload was refused. */
  reloadError = $state<ApiError | null>(null);
  /** Counts the questions, so that a late answer does not undo a later one. */
  private asked = 0;

  constructor(
    private readonly backend: Backend,
    private readonly modelChanged: () => Promise<void>,
    /** What the settings are now. */
    private readonly taken: (settings: Settings) => void = () => {},
  ) {}

  /** Settings that wait for the model to be loaded again. */
  pending = $derived.by<Setting[]>(() => (this.list ?? []).filter((setting) => setting.pending));

  of(key: string): Setting | null {
    return this.list?.find((setting) => setting.key === key) ?? null;
  }

  async read(): Promise<void> {
    const asked = (this.asked += 1);
    try {
      const list = await this.backend.settingList();
      if (asked === this.asked) this.take(list);
      this.error = null;
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = failure(error);
    }
  }

  async set(key: string, value: Value): Promise<boolean> {
    return this.change(key, () => this.backend.settingSet(key, value));
  }

  async reset(key: string): Promise<boolean> {
    return this.change(key, () => this.backend.settingReset(key));
  }

  private async change(key: string, ask: () => Promise<Setting[]>): Promise<boolean> {
    const asked = (this.asked += 1);
    try {
      const list = await ask();
      delete this.refused[key];
      if (asked === this.asked) this.take(list);
      return true;
    } catch (error) {
      this.refused[key] = failure(error);
      return false;
    }
  }

  private take(list: Setting[]): void {
    this.list = list;
    const root = document.documentElement;
    setLanguage(this.of('language')?.value);
    root.dataset.theme = String(this.of('theme')?.value ?? 'system');
    const size = this.of('text_size')?.value;
    this.taken(this);
    root.style.fontSize = typeof size === 'number' && size !== 100 ? `${size}%` : '';
  }

  /** What a cache of this size would be; the largest that fits when null. Null where there is nothing to plan. */
  async plan(cacheBytes: number | null): Promise<CachePlan | null> {
    return this.backend.cachePlan(cacheBytes);
  }

  /** Loads the model again. False when an answer is being written and may not be stopped. */
  async reload(stop: boolean): Promise<boolean> {
    this.reloadError = null;
    try {
      await this.backend.modelReload(stop);
    } catch (error) {
      const refused = failure(error);
      if (refused.code === 'busy' && !stop) return false;
      this.reloadError = refused;
    }
    await this.modelChanged();
    // It may be loaded already, and then nothing else says that what is in use has changed.
    await this.read();
    return true;
  }
}
