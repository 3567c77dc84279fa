package io.memoryd.client;

import io.grpc.Attributes;
import io.grpc.EquivalentAddressGroup;
import io.grpc.ManagedChannel;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.StatusOr;
import io.grpc.SynchronizationContext.ScheduledHandle;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Resolves the addresses of a client. gRPC distributes the calls over the groups that it returns: one for each address,
 * but for a host name one for each of its IP addresses. Because gRPC requests a resolution after each connection that
 * failed, it also makes the channel reconnect soon.
 */
final class AddressResolver extends NameResolver {
    /** The client that a channel belongs to, as an argument of its builder. */
    static final Args.Key<Client> CLIENT = Args.Key.create("io.memoryd.client");

    /**
     * A new replica behind a host name does not make a connection fail, so names are also resolved at this interval.
     */
    private static final long INTERVAL_MS = 30_000;
    /** Minimum time between two resolutions, because each failed attempt to connect requests one. */
    private static final long PAUSE_MS = 1_000;
    /** Time until the next resolution if none of the addresses is known. */
    private static final long RETRY_MS = 250;

    private final Client client;
    private final Args args;
    private final Redial redial;
    /** The IP addresses of the last successful resolution of each host. Used by one resolution at a time. */
    private final Map<String, List<InetAddress>> known = new HashMap<>();

    // The following are used only in the synchronization context of the channel.
    private List<EquivalentAddressGroup> reported = List.of();
    private Listener2 listener;
    private ScheduledHandle next;
    private boolean resolving;
    private long resolved;
    private boolean failed;
    private boolean closed;

    private AddressResolver(Client client, Args args) {
        this.client = client;
        this.args = args;
        this.redial =
                new Redial(args.getSynchronizationContext(), args.getScheduledExecutorService(), () -> client.channel);
    }

    /** The addresses of a client, how its host names are resolved, and its channel. */
    static final class Client {
        private final Addresses addresses;
        private final Lookup lookup;
        private volatile ManagedChannel channel;

        Client(Addresses addresses, Lookup lookup) {
            this.addresses = addresses;
            this.lookup = lookup;
        }

        void use(ManagedChannel built) {
            channel = built;
        }
    }

    /** Returns the IP addresses of a host. */
    @FunctionalInterface
    interface Lookup {
        InetAddress[] find(String host) throws UnknownHostException;
    }

    /** Returns the gRPC target of a client, whose resolver is this one. */
    static String target(Addresses addresses) {
        return (addresses.socket().isPresent() ? Registered.UNIX : Registered.TCP).getScheme() + ":///memoryd";
    }

    @Override
    public String getServiceAuthority() {
        return client.addresses.list().get(0).authority();
    }

    @Override
    public void start(Listener2 receiver) {
        listener = receiver;
        resolve();
    }

