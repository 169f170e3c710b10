// `Service serve` is a server of HTTP on port 80 and of lines on port 81; `Service call` is the
// client of both at `java`.
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.*;

public class Service {
    static void serve() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(80), 0);
        server.createContext("/", exchange -> {
            int length = exchange.getRequestBody().readAllBytes().length;
            byte[] text = (length + " from " + exchange.getRemoteAddress().getAddress().getHostAddress()).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        ServerSocket lines = new ServerSocket(81);
        System.out.println("ready");
        for (;;) {
            Socket one = lines.accept();
            String line = new BufferedReader(new InputStreamReader(one.getInputStream())).readLine();
            one.getOutputStream().write((line + " " + one.getInetAddress().getHostAddress() + "\n").getBytes());
            one.close();
        }
    }

    static void call() throws Exception {
        String own = InetAddress.getLocalHost().getHostAddress();
        HttpClient client = HttpClient.newHttpClient();
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            int length = number * 1000;
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://java/"))
                .POST(HttpRequest.BodyPublishers.ofString("x".repeat(length))).build();
            all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString())
                .thenApply(answer -> answer.body().equals(length + " from " + own)));
        }
        int right = 0;
        for (var one : all) if (one.get()) right++;
        System.out.println(right);
        try (Socket socket = new Socket("java", 81)) {
            socket.getOutputStream().write("line\n".getBytes());
            String line = new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine();
            System.out.println(line.equals("line " + own) + " " + socket.getPort());
        }
        try {
            new Socket("java", 82);
        } catch (ConnectException error) {
            System.out.println("refused");
        }
        try {
            InetAddress.getByName("nobody");
        } catch (UnknownHostException error) {
            System.out.println("unknown");
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("serve")) serve(); else { call(); System.exit(0); }
    }
}
