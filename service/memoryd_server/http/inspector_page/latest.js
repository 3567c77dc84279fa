// @ts-check
/** A runner of calls that shows only the outcome of the last one, so an old response never replaces a new one. */

/**
 * Return a runner: each call aborts the one before it, and only the outcome of the last one is shown.
 * @param {AbortSignal} outer Aborts all calls.
 */
export function latestOnly(outer) {
  let controller = new AbortController();
  return {
    cancel: () => controller.abort(),
    /**
     * @param {(signal: AbortSignal) => Promise<any>} ask
     * @param {(value: any) => void} show
     * @param {(error: unknown) => void} fail
     */
    async run(ask, show, fail) {
      controller.abort();
      controller = new AbortController();
      const signal = AbortSignal.any([controller.signal, outer]);
      const outcome = await ask(signal).then(
        (value) => () => show(value),
        (error) => () => fail(error),
      );
      if (!signal.aborted) outcome();
    },
  };
}
