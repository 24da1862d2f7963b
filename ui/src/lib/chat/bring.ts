/**
 * Brings a place of the conversation into view and holds it there until it stays.
 *
 * What is far from the view is not laid out (`content-visibility`): its height is an estimate. Going there makes the browser
 * measure what lies around, which pushes the place away again, and WebKitGTK has no scroll anchoring.
 */
export interface Place {
  /** The message, which has a place even while its text is not laid out. */
  message: Element;
  /** What to see of it, null until it is drawn; without it, the message. */
  range?: Range | null;
}

/** Frames for which the place must stay. */
const STEADY = 4;
/** Long answers are drawn in steps; what is not there after as many frames does not come. */
const PATIENCE = 90;
/** Pixels at the edges of the view that do not count as seen. */
const EDGE = 40;

/**
 * `arrived` is called once, when the place stays or the person scrolls: nobody is pulled back.
 * @returns what ends it before
 */
export function bring(scroller: Element, place: () => Place | null, arrived: () => void): () => void {
  let steady = 0;
  let frames = 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    scroller.removeEventListener('wheel', end);
    scroller.removeEventListener('pointerdown', end);
  };
  const end = () => {
    stop();
    arrived();
  };
  scroller.addEventListener('wheel', end, { passive: true });
  scroller.addEventListener('pointerdown', end);
  let frame = requestAnimationFrame(function look() {
    const wanted = place();
    if (wanted && step(scroller, wanted) && wanted.range !== null) steady += 1;
    else steady = 0;
    if (steady >= STEADY || ++frames >= PATIENCE) end();
    else frame = requestAnimationFrame(look);
  });
  return stop;
}

/** One step towards the place; true where it is in view. */
function step(scroller: Element, { message, range }: Place): boolean {
  const outer = scroller.getBoundingClientRect();
  const own = message.getBoundingClientRect();
  const away = own.bottom < outer.top || own.top > outer.bottom;
  const box = range && !away ? range.getBoundingClientRect() : own;
  const seen =
    !away &&
    box.height > 0 &&
    box.top >= outer.top + EDGE &&
    Math.min(box.bottom, box.top + outer.height / 2) <= outer.bottom - EDGE;
  if (!seen) {
    const before = scroller.scrollTop;
    scroller.scrollTop += box.top - outer.top - outer.height / 3;
    // At either end there is nowhere further to go.
    return !away && scroller.scrollTop === before;
  }
  return true;
}
