/** Anything thrown in place of an answer, as an error that can be shown. */
import type { ApiError } from '../api/types';
import { toBackendError, Unreachable } from '../backend';
import { strings } from '../strings';

export function failure(error: unknown): ApiError {
  if (error instanceof Unreachable) {
    return {
      code: 'internal',
      message: strings.errors.disconnectedTitle,
      hint: strings.errors.disconnected,
      details: null,
    };
  }
  return toBackendError(error, strings.errors.unexpected).api;
}

/** What the app would refuse as well, found before it was asked. */
export function refusal(message: string): ApiError {
  return { code: 'bad_request', message, hint: null, details: null };
}
