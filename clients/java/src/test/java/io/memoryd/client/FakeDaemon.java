package io.memoryd.client;

import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerCredentials;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.ServerChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import io.memoryd.v1.EntryServiceGrpc;
import io.memoryd.v1.FlushDecisionRequest;
import io.memoryd.v1.FlushDecisionResponse;
import io.memoryd.v1.MemoryAppendRequest;
import io.memoryd.v1.MemoryAppendResponse;
import io.memoryd.v1.MemoryMoveRequest;
import io.memoryd.v1.MemoryMoveResponse;
import io.memoryd.v1.MemoryRecallRequest;
import io.memoryd.v1.MemoryRecallResponse;
import io.memoryd.v1.MemoryRestoreRequest;
import io.memoryd.v1.MemoryRestoreResponse;
import io.memoryd.v1.MemorySearchRequest;
import io.memoryd.v1.MemorySearchResponse;
import io.memoryd.v1.MemoryServiceGrpc;
import io.memoryd.v1.MemoryWriteRequest;
import io.memoryd.v1.MemoryWriteResponse;
import io.memoryd.v1.RememberRequest;
import io.memoryd.v1.RememberResponse;
import io.memoryd.v1.StatusRequest;
import io.memoryd.v1.StatusResponse;
import io.memoryd.v1.SyncRequest;
import io.memoryd.v1.SyncResponse;
import io.memoryd.v1.WatchIndexRequest;
import io.memoryd.v1.WatchIndexResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** A server that records its requests and fails a configured number of calls. */
final class FakeDaemon {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    final List<String> keys = new CopyOnWriteArrayList<>();
    final List<Optional<String>> tokens = new CopyOnWriteArrayList<>();
    final AtomicInteger failures = new AtomicInteger();
    final CountDownLatch left = new CountDownLatch(1);
    volatile Optional<Double> remaining = Optional.empty();
    private final EventLoopGroup loops = new EpollEventLoopGroup(1);
    private final Server server;

    FakeDaemon(Path socket) throws IOException {
        this(new DomainSocketAddress(socket.toFile()), EpollServerDomainSocketChannel.class, Optional.empty());
    }

    /** A port of 0 means a free one. */
    FakeDaemon(String host, int port, Optional<ServerCredentials> credentials) throws IOException {
        this(new InetSocketAddress(host, port), EpollServerSocketChannel.class, credentials);
    }

    private FakeDaemon(
            SocketAddress address, Class<? extends ServerChannel> type, Optional<ServerCredentials> credentials)
            throws IOException {
        server = NettyServerBuilder.forAddress(address, credentials.orElseGet(InsecureServerCredentials::create))
                .channelType(type)
                .withChildOption(ChannelOption.SO_KEEPALIVE, null)
                .bossEventLoopGroup(loops)
                .workerEventLoopGroup(loops)
                .addService(ServerInterceptors.intercept(new Memory(), new Notes()))
                .addService(ServerInterceptors.intercept(new Entries(), new Notes()))
                .build()
                .start();
    }

    int port() {
        return server.getPort();
    }

    /** The number of calls so far. */
    int calls() {
        return tokens.size();
    }

    void stop() throws InterruptedException {
        server.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
        loops.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }

    private <T> void answer(StreamObserver<T> observer, T answer) {
        if (failures.getAndDecrement() > 0) {
            observer.onError(Status.UNAVAILABLE.withDescription("busy").asRuntimeException());
            return;
        }
        observer.onNext(answer);
        observer.onCompleted();
    }

    private final class Notes implements ServerInterceptor {
        @Override
        public <Q, R> ServerCall.Listener<Q> interceptCall(
                ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
            tokens.add(Optional.ofNullable(headers.get(AUTHORIZATION)));
            Deadline deadline = Context.current().getDeadline();
            remaining = Optional.ofNullable(deadline).map(each -> each.timeRemaining(TimeUnit.MILLISECONDS) / 1000.0);
            return next.startCall(call, headers);
        }
    }

    private final class Memory extends MemoryServiceGrpc.MemoryServiceImplBase {
        @Override
        public void memorySearch(MemorySearchRequest request, StreamObserver<MemorySearchResponse> observer) {
            answer(observer, MemorySearchResponse.getDefaultInstance());
        }

        @Override
        public void memoryRecall(MemoryRecallRequest request, StreamObserver<MemoryRecallResponse> observer) {
            answer(observer, MemoryRecallResponse.getDefaultInstance());
        }

        @Override
        public void status(StatusRequest request, StreamObserver<StatusResponse> observer) {
            answer(
                    observer,
                    StatusResponse.newBuilder().setAgentId(request.getAgentId()).build());
        }

        @Override
        public void flushDecision(FlushDecisionRequest request, StreamObserver<FlushDecisionResponse> observer) {
            answer(observer, FlushDecisionResponse.getDefaultInstance());
        }

        @Override
        public void memoryAppend(MemoryAppendRequest request, StreamObserver<MemoryAppendResponse> observer) {
            keys.add(request.getIdempotencyKey());
            answer(observer, MemoryAppendResponse.getDefaultInstance());
        }

        @Override
        public void memoryWrite(MemoryWriteRequest request, StreamObserver<MemoryWriteResponse> observer) {
            keys.add(request.getIdempotencyKey());
            answer(observer, MemoryWriteResponse.getDefaultInstance());
        }

        @Override
        public void memoryMove(MemoryMoveRequest request, StreamObserver<MemoryMoveResponse> observer) {
            keys.add(request.getIdempotencyKey());
            answer(observer, MemoryMoveResponse.getDefaultInstance());
        }

        @Override
        public void memoryRestore(MemoryRestoreRequest request, StreamObserver<MemoryRestoreResponse> observer) {
            keys.add(request.getIdempotencyKey());
            answer(observer, MemoryRestoreResponse.getDefaultInstance());
        }

        @Override
        public void sync(SyncRequest request, StreamObserver<SyncResponse> observer) {
            for (int sequence = 1; sequence <= 3; sequence++) {
                observer.onNext(SyncResponse.newBuilder().setSequence(sequence).build());
            }
            if (request.getReason().isEmpty()) {
                observer.onCompleted();
            } else {
                observer.onError(
                        Status.ABORTED.withDescription(request.getReason()).asRuntimeException());
            }
        }

        @Override
        public void watchIndex(WatchIndexRequest request, StreamObserver<WatchIndexResponse> observer) {
            ((ServerCallStreamObserver<WatchIndexResponse>) observer).setOnCancelHandler(left::countDown);
            observer.onNext(WatchIndexResponse.newBuilder().setAgentId("first").build());
            observer.onNext(WatchIndexResponse.newBuilder().setAgentId("second").build());
        }
    }

    private final class Entries extends EntryServiceGrpc.EntryServiceImplBase {
        @Override
        public void remember(RememberRequest request, StreamObserver<RememberResponse> observer) {
            keys.add(request.getIdempotencyKey());
            answer(observer, RememberResponse.getDefaultInstance());
        }
    }
}
