import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Map;

class Report {
    // (docs/interoperability.md)

    public static void main(String[] arguments) throws Exception {
        var factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setVirtualHost("/");
        var channel = factory.newConnection().createChannel();
        channel.basicConsume(
                "orders",
                false,
                (tag, delivery) -> failed(channel, delivery.getEnvelope(), new IllegalStateException("no rate for GBP")),
                tag -> {});
        Thread.currentThread().join();
    }
}
