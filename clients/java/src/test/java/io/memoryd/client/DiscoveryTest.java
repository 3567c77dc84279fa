package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class DiscoveryTest {
    @TempDir
    Path home;

    private final Map<String, String> variables = new HashMap<>();

    @BeforeEach
    void nothingButAHome() {
        variables.put("HOME", home.toString());
    }

    @Test
    void anAddressThatIsGivenComesFirst() {
        variables.put("MEMORYD_ADDRESS", "unix:/run/other.sock");
        assertEquals(
                "unix:/run/m.sock", found("unix:/run/m.sock", null).addresses().toString());
    }

    @Test
    void theVariableComesBeforeTheNote() throws IOException {
        note("\"127.0.0.1:7627\"");
        variables.put("MEMORYD_ADDRESS", "unix:/run/other.sock");
        assertEquals("unix:/run/other.sock", address());
    }

    @Test
    void aNotedSocketCountsOnlyWhereItExists() throws IOException {
        Path socket = Files.createFile(home.resolve("there.sock"));
        note("\"unix:/nowhere.sock\", \"unix:" + socket + "\", \"127.0.0.1:7627\"");
        assertEquals("unix:" + socket, address());
        Files.delete(socket);
        assertEquals("127.0.0.1:7627", address());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"", "{", "[]", "7", "{\"addresses\": 7}", "{\"addresses\": [null]}", "{\"addresses\": [{}]}"})
    void aNoteThatMakesNoSenseIsPassedOver(String note) throws IOException {
        write(".openclaw/memoryd.endpoint.json", note);
        assertEquals("unix:" + home.resolve(".openclaw/run/memoryd.sock"), address());
    }

    @Test
    void theRuntimeDirectoryHasTheUsualSocket() {
        variables.put("XDG_RUNTIME_DIR", "/run/user/1");
        assertEquals("unix:/run/user/1/memoryd/memoryd.sock", address());
    }

    @ParameterizedTest
    @CsvSource({
        "/a, /b, true, true, /a",
        ", /b, true, true, /b",
        "' ', /b, false, true, /b",
        "~/c, , true, false, ~/c",
        ", , true, true, ~/.openclaw",
        ", , false, true, ~/.moltbot",
        ", , false, false, ~/.openclaw",
    })
    void theStateDirectoryIsTheFirstOf(String own, String other, boolean usual, boolean old, String expected)
            throws IOException {
        Optional.ofNullable(own).ifPresent(value -> variables.put("MEMORYD_STATE_DIR", value));
        Optional.ofNullable(other).ifPresent(value -> variables.put("OPENCLAW_STATE_DIR", value));
        if (usual) {
            Files.createDirectory(home.resolve(".openclaw"));
        }
        if (old) {
            Files.createDirectory(home.resolve(".moltbot"));
        }
        assertEquals("unix:" + expected.replace("~", home.toString()) + "/run/memoryd.sock", address());
    }

    @ParameterizedTest
    @CsvSource({
        "~/h, , ~/h/.openclaw",
        "null, , ~/.clawdbot",
        "~/h, ~/s, ~/h/s",
        "~/h, undefined, ~/h/.openclaw",
        ", , ~/.clawdbot",
    })
    void theStateDirectoryIsInTheHomeOfOpenClaw(String openclaw, String named, String expected) throws IOException {
        Optional.ofNullable(openclaw).ifPresent(value -> variables.put("OPENCLAW_HOME", value));
        Optional.ofNullable(named).ifPresent(value -> variables.put("OPENCLAW_STATE_DIR", value));
        Files.createDirectory(home.resolve(".clawdbot"));
        assertEquals("unix:" + expected.replace("~", home.toString()) + "/run/memoryd.sock", address());
    }

    @Test
    void aTokenFileIsReadPastBlankLinesAndComments() throws IOException {
        variables.put("MEMORYD_TOKEN_FILE", "~/token");
        write("token", "\n  # a comment\n\n  secret  \nanother\n");
        assertEquals(Optional.of("secret"), token("127.0.0.1:7627"));
        assertEquals("given", found("127.0.0.1:7627", "given").token().get());
    }

    @Test
    void theOwnersTokenIsForLoopbackAlone() throws IOException {
        write(".openclaw/memoryd.token", "secret\n");
        assertEquals(Optional.of("secret"), token("[::1]:7627"));
        assertEquals(Optional.of("secret"), token("localhost:7627"));
        assertEquals(Optional.empty(), token("memory.example:7627"));
    }

    @Test
    void aSocketGetsNeitherTokenNorTls() {
        variables.put("MEMORYD_TOKEN_FILE", "/nowhere/token");
        variables.put("MEMORYD_TLS_CA", "/nowhere/ca.pem");
        Endpoint endpoint = found("unix:/run/m.sock", "given");
        assertEquals(Optional.empty(), endpoint.token());
        assertEquals(Optional.empty(), endpoint.tls());
    }

    @Test
    void aNamedTokenFileThatCannotBeReadIsNamed() throws IOException {
        variables.put("MEMORYD_TOKEN_FILE", "~/token");
        assertRefused("127.0.0.1:7627", null, home + "/token: there is no such file");
        write("token", "# nothing\n");
        assertRefused("127.0.0.1:7627", null, "the token file " + home + "/token contains no token");
    }

    @Test
    void aTokenThatIsNoneIsNotShown() {
        String message = assertThrows(SettingsException.class, () -> found("127.0.0.1:7627", "pass word"))
                .getMessage();
        assertTrue(message.contains("token"), message);
        assertFalse(message.contains("pass word"), message);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"192.0.2.1:7627", "memory.example:7627", "[2001:db8::1]:7627", "0.0.0.0:7627", "128.0.0.1:7627"})
    void aTokenIsNotSentInTheClearBeyondThisMachine(String address) {
        String message = assertThrows(SettingsException.class, () -> found(address, "secret"))
                .getMessage();
        assertTrue(message.contains(address) && !message.contains("secret"), message);
        Endpoint secured = new Discovery(Environment.of(variables))
                .endpoint(Optional.of(address), Optional.of("secret"), Optional.of(Tls.standard()));
        assertEquals(Optional.of("secret"), secured.token());
    }

    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1:7627", "127.255.0.1:1", "localhost:7627", "[::1]:7627", ":7627"})
    void onThisMachineATokenMayBeSentInTheClear(String address) {
        assertEquals(Optional.of("secret"), found(address, "secret").token());
    }

    @Test
    void tlsIsWhatTheVariablesName() {
        variables.put("MEMORYD_TLS_SERVER_NAME", "memory.example");
        assertEquals(Optional.empty(), found("127.0.0.1:7627", null).tls());
        variables.put("MEMORYD_TLS_CA", "~/ca.pem");
        Tls tls = found("127.0.0.1:7627", null).tls().get();
        assertEquals(Tls.trusting(home.resolve("ca.pem")).withServerName("memory.example"), tls);
        variables.put("MEMORYD_TLS_CERT", "/c.pem");
        assertRefused("127.0.0.1:7627", null, "only the certificate /c.pem is set");
        variables.put("MEMORYD_TLS_KEY", "/k.pem");
        assertEquals(
                Optional.of(Path.of("/k.pem")),
                found("127.0.0.1:7627", null).tls().get().keyFile());
    }

    @Test
    void oneVariableSaysWhetherTlsIsSpokenWhateverElseIsNamed() {
        for (String yes : List.of("1", " Yes ", "TRUE", "on")) {
            variables.put("MEMORYD_TLS", yes);
            assertEquals(
                    Optional.of(Tls.standard()), found("127.0.0.1:7627", null).tls());
        }
        variables.put("MEMORYD_TLS_CA", "~/ca.pem");
        assertEquals(
                Optional.of(Tls.trusting(home.resolve("ca.pem"))),
                found("127.0.0.1:7627", null).tls());
        for (String no : List.of("0", "No", "false", "OFF")) {
            variables.put("MEMORYD_TLS", no);
            assertEquals(Optional.empty(), found("127.0.0.1:7627", null).tls());
        }
        variables.put("MEMORYD_TLS", "maybe");
        assertRefused("127.0.0.1:7627", null, "MEMORYD_TLS is \"maybe\"; write 1 for yes or 0 for no");
        assertEquals(Optional.empty(), found("unix:/m.sock", null).tls());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "memory.example",
                "memory.example:",
                "127.0.0.1:65536",
                "::1:7627",
                "unix:",
                "http://h:1",
                "a b:1"
            })
    void whatIsNoAddressIsRefusedWithAnExample(String text) {
        assertRefused(text, null, "write unix:PATH");
    }

    @Test
    void aSocketPathThatIsTooLongIsRefused() {
        assertRefused("unix:/" + "ö".repeat(54), null, "109 bytes long");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "127.0.0.1:1,127.0.0.1:2 | 127.0.0.1:1, 127.0.0.1:2",
                "[::1]:1 ,  [::1]:2 | [::1]:1, [::1]:2",
                "a.example:1,b.example:1,a.example:2,:7 | a.example:1, b.example:1, a.example:2, 127.0.0.1:7",
                "unix:/run/a,b.sock | unix:/run/a,b.sock",
            })
    void aListOfAddressesIsParsed(String text, String addresses) {
        assertEquals(addresses, found(text, null).addresses().toString());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "a:1, | missing",
                ",a:1 | missing",
                "a:1, ,b:1 | missing",
                "a:1,b | \"b\"",
                "a:1,unix:/m.sock | only HOST:PORT addresses, not unix:/m.sock",
                "a:1,b:1,A:1 | A:1 twice",
                ":1,127.0.0.1:1 | 127.0.0.1:1 twice",
            })
    void aListThatCannotBeUsedIsRefused(String text, String part) {
        assertRefused(text, null, part);
    }

    @Test
    void aListHasAtMost64Addresses() {
        String most = IntStream.rangeClosed(1, 64).mapToObj(port -> "h:" + port).collect(Collectors.joining(","));
        assertEquals(64, found(most, null).addresses().list().size());
        assertRefused(most + ",h:65", null, "65 addresses; the maximum is 64");
    }

    @Test
    void aTokenIsSentInTheClearOnlyIfAllAddressesAreOnLoopback() throws IOException {
        write(".openclaw/memoryd.token", "own\n");
        assertEquals(Optional.of("own"), token("127.0.0.1:1,localhost:1,[::1]:1"));
        assertEquals(Optional.empty(), token("127.0.0.1:1,memory.example:7627"));
        assertRefused("127.0.0.1:1,memory.example:7627", "secret", "memory.example:7627 in the clear");
    }

    private Endpoint found(String address, String token) {
        return new Discovery(Environment.of(variables))
                .endpoint(Optional.ofNullable(address), Optional.ofNullable(token), Optional.empty());
    }

    private String address() {
        return found(null, null).addresses().toString();
    }

    private Optional<String> token(String address) {
        return found(address, null).token();
    }

    private void assertRefused(String address, String token, String part) {
        String message = assertThrows(SettingsException.class, () -> found(address, token))
                .getMessage();
        assertTrue(message.contains(part), message);
    }

    private void note(String addresses) throws IOException {
        write(".openclaw/memoryd.endpoint.json", "{\"addresses\": [" + addresses + "], \"pid\": 1}");
    }

    private void write(String path, String text) throws IOException {
        Path file = home.resolve(path);
        Files.createDirectories(file.getParent());
        Files.writeString(file, text);
    }
}
