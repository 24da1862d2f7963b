import { describe, expect, it } from 'vitest';
import { EventStreamParser } from './sse';

const bytes = (text: string) => new TextEncoder().encode(text);

describe('the event stream', () => {
  const stream = ':\n\ndata: {"a":"修复🙂"}\n\n: heartbeat\n\ndata: {"b":2}\r\n\r\ndata:{"c":3}\n\n';
  const payloads = ['{"a":"修复🙂"}', '{"b":2}', '{"c":3}'];

  it('reads the same events however the bytes are cut', () => {
    const all = bytes(stream);
    for (let size = 1; size <= all.length; size++) {
      const parser = new EventStreamParser();
      const got: string[] = [];
      for (let at = 0; at < all.length; at += size) got.push(...parser.push(all.slice(at, at + size)));
      expect(got).toEqual(payloads);
    }
  });

  it('holds back an event that is not whole', () => {
    const parser = new EventStreamParser();
    expect(parser.push(bytes('data: {"a":1}\n'))).toEqual([]);
    expect(parser.push(bytes('\n'))).toEqual(['{"a":1}']);
  });

  it('joins the lines of one event', () => {
    expect(new EventStreamParser().push(bytes('data: a\ndata: b\n\n'))).toEqual(['a\nb']);
  });
});
