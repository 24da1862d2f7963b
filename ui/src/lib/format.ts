/** Numbers as people read them. An unknown value has no text: callers show nothing. */

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value);
}

/** Tokens per second: two significant places below ten, whole numbers above a hundred. */
export function speed(tokensPerSecond: number): string {
  if (tokensPerSecond >= 100) return whole.format(tokensPerSecond);
  if (tokensPerSecond >= 10) return tokensPerSecond.toFixed(1);
  return tokensPerSecond.toFixed(2);
}

/** Milliseconds as `35 ms`, `1.2 s`, `2 min 5 s`. */
export function duration(ms: number): string {
  if (ms < 1) return '<1 ms';
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
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
  return `${unit === 0 || amount >= 99.5 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

/** Parameters as `10.4 million`, `284 billion`. */
export function parameters(value: number): string {
  const steps: [number, string][] = [
    [1e12, 'trillion'],
    [1e9, 'billion'],
    [1e6, 'million'],
  ];
  for (const [step, name] of steps) {
    if (value >= step) {
      const amount = value / step;
      return `${amount >= 99.5 ? Math.round(amount) : amount.toFixed(1)} ${name}`;
    }
  }
  return count(value);
}

/** A part of a whole in percent, never rounded up to 100. */
export function percent(done: number, total: number): number {
  if (total <= 0) return 0;
  return Math.max(0, Math.min(done >= total ? 100 : 99, Math.floor((100 * done) / total)));
}

/** Time to wait as `2 days 3 h`, `1 h 20 min`, `5 min`, `under 1 min`: no more precise than an estimate is. */
export function remaining(seconds: number): string {
  if (seconds < 60) return 'under 1 min';
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  const rest = hours % 24;
  return `${days === 1 ? '1 day' : `${days} days`}${rest === 0 ? '' : ` ${rest} h`}`;
}
