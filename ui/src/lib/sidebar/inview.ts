/**
 * Which rows of the list of chats are made. Only those near what is seen: a row costs a hundred times more as elements than as data. Every
 * heading and every row has one height, so where each stands follows from its number. Plain arithmetic, no elements.
 */

/** Heights in rem; the style sheet takes them from here. */
export const ROW = 2.15;
export const HEADING = 2.35;

export interface Stretch {
  rows: number;
  /** Its rows are hidden; its heading is not. */
  folded: boolean;
  /** A row that is made wherever it stands, because it has the focus or would get it. */
  kept: number | null;
}

/** For each stretch the numbers of its rows to be made, in order: what is seen between `top` and `top + height`, and as much again on both sides. */
export function inView(stretches: readonly Stretch[], top: number, height: number): number[][] {
  const [from, to] = [top - height, top + 2 * height];
  let at = 0;
  return stretches.map(({ rows, folded, kept }) => {
    const start = at + HEADING;
    at = start + (folded ? 0 : rows * ROW);
    if (folded) return [];
    const first = Math.max(0, Math.floor((from - start) / ROW));
    const end = Math.min(rows, Math.ceil((to - start) / ROW));
    const made: number[] = [];
    if (kept !== null && kept < first) made.push(kept);
    for (let row = first; row < end; row += 1) made.push(row);
    if (kept !== null && kept >= Math.max(first, end) && kept < rows) made.push(kept);
    return made;
  });
}
