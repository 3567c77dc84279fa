package io.memoryd.client;

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;

/** Connections over Unix sockets, for which gRPC for Java needs Linux's epoll. */
final class UnixSockets {
    private UnixSockets() {}

    static ManagedChannelBuilder<?> builder(Addresses addresses) {
        if (!Epoll.isAvailable()) {
            throw new SettingsException(
                    "cannot connect to " + addresses
                            + ": the Java client supports Unix sockets only on Linux on x86-64"
                            + " and aarch64; make the daemon also listen on 127.0.0.1:7627 and use that address",
                    Epoll.unavailabilityCause());
        }
        ManagedChannelBuilder<?> builder =
                Grpc.newChannelBuilder(AddressResolver.target(addresses), InsecureChannelCredentials.create());
        if (builder instanceof NettyChannelBuilder netty) {
            // An option for TCP, which Unix sockets do not support; gRPC would log a warning for every connection.
            netty.withOption(ChannelOption.SO_KEEPALIVE, null);
        }
        return builder;
    }
}
