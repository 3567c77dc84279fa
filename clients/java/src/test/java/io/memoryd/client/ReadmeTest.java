package io.memoryd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReadmeTest {
    private static final String IMPORTS =
            """
            import io.grpc.StatusRuntimeException;
            import io.memoryd.client.*;
            import io.memoryd.v1.*;
            import java.nio.file.Path;
            import java.time.Duration;
            """;

    @TempDir
    Path folder;

    @Test
    void whatThePageShowsCompiles() throws IOException {
        List<String> blocks = blocks();
        assertEquals(5, blocks.size());
        StringBuilder methods = new StringBuilder();
        for (String block : blocks) {
            // The first example connects by discovery; the others get the variables that they use.
            String given = block.contains("Memoryd.")
                    ? "String token"
                    : "MemorydClient client, String message, String sessionKey";
            methods.append("void m%d(%s) {%n%s}%n".formatted(methods.length(), given, block));
        }
        compile(IMPORTS + "class Page {\n" + methods + "}\n");
    }

    private static List<String> blocks() throws IOException {
        Matcher matcher = Pattern.compile("```java\n(?:import [^\n]*\n)*(.*?)```", Pattern.DOTALL)
                .matcher(Files.readString(Path.of("README.md")));
        List<String> blocks = new ArrayList<>();
        while (matcher.find()) {
            blocks.add(matcher.group(1));
        }
        return blocks;
    }

    private void compile(String source) {
        JavaFileObject file = new SimpleJavaFileObject(URI.create("string:///Page.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return source;
            }
        };
        StringWriter said = new StringWriter();
        JavaCompiler.CompilationTask task = ToolProvider.getSystemJavaCompiler()
                .getTask(said, null, null, List.of("-d", folder.toString()), null, List.of(file));
        assertTrue(task.call(), said + source);
    }
}
