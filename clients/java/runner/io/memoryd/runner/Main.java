package io.memoryd.runner;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Runs the shared tests of all clients with this client; tests/clients/README.md describes the protocol. */
final class Main {
    private Main() {}

    /** Handles requests until the input ends. */
    public static void main(String[] arguments) throws IOException {
        Gson gson = new GsonBuilder().disableHtmlEscaping().create();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (Runner runner = new Runner()) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonObject request = JsonParser.parseString(line).getAsJsonObject();
                JsonObject answer = runner.answer(request);
                answer.add("id", request.get("id"));
                output.print(gson.toJson(answer) + "\n");
                output.flush();
            }
        }
    }
}
