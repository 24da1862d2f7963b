import type { Job } from './api/types';

/** Nothing arrives: neither a sign that moves nor a speed or time that once was may look like progress. */
export function stuck(job: Job): boolean {
  return job.state === 'running' && (job.phase?.phase === 'stalled' || job.phase?.phase === 'retrying');
}
