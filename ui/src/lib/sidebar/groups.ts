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
  const all: Group[] = [];
  const pinned = chats.filter((chat) => chat.pinned);
  if (pinned.length > 0)
    all.push({ key: 'pinned', label: strings.folders.pinned, folder: false, chats: pinned });
  for (const name of folderNames(chats)) {
    const inside = chats.filter((chat) => !chat.pinned && chat.folder === name);
    if (inside.length > 0) all.push({ key: `folder ${name}`, label: name, folder: true, chats: inside });
  }
  const rest = chats.filter((chat) => !chat.pinned && chat.folder === null);
  for (const day of byDay(rest, now))
    all.push({ key: `day ${day.label}`, label: day.label, folder: false, chats: day.chats });
  return all;
}

export function folderNames(chats: readonly ChatSummary[]): string[] {
  const names = new Set(chats.flatMap((chat) => (chat.folder === null ? [] : [chat.folder])));
  return [...names].sort((a, b) => a.localeCompare(b));
}
