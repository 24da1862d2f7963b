/** What the system is asked to tell while nobody looks at the window: that something long has ended. */
import type { Backend } from '../backend/backend';
import type { ChatSummary, Job, Message } from '../api/types';
import { duration } from '../format';
import { strings } from '../strings';

/** An answer that took less is still waited for. */
export const LONG_MS = 20_000;

interface Notice {
  title: string;
  text: string;
}

/** Nothing for one that was short, or that the person has stopped. */
export function ofAnswer(chat: ChatSummary, answer: Message): Notice | null {
  if (answer.status === 'failed') return { title: strings.notices.failed, text: chat.title };
  const { stats } = answer;
  const took = stats ? stats.prefill_ms + stats.decode_ms : 0;
  if (answer.status !== 'done' || took < LONG_MS) return null;
  return { title: strings.notices.answered(duration(took)), text: chat.title };
}

/** Nothing while it goes on, or when the person has ended it. */
export function ofJob(job: Job): Notice | null {
  if (job.state !== 'done' && job.state !== 'failed') return null;
  return { title: job.title, text: strings.models.announce(job, false) };
}

/** The shell looks whether it is wanted, and whether the window is looked at. */
export function tell(backend: Backend, notice: Notice | null): void {
  // What it tells stands in the window as well.
  if (notice) backend.notify?.(notice.title, notice.text).catch(() => undefined);
}
