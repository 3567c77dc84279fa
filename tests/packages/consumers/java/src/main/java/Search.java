import io.memoryd.client.Memoryd;
import io.memoryd.v1.MemorySearchRequest;

/** Prints the path and the first line of each result of a search. */
final class Search {
    private Search() {}

    public static void main(String[] arguments) {
        var request = MemorySearchRequest.newBuilder().setQuery(arguments[0]).build();
        try (var client = Memoryd.connect()) {
            for (var result : client.memory().memorySearch(request).getResultsList()) {
                var line = result.getSnippet().lines().findFirst().orElse("");
                System.out.println(result.getPath() + ": " + line);
            }
        }
    }
}
