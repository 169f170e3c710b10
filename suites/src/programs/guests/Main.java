// Threads, compiled code, files, a server and its clients, other programs: the system interfaces
// that Java's virtual machine uses.
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;

class Main {
    static void many(String what, int count, Callable<String> each) throws Exception {
        var all = Executors.newFixedThreadPool(20);
        var ends = new java.util.TreeMap<String, Integer>();
        var futures = all.invokeAll(java.util.Collections.nCopies(count, each));
        for (var future : futures) ends.merge(future.get(), 1, Integer::sum);
        all.shutdown();
        System.out.println(what + " " + ends);
    }

    static long sum(int[] numbers) {
        long sum = 0;
        for (int number : numbers) sum += number;
        return sum;
    }

    public static void main(String[] words) throws Exception {
        System.out.println(System.getProperty("user.name") + " " + System.getProperty("user.dir"));
        var directory = Files.createDirectory(Path.of("/srv/java"));
        many("files", 400, () -> {
            var file = Files.createTempFile(directory, "x", ".txt");
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-x---"));
            Files.setAttribute(file, "unix:uid", 5);
            var uid = Files.getAttribute(file, "unix:uid");
            Files.delete(file);
            return uid.toString();
        });
        many("programs", 20, () -> {
            var process = new ProcessBuilder("/bin/sh", "-c", "id -u; pwd").directory(directory.toFile()).start();
            return new String(process.getInputStream().readAllBytes()).replace('\n', ' ') + process.waitFor();
        });
        try {
            new ProcessBuilder("/nowhere").start();
        } catch (IOException error) {
            System.out.println(error.getMessage().contains("No such file"));
        }
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            var bytes = Files.readAllBytes(Path.of("/etc/debian_version"));
            exchange.sendResponseHeaders(200, bytes.length);
            exchange.getResponseBody().write(bytes);
            exchange.close();
        });
        server.start();
        var client = HttpClient.newHttpClient();
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/")).build();
        var right = Files.readString(Path.of("/etc/debian_version"));
        many("http", 50, () -> {
            var answer = client.send(request, BodyHandlers.ofString());
            return answer.statusCode() + " " + answer.body().equals(right);
        });
        server.stop(0);
        var numbers = new int[1000];
        java.util.Arrays.setAll(numbers, index -> index);
        long sum = 0;
        for (int round = 0; round < 100000; round++) sum += sum(numbers);
        System.out.println(sum);
        // The virtual machine finds both by a signal.
        try {
            Object nothing = numbers.length > 1 ? null : "";
            nothing.hashCode();
        } catch (NullPointerException error) {
            System.out.println("nothing");
        }
        try {
            deep(0);
        } catch (StackOverflowError error) {
            System.out.println("deep");
        }
        System.exit(Files.list(Path.of("/srv/java")).count() == 0 ? 3 : 4);
    }

    static int deep(int level) {
        return deep(level + 1) + 1;
    }
}
