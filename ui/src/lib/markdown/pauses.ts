/** Work in the pauses between frames: a stack, because what was asked for last is nearest to what is looked at. */

/** Does one small step; false when there is nothing left to do. */
type Step = () => boolean;

const stack: Step[] = [];
let scheduled = false;

/** At most this much of a frame. */
const SLICE_MS = 8;

function run(): void {
  scheduled = false;
  const end = performance.now() + SLICE_MS;
  while (stack.length > 0 && performance.now() < end) {
    const step = stack.at(-1);
    if (step && !step()) remove(step);
  }
  schedule();
}

function schedule(): void {
  if (scheduled || stack.length === 0) return;
  scheduled = true;
  // WebKitGTK has no requestIdleCallback; a timer lets input and painting come first.
  setTimeout(run, 4);
}

function remove(step: Step): void {
  const at = stack.indexOf(step);
  if (at >= 0) stack.splice(at, 1);
}

/** Runs `step` until it says false. Returns how to call it off. */
export function inPauses(step: Step): () => void {
  stack.push(step);
  schedule();
  return () => remove(step);
}
