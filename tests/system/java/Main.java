import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.MessageProperties;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** What RabbitMQ's own Java client makes of a broker: Main URL COUNT. Says what it saw as one line of JSON. */
public class Main {
    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setVirtualHost("/");
        factory.setAutomaticRecoveryEnabled(false);
        int count = Integer.parseInt(arguments[1]);
        AtomicInteger clean = new AtomicInteger();
        for (int number = 0; number < count; number++) {
            Connection connection = factory.newConnection();
            connection.addShutdownListener(cause -> {
                if (cause.isInitiatedByApplication()) clean.incrementAndGet();
            });
            connection.createChannel().queueDeclare();
            connection.close();
        }
        StringBuilder order = new StringBuilder();
        for (String way : List.of("nack", "reject", "recover", "transaction", "window")) {
            order.append(String.format("%s\"%s\": \"%s\"", order.isEmpty() ? "" : ", ", way, order(factory, way)));
        }
        System.out.printf(
            "{\"clean\": %d, \"classic\": \"%s\", \"quorum\": \"%s\", \"order\": {%s}, \"prefetch\": {\"each\": %d, \"channel\": %d}}%n",
            clean.get(), headers(factory, "classic"), headers(factory, "quorum"), order, left(factory, false), left(factory, true));
    }

    private static void publish(Channel channel, String queue, String bodies) throws Exception {
        for (String body : bodies.split("")) {
            channel.basicPublish("", queue, MessageProperties.MINIMAL_PERSISTENT_BASIC, body.getBytes(StandardCharsets.UTF_8));
        }
    }

    /** The headers of a message that was sent with none and came back to a queue of this type. */
    private static Map<String, Object> headers(ConnectionFactory factory, String type) throws Exception {
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare("headers-" + type, true, false, false, Map.of("x-queue-type", type));
            publish(channel, "headers-" + type, "A");
            BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
            channel.basicConsume("headers-" + type, false, (tag, delivery) -> deliveries.add(delivery), tag -> { });
            channel.basicNack(deliveries.poll(20, TimeUnit.SECONDS).getEnvelope().getDeliveryTag(), false, true);
            return deliveries.poll(20, TimeUnit.SECONDS).getProperties().getHeaders();
        }
    }

    /** What is left of ten messages when two consumers of a channel have taken what they may. */
    private static long left(ConnectionFactory factory, boolean global) throws Exception {
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            String queue = "prefetch-" + global;
            channel.queueDeclare(queue, true, false, false, Map.of());
            publish(channel, queue, "ABCDEFGHIJ");
            channel.basicQos(2, global);
            for (int number = 0; number < 2; number++) channel.basicConsume(queue, false, (tag, delivery) -> { }, tag -> { });
            for (long before = -1, left; ; before = left) {
                left = channel.messageCount(queue);
                if (left == before) return left;
                Thread.sleep(100);
            }
        }
    }

    /** What comes, with a dash where it is a redelivery, where each delivery is given back, or a window of three at once. */
    private static String order(ConnectionFactory factory, String way) throws Exception {
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            String queue = "order-" + way;
            boolean window = way.equals("window");
            channel.queueDeclare(queue, true, false, false, Map.of());
            publish(channel, queue, "ABCDEFGH");
            if (way.equals("transaction")) channel.txSelect();
            channel.basicQos(window ? 3 : 1);
            BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
            channel.basicConsume(queue, false, (tag, delivery) -> deliveries.add(delivery), tag -> { });
            List<String> seen = new ArrayList<>();
            for (int number = 1; number <= (window ? 6 : 4); number++) {
                Delivery delivery = deliveries.poll(20, TimeUnit.SECONDS);
                if (delivery == null) break;
                seen.add(new String(delivery.getBody(), StandardCharsets.UTF_8) + (delivery.getEnvelope().isRedeliver() ? "'" : ""));
                long tag = delivery.getEnvelope().getDeliveryTag();
                switch (way) {
                    case "reject" -> channel.basicReject(tag, true);
                    case "recover" -> channel.basicRecover(true);
                    case "window" -> { if (number % 3 == 0) channel.basicNack(tag, true, true); }
                    default -> channel.basicNack(tag, false, true);
                }
                if (way.equals("transaction")) channel.txCommit();
            }
            return String.join(" ", seen);
        }
    }
}
