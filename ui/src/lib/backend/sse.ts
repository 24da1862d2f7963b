/**
 * Reads the `data:` lines of a text/event-stream. Only what our own server sends is understood: one JSON object per
 * event, comment lines as heartbeats. Chunks may end anywhere, inside a character as well.
 */

export class EventStreamParser {
  private readonly decoder = new TextDecoder();
  private rest = '';
  private data: string[] = [];

  /** Takes the next bytes and returns the payloads that became whole. */
  push(bytes: Uint8Array): string[] {
    this.rest += this.decoder.decode(bytes, { stream: true });
    const whole: string[] = [];
    let start = 0;
    for (;;) {
      const end = this.rest.indexOf('\n', start);
      if (end < 0) break;
      let line = this.rest.slice(start, end);
      start = end + 1;
      if (line.endsWith('\r')) line = line.slice(0, -1);
      if (line === '') {
        if (this.data.length > 0) whole.push(this.data.join('\n'));
        this.data = [];
      } else if (line.startsWith('data:')) {
        this.data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
      }
    }
    this.rest = this.rest.slice(start);
    return whole;
  }
}
