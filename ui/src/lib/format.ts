/** Numbers as people read them, in the language of the window. An unknown value has no text: callers show nothing. */
import { strings } from './strings';
import { locale } from './strings/language.svelte';

/** Making one takes longer than using it a thousand times. */
const formats = new Map<string, Intl.NumberFormat>();

function numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = locale() + JSON.stringify(options);
  let format = formats.get(key);
  if (!format) formats.set(key, (format = new Intl.NumberFormat(locale(), options)));
  return format;
}

/** A number with exactly so many places. */
function fixed(value: number, places: number): string {
  return numbers({ minimumFractionDigits: places, maximumFractionDigits: places }).format(value);
}

export function count(value: number): string {
  return fixed(value, 0);
}

/** Tokens per second: two significant places below ten, whole numbers above a hundred. */
export function speed(tokensPerSecond: number): string {
  if (tokensPerSecond >= 100) return count(tokensPerSecond);
  return fixed(tokensPerSecond, tokensPerSecond >= 10 ? 1 : 2);
}

/** An estimate of tokens per second: no more precise than it is. */
export function estimate(tokensPerSecond: number): string {
  return numbers({ maximumSignificantDigits: 2 }).format(tokensPerSecond);
}

/** Milliseconds as `35 ms`, `1.2 s`, `2 min 5 s`. */
export function duration(ms: number): string {
  const { units } = strings;
  if (ms < 1) return units.instant;
  if (ms < 999.5) return units.milliseconds(fixed(ms, 0));
  if (ms < 59_950) return units.seconds(fixed(ms / 1000, 1));
  const seconds = Math.round(ms / 1000);
  return units.minutesSeconds(count(Math.floor(seconds / 60)), String(seconds % 60));
}

/** Bytes in decimal units, as disks are sold and file managers show them. */
export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let amount = value;
  while (amount >= 999.5 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${fixed(amount, unit === 0 || amount >= 99.5 ? 0 : 1)} ${units[unit]}`;
}

/** Parameters as `10.4 million`, `284 billion`. */
export function parameters(value: number): string {
  if (value < 1e6) return count(value);
  return numbers({ notation: 'compact', compactDisplay: 'long', maximumSignificantDigits: 3 }).format(value);
}

/** A part of a whole in percent, never rounded up to 100. */
export function percent(done: number, total: number): number {
  if (total <= 0) return 0;
  return Math.max(0, Math.min(done >= total ? 100 : 99, Math.floor((100 * done) / total)));
}

/** Time to wait as `2 days 3 h`, `1 h 20 min`, `5 min`, `under 1 min`: no more precise than an estimate is. */
export function remaining(seconds: number): string {
  const { units } = strings;
  if (seconds < 60) return units.underMinute;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return units.minutes(minutes);
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return units.hours(hours) + units.and(minutes % 60, units.minutes);
  const days = Math.floor(hours / 24);
  return units.days(days) + units.and(hours % 24, units.hours);
}

/**
 * The number that a person has typed; NaN when it is none, or could be two. A comma or point may stand before decimals, and in a whole number
 * between groups of three. So `1,000` is a thousand where only whole numbers can be, and elsewhere nobody knows.
 */
export function typedNumber(text: string, whole: boolean): number {
  const typed = text.trim();
  if (typed === '') return NaN;
  if (whole && /^[+-]?\d{1,3}(?:([,.'’\s])\d{3})(?:\1\d{3})*$/.test(typed))
    return Number(typed.replace(/[^\d+-]/g, ''));
  if (/^[+-]?[1-9]\d{0,2}(?:,\d{3})+$/.test(typed)) return NaN;
  return Number(typed.replace(',', '.'));
}

/** A text as one word for a shell, whatever stands in it. */
export function shellWord(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
