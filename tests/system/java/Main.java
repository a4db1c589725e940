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
        System.out.printf(
            "{\"clean\": %d, \"nack\": \"%s\", \"transaction\": \"%s\"}%n", clean.get(), order(factory, false), order(factory, true));
    }

    /** Three messages, prefetch 1, each refused four times as it comes; with a dash where it is a redelivery, and a star with headers. */
    private static String order(ConnectionFactory factory, boolean transacted) throws Exception {
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            String queue = "order-" + transacted;
            channel.queueDeclare(queue, true, false, false, Map.of());
            for (String body : new String[] {"A", "B", "C"}) {
                AMQP.BasicProperties durable = MessageProperties.MINIMAL_PERSISTENT_BASIC;
                channel.basicPublish("", queue, durable, body.getBytes(StandardCharsets.UTF_8));
            }
            if (transacted) channel.txSelect();
            channel.basicQos(1);
            BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
            channel.basicConsume(queue, false, (tag, delivery) -> deliveries.add(delivery), tag -> { });
            List<String> seen = new ArrayList<>();
            for (int number = 0; number < 4; number++) {
                Delivery delivery = deliveries.poll(20, TimeUnit.SECONDS);
                if (delivery == null) break;
                String body = new String(delivery.getBody(), StandardCharsets.UTF_8);
                String again = delivery.getEnvelope().isRedeliver() ? "'" : "";
                seen.add(body + again + (delivery.getProperties().getHeaders() == null ? "" : "*"));
                channel.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
                if (transacted) channel.txCommit();
            }
            return String.join(" ", seen);
        }
    }
}
