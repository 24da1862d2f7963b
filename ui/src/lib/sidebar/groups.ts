/** The list of chats in groups: pinned ones, folders by name, and the rest by days. */
import type { ChatSummary } from '../api/types';
import { byDay } from '../days';
import { strings } from '../strings';

export interface Group {
  /** Stays the same while the list changes. */
  key: string;
  label: string;
  folder: boolean;
  chats: ChatSummary[];
}

export function groups(chats: readonly ChatSummary[], now: number): Group[] {
  const pinned: ChatSummary[] = [];
  const rest: ChatSummary[] = [];
  const folders = new Map<string, ChatSummary[]>();
  for (const chat of chats) {
    if (chat.pinned) pinned.push(chat);
    else if (chat.folder === null) rest.push(chat);
    else {
      const inside = folders.get(chat.folder);
      if (inside) inside.push(chat);
      else folders.set(chat.folder, [chat]);
    }
  }
  const all: Group[] = [];
  if (pinned.length > 0)
    all.push({ key: 'pinned', label: strings.folders.pinned, folder: false, chats: pinned });
  for (const name of folderNames(chats)) {
    const inside = folders.get(name);
    if (inside) all.push({ key: `folder ${name}`, label: name, folder: true, chats: inside });
  }
  for (const day of byDay(rest, now))
    all.push({ key: `day ${day.label}`, label: day.label, folder: false, chats: day.chats });
  return all;
}

export function folderNames(chats: readonly ChatSummary[]): string[] {
  const names = new Set(chats.flatMap((chat) => (chat.folder === null ? [] : [chat.folder])));
  return [...names].sort((a, b) => a.localeCompare(b));
}
