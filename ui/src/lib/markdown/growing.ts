/**
 * The blocks of an answer while it is being written: what comes before the last block is parsed once and kept, only
 * the last block is parsed again. (A reference defined later is resolved when the answer is finished and parsed whole.)
 */
import { parse } from './parse';
import { openFence } from './segments';
import type { Block } from './tree';

export class GrowingMarkdown {
  private text = '';
  private kept: Block[] = [];
  /** Where the text that is still open begins. */
  private open = 0;

  /** The blocks of `text`. Cheap when it continues the text of the call before. */
  update(text: string): Block[] {
    if (!text.startsWith(this.text)) {
      this.kept = [];
      this.open = 0;
    }
    this.text = text;
    // A copy, not a view: what is shown of it would keep the whole text alive as it is now, once for every block.
    const rest = structuredClone(text.slice(this.open));
    const fence = openFence(rest);
    if (fence) return [...this.kept, { type: 'code', ...fence }];
    const { blocks, starts } = parse(rest);
    const last = blocks.length - 1;
    // The last but one may still take in what follows (a list after a blank line), so two blocks stay open.
    const settled = last - 1;
    if (settled > 0) {
      this.kept.push(...blocks.slice(0, settled));
      this.open += starts[settled] ?? 0;
      return [...this.kept, ...blocks.slice(settled)];
    }
    return [...this.kept, ...blocks];
  }
}
