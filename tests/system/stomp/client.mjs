// Sends a, b, c with receipts, d in a transaction, e in one that it aborts; fails b, acknowledges the rest. Prints what came.
import { promisify } from "node:util";
import stompit from "stompit";

const [port, queue] = process.argv.slice(2);
const client = await promisify(stompit.connect)({ host: "127.0.0.1", port: Number(port), connectHeaders: { host: "/" } });
const headers = () => ({ destination: queue, persistent: "true" }); // it adds its own
const receipt = (ask) => new Promise((onReceipt, onError) => ask({ onReceipt, onError }));

for (const body of ["a", "b", "c"]) await receipt((options) => client.sendString(headers(), body, options));
for (const [body, ending] of [["d", "commit"], ["e", "abort"]]) {
  const transaction = client.begin();
  transaction.send(headers()).end(body);
  await receipt((options) => transaction[ending](options));
}

const came = [];
await new Promise((resolve, reject) =>
  client.subscribe({ destination: queue, ack: "client-individual" }, (error, message) => {
    if (error) return reject(error);
    message.readString("utf-8", (error, body) => {
      if (error) return reject(error);
      body === "b" ? client.nack(message) : client.ack(message);
      if (came.push(body) === 5) resolve();
    });
  }),
);
await new Promise((resolve, reject) => client.disconnect((error) => (error ? reject(error) : resolve())));
console.log(JSON.stringify(came.sort()));
