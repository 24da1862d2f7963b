/** Files in a browser: picked, read and given out without a dialog of ours. */
import type { Attachment, Exported } from '../api/types';
import { strings } from '../strings';
import { BackendError } from './backend';

/** As the app itself allows (it looks again). */
export const MAX_FILE_BYTES = 2_000_000;

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
  const refuse = (message: string) =>
    new BackendError({ code: 'bad_request', message, hint: null, details: null });
  const read = async (file: File): Promise<Attachment> => {
    if (file.size > MAX_FILE_BYTES)
      throw refuse(strings.attach.tooLarge(file.name, file.size, MAX_FILE_BYTES));
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
