// @ts-check
/** Calls of which only the last one counts, so that an older answer never replaces a newer one. */

/**
 * Return a runner: each call aborts the one before it, and only the outcome of the last one is shown.
 * @param {AbortSignal} outer Aborts all calls.
 */
export function latestOnly(outer) {
  let controller = new AbortController();
  return {
    cancel: () => controller.abort(),
    /**
     * @template T
     * @param {(signal: AbortSignal) => Promise<T>} ask
     * @param {(value: T) => void} show
     * @param {(error: unknown) => void} fail
     */
    async run(ask, show, fail) {
      controller.abort();
      controller = new AbortController();
      const signal = AbortSignal.any([controller.signal, outer]);
      let outcome;
      try {
        const value = await ask(signal);
        outcome = () => show(value);
      } catch (error) {
        outcome = () => fail(error);
      }
      if (!signal.aborted) outcome();
    },
  };
}
