/** Files in a browser: picked, read and given out without a dialog of ours. */
import type { Attachment, Exported } from '../api/types';
import { strings } from '../strings';
import { BackendError } from './backend';

/** As the app itself allows (it looks again): a message with its files, how many these are, and a file of chats. */
export const MAX_MESSAGE_BYTES = 2_000_000;
export const MOST_FILES = 20;
/** Of a file's name, in bytes. */
const LONGEST_NAME = 255;
export const MAX_IMPORT_BYTES = 256_000_000;

/** What of these files the app would keep with a draft of this text: as many as one message may have. The text is kept before them. */
export function kept(text: string, files: Attachment[]): Attachment[] {
  let room = MAX_MESSAGE_BYTES - size(text);
  return files
    .filter(({ name }) => name !== '' && size(name) <= LONGEST_NAME && !/\p{Cc}/u.test(name))
    .filter((file) => {
      const bytes = size(file.text);
      if (bytes > room) return false;
      room -= bytes;
      return true;
    })
    .slice(0, MOST_FILES);
}

const size = (text: string) => new Blob([text]).size;

const refuse = (message: string) =>
  new BackendError({ code: 'bad_request', message, hint: null, details: null });

/** Refuses what is too large before a byte of it is read. */
export function checkSize(file: File, most: number): void {
  if (file.size > most) throw refuse(strings.attach.tooLarge(file.name, file.size, most));
}

export function saveFile(file: Exported): void {
  const address = URL.createObjectURL(new Blob([file.text], { type: 'text/plain;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = file.file_name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export function pickFiles(accept: string, several: boolean): Promise<File[]> {
  return new Promise((resolve) => {
    const input = document.createElement('input');
    input.type = 'file';
    input.accept = accept;
    input.multiple = several;
    input.addEventListener('change', () => resolve([...(input.files ?? [])]));
    input.addEventListener('cancel', () => resolve([]));
    input.click();
  });
}

export async function readTexts(files: File[]): Promise<Attachment[]> {
  if (files.length > MOST_FILES) throw refuse(strings.attach.tooMany(files.length, MOST_FILES));
  for (const file of files) checkSize(file, MAX_MESSAGE_BYTES);
  const read = async (file: File): Promise<Attachment> => {
    let text: string;
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      throw refuse(strings.attach.noText(file.name));
    }
    if (text.includes('\0')) throw refuse(strings.attach.noText(file.name));
    if (text.trim() === '') throw refuse(strings.attach.empty(file.name));
    return { name: file.name, text };
  };
  return Promise.all(files.map(read));
}
