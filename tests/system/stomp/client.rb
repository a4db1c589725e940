# Sends a, b, c with receipts, d in a transaction, e in one that it aborts; fails b, acknowledges the rest. Prints what came.
require "json"
require "stomp"

port, queue = ARGV
client = Stomp::Connection.new(hosts: [{host: "127.0.0.1", port: port.to_i}], reliable: false,
                               connect_headers: {"accept-version": "1.2", host: "/"})
%w[a b c].each do |body|
  client.publish(queue, body, {persistent: true, receipt: body})
  told = client.receive
  raise told.to_s unless told.command == "RECEIPT" && told.headers["receipt-id"] == body
end
{"d" => :commit, "e" => :abort}.each do |body, ending|
  client.begin(body)
  client.publish(queue, body, {persistent: true, transaction: body})
  client.send(ending, body)
end

client.subscribe(queue, {ack: "client-individual", id: "s"})
came = Array.new(5) do
  message = client.receive
  client.send(message.body == "b" ? :nack : :ack, message.headers["ack"])
  message.body
end
client.disconnect(receipt: "end")
raise "no receipt" unless client.disconnect_receipt.headers["receipt-id"] == "end"
puts came.sort.to_json
