import { describe, expect, it } from 'vitest';
import { MAX_MESSAGE_BYTES, readTexts } from './files';

/** A file that says it is so large, and must not be read. */
const large = (size: number): File =>
  ({
    name: 'large.txt',
    size,
    arrayBuffer: () => {
      throw new Error('it was read');
    },
  }) as unknown as File;

describe('files that a person picks', () => {
  it('are refused before one is read when they are too many or one is too large', async () => {
    await expect(readTexts(Array.from({ length: 21 }, () => large(1)))).rejects.toThrow('21 files');
    const some = new File(['text'], 'some.txt');
    await expect(readTexts([some, large(MAX_MESSAGE_BYTES + 1)])).rejects.toThrow('large.txt has 2,000,001');
  });

  it('are text, or refused by name', async () => {
    expect(await readTexts([new File(['ü'], 'a.txt')])).toEqual([{ name: 'a.txt', text: 'ü' }]);
    await expect(readTexts([new File([new Uint8Array([0xff])], 'b.png')])).rejects.toThrow('b.png is not');
    await expect(readTexts([new File(['a\0'], 'c')])).rejects.toThrow('c is not');
    await expect(readTexts([new File([' \n'], 'd')])).rejects.toThrow('d is empty');
  });
});
