/**
 * Formulas as MathML, as data: KaTeX makes the elements, this file copies what is on a list of tags and attributes into a tree that the
 * components draw. Neither markup nor styles of a model's text reach the page. Loaded only when there is a formula to show.
 */
import katex from 'katex';

export type MathNode = string | { tag: string; attributes: Record<string, string>; children: MathNode[] };

/** Longer ones are shown as they are written. */
export const MAX_FORMULA = 4000;
const MAX_NODES = 6000;
const MAX_DEPTH = 60;

const TAGS: ReadonlySet<string> = new Set(
  `math semantics mrow mi mn mo ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover
  mmultiscripts mprescripts none mtable mtr mtd mlabeledtr mpadded mphantom menclose mstyle merror`.split(
    /\s+/,
  ),
);
const ATTRIBUTES: ReadonlySet<string> = new Set(
  `display mathvariant stretchy fence separator lspace rspace minsize maxsize symmetric largeop movablelimits accent
  accentunder form linethickness rowspacing columnspacing columnalign rowalign columnlines rowlines width height depth
  voffset displaystyle scriptlevel mathcolor mathbackground mathsize notation columnspan rowspan side`.split(
    /\s+/,
  ),
);
const VALUE = /^[\w\s.%+#,-]{0,80}$/;

/** The tree of a formula; null where it cannot be read. */
export function formula(text: string, display: boolean): MathNode | null {
  if (text.length > MAX_FORMULA) return null;
  const holder = document.createElement('span');
  try {
    katex.render(text, holder, {
      output: 'mathml',
      displayMode: display,
      throwOnError: true,
      trust: false,
      strict: 'ignore',
      maxExpand: 300,
      maxSize: 20,
    });
  } catch {
    return null;
  }
  const math = holder.querySelector('math');
  if (!math) return null;
  let left = MAX_NODES;
  const copy = (element: Element, depth: number): MathNode | null => {
    const tag = element.localName;
    // The source stands in an annotation; readers are given the formula itself.
    if (tag === 'annotation') return '';
    if (!TAGS.has(tag) || depth > MAX_DEPTH || (left -= 1) < 0) return null;
    const attributes: Record<string, string> = {};
    for (const { name, value } of element.attributes) {
      if (ATTRIBUTES.has(name) && VALUE.test(value)) attributes[name] = value;
    }
    const children: MathNode[] = [];
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) children.push(child.textContent ?? '');
      else if (child instanceof Element) {
        const copied = copy(child, depth + 1);
        if (copied === null) return null;
        if (copied !== '') children.push(copied);
      }
    }
    return { tag, attributes, children };
  };
  return copy(math, 0);
}