    @Override
    public void refresh() {
        if (closed || redial.resetting()) {
            return;
        }
        redial.failed();
        if (client.addresses.named() && !resolving) {
            resolveAfter(PAUSE_MS - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - resolved));
        }
    }

    @Override
    public void shutdown() {
        closed = true;
        redial.stop();
        if (next != null) {
            next.cancel();
        }
    }

    private void resolveAfter(long milliseconds) {
        if (next != null) {
            next.cancel();
        }
        next = args.getSynchronizationContext()
                .schedule(
                        this::resolve,
                        Math.max(0, milliseconds),
                        TimeUnit.MILLISECONDS,
                        args.getScheduledExecutorService());
    }

    private void resolve() {
        resolving = true;
        args.getOffloadExecutor().execute(() -> {
            Optional<UnknownHostException> unknown = lookUp();
            List<EquivalentAddressGroup> groups = groups();
            args.getSynchronizationContext().execute(() -> report(groups, unknown));
        });
    }

    private void report(List<EquivalentAddressGroup> groups, Optional<UnknownHostException> unknown) {
        resolving = false;
        resolved = System.nanoTime();
        if (closed) {
            return;
        }
        if (groups.isEmpty()) {
            String host = unknown.map(Throwable::getMessage).orElse("the host");
            listener.onError(
                    Status.UNAVAILABLE.withDescription("cannot resolve " + host).withCause(unknown.orElse(null)));
            resolveAfter(RETRY_MS);
            return;
        }
        if (!groups.equals(reported)) {
            reported = groups;
            listener.onResult2(ResolutionResult.newBuilder()
                    .setAddressesOrError(StatusOr.fromValue(groups))
                    .build());
        }
        if (client.addresses.named()) {
            resolveAfter(INTERVAL_MS);
        }
    }

    /** Reports that no address is known, once, because gRPC logs a warning for each report. */
    private void reportOnce(Optional<UnknownHostException> unknown) {
        if (!failed) {
            failed = true;
            String host = unknown.map(Throwable::getMessage).orElse("the host");
            listener.onError(
                    Status.UNAVAILABLE.withDescription("cannot resolve " + host).withCause(unknown.orElse(null)));
        }
    }

    /** Resolves all hosts, and returns the last error. A host that cannot be resolved keeps its IP addresses. */
    private Optional<UnknownHostException> lookUp() {
        Optional<UnknownHostException> last = Optional.empty();
        for (Address address : client.addresses.list()) {
            if (address.socket().isEmpty()) {
                try {
                    InetAddress[] found = client.lookup.find(address.host());
                    Arrays.sort(found, Comparator.comparing(InetAddress::getHostAddress));
                    known.put(address.host(), List.of(found));
                } catch (UnknownHostException unknown) {
                    last = Optional.of(unknown);
                }
            }
        }
        return last;
    }

    /** Returns one group for each different place to connect to, in the order of the addresses. */
    private List<EquivalentAddressGroup> groups() {
        List<EquivalentAddressGroup> groups = new ArrayList<>();
        Set<SocketAddress> seen = new HashSet<>();
        for (Address address : client.addresses.list()) {
            List<SocketAddress> places = places(address);
            // The IP addresses of a host name are several machines, but those of localhost are one.
            List<List<SocketAddress>> machines =
                    address.named() ? places.stream().map(List::of).toList() : List.of(places);
            for (List<SocketAddress> machine : machines) {
                if (!machine.isEmpty() && seen.addAll(machine)) {
                    groups.add(new EquivalentAddressGroup(machine, authority(address)));
                }
            }
        }
        return groups;
    }

    private List<SocketAddress> places(Address address) {
        if (address.socket().isPresent()) {
            return List.of(new DomainSocketAddress(address.socket().get().toFile()));
        }
        return known.getOrDefault(address.host(), List.of()).stream()
                .<SocketAddress>map(ip -> new InetSocketAddress(ip, address.port()))
                .toList();
    }

    /** The name that the certificate at an address must be for, unless the builder of the channel sets another one. */
    private static Attributes authority(Address address) {
        return Attributes.newBuilder()
                .set(EquivalentAddressGroup.ATTR_AUTHORITY_OVERRIDE, address.authority())
                .build();
    }

    /** The schemes of this resolver, registered with gRPC. It chooses the transport by the type of the addresses. */
    private static final class Registered {
        static final Provider TCP = register(new Provider("memoryd", InetSocketAddress.class));
        static final Provider UNIX = register(new Provider("memoryd-unix", DomainSocketAddress.class));

        private static Provider register(Provider provider) {
            NameResolverRegistry.getDefaultRegistry().register(provider);
            return provider;
        }
    }

    private static final class Provider extends NameResolverProvider {
        private static final int USUAL_PRIORITY = 5;

        private final String scheme;
        private final Class<? extends SocketAddress> type;

        Provider(String scheme, Class<? extends SocketAddress> type) {
            this.scheme = scheme;
            this.type = type;
        }

        @Override
        protected boolean isAvailable() {
            return true;
        }

        @Override
        protected int priority() {
            return USUAL_PRIORITY;
        }

        @Override
        public String getScheme() {
            return scheme;
        }

        @Override
        public String getDefaultScheme() {
            return scheme;
        }

        @Override
        public Collection<Class<? extends SocketAddress>> getProducedSocketAddressTypes() {
            return List.of(type);
        }

        @Override
        public NameResolver newNameResolver(URI target, Args args) {
            Client client = args.getArg(CLIENT);
            return scheme.equals(target.getScheme()) && client != null ? new AddressResolver(client, args) : null;
        }
    }
}
