package io.memoryd.runner;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.MessageOrBuilder;
import com.google.protobuf.util.JsonFormat;
import io.memoryd.client.EventStream;
import io.memoryd.client.Memoryd;
import io.memoryd.client.MemorydClient;
import io.memoryd.client.MemorydException;
import io.memoryd.client.SettingsException;
import io.memoryd.client.Tls;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** Holds the current client and its open streams. */
final class Runner implements AutoCloseable {
    private final Map<String, EventStream<? extends MessageOrBuilder>> streams = new HashMap<>();
    private MemorydClient client;

    /** Handles a request. */
    JsonObject answer(JsonObject request) {
        try {
            return switch (request.get("op").getAsString()) {
                case "connect" -> connect(request);
                case "call" -> ok(Methods.call(client, text(request, "method").get(), json(request), timeout(request)));
                case "open" -> open(request);
                case "next" -> next(stream(request));
                case "cancel" -> cancel(stream(request));
                case "close" -> {
                    close();
                    yield answer("ok", new JsonObject());
                }
                default -> throw new IllegalArgumentException("no such op");
            };
        } catch (MemorydException error) {
            return answer("error", details(error));
        } catch (InvalidProtocolBufferException | RuntimeException unknown) {
            return answer("bad", unknown.toString());
        }
    }

    private JsonObject connect(JsonObject request) {
        close();
        try {
            Memoryd.Builder builder = Memoryd.builder();
            text(request, "address").ifPresent(builder::address);
            text(request, "token").ifPresent(builder::token);
            Optional.ofNullable(request.getAsJsonObject("tls"))
                    .ifPresent(tls -> builder.tls(new Tls(
                            text(tls, "ca_file").map(Path::of),
                            text(tls, "cert_file").map(Path::of),
                            text(tls, "key_file").map(Path::of),
                            text(tls, "server_name"))));
            Optional.ofNullable(request.get("keepalive_ms"))
                    .ifPresent(ms -> builder.keepAlive(Duration.ofMillis(ms.getAsLong())));
            client = builder.connect();
        } catch (SettingsException refused) {
            return answer("refused", refused.getMessage());
        }
        return answer("ok", new JsonObject());
    }

    private JsonObject open(JsonObject request) throws InvalidProtocolBufferException {
        String method = text(request, "method").get();
        streams.put(text(request, "stream").get(), Methods.open(client, method, json(request), timeout(request)));
        return answer("ok", new JsonObject());
    }

    private EventStream<? extends MessageOrBuilder> stream(JsonObject request) {
        return streams.get(text(request, "stream").get());
    }

    private static JsonObject next(EventStream<? extends MessageOrBuilder> stream)
            throws InvalidProtocolBufferException {
        if (stream.hasNext()) {
            return ok(stream.next());
        }
        JsonObject end = new JsonObject();
        end.addProperty("end", true);
        return end;
    }

    private static JsonObject cancel(EventStream<?> stream) {
        stream.close();
        return answer("ok", new JsonObject());
    }

    @Override
    public void close() {
        streams.clear();
        if (client != null) {
            client.close();
        }
        client = null;
    }

    private static JsonObject details(MemorydException error) {
        JsonObject details = new JsonObject();
        details.addProperty("code", error.code().name());
        details.addProperty("reason", error.reason());
        details.addProperty("message", error.getMessage());
        JsonObject metadata = new JsonObject();
        error.metadata().forEach(metadata::addProperty);
        details.add("metadata", metadata);
        JsonArray violations = new JsonArray();
        error.violations().forEach(each -> {
            JsonObject violation = new JsonObject();
            violation.addProperty("field", each.field());
            violation.addProperty("description", each.description());
            violations.add(violation);
        });
        details.add("violations", violations);
        error.retryAfter().ifPresent(wait -> details.addProperty("retry_after_ms", wait.toMillis()));
        return details;
    }

    private static JsonObject ok(MessageOrBuilder message) throws InvalidProtocolBufferException {
        return answer("ok", JsonParser.parseString(JsonFormat.printer().print(message)));
    }

    private static JsonObject answer(String name, String text) {
        JsonObject answer = new JsonObject();
        answer.addProperty(name, text);
        return answer;
    }

    private static JsonObject answer(String name, JsonElement value) {
        JsonObject answer = new JsonObject();
        answer.add(name, value);
        return answer;
    }

    private static Optional<String> text(JsonObject object, String name) {
        return Optional.ofNullable(object.get(name))
                .filter(each -> !each.isJsonNull())
                .map(JsonElement::getAsString);
    }

    private static String json(JsonObject request) {
        return Optional.ofNullable(request.get("request"))
                .map(JsonElement::toString)
                .orElse("{}");
    }

    private static Optional<Long> timeout(JsonObject request) {
        return Optional.ofNullable(request.get("timeout_ms")).map(JsonElement::getAsLong);
    }
}
