/** Sorts chats into the headings of the list: by the person's own calendar days, newest first. */
import type { ChatSummary } from './api/types';
import { strings } from './strings';
import { locale } from './strings/language.svelte';

export interface Day {
  label: string;
  chats: ChatSummary[];
}

function startOfDay(time: number): Date {
  const date = new Date(time);
  date.setHours(0, 0, 0, 0);
  return date;
}

/** Whole calendar days between two moments; a day of 23 or 25 hours counts as one. */
function daysBetween(earlier: number, later: number): number {
  return Math.round((startOfDay(later).getTime() - startOfDay(earlier).getTime()) / 86_400_000);
}

export function byDay(chats: readonly ChatSummary[], now: number): Day[] {
  const months = new Intl.DateTimeFormat(locale(), { month: 'long', year: 'numeric' });
  const labelOf = (time: number): string => {
    const days = daysBetween(time, now);
    // A clock that was set back must not hide a chat: what lies ahead counts as today.
    if (days <= 0) return strings.sidebar.today;
    if (days === 1) return strings.sidebar.yesterday;
    if (days <= 7) return strings.sidebar.week;
    if (days <= 30) return strings.sidebar.month;
    return months.format(time);
  };
  const sorted = [...chats].sort((a, b) => b.updated_at - a.updated_at);
  const days: Day[] = [];
  for (const chat of sorted) {
    const label = labelOf(chat.updated_at);
    const last = days.at(-1);
    if (last && last.label === label) last.chats.push(chat);
    else days.push({ label, chats: [chat] });
  }
  return days;
}
