<?php // Sends a, b, c with receipts, d in a transaction, e in one that it aborts; fails b, acknowledges the rest. Prints what came.
[, $port, $queue] = $argv;

function sure(bool $done): void
{
    if (!$done) {
        throw new Exception("refused");
    }
}

$client = new Stomp("tcp://127.0.0.1:$port", "", "", ["accept-version" => "1.2", "host" => "/"]);
foreach (["a", "b", "c"] as $body) {
    sure($client->send($queue, $body, ["persistent" => "true", "receipt" => $body])); // waits for it
}
foreach (["d" => "commit", "e" => "abort"] as $body => $ending) {
    sure($client->begin($body));
    sure($client->send($queue, $body, ["persistent" => "true", "transaction" => $body]));
    sure($client->$ending($body));
}

sure($client->subscribe($queue, ["ack" => "client-individual", "id" => "s"]));
$came = [];
while (count($came) < 5) {
    $message = $client->readFrame();
    sure($message !== false);
    $message->body === "b" ? $client->nack($message, ["id" => $message->headers["ack"]]) : $client->ack($message, ["id" => $message->headers["ack"]]);
    $came[] = $message->body;
}
sort($came);
unset($client); // says DISCONNECT
echo json_encode($came), "\n";
