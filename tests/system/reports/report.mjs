import amqp from "amqplib";

const connection = await amqp.connect(process.argv[2]);
const channel = await connection.createChannel();

// (docs/interoperability.md)

await channel.consume("orders", (message) => {
  try {
    throw new RangeError("no rate for GBP");
  } catch (error) {
    failed(channel, message, error);
  }
});
