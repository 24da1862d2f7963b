/** However many formulas a text has, none is drawn before its turn, and one step draws one. Counted, not timed. */
import { render } from '@testing-library/svelte';
import { tick } from 'svelte';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import MarkdownInTest from './MarkdownInTest.svelte';
import { MAX_FORMULAS, parse } from './parse';

const { drawn, steps } = vi.hoisted(() => ({ drawn: [] as string[], steps: [] as (() => boolean)[] }));
vi.mock('katex', () => ({
  default: {
    render: (text: string, into: Element) => {
      drawn.push(text);
      into.append(document.createElement('math'));
    },
  },
}));
vi.mock('./pauses', () => ({
  inPauses: (step: () => boolean) => {
    steps.push(step);
    return () => {
      if (steps.includes(step)) steps.splice(steps.indexOf(step), 1);
    };
  },
}));

/** Kinds of what stands in a text, formulas in particular. */
const formulas = (text: string) => JSON.stringify(parse(text).blocks).split('"type":"math"').length - 1;

describe('formulas', () => {
  beforeEach(() => {
    drawn.length = 0;
    steps.length = 0;
  });

  it('are drawn one in a step', async () => {
    const text = Array.from({ length: 40 }, (_, n) => `$x_{${n}}$ and`).join(' ');
    const { container } = render(MarkdownInTest, { text: `${text}\n\n$$y$$`, openLink: () => {} });
    await vi.waitFor(() => expect(steps.length).toBeGreaterThanOrEqual(41));
    expect(drawn).toEqual([]);
    let most = 0;
    for (let step = steps[0]; step; step = steps[0]) {
      const before = drawn.length;
      if (!step()) steps.splice(steps.indexOf(step), 1);
      most = Math.max(most, drawn.length - before);
      await tick();
    }
    expect(most).toBe(1);
    expect(drawn).toHaveLength(41);
    expect(container.querySelectorAll('math')).toHaveLength(41);
  });

  it('that are gone before their turn are not drawn', async () => {
    const { unmount } = render(MarkdownInTest, { text: '$a$', openLink: () => {} });
    await vi.waitFor(() => expect(steps).toHaveLength(1));
    unmount();
    expect(steps).toHaveLength(0);
  });

  it('are no more than a piece may have: the rest stands as it was written', () => {
    // In one paragraph dollars are among what makes it plain text.
    expect(formulas('$x$ '.repeat(4000))).toBe(0);
    const many = '$x$ and\n\n'.repeat(MAX_FORMULAS + 100);
    const text = JSON.stringify(parse(many).blocks);
    expect(text.split('"type":"math"').length - 1).toBe(MAX_FORMULAS);
    expect(text.split('"text":"$x$ and"').length + text.split('"text":"$x$"').length - 2).toBe(100);
    expect(formulas('$x$ and\n\n'.repeat(200))).toBe(200);
  });
});
