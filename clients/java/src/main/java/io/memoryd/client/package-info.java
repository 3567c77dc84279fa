/**
 * A thin client of memoryd on top of the stubs of {@code io.memoryd.v1}.
 *
 * <p>{@link io.memoryd.client.Memoryd} connects to a daemon, {@link io.memoryd.client.MemorydClient} contains the
 * stubs, and {@link io.memoryd.client.MemorydException} contains the details of a failed call.
 */
package io.memoryd.client;
