/**
 * A thin client of memoryd over the stubs of {@code io.memoryd.v1}.
 *
 * <p>{@link io.memoryd.client.Memoryd} connects; {@link io.memoryd.client.MemorydClient} has the stubs, ready to be
 * called; {@link io.memoryd.client.MemorydException} tells what a call that failed failed of.
 */
package io.memoryd.client;
