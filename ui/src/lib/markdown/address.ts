/** Which addresses a model may offer to open, and what else can deceive the eye. */

const SCHEMES: ReadonlySet<string> = new Set(['http:', 'https:', 'mailto:']);
const MAX_ADDRESS = 2000;
/** What a link may fill in of a mail. Some programs take files from `attach`, whoever's they are. */
const MAIL_FIELDS: ReadonlySet<string> = new Set(['subject', 'body', 'cc']);

/**
 * The address in the form that will be opened, or null when it must not be offered. `new URL` resolves the tricks
 * (mixed case, tabs and newlines inside the scheme, entities are decoded before) as the browser itself would.
 */
export function safeAddress(raw: string): string | null {
  if (raw.length > MAX_ADDRESS || hasDirectionMarks(raw)) return null;
  let url: URL;
  try {
    // No base: a relative address would point into the app itself.
    url = new URL(raw);
  } catch {
    return null;
  }
  if (!SCHEMES.has(url.protocol)) return null;
  if (url.username !== '' || url.password !== '') return null;
  if (url.protocol !== 'mailto:' && url.hostname === '') return null;
  if (
    url.protocol === 'mailto:' &&
    ![...url.searchParams.keys()].every((f) => MAIL_FIELDS.has(f.toLowerCase()))
  )
    return null;
  return url.href.length > MAX_ADDRESS ? null : url.href;
}

/** Characters that turn the direction of the text around them (or hide), so that it reads other than it is. */
// eslint-disable-next-line no-misleading-character-class
const DIRECTION = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

export function hasDirectionMarks(text: string): boolean {
  return DIRECTION.test(text);
}

/** What a person should look at before opening: the host, or the receiver of a mail. */
export function destination(href: string): { mail: boolean; where: string } {
  const url = new URL(href);
  if (url.protocol === 'mailto:') return { mail: true, where: decodeOr(url.pathname) };
  return { mail: false, where: url.host };
}

/** The text without its escapes, unless these hide or turn something. */
function decodeOr(text: string): string {
  try {
    const decoded = decodeURIComponent(text);
    // eslint-disable-next-line no-control-regex
    return hasDirectionMarks(decoded) || /[\p{C}\p{Z}]/u.test(decoded) ? text : decoded;
  } catch {
    return text;
  }
}
