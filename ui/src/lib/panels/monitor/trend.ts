/** The line of a number over the last minutes, as paths. Plain arithmetic, no elements. */

/** Places on a scale from one end of the minute to the other. */
export interface Scale {
  /** Looks that have room. */
  width: number;
  height: number;
  /** The value at the upper end. */
  top: number;
}

/** The least of 1, 2 and 5 times a power of ten that holds all values: a scale people can read, which seldom changes. */
export function roundTop(values: readonly (number | null)[]): number {
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most * (1 - 1e-9)) ?? most;
}

/** The line and the ground under it; the newest value is at the right edge. Both are broken where nothing is known. */
export function trend(values: readonly (number | null)[], scale: Scale): { line: string; ground: string } {
  const { width, height, top } = scale;
  let line = '';
  let ground = '';
  let run: string[] = [];
  let begin = 0;
  const end = (after: number) => {
    if (run.length === 0) return;
    // A value alone is a dot.
    line += `M${run.join('L')}${run.length === 1 ? 'h0' : ''}`;
    ground += `M${begin} ${height}L${run.join('L')}L${after - 1} ${height}Z`;
    run = [];
  };
  const first = width - values.length;
  values.forEach((value, i) => {
    if (value === null) return end(first + i);
    if (run.length === 0) begin = first + i;
    const y = height - (Math.min(Math.max(0, value), top) / top) * height;
    run.push(`${first + i} ${Number(y.toFixed(2))}`);
  });
  end(width);
  return { line, ground };
}
